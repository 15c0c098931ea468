"""Records of one partition of a Produce request: the checks that come before a log is asked (P-35, P-38, P-49)."""

from __future__ import annotations

import struct

import pytest

from pykbroker.protocol.records.errors import CorruptRecord, InvalidProduceRecords, RecordError, UnknownCodec
from pykbroker.protocol.records.layout import HEADER_SIZE, read_header
from pykbroker.protocol.records.single_batch import ProducedRecords, header_of_single
from pykbroker.protocol.records.validation import AppendPolicy, validate_client_batches
from tests.support.data_path import NOW_MS, batch

NEWEST = 13


def with_length(data: bytes, length: int) -> bytes:
    return data[:8] + struct.pack(">i", length) + data[12:]


def with_magic(data: bytes, magic: int) -> bytes:
    return data[:16] + struct.pack(">b", magic) + data[17:]


def test_the_header_is_read_once_and_handed_to_the_validation() -> None:
    """With the header given, validation does not read the bytes of the header again: it would see the changed ones."""
    data = batch(3)
    records = ProducedRecords(data)
    records.check_single(NEWEST)
    assert records.header == read_header(data)
    changed = struct.pack(">q", 7) + data[8:]
    validated = validate_client_batches(changed, AppendPolicy(), NOW_MS, "t-0", records.header)
    assert (validated.record_count, validated.size_bytes) == (3, len(data))
    with pytest.raises(RecordError, match="baseOffset"):
        validate_client_batches(changed, AppendPolicy(), NOW_MS, "t-0")


@pytest.mark.parametrize("data", [None, b"", batch()[:11], batch()[:60], batch()[:-1]])
def test_without_a_whole_batch_there_is_nothing_to_append(data: bytes | None) -> None:
    records = ProducedRecords(data)
    assert not records.is_whole
    with pytest.raises(InvalidProduceRecords, match="at least one"):
        records.check_single(NEWEST)


def test_a_second_batch_is_refused_and_a_partial_one_behind_the_first_is_cut_off() -> None:
    data = batch(2)
    with pytest.raises(InvalidProduceRecords, match="exactly one"):
        ProducedRecords(data + data).check_single(NEWEST)
    for size in (1, 16, 17, len(data) - 1):
        records = ProducedRecords(data + data[:size])
        records.check_single(NEWEST)
        validated = validate_client_batches(records.data, AppendPolicy(), NOW_MS, "t-0", records.header)
        assert bytes(validated.data) == data


def test_an_unknown_codec_is_seen_before_the_log_below_version_7() -> None:
    """P-38: the response then has no log start offset."""
    data = batch(1)
    records = ProducedRecords(data[:22] + bytes([data[22] | 7]) + data[23:])
    records.check_single(7)
    with pytest.raises(UnknownCodec) as raised:
        records.check_single(6)
    assert not raised.value.reports_log_start_offset


@pytest.mark.parametrize("magic", [0, 1])
def test_formats_before_the_record_batch_are_refused(magic: int) -> None:
    records = ProducedRecords(with_magic(batch(), magic))
    records.check_head()
    with pytest.raises(InvalidProduceRecords, match=f"format {magic}"):
        records.check_single(NEWEST)


@pytest.mark.parametrize(
    "data",
    [
        with_length(batch(), 13),
        with_length(batch(), -1),
        with_length(batch(), 0)[:12],
        with_length(batch(), 13)[:20],
        with_magic(batch(), 3),
        with_magic(batch(), -1),
        with_magic(batch(), 3)[:17],
    ],
)
def test_a_head_that_cannot_be_a_batchs_is_corrupt(data: bytes) -> None:
    for check in (ProducedRecords(data).check_head, lambda: ProducedRecords(data).check_single(NEWEST)):
        with pytest.raises(CorruptRecord):
            check()


@pytest.mark.parametrize("data", [None, b"", batch()[:11], batch()[:16], batch()[:20], batch(), batch()[:-1]])
def test_a_head_that_could_be_a_batchs(data: bytes | None) -> None:
    """The length is not compared with the bytes that are there: an unfinished batch is refused by `check_single`."""
    ProducedRecords(data).check_head()


def test_a_batch_that_is_shorter_than_its_header_is_corrupt_to_the_log() -> None:
    """Kafka's ProduceRequest lets it pass, its log does not."""
    data = with_length(batch(), 30)[:42]
    ProducedRecords(data).check_single(NEWEST)
    with pytest.raises(CorruptRecord, match=f"size 42 .* overhead {HEADER_SIZE}"):
        header_of_single(data)
    # With bytes of no batch behind it there is a header to read, of which only the length is the batch's.
    records = ProducedRecords(data + bytes(11) + bytes(11))
    assert records.header is not None
    with pytest.raises(CorruptRecord):
        validate_client_batches(records.data, AppendPolicy(), NOW_MS, "t-0", records.header)


def test_a_transactional_batch_is_known_by_its_header() -> None:
    data = batch(1, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert ProducedRecords(data).is_transactional
    assert not ProducedRecords(data[:-1]).is_whole
    assert not ProducedRecords(batch(1)).is_transactional
    assert not ProducedRecords(data[:60]).is_transactional


def test_a_plain_batch_is_one_that_no_check_refuses_and_no_transaction_has() -> None:
    """Each byte of a header changed in turn: a handler that skips the checks of a plain batch misses no refusal."""
    data = batch(3)
    assert ProducedRecords(data).is_plain
    plain = 0
    for position in range(HEADER_SIZE):
        for value in range(256):
            changed = data[:position] + bytes((value,)) + data[position + 1 :]
            records = ProducedRecords(changed)
            if records.is_plain:
                plain += 1
                records.check_head()
                records.check_single(6)
                assert records.is_whole
                assert not records.is_transactional
    assert plain > HEADER_SIZE
    for longer in (data + b"\0", data + data, data[:-1], b"", None):
        assert not ProducedRecords(longer).is_plain
