import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyQueryMetadata;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.TaskMetadata;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/**
 * Applications of Kafka Streams. Each prints its events as lines of JSON and answers questions on its standard input;
 * when that is closed it leaves its group and ends.
 *
 * words INPUT OUTPUT key=value...        counts words; their store is "counts"
 * join LEFT RIGHT OUTPUT key=value...    joins records of one key that are five seconds apart at most, and counts
 *                                        those of LEFT in windows of ten seconds; their store is "windows"
 */
public class Streams {
    private static final Serde<String> TEXT = Serdes.String();
    private static final Duration GRACE = Duration.ofHours(12);
    private static final ObjectMapper JSON = new ObjectMapper();
    // Loggers write to System.out.
    private static final PrintStream OUT =
        new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err);
        boolean joins = arguments[0].equals("join");
        int topics = joins ? 3 : 2;
        Properties config = new Properties();
        config.put("default.key.serde", Serdes.StringSerde.class);
        config.put("default.value.serde", Serdes.StringSerde.class);
        for (String setting : Arrays.asList(arguments).subList(1 + topics, arguments.length)) {
            String[] pair = setting.split("=", 2);
            config.put(pair[0], pair[1]);
        }
        Topology topology = joins
            ? join(arguments[1], arguments[2], arguments[3])
            : words(arguments[1], arguments[2]);
        KafkaStreams streams = new KafkaStreams(topology, config);
        streams.setStateListener((now, before) -> print(Map.of("state", now.name())));
        streams.setUncaughtExceptionHandler(error -> {
            print(Map.of("failed", String.valueOf(error)));
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setGlobalStateRestoreListener(new Restoring());
        streams.start();
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine())
            answer(streams, line.split(" "));
        boolean closed = streams.close(CloseOptions.timeout(Duration.ofSeconds(30))
            .withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
        System.exit(closed ? 0 : 1);
    }

    private static Topology words(String input, String output) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(input, Consumed.with(TEXT, TEXT))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("words", TEXT, TEXT))
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts")
                .withKeySerde(TEXT).withValueSerde(Serdes.Long()))
            .toStream().mapValues(String::valueOf).to(output, Produced.with(TEXT, TEXT));
        return builder.build();
    }

    private static Topology join(String left, String right, String output) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lefts = builder.stream(left, Consumed.with(TEXT, TEXT));
        JoinWindows near = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(5), GRACE);
        lefts.join(builder.stream(right, Consumed.with(TEXT, TEXT)), (one, other) -> one + "+" + other, near,
                StreamJoined.with(TEXT, TEXT, TEXT).withStoreName("join"))
            .to(output, Produced.with(TEXT, TEXT));
        lefts.groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), GRACE))
            .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("windows")
                .withKeySerde(TEXT).withValueSerde(Serdes.Long()));
        return builder.build();
    }

    private static void answer(KafkaStreams streams, String[] question) {
        try {
            print(Map.of("answer", switch (question[0]) {
                case "all" -> all(streams, question[1]);
                case "windows" -> windows(streams, question[1], question[2]);
                case "where" -> where(streams, question[1], question[2]);
                case "tasks" -> tasks(streams);
                default -> throw new IllegalArgumentException(question[0]);
            }));
        } catch (RuntimeException error) {
            print(Map.of("refused", String.valueOf(error)));
        }
    }

    /** Everything that this instance has of a store as the active one. */
    private static Map<String, Long> all(KafkaStreams streams, String name) {
        Map<String, Long> found = new TreeMap<>();
        var store = streams.store(
            StoreQueryParameters.fromNameAndType(name, QueryableStoreTypes.<String, Long>keyValueStore()));
        try (KeyValueIterator<String, Long> entries = store.all()) {
            entries.forEachRemaining(entry -> found.put(entry.key, entry.value));
        }
        return found;
    }

    /** Counts of a key by the beginnings of windows, in milliseconds. */
    private static Map<Long, Long> windows(KafkaStreams streams, String name, String key) {
        Map<Long, Long> found = new TreeMap<>();
        var store = streams.store(
            StoreQueryParameters.fromNameAndType(name, QueryableStoreTypes.<String, Long>windowStore()));
        try (WindowStoreIterator<Long> entries = store.fetch(key, Instant.EPOCH, Instant.now().plusSeconds(3600))) {
            entries.forEachRemaining(entry -> found.put(entry.key, entry.value));
        }
        return found;
    }

    /** The instances that have a key, by the metadata of the group. */
    private static Map<String, Object> where(KafkaStreams streams, String name, String key) {
        KeyQueryMetadata found = streams.queryMetadataForKey(name, key, TEXT.serializer());
        return Map.of(
            "active", found.activeHost().port(),
            "standby", found.standbyHosts().stream().map(host -> host.port()).sorted().toList());
    }

    private static Map<String, List<String>> tasks(KafkaStreams streams) {
        TreeSet<String> active = new TreeSet<>();
        TreeSet<String> standby = new TreeSet<>();
        for (ThreadMetadata thread : streams.metadataForLocalThreads()) {
            for (TaskMetadata task : thread.activeTasks()) active.add(task.taskId().toString());
            for (TaskMetadata task : thread.standbyTasks()) standby.add(task.taskId().toString());
        }
        return Map.of("active", new ArrayList<>(active), "standby", new ArrayList<>(standby));
    }

    private static synchronized void print(Object event) {
        try {
            OUT.println(JSON.writeValueAsString(event));
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    /** Tells how many records of a changelog were read before an active task went on. */
    private static class Restoring implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long start, long end) {
        }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long count) {
        }

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long total) {
            print(Map.of("restored", total, "store", store, "partition", partition.partition()));
        }
    }
}
