import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A job of Flink in a process of its own: it counts the values of a topic and sends "value count" for each, exactly once.
 *
 * Flink BOOTSTRAP INPUT OUTPUT NAME key=value...     settings of Flink; NAME is the group and begins transactional ids
 */
public class Flink {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String name = arguments[3];
        Configuration config = new Configuration();
        for (int i = 4; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            config.setString(pair[0], pair[1]);
        }
        StreamExecutionEnvironment job = StreamExecutionEnvironment.createLocalEnvironment(2, config);
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(bootstrap)
            .setTopics(arguments[1])
            .setGroupId(name)
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        Properties producer = new Properties();
        producer.setProperty("transaction.timeout.ms", "60000");
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(bootstrap)
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(name)
            .setKafkaProducerConfig(producer)
            .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                .setTopic(arguments[2])
                .setValueSerializationSchema(new SimpleStringSchema())
                .build())
            .build();
        job.fromSource(source, WatermarkStrategy.noWatermarks(), "input").uid("input")
            .keyBy(value -> value)
            .map(new Count()).uid("count")
            .sinkTo(sink).uid("output");
        job.execute(name);
    }

    /** How often the key has come. */
    private static class Count extends RichMapFunction<String, String> {
        private static final long serialVersionUID = 1;
        private transient ValueState<Long> count;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public String map(String value) throws Exception {
            long now = (count.value() == null ? 0 : count.value()) + 1;
            count.update(now);
            return value + " " + now;
        }
    }
}
