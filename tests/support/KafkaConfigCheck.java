import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import kafka.server.KafkaConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Answers for each map of settings on standard input (a JSON list) with null, or why Apache Kafka refuses them. */
public class KafkaConfigCheck {
    @SuppressWarnings("unchecked")
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        List<Map<String, String>> cases = mapper.readValue(System.in, List.class);
        List<String> answers = new ArrayList<>();
        for (Map<String, String> settings : cases) {
            answers.add(refusal(settings));
        }
        mapper.writeValue(System.out, answers);
    }

    private static String refusal(Map<String, String> settings) {
        try {
            KafkaConfig config = new KafkaConfig(settings, false);
            // What LogManager looks at besides, when the broker starts.
            LogConfig.validateBrokerLogConfigValues(
                config.extractLogConfigMap(), config.remoteLogManagerConfig().isRemoteStorageSystemEnabled());
            return null;
        } catch (Exception problem) {
            return problem.getClass().getSimpleName() + ": " + problem.getMessage();
        }
    }
}
