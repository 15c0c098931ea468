"""A full disk on some of several brokers: others lead what they have too, and it comes back when there is space."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from pykbroker.controller.metadata.image import ClusterImage, ImageDelta, PartitionImage, TopicImage
from pykbroker.logstore.errors import StorageError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from pykbroker.protocol.steps import PIECE
from pykbroker.protocol.uuids import LOST_DIRECTORY
from pykbroker.replication.full_disk import FullDisk, ReportedFailures
from pykbroker.replication.full_disk_rules import (
    CALM_S,
    CHECK_INTERVAL_S,
    PAUSE_MAX_S,
    PAUSE_MIN_S,
    ROOM_MAX_BYTES,
    ROOM_MIN_BYTES,
    DiskFullness,
    has_room,
    replica_moves,
    required_space,
)
from tests.pykbroker.replication.test_three_brokers import create, fetch, partition, produce, until_in_sync, values
from tests.pykbroker.test_three_nodes import Cluster
from tests.support.fake_filesystem import FakeFileSystem

HERE, REAL, OTHER = 1, b"\1" * 16, b"\2" * 16
KEY = (b"t" * 16, 0)
MIB = 1 << 20


# Pure


def test_who_was_full_looks_for_space_after_a_pause_that_grows() -> None:
    room = DiskFullness()
    now, pauses = 1000.0, []
    for _ in range(9):
        room.fill(now)
        assert room.is_full
        room.fill(now + 0.5)
        pauses.append(room.check_at - now)
        now = room.check_at
        room.checked(now, has_room=False)
        assert room.is_full
        assert room.check_at == now + CHECK_INTERVAL_S
        now += CHECK_INTERVAL_S
        room.checked(now, has_room=True)
        assert not room.is_full
    assert pauses == [PAUSE_MIN_S * 2**n for n in range(6)] + [PAUSE_MAX_S] * 3
    room.fill(now + CALM_S)
    assert room.check_at == now + CALM_S + PAUSE_MIN_S


@pytest.mark.parametrize(
    ("total", "wanted"), [(0, ROOM_MIN_BYTES), (1000 * MIB, 10 * MIB), (100 << 30, ROOM_MAX_BYTES)]
)
def test_how_much_room_is_wanted(total: int, wanted: int) -> None:
    assert required_space(total) == wanted


def test_room_is_space_that_can_be_used() -> None:
    filesystem = FakeFileSystem(capacity_bytes=100 * MIB)
    filesystem.make_directory("/data")
    assert has_room(filesystem, "/data")
    assert filesystem.list("/data") == []
    filesystem.fail_next["write_file"] = StorageError("/data", "Disk quota exceeded")
    assert not has_room(filesystem, "/data")
    filesystem.write_file("/data/big", bytes(97 * MIB))
    assert not has_room(filesystem, "/data")
    filesystem.remove("/data/big")
    assert has_room(filesystem, "/data")
    filesystem.fail_next["space"] = StorageError("/data", "Input/output error")
    assert not has_room(filesystem, "/data")


def image_with(isr: tuple[int, ...], directory: bytes, leader: int, eligible: tuple[int, ...] = ()) -> ClusterImage:
    image = ClusterImage()
    found = PartitionImage(
        0, (1, 2), isr, leader, 0, 0, directories=(directory, OTHER), eligible_leader_replicas=eligible
    )
    topic = TopicImage("t", KEY[0], {0: found})
    image.topics_by_name, image.topics_by_id = {"t": topic}, {KEY[0]: topic}
    return image


Moves = tuple[list[object], list[object]]
LEAVE: Moves = ([KEY], [])
COME_BACK: Moves = ([], [KEY])
MOVES: dict[tuple[bool, tuple[int, ...], bytes], Moves] = {
    (True, (1, 2), REAL): LEAVE,
    # It came back into the set by a fetch that was on the way.
    (True, (1, 2), LOST_DIRECTORY): LEAVE,
    # The other one went meanwhile: nobody but this broker can lead it.
    (True, (1,), LOST_DIRECTORY): COME_BACK,
    (False, (2,), LOST_DIRECTORY): COME_BACK,
    (False, (1, 2), LOST_DIRECTORY): COME_BACK,
    (False, (1,), LOST_DIRECTORY): COME_BACK,
}


@pytest.mark.parametrize("is_full", [True, False])
def test_which_replicas_are_given_up_and_taken_up(is_full: bool) -> None:
    for isr, directory, leader in product([(1, 2), (1,), (2,)], [REAL, LOST_DIRECTORY], [1, 2]):
        expected = MOVES.get((is_full, isr, directory), ([], []))
        assert replica_moves(image_with(isr, directory, leader), HERE, (), is_full=is_full) == expected


def test_replicas_of_others_stay_where_they_are() -> None:
    for is_full in (True, False):
        assert replica_moves(image_with((1, 2), LOST_DIRECTORY, 1), 9, {KEY}, is_full=is_full) == ([], [])


def test_what_was_taken_up_and_has_no_leader_is_told_again() -> None:
    """For Kafka's controller, which elects one then."""
    leaderless = image_with((1,), REAL, -1)
    assert replica_moves(leaderless, HERE, {KEY}, is_full=True) == COME_BACK
    assert replica_moves(leaderless, HERE, (), is_full=True) == ([], [])
    assert replica_moves(image_with((1,), REAL, 1), HERE, {KEY}, is_full=True) == ([], [])
    assert replica_moves(image_with((2,), REAL, -1), HERE, {KEY}, is_full=True) == ([], [])


