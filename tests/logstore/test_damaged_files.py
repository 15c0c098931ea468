"""Any one file is damaged in any way: the log opens and works, or an error names the file."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker.logstore.batch_scan import batch_at
from pykbroker.logstore.errors import CorruptSegment, LogError
from pykbroker.logstore.partition_log import AppendOrigin
from pykbroker.logstore.partition_metadata import read_topic_id
from pykbroker.logstore.segment import Segment
from pykbroker.protocol.records.batch import iter_batches
from pykbroker.protocol.records.control import ControlRecordType
from pykbroker.protocol.records.errors import RecordError
from pykbroker.protocol.records.layout import ATTRIBUTES_POSITION, CONTROL_FLAG, read_header
from tests.logstore.support import NOW_MS, Place, append, batch, marker, offsets
from tests.support.fake_filesystem import FakeFileSystem

OPTIONS = {"segment_bytes": 600, "index_interval_bytes": 60}


def whole() -> dict[str, bytes]:
    """The files of a log that has all kinds of content."""
    place = Place(FakeFileSystem(), "/logs")
    log = place.open(**OPTIONS)  # type: ignore[arg-type]
    for number in range(30):
        append(
            log,
            batch(2, timestamp=NOW_MS + number, producer_id=7, producer_epoch=0, base_sequence=number * 2),
            epoch=number // 10,
        )
    append(log, batch(2, producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True), epoch=3)
    log.append_as_leader(marker(ControlRecordType.ABORT, 9, 0), 3, NOW_MS, AppendOrigin.COORDINATOR)
    log.close()
    return {name: place.content(name) for name in place.names()}


WHOLE = whole()


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(sorted(WHOLE)),
    damage=st.sampled_from(["flip", "cut", "extend", "replace", "empty", "missing"]),
    place_in_file=st.floats(0, 1),
    junk=st.binary(min_size=1, max_size=40),
    is_clean=st.booleans(),
    limit=st.sampled_from([1, 100]),
)
def test_one_damaged_file(
    name: str, damage: str, place_in_file: float, junk: bytes, is_clean: bool, limit: int
) -> None:
    """P-171."""
    place = Place(FakeFileSystem(), "/logs")
    place.filesystem.make_directory("/logs/t-0")
    for file, whole in WHOLE.items():
        place.overwrite(file, whole)
    content = bytearray(WHOLE[name])
    position = int(place_in_file * max(0, len(content) - 1))
    if damage == "flip":
        content[position] ^= junk[0] or 1
    elif damage == "cut":
        del content[position:]
    elif damage == "extend":
        content += junk
    elif damage == "replace":
        content[position : position + len(junk)] = junk
    elif damage == "empty":
        content.clear()
    if damage == "missing":
        place.filesystem.remove(f"/logs/t-0/{name}")
    else:
        place.overwrite(name, bytes(content))
    try:
        log = place.open(is_clean=is_clean, limit=limit, **OPTIONS)  # type: ignore[arg-type]
        assert log.topic_id is None or len(log.topic_id) == 16
        end = log.log_end_offset
        # A damaged base offset, which no CRC covers, may make the log end at any offset.
        for offset in range(log.log_start_offset, end, max(3, (end - log.log_start_offset) // 100)):
            result = log.read(offset, 500, end, at_least_one=True)
            if result.range is not None:
                data = result.range.read()
                if name.endswith(".index"):
                    first = next(iter_batches(data))
                    assert first.base_offset <= offset <= first.last_offset, "an index is only a hint"
        if name.endswith(".index"):
            assert end == 63
        for later in (0, 10, 29, 100):
            log.offset_for_timestamp(NOW_MS + later)
        log.max_timestamp_offset()
        log.end_offset_for_epoch(1)
        log.aborted_transactions(0, end)
        log.last_stable_offset(end)
        append(log, batch(1), epoch=5)
        log.delete_old_segments(NOW_MS, end)
        log.truncate_to(max(0, end - 5))
        if name.endswith(".index"):
            assert log.log_end_offset == end - 5
        append(log, batch(1), epoch=6)
        log.close()
    except LogError as error:
        names_the_log = "/logs/t-0" in str(error) or "t-0: " in str(error)
        if not names_the_log:
            raise


@pytest.mark.parametrize("codec", range(6))
def test_a_batch_that_became_a_control_batch_is_named_by_its_segment(codec: int) -> None:
    """P-171, P-380: producer state is rebuilt for a truncation, and reads the records of control batches.

    A clean start checks no CRC. Codec 0 is a control record with a key that is too short, 5 a codec that does not
    exist.
    """
    place = Place(FakeFileSystem(), "/logs")
    place.filesystem.make_directory("/logs/t-0")
    for name, content in WHOLE.items():
        place.overwrite(name, content)
    file = f"{48:020d}.log"
    damaged = bytearray(WHOLE[file])
    position = read_header(damaged).size_bytes
    damaged[position + ATTRIBUTES_POSITION + 1] |= CONTROL_FLAG | codec
    place.overwrite(file, bytes(damaged))
    log = place.open(is_clean=True, **OPTIONS)  # type: ignore[arg-type]
    with pytest.raises(CorruptSegment, match=rf"/logs/t-0/{file}: corrupt at byte {position}: ") as caught:
        log.truncate_to(58)
    assert caught.value.position == position


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_a_missing_file_other_than_a_log_costs_nothing_after_a_kill(name: str) -> None:
    """P-171: all files but the logs are made again from the logs."""
    if name.endswith(".log"):
        return
    place = Place(FakeFileSystem(), "/logs")
    place.filesystem.make_directory("/logs/t-0")
    for file, content in WHOLE.items():
        if file != name:
            place.overwrite(file, content)
    log = place.open(**OPTIONS)  # type: ignore[arg-type]
    assert log.loaded.log_end_offset == 63
    assert log.producers.producers[7].last_sequence == 59
    log.close()
    remade = set(place.names())
    assert set(WHOLE) - remade <= {name} & {"partition.metadata"} | {n for n in WHOLE if n.endswith(".snapshot")}


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("junk", [b"no batch", bytes(range(200))])
def test_a_swap_file_that_is_no_log_is_removed(junk: bytes, is_clean: bool) -> None:
    """P-171: the log stays as it was; a swap file whose segment is gone is the only one left, and is kept."""
    place = Place(FakeFileSystem(), "/logs")
    log = place.open(**OPTIONS)  # type: ignore[arg-type]
    for _ in range(30):
        append(log, batch(2))
    bases = log.segment_base_offsets
    log.close()
    swap = f"{bases[1]:020d}.log.swap"
    place.overwrite(swap, junk)
    place.overwrite(f"{bases[1]:020d}.index.swap", junk)
    log = place.open(**OPTIONS, is_clean=is_clean)  # type: ignore[arg-type]
    assert log.segment_base_offsets == bases
    assert offsets(log) == list(range(60))
    assert not [name for name in place.names() if name.endswith(".swap")]
    log.close()
    place.overwrite(swap, junk)
    place.filesystem.remove(f"/logs/t-0/{bases[1]:020d}.log")
    with pytest.raises(CorruptSegment, match="swap"):
        offsets(place.open(**OPTIONS, is_clean=is_clean))  # type: ignore[arg-type]
    assert place.content(swap) == junk


def test_a_topic_id_of_zeros_was_never_noted() -> None:
    """After a loss of power a small file that was not synced has its name and length, but zeros for its content."""
    place = Place(FakeFileSystem(), "/logs")
    place.open().close()
    content = place.content("partition.metadata")
    assert read_topic_id(place.filesystem, "/logs/t-0") is not None
    place.overwrite("partition.metadata", bytes(len(content)))
    assert read_topic_id(place.filesystem, "/logs/t-0") is None


def log_with(*changed: tuple[str, int, bytes], without: str = "") -> Place:
    """The files of the log with other bytes at some positions, and without those whose names end so."""
    place = Place(FakeFileSystem(), "/logs")
    place.filesystem.make_directory("/logs/t-0")
    contents = {
        name: bytearray(content) for name, content in WHOLE.items() if not without or not name.endswith(without)
    }
    for name, position, data in changed:
        contents[name][position : position + len(data)] = data
    for name, content in contents.items():
        place.overwrite(name, bytes(content))
    return place


@pytest.mark.parametrize("ending", [".index", ".timeindex"])
def test_an_index_of_the_last_segment_that_is_damaged_after_a_clean_stop_is_rebuilt(ending: str) -> None:
    name = max(name for name in WHOLE if name.endswith(ending))
    assert WHOLE[name]
    place = log_with((name, 0, b"\xff" * len(WHOLE[name])))
    log = place.open(is_clean=True, recovery_point=63, end_offset=63, **OPTIONS)  # type: ignore[arg-type]
    assert log.loaded.log_end_offset == 63
    assert [one.base_offset for one in log.iter_batches()][-1] == 62
    log.close()
    assert b"\xff" not in place.content(name)


def test_a_batch_without_a_length_below_the_recovery_point() -> None:
    """It is found when the producers are read from the log after a kill."""
    first = min(name for name in WHOLE if name.endswith(".log"))
    size = 12 + int.from_bytes(WHOLE[first][8:12], "big")
    place = log_with((first, size + 8, bytes(4)), without=".snapshot")
    with pytest.raises(LogError, match="a record batch has the impossible length 0"):
        place.open(recovery_point=63, **OPTIONS)  # type: ignore[arg-type]


def segments_of_whole() -> list[int]:
    """Base offsets of the log's segments."""
    return [int(name[:20]) for name in sorted(WHOLE) if name.endswith(".log")]


