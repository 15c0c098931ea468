"""Events while a load imports the modules of a shard, which is done once in a process, in turns with other tasks."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pykbroker.protocol.error_codes import ErrorCode
from tests.pykbroker.coordination.test_runtime import PARTITIONS, TOPIC, LeaseShard, Rig
from tests.support.data_path import topic_image

MODULES = tuple(f"lease_module_{number}" for number in range(20))


def imported() -> int:
    return sum(name in sys.modules for name in MODULES)


@pytest.fixture(autouse=True)
def _modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules that nobody has imported yet, each of which takes a turn."""
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    for name in MODULES:
        (tmp_path / f"{name}.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in MODULES:
        sys.modules.pop(name, None)


@asynccontextmanager
async def importing(folder: Path) -> AsyncIterator[Rig]:
    """A broker that has become leader of new partitions and imports the modules of a shard."""
    rig = Rig(folder / "logs", has_topic=False, shard_modules=MODULES)
    async with rig.running():
        rig.lead(1)
        assert not rig.runtime.shards
        while not imported():
            assert rig.runtime.is_loading
            await trio.lowlevel.checkpoint()
        yield rig
        await wait_all_tasks_blocked()
        assert imported() == len(MODULES)


def epochs(rig: Rig) -> list[int]:
    return [shard.leader_epoch for shard in rig.runtime.shards.values()]


def nothing(rig: Rig) -> None: ...


def again(rig: Rig) -> None:
    """A change of the topic that leaves leaders as they are, and the periodic retry."""
    rig.lead(1)
    rig.runtime.load_missing()


def resign_and_lead(rig: Rig) -> None:
    rig.lead(2, leader=2)
    rig.lead(3)


def recreate(rig: Rig) -> None:
    rig.change()
    rig.lead(1)


def stop_and_follow(rig: Rig) -> None:
    rig.runtime.stop()
    rig.lead(2)


@pytest.mark.parametrize(
    ("event", "error", "served"),
    [
        (nothing, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [1] * PARTITIONS),
        (again, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [1] * PARTITIONS),
        (lambda rig: rig.lead(2), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [2] * PARTITIONS),
        (resign_and_lead, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [3] * PARTITIONS),
        (recreate, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [1] * PARTITIONS),
        (lambda rig: rig.lead(2, leader=2), ErrorCode.NOT_COORDINATOR, []),
        (lambda rig: rig.change(), ErrorCode.NOT_COORDINATOR, []),
        (stop_and_follow, ErrorCode.COORDINATOR_NOT_AVAILABLE, []),
    ],
)
async def test_a_change_meanwhile_counts(
    tmp_path: Path, event: Callable[[Rig], None], error: ErrorCode, served: list[int]
) -> None:
    """Each shard is made once, under the epoch that counts in the end; until then clients are told to come again."""
    made: list[int] = []

    def make(epoch: int) -> LeaseShard:
        made.append(epoch)
        return LeaseShard(epoch)

    async with importing(tmp_path) as rig:
        rig.runtime._loaded._make_shard = make
        assert rig.owner() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        event(rig)
        assert 0 < imported() < len(MODULES)
        assert rig.owner() is error
        assert await rig.acquire() is error
        await wait_all_tasks_blocked()
        assert epochs(rig) == made == served
        assert rig.owner() is (None if served else error)
        assert not rig.runtime.is_loading


async def test_a_log_that_is_not_empty_any_more_is_read(tmp_path: Path) -> None:
    async with importing(tmp_path) as rig:
        rig.append("x", (b"x", b"a 9999999999999"))
        await wait_all_tasks_blocked()
        assert (rig.owner(), epochs(rig)) == ("a", [1] * PARTITIONS)


async def test_the_next_new_partitions_are_led_at_once(tmp_path: Path) -> None:
    async with importing(tmp_path) as rig:
        await wait_all_tasks_blocked()
        rig.change()
        rig.change(topic_image(TOPIC, PARTITIONS))
        assert len(rig.runtime.shards) == PARTITIONS


async def test_the_import_goes_on_after_the_task_that_did_it_ends(tmp_path: Path) -> None:
    """As when the client that asked for a coordinator closes its connection."""
    rig = Rig(tmp_path / "logs", has_topic=False, shard_modules=MODULES)
    async with rig.running():
        async with trio.open_nursery() as asking:
            asking.start_soon(rig.runtime.import_shard)
            while not imported():
                await trio.lowlevel.checkpoint()
            rig.lead(1)
            asking.cancel_scope.cancel()
        await wait_all_tasks_blocked()
        assert epochs(rig) == [1] * PARTITIONS


async def test_a_broker_that_starts_loads_new_partitions_after_the_import(tmp_path: Path) -> None:
    """The metadata arrives before the coordinators run."""
    rig = Rig(tmp_path / "logs", has_topic=False, shard_modules=MODULES)
    rig.lead(1)
    assert (epochs(rig), imported()) == ([], 0)
    async with rig.running():
        assert epochs(rig) == [1] * PARTITIONS
