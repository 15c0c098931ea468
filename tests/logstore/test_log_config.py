"""Topic settings as the log store takes them."""

from __future__ import annotations

from pykbroker.logstore.log_config import LogConfig


def test_defaults_are_kafkas() -> None:
    """Kafka's names and defaults."""
    config = LogConfig.from_properties({})
    assert config == LogConfig()
    assert (config.segment_bytes, config.segment_index_bytes, config.index_interval_bytes) == (1 << 30, 10485760, 4096)
    assert (config.retention_ms, config.retention_bytes, config.max_message_bytes) == (604800000, -1, 1048588)
    assert config.cleanup_policy == {"delete"}
    assert config.file_delete_delay_ms == 60000


def test_properties_are_read_by_their_kafka_names() -> None:
    config = LogConfig.from_properties(
        {
            "segment.bytes": " 1048576 ",
            "cleanup.policy": "compact, delete",
            "min.cleanable.dirty.ratio": "0.1",
            "message.timestamp.type": "LogAppendTime",
            "transaction.partition.verification.enable": "true",
            "max.message.bytes": "5",
            "unknown.key": "x",
        }
    )
    assert config == LogConfig(
        segment_bytes=1 << 20,
        cleanup_policy=frozenset({"compact", "delete"}),
        min_cleanable_dirty_ratio=0.1,
        message_timestamp_type="LogAppendTime",
        max_message_bytes=5,
        transaction_partition_verification_enable=True,
    )
    assert config.is_compacted
    assert config.is_deleted
    # Java's doubles may end with the letter of their type.
    assert LogConfig.from_properties({"min.cleanable.dirty.ratio": "0.5d"}).min_cleanable_dirty_ratio == 0.5
    empty = LogConfig.from_properties({"cleanup.policy": ""})
    assert not empty.is_compacted
    assert not empty.is_deleted


def test_age_of_a_segment_at_its_roll() -> None:
    """P-165."""
    assert LogConfig(segment_ms=10, max_compaction_lag_ms=5).roll_ms == 10
    compacted = LogConfig(segment_ms=10, max_compaction_lag_ms=5, cleanup_policy=frozenset({"compact"}))
    assert compacted.roll_ms == 5
