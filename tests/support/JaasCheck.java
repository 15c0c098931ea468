import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;

/** Texts of `sasl.jaas.config` by Apache Kafka's own parser: name and options of the module, or the text of the error. */
public class JaasCheck {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        mapper.configure(JsonGenerator.Feature.ESCAPE_NON_ASCII, true);
        List<List<Object>> answers = new ArrayList<>();
        for (JsonNode text : mapper.readTree(System.in)) {
            answers.add(verdict(text.asText()));
        }
        System.out.println(mapper.writeValueAsString(answers));
    }

    private static List<Object> verdict(String text) {
        try {
            JaasContext context = JaasContext.loadClientContext(Map.of("sasl.jaas.config", new Password(text)));
            AppConfigurationEntry entry = context.configurationEntries().get(0);
            Map<String, Object> options = new TreeMap<>();
            entry.getOptions().forEach((name, value) -> {
                if (name != null) {
                    options.put(name, value);
                }
            });
            return List.of(entry.getLoginModuleName(), options);
        } catch (IllegalArgumentException refused) {
            String words = refused.getMessage() == null ? "" : refused.getMessage();
            return List.of(words.startsWith("Value not specified") ? "Value not specified" : words);
        }
    }
}
