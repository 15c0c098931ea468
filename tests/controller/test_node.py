"""ControllerNode: a quorum of one from an empty directory on; restarts, batching, full disks, snapshots."""

from __future__ import annotations

import gc
import weakref
from contextlib import suppress
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker.controller.command_queue import ROUND_SIZE_MAX
from pykbroker.controller.metadata.bootstrap import Bootstrap
from pykbroker.controller.metadata.commands import ApiError, Command, CommandRefused, Plan, PlanContext
from pykbroker.controller.metadata.configs import SET, ConfigEdit, ConfigResourceEdits, IncrementalAlterConfigs
from pykbroker.controller.metadata.features import BOOTSTRAP_LEVELS, FeatureUpdate, UpdateFeatures
from pykbroker.controller.metadata.image import EMPTY_IMAGE, TOPIC_RESOURCE, ClusterImage, ImageDelta
from pykbroker.controller.metadata.producer_id_blocks import AllocateProducerIds
from pykbroker.controller.metadata.record_framing import encode_record
from pykbroker.controller.metadata.topics import CreateTopics, DeleteTopics, NewTopic, TopicReference
from pykbroker.controller.node import ControllerNode
from pykbroker.controller.raft.messages import VoteResponse
from pykbroker.controller.raft.quorum import ReplicaKey
from pykbroker.logstore.errors import CorruptFile, InconsistentDirectory, StorageError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import EncodeError
from pykbroker.protocol.log_messages.metadata_records import NoOpRecord, RemoveTopicRecord
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.record import Record
from pykbroker.protocol.steps import finished
from tests.controller.nodes import DATA, WALL_CLOCK_MS, make_node, register_broker, running
from tests.support.fake_filesystem import FakeFileSystem

FOLDER = f"{DATA}/__cluster_metadata-0"


async def create(node: ControllerNode, *names: str, **more: Any) -> None:
    results = await node.submit(CreateTopics([NewTopic(name, **more) for name in names]), timeout_ms=1000)
    assert all(not result.error.is_failure for result in results), results


async def test_an_empty_folder_becomes_a_quorum_of_one() -> None:
    """Without a format step: the node creates the directory, leads its first epoch and writes the first records."""
    filesystem = FakeFileSystem()
    node = make_node(filesystem)
    node.open()
    assert node.is_leader
    assert node.image.features == BOOTSTRAP_LEVELS
    assert filesystem.read_file(f"{FOLDER}/quorum-state") == (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],'
        b'"data_version":0}'
    )
    assert filesystem.read_file(f"{FOLDER}/partition.metadata") == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    node.close()


async def test_a_folder_from_before_a_feature_stays_at_level_0_until_it_is_raised() -> None:
    """P-158: transaction.version of a cluster that was made without it."""
    filesystem = FakeFileSystem()
    async with running(filesystem, bootstrap_levels={"metadata.version": 30}) as node:
        await register_broker(node)
    async with running(filesystem) as node:
        assert node.image.features == {"metadata.version": 30}
        result = await node.submit(UpdateFeatures([FeatureUpdate("transaction.version", 2)]), timeout_ms=5000)
        assert not result.is_failure
    async with running(filesystem) as node:
        assert node.image.features == {"metadata.version": 30, "transaction.version": 2}


async def test_a_command_is_done_when_everybody_knows() -> None:
    filesystem = FakeFileSystem()
    seen: list[tuple[int, int]] = []
    async with running(filesystem) as node:
        node.subscribe(lambda old, new: seen.append((len(old.topics_by_name), len(new.topics_by_name))))
        await register_broker(node)
        await create(node, "a", "b")
        assert seen[-1] == (0, 2)
        assert set(node.image.topics_by_name) == {"a", "b"}


async def test_a_late_subscriber_is_told_everything_at_once() -> None:
    async with running(FakeFileSystem()) as node:
        await register_broker(node)
        await create(node, "a")
        seen: list[tuple[ClusterImage, ClusterImage, ImageDelta]] = []
        node.subscribe(lambda old, new: seen.append((old, new, new.delta)))
        ((old, new, delta),) = seen
        assert old is EMPTY_IMAGE
        assert new == node.image
        assert [topic.name for topic in delta.created_topics] == ["a"]
        assert delta.brokers == {1}
        await node.submit(DeleteTopics([TopicReference("a")]), 1000)
        _, newest, delta = seen[-1]
        assert [topic.name for topic in delta.deleted_topics] == ["a"]
        assert new.delta == newest.delta == ImageDelta(), "it would keep a deleted topic until the next image"


