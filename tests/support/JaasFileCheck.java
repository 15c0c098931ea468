import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.URIParameter;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;

/** JAAS files as Java reads them: name and options of the modules of the entries A and B, or "refused". */
public class JaasFileCheck {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        mapper.configure(JsonGenerator.Feature.ESCAPE_NON_ASCII, true);
        Path file = Files.createTempFile("jaas", ".conf");
        List<Object> answers = new ArrayList<>();
        for (JsonNode text : mapper.readTree(System.in)) {
            Files.writeString(file, text.asText());
            answers.add(verdict(file));
        }
        Files.delete(file);
        System.out.println(mapper.writeValueAsString(answers));
    }

    private static Object verdict(Path file) {
        Configuration configuration;
        try {
            configuration = Configuration.getInstance("JavaLoginConfig", new URIParameter(file.toUri()));
        } catch (Exception refused) {
            return "refused";
        }
        Map<String, Object> found = new TreeMap<>();
        for (String name : List.of("A", "B")) {
            AppConfigurationEntry[] entries = configuration.getAppConfigurationEntry(name);
            List<Object> modules = new ArrayList<>();
            for (AppConfigurationEntry entry : entries == null ? new AppConfigurationEntry[0] : entries) {
                modules.add(List.of(entry.getLoginModuleName(), new TreeMap<>(entry.getOptions())));
            }
            found.put(name, modules);
        }
        return found;
    }
}
