"""Changes of the metadata about thousands of things are planned and applied in steps, between which others run."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.controller import turns
from pykbroker.controller.command_queue import CommandQueue, PendingCommand, not_leader
from pykbroker.controller.image_publisher import LARGE, ImagePublisher
from pykbroker.controller.metadata.acls import AclFilter, DeleteAcls
from pykbroker.controller.metadata.commands import Command, CommandRefused, Plan, PlanContext
from pykbroker.controller.metadata.configs import SET, ConfigEdit, ConfigResourceEdits, IncrementalAlterConfigs
from pykbroker.controller.metadata.image import BROKER_RESOURCE, LARGE_DELETION, TOPIC_RESOURCE, ClusterImage
from pykbroker.controller.metadata.image_builder import ImageBuilder
from pykbroker.controller.metadata.reassignments import AlterPartitionReassignments, Reassignment
from pykbroker.controller.metadata.record_framing import encode_records
from pykbroker.controller.metadata.topics import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    NewTopic,
    TopicReference,
)
from pykbroker.controller.raft import local_messages as local
from pykbroker.controller.raft.log_view import OffsetAndEpoch
from pykbroker.controller.raft_storage import CommittedBatch
from pykbroker.protocol.acl_codes import LITERAL
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import TopicRecord
from pykbroker.protocol.records.batch import RecordFrames
from pykbroker.protocol.steps import PIECE, Steps, finished
from tests.controller.nodes import register_broker, running
from tests.controller.test_three_nodes import quorum
from tests.controller.world import World
from tests.support.fake_filesystem import FakeFileSystem

COUNT = 1000


@pytest.fixture(autouse=True)
def turns_are_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tasks run at each `yield`: the clock of these tests stands still while a task runs."""
    monkeypatch.setattr(turns, "TURN_S", -1.0)


class Ticker:
    """A task that counts its turns, and looks at the state in each."""

    def __init__(self, look: Callable[[], object]) -> None:
        self.turns = 0
        self.seen: set[object] = set()
        self._look = look

    async def run(self) -> None:
        while True:
            await trio.lowlevel.checkpoint()
            self.turns += 1
            self.seen.add(self._look())


LARGE_COMMANDS: dict[str, Command[Any]] = {
    "one topic": CreateTopics([NewTopic("big", COUNT, 1)]),
    "assigned by hand": CreateTopics([NewTopic("big", assignments=[(number, [1]) for number in range(COUNT)])]),
    "many topics": CreateTopics([NewTopic(f"n{number}", 1, 1) for number in range(COUNT)]),
    "topics that exist": CreateTopics([NewTopic(f"t{number}", 1, 1) for number in range(COUNT)]),
    "reassignments of nothing": AlterPartitionReassignments(
        [("t0", [Reassignment(number, None) for number in range(COUNT)])], False
    ),
    "deletion of ACLs": DeleteAcls([AclFilter(2, f"t{number}", LITERAL) for number in range(COUNT)]),
    "partitions": CreatePartitions([NewPartitions("t0", COUNT)]),
    "deletion": DeleteTopics([TopicReference(f"t{number}") for number in range(COUNT)]),
    "settings": IncrementalAlterConfigs(
        [
            ConfigResourceEdits(TOPIC_RESOURCE, f"t{number}", [ConfigEdit("retention.ms", SET, "5")])
            for number in range(COUNT)
        ]
    ),
}


@pytest.mark.parametrize("name", LARGE_COMMANDS)
async def test_others_run_while_a_large_command_is_planned(name: str) -> None:
    async with running(FakeFileSystem()) as node:
        await register_broker(node)
        await node.submit(CreateTopics([NewTopic(f"t{number}", 1, 1) for number in range(COUNT)]), 1000)
        ticker = Ticker(lambda: node.image.offset)
        before = node.image.offset
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ticker.run)
            await node.submit(LARGE_COMMANDS[name], 1000)
            nursery.cancel_scope.cancel()
        assert ticker.turns > COUNT // 32
        assert ticker.seen <= {before, node.image.offset}  # the old image or the new one, nothing between


