"""The coordinator runtime under a third kind of coordinator: leases, each a name that somebody owns for a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pykbroker.controller.metadata.image import TopicImage
from pykbroker.coordination.internal_topic import InternalTopic
from pykbroker.coordination.loader import read_records
from pykbroker.coordination.partitioning import coordinator_partition
from pykbroker.coordination.runtime import CoordinatorRuntime
from pykbroker.coordination.shard import CoordinatorResult, CoordinatorShard, LoggedRecords
from pykbroker.errors import CoordinatorError, KafkaError
from pykbroker.logstore.errors import StorageError
from pykbroker.logstore.partition_log import PartitionLog
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import DecodeError
from pykbroker.protocol.steps import PIECE, Steps
from tests.support.coordinator_errors import outcome_of
from tests.support.coordinator_rig import CoordinatorRig
from tests.support.data_path import NODE_ID, NOW_MS, cluster_image, replicated_topic_image, topic_image
from tests.support.held_partitions import HeldPartition, HeldPartitions

TOPIC = "__leases"
PARTITIONS = 3
APPEND_TIMEOUT_MS = 5_000


class Lease(NamedTuple):
    owner: str
    until_ms: int


LeaseRecord = tuple[str, Lease | None]


def decode_lease(key: bytes, value: bytes | None) -> LeaseRecord | None:
    if value is None:
        return key.decode(), None
    owner, separator, until_ms = value.decode().partition(" ")
    if not separator:
        raise DecodeError("Lease", 0, "until_ms", len(value), "missing")
    return key.decode(), Lease(owner, int(until_ms))


class LeaseShard(CoordinatorShard[CoordinatorResult]):
    """Owners of names; a name whose record is not replicated yet is taken already."""

    def __init__(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.leases: dict[str, Lease] = {}
        self.busy: set[str] = set()

    def acquire(self, name: str, owner: str, duration_ms: int, now_ms: int) -> CoordinatorResult:
        lease = self.leases.get(name)
        if name in self.busy or (lease is not None and lease.owner != owner):
            return CoordinatorResult(response=None)
        granted = Lease(owner, now_ms + duration_ms)
        return self._change(name, granted, granted.until_ms)

    def _change(self, name: str, lease: Lease | None, response: Any = None) -> CoordinatorResult:
        self.busy.add(name)
        return CoordinatorResult([(name, lease)], response)

    def load(self, logged: LoggedRecords, now_ms: int) -> Steps[None]:
        for (name, lease), _ in logged.decoded(logged.last, decode_lease):
            if lease is not None:
                self.leases[name] = lease
            yield

    def encode(self, record: LeaseRecord) -> tuple[bytes, bytes | None]:
        name, lease = record
        return name.encode(), None if lease is None else f"{lease.owner} {lease.until_ms}".encode()

    def stored(self, result: CoordinatorResult, error: ErrorCode, now_ms: int, first_offset: int) -> None:
        for name, lease in result.records:
            self.busy.discard(name)
            if error is ErrorCode.NONE and lease is None:
                del self.leases[name]
            elif error is ErrorCode.NONE:
                self.leases[name] = lease

    def timer_keys(self) -> Iterable[str]:
        return self.leases

    def wake_ms(self, key: str) -> int | None:
        return self.leases[key].until_ms if key in self.leases else None

    def expire_due(self, key: str, now_ms: int) -> CoordinatorResult | None:
        is_over = key in self.leases and self.leases[key].until_ms <= now_ms and key not in self.busy
        return self._change(key, None) if is_over else None


class Rig(CoordinatorRig):
    """One broker with the topic of leases, whose followers a test can hold back."""

    def __init__(self, folder: Path, *, has_topic: bool = True, shard_modules: Sequence[str] = ()) -> None:
        super().__init__(folder, cluster_image(*([topic_image(TOPIC, PARTITIONS)] if has_topic else [])))
        self.held = HeldPartitions(self.partitions, TOPIC)
        self.delivered: list[CoordinatorResult] = []
        self.runtime: CoordinatorRuntime[LeaseShard] = CoordinatorRuntime(
            TOPIC,
            self.environment(self.held),
            make_shard=LeaseShard,
            deliver=lambda number, shard, result: self.delivered.append(result),
            append_timeout_ms=APPEND_TIMEOUT_MS,
            shard_modules=shard_modules,
        )

    def under_test(self) -> Any:
        return self.runtime

    def runtime_under_test(self) -> Any:
        return self.runtime

    async def create_internal_topic(self, topic: InternalTopic) -> None:
        self.created.append(topic)
        await trio.sleep(1)

    def lead(self, leader_epoch: int, leader: int = NODE_ID) -> None:
        self.change(replicated_topic_image(TOPIC, PARTITIONS, leader=leader, leader_epoch=leader_epoch))

    async def acquire(self, name: str = "x", owner: str = "a", duration_ms: int = 60_000) -> Any:
        """The time until which the name is leased, None if it is another's, or an ErrorCode."""
        return await outcome_of(
            self.runtime.write, name, lambda shard, now_ms: shard.acquire(name, owner, duration_ms, now_ms)
        )

    def owner(self, name: str = "x") -> str | ErrorCode | None:
        try:
            _, shard = self.runtime.find(name)
        except CoordinatorError as error:
            return error.error_code
        lease = shard.leases.get(name)
        return None if lease is None else lease.owner

    def partition_of(self, name: str) -> HeldPartition:
        found: HeldPartition = self.held.get(TOPIC, coordinator_partition(name, PARTITIONS))
        return found

    def append(self, name: str, *pairs: tuple[bytes, bytes | None]) -> None:
        """Into the log of a name, past the runtime."""
        from pykbroker.coordination.partition_writer import append_records
        from pykbroker.protocol.records.batch import frames_of

        assert append_records(self.partition_of(name), frames_of(pairs), 0, NOW_MS) is ErrorCode.NONE


