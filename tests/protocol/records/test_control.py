"""Control records against those of the Java client."""

from __future__ import annotations

import pytest

from pykbroker.protocol.records.batch import RecordBatch, build_batch
from pykbroker.protocol.records.control import (
    ControlRecordType,
    control_record_key,
    control_record_type,
    end_transaction_coordinator_epoch,
    end_transaction_value,
)
from pykbroker.protocol.records.errors import InvalidRecord
from pykbroker.protocol.records.record import Record
from tests.protocol.records.samples import TIME, fixture


@pytest.mark.parametrize(
    ("name", "record_type", "offset", "epoch"),
    [("commit_marker", ControlRecordType.COMMIT, 500, 12), ("abort_marker", ControlRecordType.ABORT, 501, 13)],
)
def test_transaction_markers(name: str, record_type: ControlRecordType, offset: int, epoch: int) -> None:
    batch = RecordBatch(fixture(name))
    (record,) = batch.records()
    assert batch.is_control
    assert batch.is_transactional
    assert record.offset == offset
    assert control_record_type(record.key) is record_type
    assert end_transaction_coordinator_epoch(record.value) == epoch
    assert fixture(name) == build_batch(
        [Record(0, TIME, control_record_key(record_type), end_transaction_value(epoch))],
        base_offset=offset,
        leader_epoch=9,
        producer_id=4711,
        producer_epoch=3,
        is_control=True,
        is_transactional=True,
    )


def test_leader_change() -> None:
    batch = RecordBatch(fixture("leader_change"))
    (record,) = batch.records()
    assert batch.is_control
    assert record.key == control_record_key(ControlRecordType.LEADER_CHANGE)


def test_types_of_later_versions_are_unknown_and_not_an_error() -> None:
    assert control_record_type(b"\0\5\0\7") is ControlRecordType.UNKNOWN
    assert control_record_type(b"\0\0\xff\xfe") is ControlRecordType.UNKNOWN
    assert control_record_type(b"\0\1\0\1and more") is ControlRecordType.COMMIT


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\1"])
def test_malformed_keys(key: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        control_record_type(key)


@pytest.mark.parametrize("value", [None, b"\0\0\0\0\1", b"\x80\0\0\0\0\1"])
def test_malformed_marker_values(value: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        end_transaction_coordinator_epoch(value)
