"""The five requests to the share coordinator, as handlers get them, and the persister that sends them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from pykbroker.controller.node_client import NodeUnreachable
from pykbroker.controller.turns import TASKS_PER_TURN
from pykbroker.coordination.partitioning import SHARE_STATE_TOPIC, coordinator_partition
from pykbroker.handlers.delete_share_group_state import handle_delete_share_group_state
from pykbroker.handlers.initialize_share_group_state import handle_initialize_share_group_state
from pykbroker.handlers.read_share_group_state import handle_read_share_group_state
from pykbroker.handlers.read_share_group_state_summary import handle_read_share_group_state_summary
from pykbroker.handlers.write_share_group_state import handle_write_share_group_state
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import TEXTS
from pykbroker.protocol.messages import initialize_share_group_state, read_share_group_state
from pykbroker.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from pykbroker.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from pykbroker.share_state.coordinator import ShareCoordinator
from pykbroker.share_state.persister import SharePersister
from pykbroker.share_state.state import ACKNOWLEDGED, PartitionState, Refusal, SharePartitionKey, StateBatch, WriteState
from tests.pykbroker.share_state.test_coordinator import KEY, Rig
from tests.support.data_path import NODE_ID, replicated_topic_image, topic_id, topic_image
from tests.support.held_partitions import HeldPartitions

HANDLERS = {
    83: handle_initialize_share_group_state,
    84: handle_read_share_group_state,
    85: handle_write_share_group_state,
    86: handle_delete_share_group_state,
    87: handle_read_share_group_state_summary,
}
VERSIONS = {83: 0, 84: 0, 85: 1, 86: 0, 87: 1}
REMOTE_ID = NODE_ID + 1


class Remote:
    """A connection to the rig's broker, as another broker has it.

    Attributes:
        failures: number of requests that fail before one succeeds.
    """

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.failures = 0
        self.asked = 0

    async def request(self, message: Any, timeout_ms: int, *, is_long: bool = False) -> Any:
        self.asked += 1
        if self.failures:
            self.failures -= 1
            raise NodeUnreachable("it is gone")
        return await self.rig.call(HANDLERS[message.KEY], message, VERSIONS[message.KEY])

    async def close(self) -> None:
        pass


class Elsewhere(ShareCoordinator):
    """A share coordinator of a broker that leads nothing: another broker leads all share partitions."""

    def __init__(self) -> None:
        runtime: Any = SimpleNamespace(leader=lambda key: REMOTE_ID)
        self.runtime = runtime


def persisters(rig: Rig, remote: Remote) -> list[SharePersister]:
    """One on the broker of the coordinator, and one on another."""
    rig.services = rig.services.replaced(share_state=rig.coordinator)

    def create() -> None:
        rig.coordinator.request_topic_creation(1)

    return [
        SharePersister(rig.coordinator, NODE_ID, lambda broker_id: remote, create),
        SharePersister(Elsewhere(), NODE_ID, lambda broker_id: remote, create),
    ]


async def test_a_state_by_both_ways(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        batch = StateBatch(5, 9, ACKNOWLEDGED, 2)
        for partition, persister in enumerate(persisters(rig, Remote(rig))):
            key = KEY._replace(partition=partition)
            assert await persister.initialize(key, 3, -1) is None
            assert await persister.write(key, WriteState(3, 1, 5, 5, [batch])) is None
            found = await persister.read(key, 2)
            assert isinstance(found, PartitionState)
            assert (found.state_epoch, found.start_offset, list(found.batches)) == (3, 5, [batch])
            summary = PartitionState(3, 5, (), 5, 2)
            assert await persister.read_summary(key, 2) == summary
            for write, code in (
                (WriteState(3, 1, 5, 5, [batch]), ErrorCode.FENCED_LEADER_EPOCH),
                (WriteState(2, 2, 5, 5, [batch]), ErrorCode.FENCED_STATE_EPOCH),
            ):
                refused = Refusal(code, f"Error in write state RPC. {TEXTS[code]}")
                assert await persister.write(key, write) == refused
            code = ErrorCode.FENCED_STATE_EPOCH
            refused = Refusal(code, f"Error in initialize state RPC. {TEXTS[code]}")
            assert await persister.initialize(key, 2, 0) == refused
            assert await persister.delete(key) is ErrorCode.NONE
            assert await persister.read_summary(key, 2) == PartitionState(0, -1, (), -1, 0)
            missing = await persister.read(key, 2)
            assert isinstance(missing, Refusal)
            assert missing.code is ErrorCode.INVALID_REQUEST


async def test_a_coordinator_that_comes_back_is_asked_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    remote = Remote(rig)
    remote.failures = 3
    async with rig.running():
        assert await persisters(rig, remote)[1].initialize(KEY, 1, 0) is None
        assert remote.asked == 4


async def test_p365_a_coordinator_that_stays_away_is_given_up(tmp_path: Path) -> None:
    """P-365."""
    rig = Rig(tmp_path)
    remote = Remote(rig)
    remote.failures = 1000
    async with rig.running():
        began = trio.current_time()
        text = "Error in initialize state RPC. Exhausted max retries to complete initialize state RPC without success."
        assert await persisters(rig, remote)[1].initialize(KEY, 1, 0) == (ErrorCode.NETWORK_EXCEPTION, text)
        assert 29 <= trio.current_time() - began <= 30


async def test_p365_a_coordinator_that_is_not_found_has_a_text_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-365: acknowledgements and AlterShareGroupOffsets show it."""
    rig = Rig(tmp_path)
    async with rig.running():
        persister, _ = persisters(rig, Remote(rig))
        monkeypatch.setattr(rig.coordinator.runtime, "leader", lambda key: -1)
        text = "Error in find coordinator. Exhausted max retries to find coordinator without success."
        missing = Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        assert await persister.initialize(KEY, 1, 0) == missing
        assert await persister.write(KEY, WriteState(1, 0, 0, 0, [])) == missing


