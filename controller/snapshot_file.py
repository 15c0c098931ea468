"""Snapshot files of the metadata log in KRaft's format (KIP-630).

`<end offset, 20 digits>-<epoch, 10 digits>.checkpoint` contains record batches with their own offsets, from 0: a
control batch with the header, the image's records, a control batch with the footer. A file without a footer is
incomplete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pykbroker.controller.control_records import control_values, read_control, records_of
from pykbroker.controller.raft.log_view import OffsetAndEpoch
from pykbroker.controller.raft.voter_history import ControlRecord
from pykbroker.logstore.errors import CorruptFile
from pykbroker.logstore.filesystem import FileSystem
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.log_messages.raft_records import SnapshotFooterRecord, SnapshotHeaderRecord
from pykbroker.protocol.records.batch import build_batch, iter_batches
from pykbroker.protocol.records.control import ControlRecordType, control_record_key
from pykbroker.protocol.records.record import Record

SUFFIX = ".checkpoint"
RECORDS_PER_BATCH = 1024


class Snapshot(NamedTuple):
    """Content of a snapshot file.

    Attributes:
        timestamp_ms: time at which the last record before its end was written.
        values: the encoded metadata records.
        control: kraft.version and voters; empty while kraft.version is 0.
    """

    timestamp_ms: int
    values: list[bytes]
    control: tuple[ControlRecord, ...] = ()


def snapshot_name(snapshot: OffsetAndEpoch) -> str:
    return f"{snapshot.offset:020d}-{snapshot.epoch:010d}{SUFFIX}"


def list_snapshots(filesystem: FileSystem, directory: str) -> list[OffsetAndEpoch]:
    """The snapshot files in a directory, oldest first."""
    found = []
    for name, is_directory in filesystem.list(directory):
        stem = name.removesuffix(SUFFIX)
        offset, dash, epoch = stem.partition("-")
        if not is_directory and stem != name and dash and offset.isdecimal() and epoch.isdecimal():
            found.append(OffsetAndEpoch(int(offset), int(epoch)))
    return sorted(found)


def write_snapshot(filesystem: FileSystem, directory: str, snapshot: OffsetAndEpoch, content: bytes) -> None:
    """Writes a snapshot file durably; after a crash it is complete or missing."""
    filesystem.write_file(f"{directory}/{snapshot_name(snapshot)}", content)


def snapshot_content(
    epoch: int, values: Iterable[bytes], control: Sequence[ControlRecord] = (), *, log_timestamp_ms: int, now_ms: int
) -> bytes:
    """Content of the file of a snapshot at an epoch.

    Args:
        values: the records of the image, encoded.
        control: raft's control records.
        log_timestamp_ms: timestamp of the last record of the log that the snapshot contains.
        now_ms: timestamp of the snapshot's own records.
    """
    return b"".join(_batches(epoch, values, control, log_timestamp_ms, now_ms))


def _batches(
    epoch: int, values: Iterable[bytes], control: Sequence[ControlRecord], log_timestamp_ms: int, now_ms: int
) -> Iterator[bytes]:
    offset = 0

    def batch(records: list[Record], *, is_control: bool = False) -> bytes:
        nonlocal offset
        data = build_batch(records, base_offset=offset, leader_epoch=epoch, is_control=is_control)
        offset += len(records)
        return data

    header = encode(SnapshotHeaderRecord(last_contained_log_timestamp=log_timestamp_ms), 0)
    head = _control(ControlRecordType.SNAPSHOT_HEADER, header, now_ms)
    yield batch([head, *records_of(control, now_ms)], is_control=True)
    records: list[Record] = []
    for value in values:
        records.append(Record(0, now_ms, None, value))
        if len(records) == RECORDS_PER_BATCH:
            yield batch(records)
            records = []
    if records:
        yield batch(records)
    footer = encode(SnapshotFooterRecord(), 0)
    yield batch([_control(ControlRecordType.SNAPSHOT_FOOTER, footer, now_ms)], is_control=True)


def _control(kind: ControlRecordType, value: bytes, now_ms: int) -> Record:
    return Record(0, now_ms, control_record_key(kind), value)


def read_snapshot(filesystem: FileSystem, directory: str, snapshot: OffsetAndEpoch) -> Snapshot:
    """Reads a snapshot file.

    Raises:
        CorruptFile: the file is incomplete or damaged.
    """
    path = f"{directory}/{snapshot_name(snapshot)}"
    return parse_snapshot(path, filesystem.read_file(path) or b"")


def parse_snapshot(path: str, content: bytes) -> Snapshot:
    """Parses the bytes of a snapshot file; `path` is for the error.

    Raises:
        CorruptFile: the bytes are incomplete or damaged.
    """
    timestamp_ms = -1
    is_whole = False
    values: list[bytes] = []
    control: list[ControlRecord] = []
    try:
        for batch in iter_batches(content):
            if not batch.verify_crc():
                raise CorruptFile(path, f"the CRC of the batch at byte {batch.position} is wrong")
            if not batch.is_control:
                values += [record.value or b"" for record in batch.records()]
                continue
            for kind, value in control_values(batch):
                if kind is ControlRecordType.SNAPSHOT_HEADER:
                    timestamp_ms = decode(SnapshotHeaderRecord, 0, value).last_contained_log_timestamp
                elif kind is ControlRecordType.SNAPSHOT_FOOTER:
                    is_whole = True
                elif (record := read_control(kind, value)) is not None:
                    control.append(record)
    except ProtocolError as error:
        raise CorruptFile(path, str(error)) from error
    if not is_whole:
        raise CorruptFile(path, "it has no footer: it was cut off")
    return Snapshot(timestamp_ms, values, tuple(control))
