"""ShareLeader alone: loads that end early or fail, and writes that the share coordinator refuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.logstore.errors import StorageError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.share_partitions.acknowledgement import AcknowledgedBatch
from pykbroker.share_partitions.acquisition import Acquisition, FetchedBatch
from pykbroker.share_partitions.leader import LeaderState, ShareEnvironment, ShareLeader
from pykbroker.share_state.state import UNINITIALIZED_START_OFFSET, PartitionState, Refusal, SharePartitionKey
from tests.pykbroker.share_partitions.machine import DEFAULT_SETTINGS

ACCEPT = 1


class Rig:
    """A leader with its partition, and a persister that knows no state of it and refuses every write.

    Attributes:
        forgotten: leaders that have ended by themselves.
        on_read: called while the state is read.
    """

    def __init__(self, auto_offset_reset: str = "earliest", **partition: Any) -> None:
        self.forgotten: list[ShareLeader] = []
        self.on_read: Callable[[], object] = lambda: None
        fields = {
            "leadership": object(),
            "leader_epoch": 3,
            "log_start_offset": 0,
            "high_watermark": 10,
            "replica": SimpleNamespace(waiters=set()),
            **partition,
        }
        settings = DEFAULT_SETTINGS._replace(auto_offset_reset=auto_offset_reset)
        persister: Any = self
        self.leader = ShareLeader(
            1,
            SharePartitionKey("g", bytes(16), 0),
            SimpleNamespace(**fields),  # type: ignore[arg-type]
            lambda: settings,
            ShareEnvironment(
                persister,
                start_soon=self.start_soon,
                now_ms=lambda: 0,
                wall_ms=lambda: 0,
                plan_expiry=lambda leader: None,
                forget=self.forgotten.append,
            ),
        )

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> PartitionState:
        self.on_read()
        return PartitionState(0, UNINITIALIZED_START_OFFSET, ())

    def start_soon(self, task: Callable[[], Awaitable[None]]) -> None:
        pytest.fail("a refused write has no task")

    def begin_write(self, key: SharePartitionKey, write: Any) -> Any:
        return Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading")


async def test_a_leader_that_ends_while_its_state_is_read_stays_ended() -> None:
    rig = Rig()
    rig.on_read = rig.leader.end
    await rig.leader.load()
    assert rig.leader.state is LeaderState.ENDED
    assert rig.leader.load_error is None
    assert rig.forgotten == []


@pytest.mark.parametrize(
    ("rig", "error"),
    [
        # A new leader does not know yet what is committed.
        (Rig("latest", is_behind_its_epoch=True), ErrorCode.OFFSET_NOT_AVAILABLE),
        (Rig("by_duration:PT1H", log=SimpleNamespace()), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
async def test_a_first_start_offset_that_cannot_be_found(rig: Rig, error: ErrorCode) -> None:
    def fail(timestamp_ms: int) -> Any:
        raise StorageError("/data/t-0", "input/output error")

    log: Any = getattr(rig.leader.partition, "log", None)
    if log is not None:
        log.offset_for_timestamp = fail
    await rig.leader.load()
    assert rig.leader.load_error is not None
    assert rig.leader.load_error.error_code == error
    assert (rig.leader.state, rig.forgotten) == (LeaderState.ENDED, [rig.leader])


async def test_a_write_that_is_refused_at_once_is_rolled_back() -> None:
    """P-181: the member holds the records as before."""
    rig = Rig()
    leader = rig.leader
    await leader.load()
    Acquisition(leader.shares, "m", 0, records_max=5, is_record_limit=False, batch_size=5).acquire(
        0, [FetchedBatch(0, 4)]
    )
    outcome = leader.acknowledge("m", [AcknowledgedBatch(0, 4, (ACCEPT,))])
    leader.store()
    assert outcome.is_complete
    assert (outcome.error, outcome.message) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "loading")
    assert [batch.state.member_id for batch in leader.shares.batches] == ["m"]
    assert leader.state is LeaderState.ACTIVE


async def test_a_member_without_records_releases_nothing() -> None:
    rig = Rig()
    await rig.leader.load()
    outcome = rig.leader.release("m")
    assert (outcome.is_complete, outcome.error) == (True, ErrorCode.NONE)


async def test_locks_of_a_leader_that_has_ended_expire_elsewhere() -> None:
    """Its successor has loaded the records without the members that held them."""
    rig = Rig()
    await rig.leader.load()
    Acquisition(rig.leader.shares, "m", -60_000, records_max=5, is_record_limit=False, batch_size=5).acquire(
        0, [FetchedBatch(0, 4)]
    )
    rig.leader.end()
    rig.leader.expire_locks()
    assert [batch.state.member_id for batch in rig.leader.shares.batches] == ["m"]


class SlowRig(Rig):
    """A persister whose writes end when the test lets them.

    Attributes:
        begun: ends of the writes that have begun.
        tasks: tasks that the leader has started.
    """

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[trio.Event] = []
        self.tasks: list[Callable[[], Awaitable[None]]] = []

    def start_soon(self, task: Callable[[], Awaitable[None]]) -> None:
        self.tasks.append(task)

    def begin_write(self, key: SharePartitionKey, write: Any) -> Any:
        end = trio.Event()
        self.begun.append(end)

        async def wait() -> None:
            await end.wait()

        return wait


async def test_a_leader_is_drained_when_its_last_write_has_ended() -> None:
    """Also the second time that it has something to write."""
    rig = SlowRig()
    leader = rig.leader
    await leader.load()
    async with trio.open_nursery() as nursery:
        for first in (0, 5):
            Acquisition(leader.shares, "m", 0, records_max=5, is_record_limit=False, batch_size=5).acquire(
                0, [FetchedBatch(first, first + 4)]
            )
            outcome = leader.acknowledge("m", [AcknowledgedBatch(first, first + 4, (ACCEPT,))])
            assert not rig.tasks
            leader.store()
            nursery.start_soon(rig.tasks.pop())
            drained = trio.Event()

            async def drain(event: trio.Event = drained) -> None:
                await leader.drained()
                event.set()

            nursery.start_soon(drain)
            await trio.testing.wait_all_tasks_blocked()
            assert (outcome.is_complete, drained.is_set()) == (False, False)
            rig.begun.pop().set()
            await trio.testing.wait_all_tasks_blocked()
            assert (outcome.is_complete, drained.is_set()) == (True, True)
    assert leader.shares.start_offset == 10
