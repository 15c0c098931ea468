"""Topic settings of the log store, with Kafka's names and defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pykbroker.named_tuple import NamedTuple

_INT64_MAX = (1 << 63) - 1


class LogConfig(NamedTuple):
    """Settings of one log. Sizes in bytes, times in ms; -1 means unlimited where it does in Kafka."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = _INT64_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    file_delete_delay_ms: int = 60_000
    flush_messages: int = _INT64_MAX
    flush_ms: int = _INT64_MAX
    min_insync_replicas: int = 1
    producer_id_expiration_ms: int = 86_400_000
    # False by default, because a log without a broker has no transaction coordinator to ask.
    transaction_partition_verification_enable: bool = False

    @property
    def is_compacted(self) -> bool:
        """True if the log keeps the last record per key."""
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """Age at which a segment is rolled; compacted logs roll in time for `max.compaction.lag.ms` (P-165)."""
        if "compact" in self.cleanup_policy and self.max_compaction_lag_ms > 0:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @property
    def is_deleted(self) -> bool:
        """True if old segments are deleted by time and size."""
        return "delete" in self.cleanup_policy

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> LogConfig:
        """Settings from topic properties such as `segment.bytes`; unknown names are ignored, values must be valid."""
        values: dict[str, object] = {}
        for name, key, parse in _SETTINGS:
            text = properties.get(key)
            if text is not None:
                values[name] = parse(text.strip())
        return cls(**values)  # type: ignore[arg-type]


def _policy(text: str) -> frozenset[str]:
    return frozenset(item.strip() for item in text.split(",") if item.strip())


def _double(text: str) -> float:
    """A number as Java writes it, which may end with the letter of its type."""
    return float(text.rstrip("dDfF"))


_PARSERS: dict[type, Callable[[str], object]] = {
    int: int,
    float: _double,
    str: str,
    bool: lambda text: text.lower() == "true",
    frozenset: _policy,
}

_SETTINGS = tuple(
    (name, name.replace("_", "."), _PARSERS[type(default)]) for name, default in LogConfig._field_defaults.items()
)
"""Field, topic property and parser of each setting."""
