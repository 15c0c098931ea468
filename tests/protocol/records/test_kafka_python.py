"""Our batches in kafka-python's reader, and those of its builder in ours."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder

from pykbroker.protocol.records.batch import RecordBatch, build_batch, iter_batches
from pykbroker.protocol.records.record import Record
from pykbroker.protocol.records.validation import AppendPolicy, validate_client_batches
from tests.protocol.records.samples import LARGE, SMALL, TIME


def read_by_kafka_python(data: bytes) -> list[Record]:
    found: list[Record] = []
    batches: Any = MemoryRecords(data)
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        found += [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    return found


def built_by_kafka_python(records: list[Record], codec: int) -> bytes:
    builder: Any = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=5,
        producer_epoch=1,
        base_sequence=10,
        batch_size=1 << 20,
    )
    for index, record in enumerate(records):
        builder.append(index, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("records", [SMALL, LARGE], ids=["small", "large"])
def test_kafka_python_reads_ours(codec: int, records: list[Record]) -> None:
    data = build_batch(records, base_offset=1000, leader_epoch=3, codec=codec)
    expected = [record._replace(offset=1000 + index) for index, record in enumerate(records)]
    assert read_by_kafka_python(data) == expected
    assert read_by_kafka_python(data * 2) == expected * 2


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("records", [SMALL, LARGE], ids=["small", "large"])
def test_we_read_and_take_kafka_pythons(codec: int, records: list[Record]) -> None:
    data = built_by_kafka_python(records, codec)
    (batch,) = iter_batches(data)
    assert list(batch.records()) == records
    taken = validate_client_batches(data, AppendPolicy(), TIME, "t-0")
    assert (taken.producer_id, taken.producer_epoch, taken.base_sequence) == (5, 1, 10)
    assert taken.data == data


@given(
    st.lists(
        st.builds(
            Record,
            st.just(0),
            st.integers(0, 2**45),
            st.none() | st.binary(max_size=40),
            st.none() | st.binary(max_size=40),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=4).map(tuple),
        ),
        min_size=1,
        max_size=10,
    ),
    st.integers(0, 4),
)
def test_both_builders_make_the_same_records(records: list[Record], codec: int) -> None:
    theirs = RecordBatch(built_by_kafka_python(records, codec))
    ours = RecordBatch(build_batch(records, codec=codec))
    assert theirs.payload() == ours.payload() or codec
    expected = [record._replace(offset=index) for index, record in enumerate(records)]
    assert list(theirs.records()) == list(ours.records()) == expected
    assert read_by_kafka_python(ours.to_bytes()) == expected