@pytest.mark.parametrize("is_clean", [True, False])
async def test_a_restart_gives_the_same_image(is_clean: bool) -> None:
    filesystem = FakeFileSystem()
    async with running(filesystem, stops_cleanly=is_clean) as node:
        await register_broker(node)
        await create(node, "a", "b", "c", configs=[("retention.ms", "5")])
        await node.submit(DeleteTopics([TopicReference("b")]), 1000)
        await node.submit(AllocateProducerIds(1, node.image.brokers[1].epoch), 1000)
        before = node.image
    if not is_clean:
        filesystem.crash()
    async with running(filesystem, is_clean=is_clean) as node:
        assert node.image == before
        assert node.quorum_state().epoch == 2
        block = await node.submit(AllocateProducerIds(1, node.image.brokers[1].epoch), 1000)
        assert block.first_id == 1000  # P-59: never the same block twice


async def test_a_mark_of_a_clean_stop_that_is_not_true_does_no_harm() -> None:
    """A start that was killed before it removed the mark leaves it beside a log file that is longer than its data."""
    filesystem = FakeFileSystem()
    async with running(filesystem, stops_cleanly=False) as node:
        await register_broker(node)
        await create(node, "a")
        before = node.image
    path = f"{FOLDER}/00000000000000000000.log"
    descriptor = filesystem.open(path)
    filesystem.truncate(descriptor, filesystem.file_size(path) + 5000)
    filesystem.close(descriptor)
    async with running(filesystem, is_clean=True) as node:
        assert node.image == before
        await create(node, "b")


async def test_what_was_answered_survives_the_loss_of_power() -> None:
    """Durable before acknowledged: after each response the disk loses everything that was not synced."""
    filesystem = FakeFileSystem()
    async with running(filesystem, stops_cleanly=False) as node:
        await register_broker(node)
    names: set[str] = set()
    for number in range(4):
        async with running(filesystem, stops_cleanly=False) as node:
            names.add(f"t{number}")
            await create(node, f"t{number}")
        filesystem.crash()
    async with running(filesystem) as node:
        assert set(node.image.topics_by_name) == names
        assert node.quorum_state().epoch == 6


async def test_commands_that_wait_together_share_one_sync() -> None:
    filesystem = FakeFileSystem()
    async with running(filesystem) as node:
        await register_broker(node)
        before = dict(filesystem.calls)
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(create, node, f"t{number}")
        assert filesystem.calls["sync"] - before["sync"] == 1
        assert len(node.image.topics_by_name) == 50


async def test_commands_are_gathered_for_as_long_as_was_asked_for() -> None:
    """`controller.quorum.append.linger.ms`, counted from the first command that waits."""
    filesystem = FakeFileSystem()
    async with running(filesystem, append_linger_ms=40) as node:
        await register_broker(node)
        begin, end = trio.current_time(), node.image.offset
        syncs_before = filesystem.calls["sync"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(create, node, "a")
            await trio.sleep(0.03)
            nursery.start_soon(create, node, "b")
        assert trio.current_time() - begin == pytest.approx(0.04)
        assert filesystem.calls["sync"] == syncs_before + 1
        assert node.image.offset > end
        begin = trio.current_time()
        await create(node, "c")
        assert trio.current_time() - begin == pytest.approx(0.04)
        begin = trio.current_time()
        async with trio.open_nursery() as nursery:
            for number in range(ROUND_SIZE_MAX):
                nursery.start_soon(create, node, f"t{number}")
        assert trio.current_time() == begin, "enough for one write does not wait for more"


async def test_a_command_sees_what_the_one_before_it_planned() -> None:
    """Of two commands that create the same topic at the same time, one is refused because the topic exists."""
    async with running(FakeFileSystem()) as node:
        await register_broker(node)
        codes: list[ErrorCode] = []

        async def one() -> None:
            (result,) = await node.submit(CreateTopics([NewTopic("same")]), 1000)
            codes.append(result.error.code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one)
            nursery.start_soon(one)
        assert sorted(codes) == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]