async def test_a_subscriber_is_prepared_in_steps_and_then_called_once() -> None:
    async with running(FakeFileSystem()) as node:
        await register_broker(node)
        events: list[str] = []

        def prepare(old: ClusterImage, new: ClusterImage) -> Iterator[None]:
            for topic in new.delta.created_topics:
                for _ in topic.partitions:
                    assert node.image is old
                    events.append("prepared")
                    yield

        node.subscribe(lambda old, new: events.append("applied"), prepare)
        events.clear()
        await node.submit(CreateTopics([NewTopic("small", 1, 1)]), 1000)
        assert events == ["applied"]
        events.clear()
        ticker = Ticker(lambda: len(events) // COUNT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ticker.run)
            await node.submit(CreateTopics([NewTopic("big", COUNT, 1)]), 1000)
            nursery.cancel_scope.cancel()
        assert events == ["prepared"] * COUNT + ["applied"]
        assert ticker.turns > COUNT


async def test_subscribers_are_prepared_for_changed_settings_of_many_topics() -> None:
    """A default of brokers may be a setting of all topics."""

    def settings(resource_type: int, key: str, text: str, *names: str) -> IncrementalAlterConfigs:
        edits = [ConfigEdit(key, SET, text)]
        return IncrementalAlterConfigs([ConfigResourceEdits(resource_type, name, edits) for name in names])

    names = [f"t{number}" for number in range(LARGE)]
    async with running(FakeFileSystem()) as node:
        await register_broker(node)
        await node.submit(CreateTopics([NewTopic(name, 1, 1) for name in names]), 1000)
        prepared: list[int] = []

        def prepare(old: ClusterImage, new: ClusterImage) -> Iterator[None]:
            prepared.append(len(new.delta.configs))
            yield

        node.subscribe(lambda old, new: None, prepare)
        await node.submit(settings(TOPIC_RESOURCE, "retention.ms", "5", "t0"), 1000)
        assert prepared == []
        await node.submit(settings(TOPIC_RESOURCE, "retention.ms", "6", *names), 1000)
        assert prepared == [LARGE]
        await node.submit(settings(BROKER_RESOURCE, "retention.ms", "5", ""), 1000)
        assert prepared == [LARGE, 1]


async def test_subscribers_are_prepared_for_a_large_deletion() -> None:
    async with running(FakeFileSystem()) as node:
        await register_broker(node)
        await node.submit(
            CreateTopics([NewTopic("large", LARGE_DELETION, 1), NewTopic("small", LARGE_DELETION - 1, 1)]), 1000
        )
        prepared: list[str] = []

        def prepare(old: ClusterImage, new: ClusterImage) -> Iterator[None]:
            prepared.extend(topic.name for topic in new.delta.deleted_topics)
            yield

        node.subscribe(lambda old, new: None, prepare)
        for name in ("small", "large"):
            await node.submit(DeleteTopics([TopicReference(name)]), 1000)
        assert prepared == ["large"]


async def test_commands_that_come_while_others_are_planned_keep_their_order() -> None:
    async with running(FakeFileSystem()) as node:
        await register_broker(node)
        done: list[str] = []

        async def create(name: str, count: int) -> None:
            (result,) = await node.submit(CreateTopics([NewTopic(name, count, 1)]), 1000)
            assert not result.error.is_failure
            done.append(name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(create, "big", COUNT)
            await trio.testing.wait_all_tasks_blocked()
            for number in range(5):
                nursery.start_soon(create, f"small{number}", 1)
                await trio.lowlevel.checkpoint()
        assert done[0] == "big"
        assert len(node.image.topics_by_name) == 6


async def test_followers_apply_a_large_change_in_steps() -> None:
    async with quorum() as three:
        leader = await three.wait_for_leader()
        await register_broker(leader)
        await trio.sleep(1)
        follower = next(node for node in three.nodes.values() if node is not leader)
        seen: list[int] = []

        def prepare(old: ClusterImage, new: ClusterImage) -> Iterator[None]:
            for number in range(COUNT):
                assert follower.image is old
                seen.append(number)
                yield

        follower.subscribe(lambda old, new: seen.append(-1), prepare)
        seen.clear()
        (result,) = await leader.submit(CreateTopics([NewTopic("big", COUNT, 1)]), 1000)
        assert not result.error.is_failure
        await trio.sleep(1)
        assert seen == [*range(COUNT), -1]
        for node in three.nodes.values():
            assert node.image == leader.image
            assert len(node.image.topics_by_name["big"].partitions) == COUNT


async def test_followers_delete_a_large_topic_in_steps() -> None:
    """The deletion is one record, for which the subscribers of a follower are prepared as those of the leader are."""
    async with quorum() as three:
        leader = await three.wait_for_leader()
        await register_broker(leader)
        names = {"large": LARGE_DELETION, "small": LARGE_DELETION - 1, "other": 1}
        await leader.submit(CreateTopics([NewTopic(name, count, 1) for name, count in names.items()]), 1000)
        await trio.sleep(1)
        follower = next(node for node in three.nodes.values() if node is not leader)
        seen: list[str] = []

        def prepare(old: ClusterImage, new: ClusterImage) -> Iterator[None]:
            for topic in new.delta.deleted_topics:
                for _ in range(3):
                    assert follower.image is old
                    seen.append(f"prepare {topic.name}")
                    yield

        def apply(old: ClusterImage, new: ClusterImage) -> None:
            seen.extend(f"apply {topic.name}" for topic in new.delta.deleted_topics)

        follower.subscribe(apply, prepare)
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(leader.submit, DeleteTopics([TopicReference(name)]), 1000)
                await trio.sleep(0.01)
        await trio.sleep(1)
        assert seen == [*["prepare large"] * 3, "apply large", "apply small", "apply other"]
        assert all(not node.image.topics_by_name for node in three.nodes.values())


async def test_a_leader_that_resigns_while_it_plans_writes_nothing() -> None:
    async with quorum() as three:
        leader = await three.wait_for_leader()
        await register_broker(leader)
        refusals: list[ErrorCode] = []

        async def create() -> None:
            with pytest.raises(CommandRefused) as caught:
                await leader.submit(CreateTopics([NewTopic("big", COUNT, 1)]), 1000)
            refusals.append(caught.value.error.code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(create)
            for _ in range(10):  # it plans, and is not done
                await trio.lowlevel.checkpoint()
            leader.step(local.Resign())
        assert refusals == [ErrorCode.NOT_CONTROLLER]
        successor = await three.wait_for_leader()
        (result,) = await successor.submit(CreateTopics([NewTopic("other", 1, 1)]), 1000)
        assert not result.error.is_failure
        assert set(successor.image.topics_by_name) == {"other"}


class Slow:
    """A command of two steps, that creates a topic."""

    def __init__(self, name: str) -> None:
        self.command = CreateTopics([NewTopic(name, 1, 1)])

    def plan_in_steps(self, image: ClusterImage, context: PlanContext) -> Steps[Plan[Any]]:
        yield
        return (yield from self.command.plan_in_steps(image, context))


class Planner:
    """A queue on the image of a world with one broker."""

    def __init__(self) -> None:
        self.world = World()
        self.world.register(1)
        self.queue = CommandQueue(0)
        self.queue.image = self.world.image
        self.proposed: list[RecordFrames] = []

    def put(self, *names: str) -> list[PendingCommand]:
        return [self.queue.put(Slow(name)) for name in names]

    def plan(self, base_offset: int) -> Any:
        context = self.world.context()
        return self.queue.plan_round(
            lambda offset: context._replace(next_offset=offset),
            base_offset=base_offset,
            epoch=1,
            timestamp_ms=lambda: 5,
        )


def test_a_round_is_planned_again_if_the_log_has_grown_meanwhile() -> None:
    """A change of the voters writes control records, which have offsets too."""
    planner = Planner()
    first, second = planner.put("a", "b")
    planning = finished(planner.plan(10))
    assert not planner.queue.finish_round(planning, 11, planner.proposed.append)
    assert planner.proposed == []
    assert planner.queue.image is planner.world.image
    planning = finished(planner.plan(11))
    assert planner.queue.finish_round(planning, 11, planner.proposed.append)
    assert len(planner.proposed) == 2
    assert [planned.base_offset for planned in planner.queue.planned] == [11, 13]
    assert (first.end_offset, second.end_offset) == (13, 15)
    planner.queue.on_applied(planner.queue.planned[-1].image, 15)
    assert first.done.is_set()
    assert second.done.is_set()
    assert first.failure is second.failure is None


def test_a_round_is_planned_again_if_the_image_is_another_one() -> None:
    planner = Planner()
    planner.put("a")
    planning = finished(planner.plan(10))
    planner.world.do(CreateTopics([NewTopic("other", 1, 1)]))
    planner.queue.on_applied(planner.world.image, 10)
    assert not planner.queue.finish_round(planning, 10, planner.proposed.append)
    assert planner.queue


def test_commands_that_fail_while_they_are_planned_are_not_written() -> None:
    planner = Planner()
    pending = planner.put("a", "b")
    steps = planner.plan(10)
    next(steps)
    planner.queue.fail_all(not_leader())
    planning = finished(steps)
    assert planner.queue.finish_round(planning, 10, planner.proposed.append)
    assert planner.proposed == []
    assert not planner.queue
    for command in pending:
        assert isinstance(command.failure, CommandRefused)
        assert command.failure.error.code == ErrorCode.NOT_CONTROLLER


async def test_work_whose_caller_is_cancelled_is_closed_at_once() -> None:
    """It may hold parts of files, for example."""
    released: list[bool] = []

    def work() -> Steps[None]:
        try:
            while True:
                yield
        finally:
            released.append(True)

    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await turns.in_turns(work())
        except trio.Cancelled:
            assert released == [True]
            raise
    assert scope.cancelled_caught


def test_records_that_are_read_from_the_log_go_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """To free thousands of them in the last step would take longer than a turn."""
    records = (TopicRecord(name=f"t{number}", topic_id=number.to_bytes(16, "big")) for number in range(2 * COUNT))
    values = encode_records(records, 7)
    batches = [
        CommittedBatch(0, COUNT - 1, 1, 10, iter(values[:COUNT])),
        CommittedBatch(COUNT, COUNT, 2, 11, ()),  # a control batch
        CommittedBatch(COUNT + 1, 2 * COUNT, 2, 12, iter(values[COUNT:])),
    ]
    storage: Any = SimpleNamespace(read=lambda start_offset, end_offset: iter(batches))
    alive: list[int] = []
    build: Callable[..., ClusterImage] = ImageBuilder.build

    def watched(builder: ImageBuilder, **last: int) -> ClusterImage:
        alive.append(sum(type(each) is TopicRecord for each in gc.get_objects()))
        return build(builder, **last)

    monkeypatch.setattr(ImageBuilder, "build", watched)
    gc.collect()
    before = sum(type(each) is TopicRecord for each in gc.get_objects())
    image, first, last = finished(ImagePublisher(100).read_in_steps(storage, 2 * COUNT + 1))
    assert alive[0] - before <= PIECE
    assert image is not None
    assert len(image.topics_by_name) == len(image.delta.created_topics) == 2 * COUNT
    assert (image.offset, image.epoch, image.timestamp_ms) == (2 * COUNT, 2, 12)
    assert (first, last) == (OffsetAndEpoch(0, 0), OffsetAndEpoch(2 * COUNT + 1, 2))
