"""A node with a full disk in a quorum of several: it still applies committed records, and gives up leadership."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import trio

from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.raft.log_view import OffsetAndEpoch
from pykbroker.controller.raft.messages import Message, VoteRequest, VoteResponse
from pykbroker.controller.raft.quorum import ReplicaKey
from pykbroker.controller.raft_storage import StorageSettings
from pykbroker.controller.space_reserve import FILE_NAME, FILL_INTERVAL_MS, RELEASE_STEP, SpaceReserve
from pykbroker.logstore.errors import StorageError, StorageFull
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.steps import finished
from tests.controller.nodes import DATA, register_broker
from tests.controller.test_three_nodes import Quorum, create, quorum
from tests.support.fake_filesystem import FakeFileSystem

RESERVE = 4 * RELEASE_STEP
PATH = f"{DATA}/{FILE_NAME}"


@pytest.fixture
def filesystem() -> FakeFileSystem:
    filesystem = FakeFileSystem()
    filesystem.make_directory(DATA)
    return filesystem


def test_the_reserve_is_set_aside_a_while_after_the_start(filesystem: FakeFileSystem) -> None:
    reserve = SpaceReserve(filesystem, PATH, RESERVE)
    finished(reserve.tick(1000))
    assert not filesystem.exists(PATH)
    finished(reserve.tick(1000 + FILL_INTERVAL_MS))
    assert filesystem.file_size(PATH) == RESERVE
    # Nothing to do any more.
    before = dict(filesystem.calls)
    finished(reserve.tick(1000 + 10 * FILL_INTERVAL_MS))
    assert filesystem.calls == before


def test_the_reserve_is_given_back_step_by_step_and_taken_again(filesystem: FakeFileSystem) -> None:
    filesystem.capacity_bytes = RESERVE + 100
    finished(SpaceReserve(filesystem, PATH, RESERVE).fill())
    # After a restart, too, which has not looked yet.
    reserve = SpaceReserve(filesystem, PATH, RESERVE)
    for left in (3, 2, 1, 0):
        assert reserve.release()
        assert filesystem.file_size(PATH) == left * RELEASE_STEP
    assert not reserve.release()
    filesystem.write_file(f"{DATA}/other", bytes(200))
    finished(reserve.fill())
    assert filesystem.file_size(PATH) == 0, "there is no room for all of it"
    filesystem.capacity_bytes = None
    finished(reserve.fill())
    assert filesystem.file_size(PATH) == RESERVE


LARGE = 1 << 20


def test_a_large_reserve_is_filled_in_steps(filesystem: FakeFileSystem) -> None:
    assert sum(1 for _ in SpaceReserve(filesystem, PATH, LARGE).fill()) == LARGE >> 16
    assert filesystem.file_size(PATH) == LARGE


def test_a_disk_that_becomes_full_meanwhile_gets_its_space_back(filesystem: FakeFileSystem) -> None:
    """A little space is worth more for the log than for the reserve."""
    filesystem.capacity_bytes = LARGE // 2
    finished(SpaceReserve(filesystem, PATH, LARGE).fill())
    assert filesystem.file_size(PATH) == 0


def test_a_reserve_that_is_needed_while_it_is_filled_is_not_filled_further(filesystem: FakeFileSystem) -> None:
    reserve = SpaceReserve(filesystem, PATH, LARGE)
    steps = reserve.fill()
    for _ in range(3):
        next(steps)
    assert reserve.release()
    finished(steps)
    assert filesystem.file_size(PATH) == (3 << 16) - RELEASE_STEP


def test_without_a_size_nothing_is_touched(filesystem: FakeFileSystem) -> None:
    reserve = SpaceReserve(filesystem, PATH, 0)
    before = dict(filesystem.calls)
    finished(reserve.tick(0))
    finished(reserve.tick(FILL_INTERVAL_MS))
    assert not reserve.release()
    assert filesystem.calls == before


def test_none_was_ever_set_aside(filesystem: FakeFileSystem) -> None:
    assert not SpaceReserve(filesystem, PATH, RESERVE).release()


def fill_disk(three: Quorum, node_id: int) -> None:
    disk = three.disks[node_id]
    disk.capacity_bytes = disk.used_bytes()


async def wait_applied(three: Quorum, name: str) -> None:
    with trio.fail_after(20):
        while not all(name in node.image.topics_by_name for node in three.nodes.values()):
            await trio.sleep(0.05)


@pytest.mark.parametrize("is_leader", [True, False])
async def test_on_a_full_disk_a_node_lives_on_its_reserve(is_leader: bool) -> None:
    async with quorum(StorageSettings(reserve_bytes=RESERVE)) as three:
        leader = await three.wait_for_leader()
        await register_broker(leader)
        await trio.sleep(2 * FILL_INTERVAL_MS / 1000)
        leader_id = leader.settings.node_id
        full = leader_id if is_leader else leader_id % 3 + 1
        fill_disk(three, full)
        for number in range(10):
            await create(leader, f"t{number}")
        await wait_applied(three, "t9")
        assert leader.is_leader
        disk = three.disks[full]
        assert 0 < disk.file_size(PATH) < RESERVE
        # With space again the reserve is whole again.
        disk.capacity_bytes = None
        await trio.sleep(2 * FILL_INTERVAL_MS / 1000)
        assert disk.file_size(PATH) == RESERVE


async def test_a_leader_that_cannot_write_any_more_lets_another_one_lead() -> None:
    async with quorum() as three:
        leader = await three.wait_for_leader()
        await register_broker(leader)
        await create(leader, "before")
        disk = three.disks[leader.settings.node_id]
        fill_disk(three, leader.settings.node_id)
        with pytest.raises(CommandRefused) as refused:
            await create(leader, "refused")
        assert refused.value.error.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not leader.is_leader
        # The other nodes must not wait for it.
        disk.capacity_bytes = None
        with trio.fail_after(5):
            other = await three.wait_for_leader()
            await create(other, "after")
        await wait_applied(three, "after")
        assert all(set(node.image.topics_by_name) == {"before", "after"} for node in three.nodes.values())


async def test_a_vote_that_was_not_written_is_not_given() -> None:
    """Asked again, and the disk still full: the state machine has the vote, and the disk must have it before it is
    said. A vote that a restart forgets can be given twice, which makes two leaders of one epoch."""
    async with trio.open_nursery() as nursery:
        alone = Quorum(nursery, StorageSettings())
        alone.cut_off = {2, 3}
        await alone.start(1)
        fill_disk(alone, 1)
        epoch = alone.nodes[1].quorum_state().epoch + 5
        for _ in range(2):
            with pytest.raises(StorageFull):
                alone.nodes[1].step(vote_request(2, epoch))
        assert not votes(alone.sent)
        alone.disks[1].capacity_bytes = None
        alone.nodes[1].step(vote_request(2, epoch))
        assert votes(alone.sent) == [True]
        alone.kill(1)
        await alone.start(1)
        alone.nodes[1].step(vote_request(3, epoch))
        assert votes(alone.sent) == [True, False]
        nursery.cancel_scope.cancel()


async def test_what_could_not_be_read_is_applied_when_it_can_be() -> None:
    """Nothing else is committed meanwhile, so the high watermark does not move again."""
    async with quorum() as three:
        leader = await three.wait_for_leader()
        await register_broker(leader)
        follower = three.nodes[leader.settings.node_id % 3 + 1]
        await trio.sleep(1)
        deliver, read = follower.step, follower._storage.read

        def delivered(message: Any) -> None:
            # As the handler of a request, which answers with an error.
            with suppress(StorageError):
                deliver(message)

        def cannot_read(from_offset: int, to_offset: int) -> Iterator[Any]:
            raise StorageError("metadata", "Input/output error")

        follower.step = delivered  # type: ignore[method-assign]
        follower._storage.read = cannot_read  # type: ignore[method-assign]
        await create(leader, "t")
        await trio.sleep(2)
        assert "t" not in follower.image.topics_by_name
        follower._storage.read = read  # type: ignore[method-assign]
        await wait_applied(three, "t")


def vote_request(candidate: int, epoch: int) -> VoteRequest:
    return VoteRequest(
        candidate, epoch, ReplicaKey(candidate), ReplicaKey(1), OffsetAndEpoch(1000, epoch - 1), is_pre_vote=False
    )


def votes(sent: list[Message]) -> list[bool]:
    return [message.is_granted for message in sent if isinstance(message, VoteResponse)]