async def test_more_commands_than_one_round_takes() -> None:
    async with running(FakeFileSystem()) as node:
        await register_broker(node)
        async with trio.open_nursery() as nursery:
            for number in range(600):
                nursery.start_soon(create, node, f"t{number}")
        assert len(node.image.topics_by_name) == 600


async def test_a_full_disk_refuses_commands_and_nothing_else() -> None:
    filesystem = FakeFileSystem()
    async with running(filesystem) as node:
        await register_broker(node)
        await create(node, "before")
        filesystem.capacity_bytes = filesystem.used_bytes() + 10
        with pytest.raises(CommandRefused) as caught:
            await node.submit(CreateTopics([NewTopic("during")]), 1000)
        assert caught.value.error.code == ErrorCode.KAFKA_STORAGE_ERROR
        filesystem.capacity_bytes = None
        await create(node, "after")
        assert set(node.image.topics_by_name) == {"before", "after"}
        image = node.image
    async with running(filesystem) as node:
        assert node.image == image


async def test_a_sync_that_fails_takes_the_write_back() -> None:
    filesystem = FakeFileSystem()
    async with running(filesystem) as node:
        await register_broker(node)
        filesystem.fail_next["sync"] = StorageError(FOLDER, "input/output error")
        with pytest.raises(CommandRefused, match="input/output error"):
            await create(node, "lost")
        await create(node, "kept")
        image = node.image
    async with running(filesystem) as node:
        assert node.image == image
        assert set(node.image.topics_by_name) == {"kept"}


async def test_refusals_reach_who_asked() -> None:
    async with running(FakeFileSystem()) as node:
        with pytest.raises(CommandRefused) as caught:
            await node.submit(AllocateProducerIds(7, 0), 1000)
        assert caught.value.error.code == ErrorCode.STALE_BROKER_EPOCH
    with pytest.raises(CommandRefused) as caught:
        await node.submit(Bootstrap(), 1000)
    assert caught.value.error.code == ErrorCode.NOT_CONTROLLER


class Refused:
    """A command that is refused, as an object that one may refer to weakly."""

    def plan(self, image: ClusterImage, context: PlanContext) -> Plan[None]:
        raise CommandRefused(ErrorCode.INVALID_REQUEST, "no")


async def test_a_refused_command_is_freed_without_the_garbage_collector() -> None:
    """CI: CreateTopics with 49,000 refused names left 26 MB, when a collection had settled its objects meanwhile."""
    async with running(FakeFileSystem()) as node:
        command = Refused()
        is_there = weakref.ref(command)
        gc.disable()
        try:
            with suppress(CommandRefused):
                await node.submit(command, 1000)
            del command
            assert is_there() is None
        finally:
            gc.enable()


class Faulty:
    """A command with a fault in it."""

    def plan(self, image: ClusterImage, context: PlanContext) -> Plan[None]:
        raise KeyError("fault")


async def test_a_fault_of_a_command_is_its_callers_alone() -> None:
    async with running(FakeFileSystem()) as node:
        await register_broker(node)
        with pytest.raises(KeyError):
            await node.submit(Faulty(), 1000)
        # More bytes than a string may have on the wire, though not more characters.
        with pytest.raises(EncodeError):
            await create(node, "t", configs=[("retention.ms", "ß" * 20_000)])
        await create(node, "u")
        assert set(node.image.topics_by_name) == {"u"}


async def test_a_subscriber_that_fails_ends_the_controller() -> None:
    """Its state would be unknown from then on. A full disk of a subscriber does not end the controller."""

    def fail(old: ClusterImage, new: ClusterImage) -> None:
        if old is not EMPTY_IMAGE:
            raise StorageError("/data/t-0", "no space left on the volume")

    async def run() -> None:
        async with running(FakeFileSystem(), stops_cleanly=False) as node:
            node.subscribe(fail)
            await register_broker(node)

    with pytest.raises(ExceptionGroup) as caught:
        await run()
    assert caught.group_contains(StorageError, match="no space left")


