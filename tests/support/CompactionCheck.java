import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** Cleans logs by Apache Kafka's own cleaner, each once; prints the bytes that could be cleaned in each. */
public class CompactionCheck {
    /** A clock that stands. */
    record StandingTime(long nowMs) implements Time {
        public long milliseconds() {
            return nowMs;
        }

        public long nanoseconds() {
            return nowMs * 1_000_000;
        }

        public void sleep(long ms) {
        }

        public void waitObject(Object obj, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }

    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        List<List<Long>> answers = new ArrayList<>();
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        for (JsonNode question : mapper.readTree(System.in)) {
            answers.add(clean(question, scheduler));
        }
        System.out.println(mapper.writeValueAsString(answers));
        System.exit(0);
    }

    private static List<Long> clean(JsonNode question, KafkaScheduler scheduler) throws Exception {
        Time time = new StandingTime(question.get("now_ms").asLong());
        LogConfig config = new LogConfig(Map.of(
            "cleanup.policy", "compact",
            "delete.retention.ms", question.get("delete_retention_ms").asText(),
            "file.delete.delay.ms", "60000"));
        UnifiedLog log = UnifiedLog.create(
            new File(question.get("directory").asText()), config, 0, 0, scheduler, new BrokerTopicStats(), time, 900_000,
            new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600_000, new LogDirFailureChannel(1), false,
            Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        long dirty = question.get("first_dirty").asLong();
        long uncleanable = Math.max(dirty, Math.min(log.lastStableOffset(), log.activeSegment().baseOffset()));
        LogToClean work = new LogToClean(log, dirty, uncleanable, false);
        Cleaner cleaner = new Cleaner(
            0, new SkimpyOffsetMap(1 << 20), 1 << 16, 1 << 20, 0.9,
            new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "throttler", "entries", time), time, partition -> { });
        List<Long> bytes = List.of(work.cleanBytes(), work.cleanableBytes());
        cleaner.doClean(work, time.milliseconds());
        log.close();
        return bytes;
    }
}