class Acquiring:
    """An `acquire` in a task of its own; `answer` is "waits" as long as it does."""

    def __init__(self, nursery: trio.Nursery, rig: Rig, owner: str = "a") -> None:
        self.answer: Any = "waits"
        self._rig, self._owner = rig, owner
        nursery.start_soon(self._run)

    async def _run(self) -> None:
        self.answer = await self._rig.acquire("x", self._owner)


# Loading and unloading


async def test_a_write_is_there_after_a_restart(tmp_path: Path) -> None:
    first = Rig(tmp_path)
    async with first.running():
        assert await first.acquire("x", "a") == NOW_MS + 60_000
        assert await first.acquire("y", "b") == NOW_MS + 60_000
        assert await first.acquire("x", "c") is None
    again = Rig(tmp_path)
    async with again.running():
        assert (again.owner("x"), again.owner("y"), again.owner("z")) == ("a", "b", None)
        assert [shard.leader_epoch for shard in again.runtime.shards.values()] == [0] * PARTITIONS


async def test_the_last_record_of_a_key_counts_and_a_bad_one_is_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(tmp_path)
    for pairs in ((b"x", b"a 1"), (b"x", b"b 9999999999999")), ((b"gone", b"a 1"), (b"gone", None)), ((b"bad", b"!"),):
        rig.append("x", *pairs)
    async with rig.running():
        [shard] = [shard for shard in rig.runtime.shards.values() if shard.leases]
        assert shard.leases == {"x": Lease("b", 9_999_999_999_999)}
        assert "the record at offset 4 is skipped" in caplog.text


