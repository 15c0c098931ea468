"""Partitions of a large change are given to the fetchers of their leaders in turns with other tasks."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.controller.metadata.image import ImageDelta, PartitionImage, TopicImage
from pykbroker.controller.metadata.image_delta import delta_between
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from pykbroker.protocol.steps import finished
from pykbroker.replication.partition import Partition
from pykbroker.replication.replication_tasks import CHANGED_AT_ONCE, ReplicationSettings, ReplicationTasks
from tests.support.data_path import DataPath, cluster_image, topic_image
from tests.support.turns import TaskSteps

COUNT = 3 * CHANGED_AT_ONCE
LEADER = 2
LAG_TIME_MAX_S = 30.0
"""Default of `replica.lag.time.max.ms`."""
FETCH_S = 0.1
"""Time that the leader takes to answer."""


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    found = DataPath(tmp_path, cluster_image())
    yield found
    found.close()


@pytest.fixture(autouse=True)
def turns_of_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)


class Leader:
    """A client of a leader without records, which keeps the session of its follower.

    Attributes:
        session: leader epoch of each partition in the session.
        first: the partitions of the first request.
        is_closed: True after the fetcher has ended.
    """

    def __init__(self) -> None:
        self.session: dict[tuple[bytes, int], int] = {}
        self.first: set[tuple[bytes, int]] = set()
        self.is_closed = False

    async def request(self, message: Any, timeout_ms: int, *, is_long: bool = False) -> FetchResponse:
        assert isinstance(message, FetchRequest)
        if message.session_epoch == 0:
            self.session.clear()
        for topic in message.topics:
            for partition in topic.partitions:
                self.session[topic.topic_id, partition.partition] = partition.current_leader_epoch
        for forgotten in message.forgotten_topics_data:
            for number in forgotten.partitions:
                del self.session[forgotten.topic_id, number]
        self.first = self.first or set(self.session)
        await trio.sleep(FETCH_S)
        return FetchResponse(session_id=7)

    async def close(self) -> None:
        self.is_closed = True


class Unasked:
    """An AlterPartitionManager that has nothing to send."""

    async def run(self) -> None:
        await trio.sleep_forever()


class Rig:
    """The tasks of broker 1, and the leaders that it follows."""

    def __init__(self, path: DataPath) -> None:
        self.path = path
        self.leaders: dict[int, Leader] = {}
        manager: Any = Unasked()
        settings = ReplicationSettings.from_config(BrokerConfig.from_properties({}))
        self.tasks = ReplicationTasks(path.partitions, path.clock, manager, self._connect, settings, None)
        self._image = path.services.metadata.image

    def _connect(self, broker_id: int) -> Leader:
        found = self.leaders[broker_id] = Leader()
        return found

    def apply(self, *topics: TopicImage) -> None:
        image = cluster_image(*topics)
        image.delta = delta_between(self._image, image)
        self.path.partitions.apply(self._image, image)
        self.tasks.apply(self._image, image)
        self._image = image

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.tasks.run)
            yield
            nursery.cancel_scope.cancel()

    def session(self, leader: int = LEADER) -> dict[tuple[bytes, int], int]:
        return self.leaders[leader].session


def followed(*, leader: int = LEADER, leader_epoch: int = 0) -> TopicImage:
    """A topic that broker 1 follows."""
    return topic_image(
        "t", COUNT, leader=leader, followers=(1,), leader_epoch=leader_epoch, partition_epoch=leader_epoch
    )


def keys() -> set[tuple[bytes, int]]:
    topic = followed()
    return {(topic.topic_id, number) for number in range(COUNT)}


async def settled() -> None:
    """Time for some requests."""
    await trio.sleep(10 * FETCH_S)


def watch(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the partitions that are given to their fetchers from now on."""
    given: list[int] = []
    follow: Callable[..., None] = ReplicationTasks._follow

    def watched(self: ReplicationTasks, partition: Any) -> None:
        given.append(partition.partition)
        follow(self, partition)

    monkeypatch.setattr(ReplicationTasks, "_follow", watched)
    return given