@pytest.mark.parametrize("is_full", [True, False])
def test_an_eligible_replica_comes_back_where_nobody_is_in_sync(is_full: bool) -> None:
    """Kafka's controller takes the last replica out of the in-sync set, and has it among the eligible (KIP-966)."""
    assert replica_moves(image_with((), LOST_DIRECTORY, -1, (1,)), HERE, (), is_full=is_full) == COME_BACK
    assert replica_moves(image_with((), REAL, -1, (1,)), HERE, {KEY}, is_full=is_full) == COME_BACK
    assert replica_moves(image_with((), REAL, -1, (2,)), HERE, {KEY}, is_full=is_full) == ([], [])
    expected: Moves = ([], []) if is_full else COME_BACK
    assert replica_moves(image_with((), LOST_DIRECTORY, -1, (2,)), HERE, (), is_full=is_full) == expected


# Whole brokers


def run(scenario: Callable[[Cluster], Awaitable[None]], kind: str = "three") -> None:
    Cluster(kind).run(scenario)


async def fill(cluster: Cluster, *nodes: int) -> None:
    # Some seconds after the start there is space for metadata.
    await trio.sleep(max(0.0, 11 - trio.current_time()))
    for node in nodes:
        disk = cluster.world.machines[f"n{node}"].disk
        disk.capacity_bytes = disk.used_bytes()


def empty(cluster: Cluster, *nodes: int) -> None:
    for node in nodes:
        cluster.world.machines[f"n{node}"].disk.capacity_bytes = None


async def leader_other_than(cluster: Cluster, node: int, ask: int) -> int:
    with trio.fail_after(20):
        while (leader := (await partition(cluster, ask)).leader_id) in (node, -1):
            await trio.sleep(0.02)
    return int(leader)


async def produce_until_taken(cluster: Cluster, topic_id: bytes, value: str, ask: int, acks: int = -1) -> float:
    """As a client does; how long it took."""
    began = trio.current_time()
    with trio.fail_after(20):
        while True:
            found = await partition(cluster, ask)
            if found.leader_id >= 0:
                answer = await produce(cluster, found.leader_id, topic_id, value, acks=acks)
                if answer.error_code == 0:
                    return trio.current_time() - began
            await trio.sleep(0.05)