class Huge:
    """A command whose records are too much for one batch."""

    def plan(self, image: ClusterImage, context: PlanContext) -> Plan[None]:
        edits = [ConfigEdit("retention.ms", SET, "1" * 30_000)]
        resource = ConfigResourceEdits(TOPIC_RESOURCE, "t", edits)
        records = finished(IncrementalAlterConfigs([resource]).plan_in_steps(image, context)).records
        return Plan(list(records) * 300, None)


async def test_a_command_with_too_much_to_write_is_refused() -> None:
    async with running(FakeFileSystem()) as node:
        await register_broker(node)
        await create(node, "t")
        with pytest.raises(CommandRefused) as caught:
            await node.submit(Huge(), 1000)
        assert caught.value.error.code == ErrorCode.POLICY_VIOLATION
        await create(node, "u")


async def test_a_command_that_nobody_carries_out_times_out() -> None:
    node = make_node(FakeFileSystem())
    node.open()
    with pytest.raises(CommandRefused) as caught:
        await node.submit(Bootstrap(), timeout_ms=5000)
    assert caught.value.error.code == ErrorCode.REQUEST_TIMED_OUT


async def test_the_quorum_is_described_truthfully() -> None:
    """`quorum_state` has the fields that kafka-metadata-quorum shows (KIP-836)."""
    async with running(FakeFileSystem()) as node:
        await register_broker(node)
        await trio.sleep(5)
        state = node.quorum_state()
        (voter,) = state.voters
        assert (state.leader_id, state.epoch, state.high_watermark) == (1, 1, node.image.offset + 1)
        assert (voter.key, voter.log_end_offset) == (ReplicaKey(1), state.high_watermark)
        assert voter.last_fetch_ms == voter.last_caught_up_ms == WALL_CLOCK_MS + int(trio.current_time() * 1000)
        assert state.observers == ()


async def test_a_word_from_a_later_epoch_ends_leadership() -> None:
    """Nothing is done that another leader would not know, and the refusal names that one (P-685)."""
    async with running(FakeFileSystem()) as node:
        await register_broker(node)
        node.step(VoteResponse(source=2, epoch=9, leader_id=2, is_granted=False, is_pre_vote=False))
        assert not node.is_leader
        with pytest.raises(CommandRefused) as caught:
            await create(node, "t")
        text = "The active controller appears to be node 2."
        assert caught.value.error == ApiError(ErrorCode.NOT_CONTROLLER, text)


def checkpoints(filesystem: FakeFileSystem) -> list[str]:
    return sorted(entry.name for entry in filesystem.list(FOLDER) if entry.name.endswith(".checkpoint"))


async def settle(node: ControllerNode) -> None:
    """Lets a snapshot that is due be written; its thread does not move the clock."""
    while node._snapshots.is_writing or node._snapshots.is_due(node.image, node._publisher.applied):
        await trio.sleep(0.001)


async def test_snapshots_replace_the_log_behind_them() -> None:
    filesystem = FakeFileSystem()
    async with running(filesystem, snapshot_bytes=3000, stops_cleanly=False) as node:
        await register_broker(node)
        for number in range(60):
            await create(node, f"t{number}", configs=[("retention.ms", "5")])
            await settle(node)
        image = node.image
        names = checkpoints(filesystem)
        assert len(names) == 2
        log_start = int(names[0].partition("-")[0])
        assert min(int(e.name[:20]) for e in filesystem.list(FOLDER) if e.name.endswith(".log")) == log_start > 0
    filesystem.crash()
    async with running(filesystem, snapshot_bytes=3000) as node:
        assert node.image == image
        await create(node, "more")
        await settle(node)


async def test_a_damaged_checkpoint_is_replaced_by_the_one_before() -> None:
    filesystem = FakeFileSystem()
    async with running(filesystem, snapshot_bytes=3000) as node:
        await register_broker(node)
        for number in range(60):
            await create(node, f"t{number}")
            await settle(node)
        image = node.image
    newest = f"{FOLDER}/{checkpoints(filesystem)[-1]}"
    content = filesystem.read_file(newest)
    assert content is not None
    filesystem.write_file(newest, content[:-20])
    async with running(filesystem) as node:
        assert node.image == image
    filesystem.write_file(newest, content[:200])
    oldest = f"{FOLDER}/{checkpoints(filesystem)[0]}"
    filesystem.write_file(oldest, b"")
    with pytest.raises(CorruptFile, match="checkpoint"):
        make_node(filesystem).open()