async def test_many_new_partitions_are_followed_after_the_image_is_applied(
    path: DataPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(path)
    given = watch(monkeypatch)
    async with rig.running():
        rig.apply(followed())
        assert not given
        await settled()
        assert sorted(given) == list(range(COUNT))
        assert rig.leaders[LEADER].first == keys()


async def test_few_new_partitions_are_followed_at_once(path: DataPath) -> None:
    rig = Rig(path)
    async with rig.running():
        rig.apply(topic_image("t", CHANGED_AT_ONCE, leader=LEADER, followers=(1,)))
        assert not rig.tasks._has_changes.is_set()
        await settled()
        assert len(rig.session()) == CHANGED_AT_ONCE


async def test_all_partitions_are_followed_at_once_before_the_tasks_run(path: DataPath) -> None:
    rig = Rig(path)
    rig.apply(followed())
    assert not rig.tasks._has_changes.is_set()
    async with rig.running():
        await settled()
        assert rig.session().keys() == keys()


async def test_in_sync_sets_shrink_in_turns(path: DataPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower may lag with all partitions of a broker, and each change of an in-sync set is logged."""
    looked_at: list[int] = []
    steps = TaskSteps()
    monkeypatch.setattr(Partition, "shrink_isr", lambda partition: looked_at.append(steps.count))
    rig = Rig(path)
    rig.apply(topic_image("t", COUNT, leader=1, followers=(LEADER,)))
    trio.lowlevel.add_instrument(steps)
    async with rig.running():
        await trio.sleep(LAG_TIME_MAX_S / 2 + FETCH_S)
    assert len(looked_at) == len(set(looked_at)) == COUNT


async def test_a_topic_that_is_deleted_before_all_its_partitions_are_followed(path: DataPath) -> None:
    rig = Rig(path)
    async with rig.running():
        rig.apply(followed())
        rig.apply()
        await settled()
        assert not rig.leaders
        rig.apply(followed())
        await settled()
        rig.apply()
        await settled()
        assert rig.leaders[LEADER].is_closed


async def test_the_newest_of_several_large_changes_counts(path: DataPath) -> None:
    """They are carried out one after the other, each with the state that a partition has by then."""
    rig = Rig(path)
    async with rig.running():
        rig.apply(followed())
        await settled()
        rig.apply(followed(leader=3, leader_epoch=1))
        rig.apply(followed(leader=1, leader_epoch=2))
        rig.apply(followed(leader=4, leader_epoch=3))
        await settled()
        assert rig.leaders.keys() == {LEADER, 4}
        assert rig.leaders[LEADER].is_closed
        assert rig.session(4) == dict.fromkeys(keys(), 3)


async def test_partitions_that_this_broker_leads_now_are_not_fetched_any_more(path: DataPath) -> None:
    """Not even those that still are in the session of the former leader."""
    rig = Rig(path)
    async with rig.running():
        rig.apply(followed())
        await settled()
        held = list(path.partitions.all())
        lead = topic_image("t", COUNT, leader=1, followers=(LEADER,), leader_epoch=1, partition_epoch=1)
        rig.apply(lead)
        assert all(partition.is_leader for partition in held)
        session = rig.tasks._fetchers[LEADER].session
        assert len(session) == COUNT
        assert finished(session.next_request(0.0, 0, 1)) is None
        await settled()
        assert rig.leaders[LEADER].is_closed


@pytest.mark.parametrize("later", [(), (followed(leader=3, leader_epoch=1),)], ids=["deleted", "changed"])
async def test_former_states_of_partitions_are_freed_one_by_one(
    path: DataPath, monkeypatch: pytest.MonkeyPatch, later: tuple[TopicImage, ...]
) -> None:
    """To free those of thousands of partitions after the last one would take longer than a turn."""
    rig = Rig(path)
    alive: list[int] = []
    follow_or_stop: Callable[..., None] = ReplicationTasks._follow_or_stop

    def watched(self: ReplicationTasks, key: Any) -> None:
        alive.append(images_alive())
        follow_or_stop(self, key)

    async with rig.running():
        rig.apply(followed())
        await settled()
        monkeypatch.setattr(ReplicationTasks, "_follow_or_stop", watched)
        rig.apply(*later)
        rig._image.delta = ImageDelta()  # as the publisher of images does
        await settled()
    assert len(alive) == COUNT
    freed = [former - latter for former, latter in pairwise([*alive, images_alive()])]
    assert set(freed) <= {0, 1}
    assert sum(freed) >= COUNT - CHANGED_AT_ONCE - 2


def images_alive() -> int:
    """Number of states of partitions in memory."""
    return sum(type(each) is PartitionImage for each in gc.get_objects())


async def test_nothing_is_fetched_from_the_moment_at_which_the_disk_is_full(
    path: DataPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor prepared, and no data are taken. The fetchers get their partitions back in turns with other tasks."""
    rig = Rig(path)
    failures = SimpleNamespace(is_disk_full=False)
    monkeypatch.setattr(path.partitions.environment, "storage_failures", failures)
    async with rig.running():
        rig.apply(followed())
        await settled()
        session = rig.tasks._fetchers[LEADER].session
        given = watch(monkeypatch)
        rig.tasks.follow_all()
        failures.is_disk_full = True
        rig.tasks.follow_all()
        assert not len(session)
        assert finished(session.next_request(trio.current_time(), 0, 1)) is None
        await settled()
        assert rig.leaders.pop(LEADER).is_closed
        assert not rig.tasks._fetchers
        given.clear()
        failures.is_disk_full = False
        rig.tasks.follow_all()
        assert not given
        await settled()
        assert sorted(given) == list(range(COUNT))
        assert rig.leaders[LEADER].first == keys()


async def test_a_topic_that_is_deleted_before_all_partitions_are_followed_again(path: DataPath) -> None:
    rig = Rig(path)
    async with rig.running():
        rig.apply(topic_image("t", CHANGED_AT_ONCE, leader=LEADER, followers=(1,)))
        await settled()
        rig.tasks.follow_all()
        rig.apply()
        assert not rig.tasks._fetchers
        await settled()
        assert not rig.tasks._fetchers
        assert rig.leaders[LEADER].is_closed


def test_partitions_that_change_while_a_request_is_made(path: DataPath) -> None:
    """The request may name their earlier state: the data that come for it are ignored. The next request is right."""
    rig = Rig(path)
    rig.apply(followed())
    session = rig.tasks._fetchers[LEADER].session
    steps = session.next_request(0.0, 0, 1)
    next(steps)
    topic = followed()
    session.leave((topic.topic_id, COUNT - 1))
    newer = path.partitions.get("t", COUNT - 2)
    assert newer is not None
    newer.update(followed(leader_epoch=1).partitions[COUNT - 2])
    session.follow(newer)
    request = finished(steps)
    assert request is not None
    named = [partition.partition for asked in request.topics for partition in asked.partitions]
    assert set(range(COUNT - 2)) <= set(named)
    data = [PartitionData(partition_index=number, error_code=ErrorCode.OFFSET_OUT_OF_RANGE) for number in named]
    response = FetchResponse(session_id=7, responses=[FetchableTopicResponse(topic_id=topic.topic_id, partitions=data)])
    out_of_range = finished(session.on_response(response, 0.0, 0))
    assert {each.partition.partition for each in out_of_range} == set(range(COUNT - 2))
    request = finished(session.next_request(0.0, 0, 1))
    assert request is not None
    [asked] = request.topics
    assert [(each.partition, each.current_leader_epoch) for each in asked.partitions] == [(COUNT - 2, 1)]
    assert [each.partitions for each in request.forgotten_topics_data] in ([], [[COUNT - 1]])
    assert {key[1] for key in session._asked} == set(range(COUNT - 1))
