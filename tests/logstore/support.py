"""Builders for log store tests: batches whose content shows their place, and logs in a new directory."""

from __future__ import annotations

from typing import Any

from pykbroker.logstore.filesystem import FileSystem
from pykbroker.logstore.log_config import LogConfig
from pykbroker.logstore.open_files import OpenFiles
from pykbroker.logstore.partition_log import AppendOrigin, AppendResult, PartitionLog
from pykbroker.logstore.unloaded_log import LastStop
from pykbroker.protocol.records.batch import RecordBatch, build_batch, iter_batches
from pykbroker.protocol.records.control import ControlRecordType, control_record_key, end_transaction_value
from pykbroker.protocol.records.record import Record

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))


def batch(
    count: int = 1, *, value_size: int = 10, timestamp: int = NOW_MS, key: bytes | None = b"k", **more: Any
) -> bytes:
    """A batch of `count` records whose timestamps ascend by one."""
    records = [Record(0, timestamp + i, key, bytes([65 + i % 26]) * value_size) for i in range(count)]
    return build_batch(records, **more)


def marker(kind: ControlRecordType, producer_id: int, epoch: int, coordinator_epoch: int = 0) -> bytes:
    """A transaction marker as the coordinator writes it."""
    record = Record(0, NOW_MS, control_record_key(kind), end_transaction_value(coordinator_epoch))
    return build_batch([record], producer_id=producer_id, producer_epoch=epoch, is_control=True, is_transactional=True)


class Place:
    """A directory on some file system, and the logs opened in it."""

    def __init__(self, filesystem: FileSystem, folder: str) -> None:
        self.filesystem = filesystem
        self.folder = folder
        filesystem.make_directory(folder)

    def open(
        self, *, is_clean: bool = False, name: str = "t-0", now_ms: int = NOW_MS, limit: int = 512, **more: Any
    ) -> PartitionLog:
        """Opens the log `name`, or opens it again as after a stop; fields of LogConfig and LastStop by name."""
        self.settle()
        offsets = {key: more.pop(key) for key in LastStop._fields if key in more}
        topic, _, partition = name.rpartition("-")
        return PartitionLog.open(
            f"{self.folder}/{name}",
            topic,
            int(partition),
            LogConfig(**more),
            open_files=OpenFiles(self.filesystem, limit),
            now_ms=now_ms,
            last_stop=LastStop(is_clean, **offsets),
            topic_id=TOPIC_ID,
        )

    def settle(self) -> None:
        """Makes all files exactly as long as their data, as they are soon after the last append."""
        self.filesystem.trim_idle()
        assert self.filesystem.trim_idle() == 0

    def names(self, name: str = "t-0") -> list[str]:
        """File names in a log's directory."""
        return sorted(entry.name for entry in self.filesystem.list(f"{self.folder}/{name}"))

    def content(self, file: str, name: str = "t-0") -> bytes:
        """Content of one of the log's files."""
        self.settle()
        content = self.filesystem.read_file(f"{self.folder}/{name}/{file}")
        assert content is not None
        return content

    def overwrite(self, file: str, content: bytes, name: str = "t-0") -> None:
        """Replaces the content of one of the log's files."""
        self.settle()
        self.filesystem.write_file(f"{self.folder}/{name}/{file}", content)


def append(log: PartitionLog, data: bytes, *, epoch: int = 0, now_ms: int = NOW_MS) -> AppendResult:
    """Appends a client's batch to the leader's log in this epoch."""
    return log.append_as_leader(data, epoch, now_ms, AppendOrigin.CLIENT)


def read_all(log: PartitionLog, start: int | None = None, size_max: int = 1000) -> list[RecordBatch]:
    """All batches from `start` (default: log start) as a consumer would get them, in steps of `size_max` bytes."""
    offset = log.log_start_offset if start is None else start
    found: list[RecordBatch] = []
    while offset < log.log_end_offset:
        result = log.read(offset, size_max, log.log_end_offset, at_least_one=True)
        if result.range is None:
            break
        data = result.range.read()
        result.range.release()
        whole = list(iter_batches(data))
        assert whole, "at least one whole batch"
        found += [one for one in whole if one.last_offset >= offset]
        offset = whole[-1].next_offset
    return found


def offsets(log: PartitionLog) -> list[int]:
    """Offsets of all records from the log start."""
    return [record.offset for one in log.iter_batches() for record in one.records()]
