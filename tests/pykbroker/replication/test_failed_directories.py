"""Log directories that fail, and reports of the directories of replicas that the controller does not take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from pykbroker.controller.metadata.image import ClusterImage, PartitionImage
from pykbroker.errors import KafkaError
from pykbroker.logstore.errors import CorruptSegment, StorageError, StorageFull
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from pykbroker.replication.directory_reports import RETRY_S, DirectoryReports
from pykbroker.replication.failed_directories import FailedDirectories
from pykbroker.replication.full_disk import ReportedFailures
from tests.logstore.test_log_directories import A, B, create, opened
from tests.support.fake_filesystem import FakeFileSystem
from tests.support.replicas import broker_image, image_of

TIMEOUT_S = 30.0


class Broker:
    """Two directories, /a and /b, with one log each; its task runs while a test waits."""

    def __init__(self, metadata_path: str = "/a") -> None:
        self.filesystem = FakeFileSystem()
        self.directories = opened(self.filesystem)
        for number in range(2):
            create(self.directories, number)
        self.taken_offline: list[tuple[str, int]] = []
        self.partitions: Any = SimpleNamespace(take_offline=self.taken_offline.extend)
        self.failure_count = 0
        self.registered = {A, B}
        self.failed = FailedDirectories(
            self.directories, metadata_path, self._on_failure, lambda: self.registered, TIMEOUT_S
        )

    def _on_failure(self) -> None:
        self.failure_count += 1

    def is_broken(self, path: str, kind: type[StorageError] = StorageError) -> None:
        """From now on nothing can be written there."""
        if kind is StorageError:
            self.filesystem.remove_tree(path)
        self.failed.report(kind(f"{path}/t-0/0.log", "Input/output error"))

    async def run(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.failed.run(self.partitions)


async def test_a_directory_with_one_file_that_failed_stays_online() -> None:
    """Housekeeping tries that file again."""
    broker = Broker()
    broker.failed.report(StorageError("/b/t-1/0.log", "Input/output error"))
    await broker.run(1)
    assert list(broker.directories.online) == [A, B]
    assert (broker.failure_count, broker.taken_offline) == (0, [])


async def test_a_damaged_batch_says_nothing_about_the_directory() -> None:
    """P-380: whoever reads it again and again would otherwise have as many files written."""
    broker = Broker()
    calls = broker.filesystem.calls
    calls.clear()
    broker.failed.report(CorruptSegment("/b/t-1/0.log", 0, "no record batch where one should begin"))
    await broker.run(1)
    assert not calls
    failures = ReportedFailures()
    failures.report(CorruptSegment("/b/t-1/0.log", 0, "no record batch where one should begin"))
    assert not failures.is_suspect
    failures.report(StorageError("/b/t-1/0.log", "Input/output error"))
    assert failures.is_suspect


async def test_a_full_directory_has_failed_although_small_files_fit() -> None:
    broker = Broker()
    broker.is_broken("/b", StorageFull)
    await broker.run(1)
    assert list(broker.directories.online) == [A]
    assert (broker.failure_count, broker.taken_offline) == (1, [("t", 1)])


async def test_the_directory_of_the_metadata_stops_the_broker() -> None:
    broker = Broker(metadata_path="/b")
    broker.is_broken("/b")
    with pytest.raises(StorageError, match="/b: has the metadata log, without which this broker cannot go on"):
        await broker.run(1)
    assert broker.taken_offline == [("t", 1)], "clients get KAFKA_STORAGE_ERROR until it has stopped"


async def test_the_last_directory_stops_the_broker() -> None:
    broker = Broker(metadata_path="/elsewhere")
    broker.is_broken("/a")
    await broker.run(1)
    broker.is_broken("/b")
    with pytest.raises(StorageError, match="/b: was the last log directory of this broker"):
        await broker.run(1)


@pytest.mark.parametrize("is_reported", [True, False])
async def test_a_directory_that_failed_before_the_broker_ran_has_to_be_reported_too(is_reported: bool) -> None:
    """`log.dir.failure.timeout.ms`: the controller must not elect replicas that are offline."""
    broker = Broker()
    broker.directories.take_offline(B)
    if is_reported:
        broker.registered = {A}
        await broker.run(2 * TIMEOUT_S)
    else:
        with pytest.raises(StorageError, match="the controller did not learn it within 30 s"):
            await broker.run(2 * TIMEOUT_S)
    assert broker.failure_count == 1


class Channel:
    """A controller that gives its answers in order."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[float, Any]] = []

    async def request(self, message: Any, timeout_ms: int) -> Any:
        self.asked.append((trio.current_time(), message))
        answer = self.answers.pop(0)
        if isinstance(answer, KafkaError):
            raise answer
        return answer


def image(directory: bytes) -> ClusterImage:
    """t-0 on broker 1, in this directory; t-1 is not in the metadata."""
    partition = PartitionImage(0, (1,), (1,), 1, 0, 0, directories=(directory,))
    return image_of(partition, {1: broker_image(1, 10)})


async def test_a_report_that_the_controller_does_not_take_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    filesystem = FakeFileSystem()
    directories = opened(filesystem)
    for number in range(2):
        create(directories, number)
    channel = Channel(
        KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no controller"),
        AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
        AssignReplicasToDirsResponse(),
    )
    current = {"image": ClusterImage()}
    reports = DirectoryReports(1, directories, lambda: current["image"], channel)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reports.run)
        await trio.sleep(1)
        assert channel.asked == [], "this broker is not registered yet"
        current["image"] = image(B)
        reports.report_now()
        await trio.sleep(2.5 * RETRY_S)
        current["image"] = image(A)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert [when for when, _ in channel.asked] == pytest.approx([1, 1 + RETRY_S, 1 + 2 * RETRY_S])
    for _, request in channel.asked:
        (directory,) = request.directories
        assert directory.id == A
        assert [p.partition_index for topic in directory.topics for p in topic.partitions] == [0]
    assert "the log directories of 1 replica(s) could not be reported: no controller" in caplog.text
    assert "the log directories of 1 replica(s) could not be reported: STALE_BROKER_EPOCH" in caplog.text
