"""Keys of whole batches: batches that take several calls, compressed ones, and unreadable ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pykbroker.protocol.records.batch import RecordBatch, build_batch
from pykbroker.protocol.records.errors import InvalidRecord
from pykbroker.protocol.records.key_filter import RECORDS_PER_CALL, add_latest_offsets, records_to_keep
from pykbroker.protocol.records.record import Record, encode_record
from tests.protocol.records.samples import TIME, with_payload

COUNT = 2 * RECORDS_PER_CALL + 5
RECORDS = [Record(0, TIME + (index * 7) % 50, b"%d" % (index % 300), b"v") for index in range(COUNT)]


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_of_several_calls(codec: int) -> None:
    batch = RecordBatch(build_batch(RECORDS, base_offset=500, codec=codec))
    latest: dict[bytes, int] = {}
    assert add_latest_offsets(batch, 0, latest) == sum(len(b"%d" % key) for key in range(300))
    assert latest == {b"%d" % (index % 300): 500 + index for index in range(COUNT)}
    kept = records_to_keep(batch, 500 + COUNT, True, latest)
    last = list(batch.records())[-300:]
    assert kept.record_count == 300
    assert list(batch.records_in(kept.data, 300)) == last
    assert kept.first_delta == last[0].timestamp - TIME
    assert kept.largest_delta == max(record.timestamp for record in last) - TIME
    assert (kept.tombstones, kept.are_plain) == (0, True)


def test_only_records_from_the_first_offset_on_are_noted() -> None:
    batch = RecordBatch(build_batch(RECORDS, base_offset=500))
    latest: dict[bytes, int] = {}
    add_latest_offsets(batch, 500 + COUNT - 2, latest)
    assert sorted(latest.values()) == [500 + COUNT - 2, 500 + COUNT - 1]


def test_kept_records_of_several_calls_are_counted_together() -> None:
    records = [Record(0, TIME, b"k%d" % index, None) for index in range(COUNT)]
    records[3] = records[3]._replace(headers=(("h", b"1"),))
    batch = RecordBatch(build_batch(records))
    kept = records_to_keep(batch, 0, False, {})
    assert (kept.record_count, kept.tombstones, kept.are_plain) == (COUNT, COUNT, False)
    assert kept.data == batch.payload()
    assert records_to_keep(batch, COUNT, False, {}).record_count == 0


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (encode_record(0, 0, b"k", b"v"), "ends early"),
        (encode_record(0, 0, b"k", b"v") * 2 + b"\x00", "1 bytes follow the last record"),
    ],
)
def test_unreadable_records(payload: bytes, says: str) -> None:
    batch = RecordBatch(with_payload(build_batch(RECORDS[:2]), payload, 2))
    with pytest.raises(InvalidRecord, match=says):
        add_latest_offsets(batch, 0, {})
    with pytest.raises(InvalidRecord, match=says):
        records_to_keep(batch, 10, True, {})


def test_records_that_only_the_passes_over_keys_cannot_read() -> None:
    """There are none as far as we know. A compaction must stop even so, and not drop them."""
    batch: Any = SimpleNamespace(
        record_bytes=lambda: b"\x80", record_count=1, base_offset=500, records=lambda: iter(RECORDS[:1])
    )
    with pytest.raises(InvalidRecord, match="the batch at offset 500 cannot be read"):
        add_latest_offsets(batch, 0, {})
    with pytest.raises(InvalidRecord, match="the batch at offset 500 cannot be read"):
        records_to_keep(batch, 10, True, {})