async def test_the_first_call_has_the_topic_created(tmp_path: Path) -> None:
    rig = Rig(tmp_path, is_fresh=True)
    async with rig.running():
        assert await persisters(rig, Remote(rig))[0].initialize(KEY, 1, 0) is None
        assert [topic.name for topic in rig.created] == ["__share_group_state"]


async def test_a_topic_that_a_coordinator_learns_of_later(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    key = SharePartitionKey("g", topic_id("later"), 0)
    async with rig.running() as nursery:

        async def create_later() -> None:
            await trio.sleep(1)
            rig.change(*rig.services.metadata.image.topics_by_name.values(), topic_image("later", 1))

        nursery.start_soon(create_later)
        assert await persisters(rig, Remote(rig))[0].initialize(key, 1, 0) is None


async def test_errors_have_kafkas_texts(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        persisters(rig, Remote(rig))
        m = read_share_group_state
        asked = [m.PartitionData(partition=number, leader_epoch=0) for number in (0, 9, -1)]
        request = ReadShareGroupStateRequest(
            group_id="g", topics=[m.ReadStateData(topic_id=KEY.topic_id, partitions=asked)]
        )
        response = await rig.call(handle_read_share_group_state, request, 0)
        assert [(p.partition, p.error_code, p.error_message) for p in response.results[0].partitions] == [
            (0, ErrorCode.INVALID_REQUEST, "Read operation on uninitialized share partition not allowed."),
            (9, ErrorCode.INVALID_REQUEST, "Read operation on uninitialized share partition not allowed."),
            (-1, ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number."),
        ]
        i = initialize_share_group_state
        topic = i.InitializeStateData(topic_id=KEY.topic_id, partitions=[i.PartitionData(partition=9)])
        refused = await rig.call(
            handle_initialize_share_group_state, InitializeShareGroupStateRequest(group_id="g", topics=[topic]), 0
        )
        result = refused.results[0].partitions[0]
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert result.error_message == "This server does not host this topic-partition."


async def test_a_partition_that_comes_twice_is_served_in_order(tmp_path: Path) -> None:
    """The second mention is fenced by the first, and its outcome is the one that is told, as in Kafka."""
    rig = Rig(tmp_path)
    async with rig.running():
        persisters(rig, Remote(rig))
        m = initialize_share_group_state
        for number in range(8):
            asked = [m.PartitionData(partition=0, state_epoch=epoch) for epoch in (number + 1, number)]
            topic = m.InitializeStateData(topic_id=KEY.topic_id, partitions=asked)
            request = InitializeShareGroupStateRequest(group_id="g", topics=[topic])
            response = await rig.call(handle_initialize_share_group_state, request, 0)
            assert [p.error_code for p in response.results[0].partitions] == [ErrorCode.FENCED_STATE_EPOCH]


async def test_a_request_about_nothing_has_an_empty_answer(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        persisters(rig, Remote(rig))
        m = read_share_group_state
        empty = m.ReadStateData(topic_id=KEY.topic_id, partitions=[])
        for request in (
            ReadShareGroupStateRequest(group_id="g", topics=[]),
            ReadShareGroupStateRequest(group_id="g", topics=[empty]),
            ReadShareGroupStateRequest(
                group_id="", topics=[m.ReadStateData(topic_id=KEY.topic_id, partitions=[m.PartitionData(partition=0)])]
            ),
        ):
            assert (await rig.call(handle_read_share_group_state, request, 0)).results == []


async def test_a_coordinator_without_a_leader_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-365: until another broker leads its partition."""
    rig = Rig(tmp_path)
    async with rig.running():
        persister, _ = persisters(rig, Remote(rig))
        assert await persister.initialize(KEY, 1, 0) is None
        leaders = iter([-1, -1, NODE_ID, NODE_ID])
        monkeypatch.setattr(rig.coordinator.runtime, "leader", lambda key: next(leaders))
        assert await persister.initialize(KEY, 2, 0) is None
        assert next(leaders) == NODE_ID


async def test_a_write_for_another_broker_waits_for_it(tmp_path: Path) -> None:
    """It is not known at once whether it succeeds."""
    rig = Rig(tmp_path)
    async with rig.running():
        local, elsewhere = persisters(rig, Remote(rig))
        await local.initialize(KEY, 1, 0)
        begun = elsewhere.begin_write(KEY, WriteState(1, 0, 0, 0, [StateBatch(0, 1, ACKNOWLEDGED, 1)]))
        assert callable(begun)
        assert await begun() is None
        found = await local.read(KEY, 0)
        assert isinstance(found, PartitionState)
        assert list(found.batches) == [StateBatch(0, 1, ACKNOWLEDGED, 1)]


async def test_a_write_to_a_coordinator_that_has_stopped_is_given_up(tmp_path: Path) -> None:
    """P-365: it is tried again, as the coordinator may be loaded again."""
    rig = Rig(tmp_path)
    async with rig.running():
        persister, _ = persisters(rig, Remote(rig))
        assert await persister.initialize(KEY, 1, 0) is None
        rig.coordinator.runtime.stop()
        begun = persister.begin_write(KEY, WriteState(1, 0, 0, 0, [StateBatch(0, 1, ACKNOWLEDGED, 1)]))
        assert callable(begun)
        text = "Error in write state RPC. Exhausted max retries to complete write state RPC without success."
        assert await begun() == Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)


async def test_a_write_that_is_not_replicated_in_time_is_done_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    held = HeldPartitions(rig.partitions, SHARE_STATE_TOPIC)
    rig.coordinator = ShareCoordinator(rig.services.config, rig.environment(held))
    async with rig.running() as nursery:
        state_topic = replicated_topic_image(SHARE_STATE_TOPIC, 3, leader=NODE_ID, leader_epoch=1)
        rig.change(topic_image("clicks", 2), state_topic)
        persister, _ = persisters(rig, Remote(rig))
        assert await persister.initialize(KEY, 1, 0) is None
        log = held.get(SHARE_STATE_TOPIC, coordinator_partition(KEY.coordinator_key, 3))
        log.hold()
        begun = persister.begin_write(KEY, WriteState(1, 0, 0, 0, [StateBatch(0, 1, ACKNOWLEDGED, 1)]))
        assert callable(begun)

        async def release() -> None:
            await trio.sleep(rig.services.config.share_coordinator.write_timeout_ms / 1000 + 1)
            log.release()

        nursery.start_soon(release)
        assert await begun() is None
        assert not log.is_held
        found = await persister.read(KEY, 0)
        assert isinstance(found, PartitionState)
        assert list(found.batches) == [StateBatch(0, 1, ACKNOWLEDGED, 1)]


async def test_an_answer_about_nothing(tmp_path: Path) -> None:
    """A broker of another kind may send such a response."""

    class Empty(Remote):
        async def request(self, message: Any, timeout_ms: int, *, is_long: bool = False) -> Any:
            return read_share_group_state.ReadShareGroupStateResponse()

    rig = Rig(tmp_path)
    async with rig.running():
        _, elsewhere = persisters(rig, Empty(rig))
        assert await elsewhere.read(KEY, 0) == Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)


async def test_a_request_about_very_many_share_partitions_is_served_a_few_at_a_time(tmp_path: Path) -> None:
    count = 20 * TASKS_PER_TURN
    rig = Rig(tmp_path)
    rig.services = rig.services.replaced(share_state=rig.coordinator)
    async with rig.running():
        rig.change(topic_image(SHARE_STATE_TOPIC, 3), topic_image("clicks", count))
        sizes = [0]

        async def look() -> None:
            while True:
                sizes.append(sum(len(shard.states) for shard in rig.coordinator.runtime.shards.values()))
                await trio.lowlevel.checkpoint()

        m = initialize_share_group_state
        asked = [m.PartitionData(partition=number, state_epoch=1, start_offset=0) for number in range(count)]
        topics = [m.InitializeStateData(topic_id=topic_id("clicks"), partitions=asked)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            request = InitializeShareGroupStateRequest(group_id="g", topics=topics)
            response = await rig.call(handle_initialize_share_group_state, request, 0)
            nursery.cancel_scope.cancel()
        results = response.results[0].partitions
        assert [(each.partition, each.error_code) for each in results] == [(number, 0) for number in range(count)]
        assert sizes[-1] > count - 2 * TASKS_PER_TURN
        assert max(after - before for before, after in pairwise(sizes)) <= 2 * TASKS_PER_TURN
