import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;

/** Names of Kerberos principals by Apache Kafka's own rules: a list for each case, null for rules that it refuses. */
public class KerberosNamesCheck {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        List<List<String>> answers = new ArrayList<>();
        for (JsonNode question : mapper.readTree(System.in)) {
            answers.add(names(question));
        }
        System.out.println(mapper.writeValueAsString(answers));
    }

    private static List<String> names(JsonNode question) {
        List<String> rules = new ArrayList<>();
        question.get("rules").forEach(rule -> rules.add(rule.asText()));
        KerberosShortNamer namer;
        try {
            namer = KerberosShortNamer.fromUnparsedRules(question.get("realm").asText(), rules);
        } catch (IllegalArgumentException refused) {
            return null;
        }
        List<String> found = new ArrayList<>();
        for (JsonNode principal : question.get("principals")) {
            try {
                found.add(namer.shortName(KerberosName.parse(principal.asText())));
            } catch (Exception none) {
                found.add(null);
            }
        }
        return found;
    }
}