async def test_a_snapshot_is_taken_after_a_while_too() -> None:
    """metadata.log.max.snapshot.interval.ms, looked at when something was written."""
    filesystem = FakeFileSystem()
    async with running(filesystem, snapshot_interval_ms=60_000) as node:
        await register_broker(node)
        assert not checkpoints(filesystem)
        await trio.sleep(61)
        await create(node, "t")
        await settle(node)
        assert len(checkpoints(filesystem)) == 1


async def test_a_snapshot_that_cannot_be_written_changes_nothing() -> None:
    filesystem = FakeFileSystem()
    async with running(filesystem, snapshot_bytes=1000) as node:
        await register_broker(node)
        filesystem.fail_next["write_file"] = StorageError(FOLDER, "no")
        await create(node, "a", "b", "c", "d", "e")
        await settle(node)
        assert not checkpoints(filesystem)
        await create(node, "f")


NEW_QUORUM_RECORDS = 10
"""The change of leader, then three feature levels within a metadata transaction."""


def append_record(filesystem: FakeFileSystem, value: bytes) -> None:
    """Puts a record behind those of a new log."""
    path = f"{FOLDER}/00000000000000000000.log"
    batch = build_batch([Record(0, WALL_CLOCK_MS, None, value)], base_offset=NEW_QUORUM_RECORDS, leader_epoch=1)
    descriptor = filesystem.open(path)
    filesystem.append(descriptor, [batch], len(batch), filesystem.file_size(path), path)
    filesystem.close(descriptor)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\x01\x63\x00", "newer software"),
        (encode_record(RemoveTopicRecord(topic_id=bytes([9]) * 16), 30), "removal of the unknown topic id"),
    ],
)
async def test_metadata_that_cannot_be_read_is_told(value: bytes, reason: str) -> None:
    filesystem = FakeFileSystem()
    async with running(filesystem) as node:
        assert node.quorum_state().high_watermark == NEW_QUORUM_RECORDS
    append_record(filesystem, value)
    with pytest.raises(InconsistentDirectory, match=reason):
        make_node(filesystem).open()


async def test_a_damaged_quorum_state_is_not_guessed() -> None:
    filesystem = FakeFileSystem()
    async with running(filesystem):
        pass
    filesystem.write_file(f"{FOLDER}/quorum-state", b'{"leaderId":1,"data_version":0}')
    with pytest.raises(CorruptFile, match="quorum-state"):
        make_node(filesystem).open()
    filesystem.write_file(f"{FOLDER}/quorum-state", b'{"leaderId":1,"data_version":7}')
    with pytest.raises(CorruptFile, match="newer software"):
        make_node(filesystem).open()


class NoOps:
    """Writes records that change nothing."""

    def __init__(self, count: int) -> None:
        self._count = count

    def plan(self, image: ClusterImage, context: PlanContext) -> Plan[int]:
        return Plan([NoOpRecord() for _ in range(self._count)], context.next_offset)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=8), st.booleans())
def test_offsets_are_told_right(counts: list[int], together: bool) -> None:
    """A command is told the offset that its first record gets, also among others of the same round."""

    async def main() -> None:
        async with running(FakeFileSystem()) as node:
            first = node.image.offset + 1
            results: dict[int, int] = {}

            async def one(number: int, command: Command[int]) -> None:
                results[number] = await node.submit(command, 1000)

            async with trio.open_nursery() as nursery:
                for number, count in enumerate(counts):
                    if together:
                        nursery.start_soon(one, number, NoOps(count))
                    else:
                        await one(number, NoOps(count))
            spans = sorted((results[number], counts[number]) for number in results)
            for offset, count in spans:
                assert offset == first
                first += count
            assert node.quorum_state().high_watermark == first

    trio.run(main)
