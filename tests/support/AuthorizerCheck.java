import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/** Decisions of Apache Kafka's own StandardAuthorizer: a list for each world of entries, null where it fails. */
public class AuthorizerCheck {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        List<List<Boolean>> answers = new ArrayList<>();
        for (JsonNode world : mapper.readTree(System.in)) {
            answers.add(decisions(world));
        }
        System.out.println(mapper.writeValueAsString(answers));
    }

    private static List<Boolean> decisions(JsonNode world) throws Exception {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        authorizer.configure(Map.of("allow.everyone.if.no.acl.found", world.get("default").asText()));
        for (JsonNode acl : world.get("acls")) {
            authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(
                ResourceType.GROUP,
                acl.get("name").asText(),
                PatternType.fromCode((byte) acl.get("pattern").asInt()),
                acl.get("principal").asText(),
                acl.get("host").asText(),
                AclOperation.fromCode((byte) acl.get("operation").asInt()),
                AclPermissionType.fromCode((byte) acl.get("permission").asInt())));
        }
        authorizer.completeInitialLoad();
        List<Boolean> found = new ArrayList<>();
        for (JsonNode question : world.get("questions")) {
            Client client = new Client(question.get("user").asText(), question.get("host").asText());
            AclOperation operation = AclOperation.fromCode((byte) question.get("operation").asInt());
            try {
                AuthorizationResult result;
                if (question.get("name").isNull()) {
                    result = authorizer.authorizeByResourceType(client, operation, ResourceType.GROUP);
                } else {
                    ResourcePattern group =
                        new ResourcePattern(ResourceType.GROUP, question.get("name").asText(), PatternType.LITERAL);
                    result = authorizer.authorize(client, List.of(new Action(operation, group, 1, true, true))).get(0);
                }
                found.add(result == AuthorizationResult.ALLOWED);
            } catch (RuntimeException failure) {
                found.add(null);
            }
        }
        return found;
    }

    private record Client(String user, String host) implements AuthorizableRequestContext {
        public String listenerName() {
            return "PLAINTEXT";
        }

        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        public KafkaPrincipal principal() {
            return new KafkaPrincipal(KafkaPrincipal.USER_TYPE, user);
        }

        public InetAddress clientAddress() {
            try {
                return InetAddress.getByName(host);
            } catch (java.net.UnknownHostException impossible) {
                throw new IllegalStateException(impossible);
            }
        }

        public int requestType() {
            return 1;
        }

        public int requestVersion() {
            return 1;
        }

        public String clientId() {
            return "test";
        }

        public int correlationId() {
            return 1;
        }
    }
}
