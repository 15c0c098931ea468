"""Records that a broker has appended to its internal topics, in the plain form that two brokers have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pykbroker.coordination.partitioning import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from pykbroker.groups.offset_log import decode_record as decode_group_record
from pykbroker.protocol.records.batch import RecordBatch, iter_batches
from pykbroker.share_state.records import decode_record as decode_share_state
from pykbroker.transactions.state_log import decode_record as decode_transaction
from tests.differential.plain import Names

TIMES = ("timestamp", "timestamp_ms", "start_ms", "last_update_ms")
"""Ends of the names of fields with times of day."""

DECODERS: Mapping[str, Any] = {
    OFFSETS_TOPIC: decode_group_record,
    TRANSACTION_TOPIC: decode_transaction,
    SHARE_STATE_TOPIC: decode_share_state,
}
PlainRecords = dict[str, Counter[str]]
"""Records as text with their numbers, by the name of the topic partition."""


class InternalTopics:
    """The internal topics in one data directory; the broker must not remove segments."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def appended(self, names: Names) -> PlainRecords:
        """Records that are new since the last call."""
        found: PlainRecords = {}
        for topic, decode in DECODERS.items():
            for path in sorted(self._folder.glob(f"{topic}-*/*.log")):
                data = path.read_bytes()
                start = self._read.get(path, 0)
                records = found.setdefault(path.parent.name, Counter())
                for batch in iter_batches(data[start:]):
                    records.update(_texts(batch, decode, names))
                    start += batch.size_bytes
                self._read[path] = start
        return found


def differences_of_records(kafka: PlainRecords, ours: PlainRecords) -> list[str]:
    """Records that only one broker has, each as a line; their order is not compared."""
    return [
        f"{partition}, only {broker} ({count}): {text}"
        for partition in sorted(kafka.keys() | ours.keys())
        for broker, mine, other in (("Kafka", kafka, ours), ("ours", ours, kafka))
        for text, count in (mine.get(partition, Counter()) - other.get(partition, Counter())).items()
    ]


def _texts(batch: RecordBatch, decode: Any, names: Names) -> list[str]:
    producer = ""
    if batch.producer_id >= 0:
        producer = f"{names.producers.get(batch.producer_id, 'a producer')} epoch {batch.producer_epoch}: "
    if batch.is_control:
        # The value has the coordinator's epoch, which Kafka raises at each start.
        return [f"{producer}marker {(record.key or b'').hex()}" for record in batch.records()]
    return [f"{producer}{_plain(decode(record.key or b'', record.value), names)}" for record in batch.records()]


def _plain(value: Any, names: Names, field: str = "") -> Any:
    """A decoded record as dicts, lists and scalars."""
    if field.endswith(TIMES):
        return "a time" if isinstance(value, int) and value > 0 else value
    if field == "metadata_hash":
        return "a hash of ids that the broker has drawn" if value else value
    if isinstance(value, list | frozenset):
        items = [_plain(item, names, field) for item in value]
        # Topics, members and names come in the order of hash tables; so do the partitions of a transaction.
        return items if all(isinstance(item, int) for item in items) else sorted(items, key=repr)
    fields = _fields_of(value)
    if fields:
        return {name: _plain(getattr(value, name), names, name) for name in fields if name != "encoded"}
    if isinstance(value, tuple):
        return [_plain(item, names, field) for item in value]
    if field.endswith("producer_id"):
        return names.producers.get(value, "a producer" if value >= 0 else value)
    if isinstance(value, bytes) and field.endswith("topic_id"):
        return names.topic_ids.get(value, "an unknown topic" if any(value) else "")
    return names.plain_text(value, field) if isinstance(value, str) else value


def _fields_of(value: Any) -> tuple[str, ...]:
    """Names of the fields of a message, a dataclass or a named tuple; empty for anything else."""
    if hasattr(value, "FIELDS"):
        return tuple(field.name for field in value.FIELDS)
    return tuple(getattr(value, "__dataclass_fields__", ()) or getattr(value, "_fields", ()))