async def test_a_batch_of_many_records_is_read_and_replayed_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have some when it is read, and one for each record that is replayed; clients are told to come again."""
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    rig = Rig(tmp_path, has_topic=False)
    count = 5 * PIECE
    answers = []
    async with rig.running():
        rig.change(topic_image(TOPIC, PARTITIONS))
        rig.append("x", (b"x", b"a 9999999999999"), *((b"%d" % number, b"b 9999999999999") for number in range(count)))
        rig.lead(1)
        while rig.runtime.is_loading:
            answers.append(rig.owner())
            await trio.lowlevel.checkpoint()
        assert answers == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * len(answers)
        assert len(answers) > count + 5
        assert rig.owner() == "a"
        [shard] = [shard for shard in rig.runtime.shards.values() if shard.leases]
        assert len(shard.leases) == count + 1


async def test_while_a_log_is_read_clients_are_told_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path, has_topic=False)
    may_read = trio.Event()

    async def read(log: PartitionLog, *, keeps_every: bool) -> LoggedRecords:
        await may_read.wait()
        return await read_records(log, keeps_every=keeps_every)

    monkeypatch.setattr("pykbroker.coordination.loader.read_records", read)
    async with rig.running():
        assert rig.owner() is ErrorCode.NOT_COORDINATOR
        rig.change(topic_image(TOPIC, PARTITIONS))
        assert rig.owner() is None  # an empty log needs no reading
        rig.append("x", (b"x", b"a 9999999999999"))
        rig.lead(1)
        await wait_all_tasks_blocked()
        assert rig.runtime.is_loading
        assert await rig.acquire() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        may_read.set()
        await wait_all_tasks_blocked()
        assert (rig.owner(), rig.runtime.is_loading) == ("a", False)


async def test_what_is_not_replicated_is_not_served(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.acquire()
        rig.partition_of("x").hold(0)
        rig.lead(1)
        await wait_all_tasks_blocked()
        assert rig.owner() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        rig.partition_of("x").release()
        await trio.sleep(1)
        assert rig.owner() == "a"


async def test_a_load_that_was_overtaken_is_not_served(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.acquire()
        rig.partition_of("x").hold(0)
        rig.lead(1)
        await wait_all_tasks_blocked()
        rig.lead(2, leader=2)
        rig.partition_of("x").release()
        await trio.sleep(1)
        assert rig.owner() is ErrorCode.NOT_COORDINATOR
        assert not rig.runtime.shards


async def test_a_leadership_that_is_lost_during_the_start_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partitions of a start are loaded one after another, and the metadata changes while the first one is read."""
    rig = Rig(tmp_path)
    rig.append("x", (b"x", b"a 9999999999999"))

    async def read(log: PartitionLog, *, keeps_every: bool) -> LoggedRecords:
        if rig.services.metadata.image.topics_by_name[TOPIC].partitions[0].leader == NODE_ID:
            rig.lead(1, leader=2)
        return await read_records(log, keeps_every=keeps_every)

    monkeypatch.setattr("pykbroker.coordination.loader.read_records", read)
    async with rig.running():
        assert not rig.runtime.shards
        assert rig.owner() is ErrorCode.NOT_COORDINATOR


class CountedPasses(dict[int, Any]):
    """By partition; `passes` is how many times somebody has gone through all of them."""

    passes = 0

    def keys(self) -> Any:
        self.passes += 1
        return super().keys()

    def items(self) -> Any:
        self.passes += 1
        return super().items()