def test_a_time_index_of_zeros_of_a_segment_to_which_a_log_is_truncated_is_rebuilt() -> None:
    """The segment was not the active one, so its indexes are read again."""
    base, following = segments_of_whole()[1:3]
    name = f"{base:020d}.timeindex"
    place = log_with()
    log = place.open(is_clean=True, recovery_point=63, end_offset=63, **OPTIONS)  # type: ignore[arg-type]
    assert log.loaded.segments.end_offset == 63
    place.overwrite(name, bytes(len(WHOLE[name])))
    assert log.truncate_to(following - 2)
    active = log.loaded.segments.active
    assert active.base_offset == base
    assert active.time_index.is_sane()
    assert (log.log_end_offset, offsets(log)[-1]) == (following - 2, following - 3)


def test_a_truncation_drops_a_batch_whose_end_is_missing() -> None:
    """A segment that is not the last one has lost its end; a clean stop says that it need not be scanned."""
    base, following = segments_of_whole()[1:3]
    name = f"{base:020d}.log"
    size = 12 + int.from_bytes(WHOLE[name][8:12], "big")
    place = log_with()
    place.overwrite(name, WHOLE[name][: size + size // 2 + 40])
    log = place.open(is_clean=True, recovery_point=63, end_offset=63, **OPTIONS)  # type: ignore[arg-type]
    assert log.truncate_to(following - 1)
    assert (log.log_end_offset, len(place.content(name))) == (base + 2, size)
    append(log, batch(1), epoch=5)
    assert offsets(log)[-3:] == [base, base + 1, base + 2]


def test_no_batch_is_found_at_a_place_where_there_is_none() -> None:
    """A file that ends too early, zeros in place of a batch, and a place behind the bytes."""
    assert batch_at(bytes(100), 0, 50) is None
    assert batch_at(batch(), 0, 10_000) is None
    segment: Any = SimpleNamespace(
        load_indexes=lambda: None,
        offset_index=SimpleNamespace(entry_to=lambda _: (None, 0)),
        filesystem=SimpleNamespace(read=lambda *_: b""),
        file=SimpleNamespace(descriptor=lambda: 0),
        size=100,
    )
    assert Segment.batch_at(segment, 0, 50) is None


def test_records_that_cannot_be_read_name_the_file() -> None:
    def read_batch(*_: int) -> Any:
        raise RecordError("a key of -2 bytes")

    segment: Any = SimpleNamespace(read_batch=read_batch, file=SimpleNamespace(path="0.log"))
    with pytest.raises(CorruptSegment, match=r"0\.log.*a key of -2 bytes"):
        Segment.records_at(segment, 0, 100)