async def prefer(cluster: Cluster, ask: int) -> int:
    topics = [TopicPartitions(topic="t", partitions=[0])]
    answer = await cluster.ask(ask, ElectLeadersRequest(election_type=0, topic_partitions=topics, timeout_ms=5000))
    code: int = answer.replica_election_results[0].partition_result[0].error_code
    return code


@pytest.mark.parametrize("kind", ["three", "apart"])
def test_others_lead_until_there_is_space(kind: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        topic_id = await create(cluster, [1, 2, 3], min_insync_replicas="2")
        assert (await produce(cluster, 1, topic_id, "a")).error_code == 0
        await fill(cluster, 1)
        assert (await produce(cluster, 1, topic_id, "b" * 9000)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await produce_until_taken(cluster, topic_id, "c" * 9000, 2) < 1.5
        found = await partition(cluster, 2)
        assert (found.leader_id, sorted(found.isr_nodes), found.offline_replicas) == (2, [2, 3], [1])
        # It knows that it leads no more, sends readers away, and is not asked to lead again.
        await trio.sleep(1)
        assert (await produce(cluster, 1, topic_id, "d")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await fetch(cluster, 1, topic_id)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await prefer(cluster, 2) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        await trio.sleep(10)
        assert sorted((await partition(cluster, 1)).isr_nodes) == [2, 3]
        empty(cluster, 1)
        await until_in_sync(cluster, 2, 1, 2, 3)
        assert (await partition(cluster, 2)).offline_replicas == []
        assert await prefer(cluster, 2) == 0
        assert await leader_other_than(cluster, 2, 1) == 1
        assert (await produce(cluster, 1, topic_id, "e")).error_code == 0
        await trio.sleep(1)
        for node in (1, 2, 3):
            assert await values(cluster, node, topic_id) == ["a", "c" * 9000, "e"]

    run(scenario, kind)


def test_a_follower_with_a_full_disk_does_not_hold_producers_up() -> None:
    """It would be in the in-sync set for replica.lag.time.max.ms, and acks=all would wait for it."""

    async def scenario(cluster: Cluster) -> None:
        topic_id = await create(cluster, [1, 2, 3], min_insync_replicas="2")
        assert (await produce(cluster, 1, topic_id, "a")).error_code == 0
        await fill(cluster, 3)
        began = trio.current_time()
        assert (await produce(cluster, 1, topic_id, "b" * 9000)).error_code == 0
        assert trio.current_time() - began < 1.0
        assert sorted((await partition(cluster, 1)).isr_nodes) == [1, 2]
        empty(cluster, 3)
        await until_in_sync(cluster, 1, 1, 2, 3)

    Cluster("three", replica_lag_time_max_ms="30000").run(scenario)


def test_the_active_controller_on_a_full_disk_hands_over_too() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.controller(1)
        first, other = leader, leader % 3 + 1
        topic_id = await create(cluster, [first, other], min_insync_replicas="1")
        assert (await produce(cluster, first, topic_id, "a")).error_code == 0
        await fill(cluster, first)
        assert await produce_until_taken(cluster, topic_id, "b" * 9000, other) < 1.5
        assert (await partition(cluster, other)).leader_id == other
        assert cluster.world.machines[f"n{first}"].is_up

    run(scenario)


@pytest.mark.parametrize("acks", [1, -1])
def test_the_last_in_sync_replica_stays_and_is_read(acks: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        topic_id = await create(cluster, [1], min_insync_replicas="1")
        assert (await produce(cluster, 1, topic_id, "a", acks=acks)).error_code == 0
        await fill(cluster, 1)
        for _ in range(5):
            answer = await produce(cluster, 1, topic_id, "b" * 9000, acks=acks)
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert await values(cluster, 1, topic_id) == ["a"]
            await trio.sleep(1)
        found = await partition(cluster, 2)
        assert (found.leader_id, found.isr_nodes, found.offline_replicas) == (1, [1], [])
        empty(cluster, 1)
        # At once: it was not given up.
        assert (await produce(cluster, 1, topic_id, "c", acks=acks)).error_code == 0
        assert await values(cluster, 1, topic_id) == ["a", "c"]

    run(scenario)


def test_the_last_one_hands_over_as_soon_as_another_is_in_sync() -> None:
    async def scenario(cluster: Cluster) -> None:
        topic_id = await create(cluster, [1, 2], min_insync_replicas="1")
        cluster.world.machines["n2"].kill()
        await until_in_sync(cluster, 3, 1)
        assert (await produce(cluster, 1, topic_id, "a")).error_code == 0
        await fill(cluster, 1)
        assert (await produce(cluster, 1, topic_id, "b" * 9000)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await trio.sleep(3)
        assert (await partition(cluster, 3)).leader_id == 1
        cluster.world.machines["n2"].start()
        assert await leader_other_than(cluster, 1, 3) == 2
        # Node 3 may know of the new leader a moment before node 2 does.
        assert await leader_other_than(cluster, 1, 2) == 2
        assert (await produce(cluster, 2, topic_id, "c" * 9000)).error_code == 0
        empty(cluster, 1)
        await until_in_sync(cluster, 3, 1, 2)

    run(scenario)


def test_disks_that_are_all_full_leave_somebody_to_read_from() -> None:
    """Several nodes on one disk, for instance: the last one in sync keeps the lead, whoever was faster."""

    async def scenario(cluster: Cluster) -> None:
        topic_id = await create(cluster, [1, 2, 3], min_insync_replicas="2")
        assert (await produce(cluster, 1, topic_id, "a", acks=1)).error_code == 0
        await fill(cluster, 1, 2, 3)
        with trio.move_on_after(10):
            while True:
                found = await partition(cluster, 3)
                assert found.leader_id > 0
                await produce(cluster, found.leader_id, topic_id, "b" * 9000, acks=1)
                await trio.sleep(0.02)
        found = await partition(cluster, 1)
        assert len(found.isr_nodes) == 1
        assert await values(cluster, found.leader_id, topic_id) in (["a"], [])
        empty(cluster, 1, 2, 3)
        await until_in_sync(cluster, 1, 1, 2, 3)
        await produce_until_taken(cluster, topic_id, "c", 1)

    run(scenario)


def test_a_broker_that_restarts_on_a_full_disk_stays_out_until_there_is_space() -> None:
    async def scenario(cluster: Cluster) -> None:
        topic_id = await create(cluster, [1, 2, 3], min_insync_replicas="2")
        await fill(cluster, 1)
        await produce_until_taken(cluster, topic_id, "a" * 9000, 2)
        machine = cluster.world.machines["n1"]
        machine.kill()
        # The start itself needs a little space.
        machine.disk.capacity_bytes = machine.disk.used_bytes() + 2_000_000
        machine.start()
        await cluster.until(lambda: machine.is_ready)
        await trio.sleep(10)
        found = await partition(cluster, 2)
        assert (sorted(found.isr_nodes), found.offline_replicas) == ([2, 3], [1])
        empty(cluster, 1)
        await until_in_sync(cluster, 2, 1, 2, 3)

    run(scenario)


def test_what_is_acknowledged_with_acks_1_goes_along() -> None:
    """The others fetch the end of the log before they lead."""

    async def scenario(cluster: Cluster) -> None:
        topic_id = await create(cluster, [1, 2, 3], min_insync_replicas="1")
        taken = []
        for number in range(40):
            if number == 20:
                await fill(cluster, 1)
            with trio.fail_after(10):
                while True:
                    leader = (await partition(cluster, 2)).leader_id
                    value = f"{number:03}" + "." * (9000 if leader == 1 else 0)
                    if (await produce(cluster, leader, topic_id, value, acks=1)).error_code == 0:
                        break
                    # What fits at the end of a block is taken by a disk that is full otherwise.
                    await produce(cluster, leader, topic_id, "x", acks=1)
            taken.append(f"{number:03}")
        found = await partition(cluster, 2)
        assert found.leader_id != 1
        await trio.sleep(1)
        assert [v[:3] for v in await values(cluster, found.leader_id, topic_id) if v != "x"] == taken

    run(scenario)


def test_topics_that_are_made_meanwhile_are_led_by_others() -> None:
    async def scenario(cluster: Cluster) -> None:
        await create(cluster, [1, 2, 3], min_insync_replicas="2")
        await fill(cluster, 1)
        topic = CreatableTopic(
            name="u",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3])],
        )
        answer = await cluster.ask(2, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert answer.topics[0].error_code == 0
        await trio.sleep(1)
        # More than what is given back for metadata at once.
        await produce(cluster, 1, answer.topics[0].topic_id, "a" * 30_000)
        assert await leader_of(cluster, "u", 2, not_by=1) in (2, 3)
        empty(cluster, 1)
        with trio.fail_after(30):
            while len((await cluster.topics(2))["u"].partitions[0].isr_nodes) < 3:
                await trio.sleep(0.1)

    run(scenario)


async def leader_of(cluster: Cluster, topic: str, ask: int, not_by: int) -> int:
    with trio.fail_after(10):
        while True:
            leader = (await cluster.topics(ask))[topic].partitions[0].leader_id
            if leader not in (-1, not_by):
                return int(leader)
            await trio.sleep(0.02)


def test_a_disk_that_takes_nothing_for_another_reason() -> None:
    """Read-only after an error, for instance. One file that fails is no reason."""

    async def scenario(cluster: Cluster) -> None:
        topic_id = await create(cluster, [1, 2, 3], min_insync_replicas="2")
        disk = cluster.world.machines["n1"].disk
        disk.failing = frozenset({"append_mapped"})
        assert (await produce(cluster, 1, topic_id, "a")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await trio.sleep(2)
        assert (await partition(cluster, 2)).leader_id == 1
        await trio.sleep(10)
        cluster.world.machines["n1"].is_failing = True
        disk.failing = frozenset({"append_mapped", "write_file"})
        await produce(cluster, 1, topic_id, "a")
        await leader_other_than(cluster, 1, 2)
        disk.failing = frozenset()

    Cluster("apart").run(scenario)


@pytest.mark.parametrize(("count", "is_seen_at_once"), [(PIECE, True), (PIECE + 1, False)])
@pytest.mark.parametrize("has_lost", [False, True])
async def test_many_changed_partitions_are_looked_at_after_the_image_is_applied(
    count: int, is_seen_at_once: bool, has_lost: bool
) -> None:
    """One of them may be in the lost directory, from a request that was made while the disk was full."""
    unused: Any = SimpleNamespace(environment=SimpleNamespace(node_id=HERE))
    failures = ReportedFailures()
    full_disk = FullDisk(failures, unused, unused, REAL, ClusterImage, unused, lambda: None)
    full_disk._may_have_lost = False
    old, new = ClusterImage(), ClusterImage()
    directories = [REAL] * (count - 1) + [LOST_DIRECTORY if has_lost else REAL]
    new.delta = ImageDelta(
        changed_topics=tuple(
            (TopicImage("t", bytes(16), {}), TopicImage("t", bytes(16), {0: lost_or_not(directory)}))
            for directory in directories
        )
    )
    full_disk.apply(old, new)
    assert full_disk._may_have_lost == (has_lost and is_seen_at_once)
    assert failures.wake.is_set() == (has_lost or not is_seen_at_once)
    await full_disk._find_lost_in_changes()
    assert full_disk._may_have_lost == has_lost


def lost_or_not(directory: bytes) -> PartitionImage:
    return PartitionImage(0, (HERE,), (HERE,), HERE, 0, 0, directories=(directory,))