async def test_the_time_of_a_load_grows_with_the_partitions_and_not_with_their_square(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic = rig.services.metadata.image.topics_by_name[TOPIC]
    partitions = CountedPasses(topic.partitions)
    rig.services.metadata.image.topics_by_name = {TOPIC: TopicImage(TOPIC, topic.topic_id, partitions)}
    shards = rig.runtime._loaded.shards = CountedPasses()
    async with rig.running():
        assert (len(shards), partitions.passes) == (PARTITIONS, 1)
        rig.runtime.load_missing()
        assert not rig.runtime.is_loading
        assert (shards.passes, partitions.passes) == (2, 3)


async def test_a_new_leader_epoch_reads_the_log_anew(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.acquire()
        rig.append("x", (b"x", b"b 9999999999999"))  # as another leader would have, in between
        rig.lead(2)
        await wait_all_tasks_blocked()
        assert rig.owner() == "b"


async def test_a_log_that_cannot_be_read_is_tried_again_when_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    rig.append("x", (b"x", b"a 9999999999999"))

    def fail(self: Any) -> Any:
        raise StorageError("read", "a broken disk")

    with monkeypatch.context() as broken:
        broken.setattr(PartitionLog, "iter_batches", fail)
        async with trio.open_nursery() as nursery:
            await nursery.start(rig.runtime.run)
            assert (rig.owner(), rig.runtime.is_loading) == (ErrorCode.NOT_COORDINATOR, False)
            broken.undo()
            rig.runtime.load_missing()
            await wait_all_tasks_blocked()
            assert rig.owner() == "a"
            nursery.cancel_scope.cancel()
    rig.close()


async def test_the_topic_is_created_once_at_a_time(tmp_path: Path) -> None:
    rig = Rig(tmp_path, has_topic=False)
    topic = InternalTopic(TOPIC, PARTITIONS, 3, 1, {})
    rig.runtime.request_topic_creation(topic)  # not before `run`
    async with rig.running():
        rig.runtime.request_topic_creation(topic)
        rig.runtime.request_topic_creation(topic)
        await trio.sleep(2)
        assert rig.created == [topic]
        rig.runtime.request_topic_creation(topic)
        await wait_all_tasks_blocked()
        assert rig.created == [topic] * 2


async def test_nobody_is_served_after_a_stop(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.acquire()
        rig.runtime.stop()
        assert await rig.acquire() is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_metadata_that_arrives_after_the_end_loads_nothing(tmp_path: Path) -> None:
    """All tasks of a node are cancelled together; that of the metadata may get its turn after the coordinator's."""
    rig = Rig(tmp_path)
    rig.append("x", (b"x", b"a 9999999999999"))
    async with rig.running() as nursery:
        await rig.end_tasks(nursery)
        rig.lead(1)
        assert rig.owner() is ErrorCode.NOT_COORDINATOR


# Writing


async def test_a_failed_append_leaves_the_state_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)

    def refuse() -> None:
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "")

    async with rig.running():
        await rig.acquire("x", "a")
        monkeypatch.setattr(rig.partition_of("x"), "check_enough_replicas", refuse, raising=False)
        assert await rig.acquire("x", "a", 90_000) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        [lease] = [shard.leases["x"] for shard in rig.runtime.shards.values() if shard.leases]
        assert lease == Lease("a", NOW_MS + 60_000)
        monkeypatch.undo()
        assert await rig.acquire("x", "a", 90_000) == NOW_MS + 90_000
        assert rig.partition_of("x").log.log_end_offset == 2


async def test_a_record_counts_and_is_answered_when_it_is_replicated(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running() as nursery:
        rig.partition_of("x").hold()
        first = Acquiring(nursery, rig)
        await wait_all_tasks_blocked()
        assert (first.answer, rig.owner()) == ("waits", None)
        assert await rig.acquire("x", "b") is None  # it is on its way to somebody else
        rig.partition_of("x").release()
        await wait_all_tasks_blocked()
        assert (first.answer, rig.owner()) == (NOW_MS + 60_000, "a")


async def test_who_waits_too_long_is_told_so_and_the_record_may_count_yet(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running() as nursery:
        rig.partition_of("x").hold()
        asked = Acquiring(nursery, rig)
        await trio.sleep(APPEND_TIMEOUT_MS / 1000 + 1)
        assert (asked.answer, rig.owner()) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
        rig.partition_of("x").release()
        await wait_all_tasks_blocked()
        assert rig.owner() == "a"


async def test_an_unload_sends_away_who_waits(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running() as nursery:
        rig.partition_of("x").hold()
        asked = Acquiring(nursery, rig)
        await wait_all_tasks_blocked()
        unloaded = dict(rig.runtime.shards)
        rig.lead(1, leader=2)
        await wait_all_tasks_blocked()
        assert (asked.answer, rig.owner()) == (ErrorCode.NOT_COORDINATOR,) * 2
        rig.partition_of("x").release()
        await wait_all_tasks_blocked()
        assert not any(shard.leases for shard in unloaded.values()), "it took effect in a shard that is unloaded"


async def test_what_follows_a_marker_comes_behind_what_was_appended_before(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    seen: list[str] = []
    number = coordinator_partition("x", PARTITIONS)
    async with rig.running() as nursery:
        rig.partition_of("x").hold()
        Acquiring(nursery, rig)
        await wait_all_tasks_blocked()
        rig.runtime.when_replicated(number, 1, lambda: seen.append(str(rig.owner())))
        assert seen == []
        rig.partition_of("x").release()
        await wait_all_tasks_blocked()
        assert seen == ["a"]
        rig.runtime.when_replicated(number, 1, lambda: seen.append("at once"))
        assert seen == ["a", "at once"]


# Time


async def test_timers_fire_when_they_are_due_and_write(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.acquire("x", "a", 10_000)
        await trio.sleep(9)
        await rig.acquire("x", "a", 10_000)
        await trio.sleep(9.9)
        assert [bool(shard.leases) for shard in rig.runtime.shards.values()].count(True) == 1
        await trio.sleep(0.2)
        assert not any(shard.leases for shard in rig.runtime.shards.values())
        assert rig.partition_of("x").log.log_end_offset == 3
        assert await rig.acquire("x", "b") == NOW_MS + 19_100 + 60_000


async def test_a_request_finds_what_is_due_done_even_before_the_timer_task(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.acquire("x", "a", 10_000)
        trio.lowlevel.current_clock().jump(10)  # type: ignore[attr-defined]
        assert rig.owner() is None


async def test_timers_go_on_after_a_load_and_end_with_an_unload(tmp_path: Path) -> None:
    first = Rig(tmp_path)
    async with first.running():
        await first.acquire("x", "a", 10_000)
    again = Rig(tmp_path)
    async with again.running():
        await trio.sleep(10.1)
        assert again.partition_of("x").log.log_end_offset == 2
        await again.acquire("x", "a", 10_000)
        again.lead(1, leader=2)
        await wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().seconds_to_next_deadline == float("inf")


async def test_a_task_runs_once_after_its_delay(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    ran: list[float] = []

    async def task() -> None:
        ran.append(trio.current_time())

    async with rig.running():
        began = trio.current_time()
        rig.runtime.schedule("task", 1_000, task)
        rig.runtime.schedule("task", 500, task)
        await trio.sleep(5)
        assert [at - began for at in ran] == [pytest.approx(1)]
        assert trio.lowlevel.current_statistics().seconds_to_next_deadline == float("inf")


async def test_a_shard_whose_partition_went_offline(tmp_path: Path) -> None:
    """Its directory has failed, and the metadata does not say so yet: nothing is written, and nothing waits."""
    rig = Rig(tmp_path)
    seen: list[str] = []
    async with rig.running():
        await rig.acquire()
        number, _ = rig.runtime.find("x")
        rig.partitions.take_offline([(TOPIC, number)])
        for _ in range(2):
            rig.runtime.when_late("x", lambda *_: seen.append("late"))
            rig.runtime.when_settled("x", lambda *_: seen.append("settled"))
            refused = await outcome_of(rig.runtime.wait_replicated, number)
            assert refused is ErrorCode.NOT_COORDINATOR
            assert isinstance(await rig.acquire(), ErrorCode)
            # The second time there is no shard either.
            rig.runtime.stop()
    assert seen == []


async def test_results_of_a_shard_end_with_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    made: list[int] = []
    async with rig.running():
        await rig.acquire()
        number, shard = rig.runtime.find("x")

        def results() -> Iterator[CoordinatorResult]:
            for count in range(3):
                made.append(count)
                if count:
                    rig.runtime.stop()
                yield CoordinatorResult()

        await rig.runtime.carry_out_in_turns([(number, shard, results())])
    assert made == [0, 1]


async def test_a_log_that_is_truncated_while_it_is_read_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """This broker has become a follower of it."""
    rig = Rig(tmp_path)
    reads: list[Any] = []

    async def read(*_: Any, **__: Any) -> Any:
        if not reads:
            rig.lead(3, leader=2)
        reads.append(rig.owner())
        raise StorageError("leases-0", "nothing is there")

    async with rig.running():
        await rig.acquire()
        monkeypatch.setattr("pykbroker.coordination.loader.read_records", read)
        rig.lead(2)
        await trio.sleep(1)
        assert rig.owner() is ErrorCode.NOT_COORDINATOR, reads
    assert "cannot be read" not in caplog.text
