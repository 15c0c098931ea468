"""I/O errors at any moment of a whole broker's life: it answers with errors, goes on, keeps what it acknowledged."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pykbroker.cli.errors import CliError
from pykbroker.cli.start.node_process import raise_expected
from pykbroker.logstore import filesystem as filesystem_module
from pykbroker.logstore.errors import StorageError
from pykbroker.node import host as host_module
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.records.batch import iter_batches
from tests.support.data_path import batch
from tests.support.faulty_filesystem import FaultyFileSystem
from tests.support.whole_broker import WholeBroker

# All that a broker does by itself happens while a test runs.
SETTINGS = {
    "log.initial.task.delay.ms": "5",
    "log.flush.offset.checkpoint.interval.ms": "15",
    "log.flush.start.offset.checkpoint.interval.ms": "15",
    "log.retention.check.interval.ms": "15",
    "log.cleaner.backoff.ms": "15",
    "log.segment.delete.delay.ms": "0",
    "metadata.log.max.record.bytes.between.snapshots": "1000",
}
RETRIABLE = {
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
RETRIES_S = 20.0
SAMPLES = 20
"""So many moments are tried; all of them with PYKBROKER_FAULTS=all, which takes minutes."""


def until_acknowledged(ask: Callable[[], int]) -> None:
    """As clients do: again as long as the error says that this may help."""
    deadline = time.monotonic() + RETRIES_S
    while code := ErrorCode(ask()):
        assert code in RETRIABLE, code.name
        assert time.monotonic() < deadline, f"still {code.name}, though the disk works again"
        time.sleep(0.005)


def check_failure(error: BaseException) -> None:
    """A start or stop that fails does so by one expected error, which `pykbroker start` tells in a line."""
    with pytest.raises(CliError, match="Input/output error"):
        raise_expected(error)


class Scenario:
    """One broker's life, with a file system that fails sometimes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.filesystem = FaultyFileSystem()
        self.sequence = 0
        monkeypatch.setattr(host_module, "OsFileSystem", lambda: self.filesystem)

    def produce(self, broker: WholeBroker, size: int) -> None:
        data = batch(
            1,
            size=size,
            timestamp=int(time.time() * 1000),
            key=b"%d" % (self.sequence % 2),
            producer_id=77,
            producer_epoch=0,
            base_sequence=self.sequence,
        )
        until_acknowledged(lambda: broker.produce("t", data))
        self.sequence += 1

    def started(self) -> WholeBroker:
        """A broker, at the first attempt that works; each other one says why not."""
        while True:
            try:
                return WholeBroker(self.folder, SETTINGS).start()
            except (StorageError, BaseExceptionGroup) as error:
                check_failure(error)

    def live(self) -> None:
        """Records, segments, metadata, offsets; an end that may fail."""
        broker = self.started()
        until_acknowledged(lambda: broker.create_topic("t", segment_bytes="1048576"))
        until_acknowledged(lambda: broker.create_topic("gone", 2))
        for number in range(8):
            self.produce(broker, 400_000 if number % 2 else 10)
        until_acknowledged(lambda: broker.find_coordinator("group", 0))
        until_acknowledged(lambda: broker.commit("group", "t", 0, 5))
        until_acknowledged(lambda: broker.delete_topic("gone"))
        until_acknowledged(lambda: broker.create_topic("gone", 1))
        until_acknowledged(lambda: broker.delete_records("t", 0, 3))
        for _ in range(3):
            self.produce(broker, 300_000)
        try:
            broker.stop()
        except (StorageError, BaseExceptionGroup) as error:
            check_failure(error)

    def check(self) -> None:
        """The next start, on a disk that works, finds every acknowledged record, topic and deletion."""
        self.filesystem.faults = ()
        with WholeBroker(self.folder, SETTINGS) as broker:
            topics = broker.topics()
            assert {name: topics.get(name) for name in ("t", "gone")} == {"t": 1, "gone": 1}
            assert offsets(broker, "gone", 0) == []
            assert offsets(broker, "t", 3) == list(range(3, self.sequence))
            self.produce(broker, 10)
            assert offsets(broker, "t", self.sequence - 1) == [self.sequence - 1]


def offsets(broker: WholeBroker, topic: str, offset: int) -> list[int]:
    found: list[int] = []
    while True:
        answer = broker.fetch(topic, 0, offset)
        assert answer.error_code == 0, ErrorCode(answer.error_code).name
        if not answer.records:
            return found
        for one in iter_batches(bytes(answer.records)):
            assert one.verify_crc()
            found += [number for number in range(one.base_offset, one.next_offset) if number >= offset]
            offset = one.next_offset


def moments(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the calls that are to fail: all, or some from beginning to end."""
    healthy = Scenario(folder, monkeypatch)
    healthy.live()
    count = healthy.filesystem.clock
    healthy.check()
    step = 1 if os.environ.get("PYKBROKER_FAULTS") == "all" else max(1, count // SAMPLES)
    return list(range(0, count, step))


@pytest.mark.parametrize("length", [1, 6], ids=["once", "some times"])
def test_errors_at_any_moment(
    length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in moments(tmp_path / "healthy", monkeypatch):
        scenario = Scenario(tmp_path / str(number), monkeypatch)
        scenario.filesystem.faults = range(number, number + length)
        try:
            scenario.live()
            scenario.check()
            assert [record.getMessage() for record in caplog.records if record.exc_info] == []
        except BaseException as error:
            error.add_note(f"with call {number} failing")
            raise
        caplog.clear()


def test_a_batch_that_could_not_be_synced_is_found_by_the_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`flush.messages`: the producer is told of the failed sync, sends again, and readers see the one batch."""
    with WholeBroker(tmp_path / "data") as broker:
        assert broker.create_topic("t", flush_messages="1") == 0
        data = batch(1, producer_id=77, producer_epoch=0, base_sequence=0)

        def refuse(descriptor: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(filesystem_module, "_sync_data", refuse)
            assert broker.produce("t", data) == ErrorCode.KAFKA_STORAGE_ERROR
            assert offsets(broker, "t", 0) == []
        assert broker.produce("t", data) == 0
        assert offsets(broker, "t", 0) == [0]
    with WholeBroker(tmp_path / "data") as broker:
        assert offsets(broker, "t", 0) == [0]


def test_a_batch_that_could_not_be_synced_is_read_once_a_later_one_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulation, seed 3672: it was read before, and gone after a loss of power."""
    with WholeBroker(tmp_path / "data") as broker:
        assert broker.create_topic("t", flush_messages="1") == 0

        def refuse(descriptor: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(filesystem_module, "_sync_data", refuse)
            assert broker.produce("t", batch(1)) == ErrorCode.KAFKA_STORAGE_ERROR
            assert broker.produce("t", batch(1)) == ErrorCode.KAFKA_STORAGE_ERROR
            assert offsets(broker, "t", 0) == []
        assert broker.produce("t", batch(1)) == 0
        assert offsets(broker, "t", 0) == [0, 1, 2]
