import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.function.Supplier;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Sanitizer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaEntity.ConfigEntity;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ControllerMutationQuota;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;
import org.apache.kafka.server.quota.QuotaType;

/** Plays histories of quotas (a JSON list) with Apache Kafka's own quota managers; prints the throttle times. */
public class QuotaCheck {
    /** A clock that stands until it is moved. */
    static class ManualTime implements Time {
        long nowMs;

        public long milliseconds() {
            return nowMs;
        }

        public long nanoseconds() {
            return nowMs * 1_000_000;
        }

        public void sleep(long ms) {
            nowMs += ms;
        }

        public void waitObject(Object obj, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }

    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        List<List<Integer>> answers = new ArrayList<>();
        for (JsonNode history : mapper.readTree(System.in)) {
            answers.add(play(history));
        }
        System.out.println(mapper.writeValueAsString(answers));
        System.exit(0);
    }

    private static List<Integer> play(JsonNode history) throws Exception {
        ManualTime time = new ManualTime();
        ClientQuotaManagerConfig config =
            new ClientQuotaManagerConfig(history.get("windows").asInt(), history.get("seconds").asInt());
        Metrics metrics = new Metrics(time);
        ClientQuotaManager rates = new ClientQuotaManager(config, metrics, QuotaType.PRODUCE, time, "rates");
        ControllerMutationQuotaManager mutations =
            new ControllerMutationQuotaManager(config, metrics, time, "mutations", Optional.empty());
        List<Integer> throttles = new ArrayList<>();
        for (JsonNode step : history.get("steps")) {
            time.nowMs = step.get("at_ms").asLong();
            String kind = step.get("do").asText();
            double value = step.get("value").asDouble();
            if (kind.equals("set")) {
                Optional<Quota> quota = value > 0 ? Optional.of(Quota.upperBound(value)) : Optional.empty();
                rates.updateQuota(user(step.get("user")), clientId(step.get("client")), quota);
                mutations.updateQuota(user(step.get("user")), clientId(step.get("client")), quota);
                continue;
            }
            String user = step.get("user").asText();
            Session session =
                new Session(new KafkaPrincipal("User", user), InetAddress.getByName("127.0.0.1"));
            throttles.add(throttle(kind, session, step.get("client").asText(), value, time, rates, mutations));
        }
        rates.shutdown();
        mutations.shutdown();
        return throttles;
    }

    private static int throttle(String kind, Session session, String client, double value, Time time,
                                ClientQuotaManager rates, ControllerMutationQuotaManager mutations) {
        if (kind.equals("record")) {
            int throttle = rates.maybeRecordAndGetThrottleTimeMs(session, client, value, time.milliseconds());
            return throttle;
        }
        if (kind.equals("fetch")) {
            int throttle = rates.maybeRecordAndGetThrottleTimeMs(session, client, value, time.milliseconds());
            if (throttle > 0) {
                rates.unrecordQuotaSensor(session, client, value, time.milliseconds());
            }
            return throttle;
        }
        if (kind.equals("most")) {
            return (int) rates.maxValueInQuotaWindow(session, client);
        }
        ControllerMutationQuota quota = kind.equals("strict")
            ? mutations.newStrictQuotaFor(session, client) : mutations.newPermissiveQuotaFor(session, client);
        try {
            quota.record(value);
        } catch (ThrottlingQuotaExceededException refused) {
            return refused.throttleTimeMs();
        }
        return quota.throttleTime();
    }

    /** An entity's name, null for the default one; missing if the quota does not depend on it. */
    private static Optional<ConfigEntity> user(JsonNode name) {
        if (name == null) {
            return Optional.empty();
        }
        return Optional.of(name.isNull() ? ClientQuotaManager.DEFAULT_USER_ENTITY
            : new ClientQuotaManager.UserEntity(Sanitizer.sanitize(name.asText())));
    }

    private static Optional<ConfigEntity> clientId(JsonNode name) {
        if (name == null) {
            return Optional.empty();
        }
        return Optional.of(name.isNull()
            ? ClientQuotaManager.DEFAULT_USER_CLIENT_ID : new ClientQuotaManager.ClientIdEntity(name.asText()));
    }
}
