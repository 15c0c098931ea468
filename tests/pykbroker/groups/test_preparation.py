"""Heartbeats of large groups are prepared in steps: the log is the same, whatever happens between two of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from pykbroker.groups import modern_writes
from pykbroker.groups.assignors.spec import in_order
from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.modern import preparation
from pykbroker.groups.modern.preparation import PreparedWrite
from pykbroker.groups.offset_log import encode_record
from pykbroker.groups.result import FirstAssignment
from pykbroker.groups.share.group import ShareGroup
from pykbroker.groups.streams.group import StreamsGroup
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.streams_group_heartbeat import (
    Endpoint,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from pykbroker.protocol.records.batch import frames_of
from pykbroker.protocol.steps import PIECE, Steps
from tests.pykbroker.groups.consumer.rig import Client, Rig
from tests.pykbroker.groups.shard_rig import GROUP, ShardRig
from tests.pykbroker.groups.share.rig import ShareRig
from tests.pykbroker.groups.streams.rig import StreamsRig, Thread, settle

TOPICS = [f"t{number}" for number in range(PIECE + 8)]
COUNTS = {name: number % 3 + 1 for number, name in enumerate(TOPICS)}
MEMBERS = "abcd"

Action = tuple[str, str, Any]
"""Something that a member does or that happens to a topic: what, its name, and topics or partitions."""


class ConsumerTwin:
    """A consumer group of which a test and its twin have the same history."""

    def __init__(self) -> None:
        self.rig = Rig(COUNTS)
        self.clients: dict[str, Client] = {}
        self.answers: list[Any] = []

    def act(self, action: Action) -> None:
        what, name, value = action
        client = self.clients.get(name)
        if what == "topic":
            self.rig.set_topics(**{name: value})
        elif what == "resolve":
            self.rig.resolve_regexes()
        elif client is None:
            options = {"regex": "t1.*"} if what == "pattern" else {"assignor": value[1]}
            self.clients[name] = Client(self.rig, name, None if what == "pattern" else value[0], **options)
            self.answers.append(self.clients[name].beat())
        elif what == "leave":
            self.clients.pop(name).leave()
        elif what == "subscribe" and client.epoch > 0 and client.topics is not None:
            client.subscribe(value[0])
        else:
            self.answers.append(client.beat())


class ShareTwin:
    """As `ConsumerTwin`, for a share group."""

    def __init__(self) -> None:
        self.rig = ShareRig(COUNTS)
        self.epochs: dict[str, int] = {}
        self.answers: list[Any] = []

    def act(self, action: Action) -> None:
        what, name, value = action
        if what == "topic":
            self.rig.set_topics(**{name: value})
            if not value:
                self.rig.forget(name)
        elif what == "resolve":
            self.rig.initialize(1)
        elif what == "leave":
            self.rig.beat(name, -1)
            self.epochs.pop(name, None)
        else:
            epoch = self.epochs.get(name, 0)
            names = value[0] if what == "subscribe" or not epoch else []
            response = self.rig.beat(name, epoch, *names)
            self.answers.append(response)
            self.epochs[name] = response.member_epoch if response.error_code == ErrorCode.NONE else 0


class StreamsTwin:
    """As `ConsumerTwin`, for a Streams group with a subtopology for each topic."""

    def __init__(self) -> None:
        self.rig = StreamsRig(COUNTS)
        self.threads: dict[str, Thread] = {}
        self.answers: list[Any] = []
        changelog = [TopicInfo(name="changelog")]
        self.topology = Topology(
            subtopologies=[
                Subtopology(
                    subtopology_id=name, source_topics=[name], state_changelog_topics=changelog if not n else []
                )
                for n, name in enumerate(TOPICS)
            ]
        )

    def act(self, action: Action) -> None:
        what, name, value = action
        thread = self.threads.get(name)
        if what == "topic":
            self.rig.set_topics(**{name: value})
        elif what == "resolve":
            self.rig.create_missing()
        elif what == "leave":
            self.rig.beat(name, -1)
            self.threads.pop(name, None)
        elif what == "pattern":
            self.rig.configs[GROUP] = {"streams.num.standby.replicas": str(len(value[0]) % 2)}
        elif thread is None:
            endpoint = None if name == "a" else Endpoint(host=name, port=1)
            thread = self.threads[name] = Thread(self.rig, name, self.topology, user_endpoint=endpoint)
            self.answers.append(thread.join())
        else:
            thread.holds = what == "subscribe"
            self.answers.append(thread.beat(endpoint_information_epoch=len(value[1])))


def some_action(chooser: random.Random, without: str = "") -> Action:
    """Any action, but of no member named `without`."""
    what = chooser.choice(["topic", "resolve", "leave", "pattern", "subscribe", *["beat"] * 6])
    if what == "topic":
        return what, chooser.choice(TOPICS), chooser.randrange(4)
    name = chooser.choice([member for member in MEMBERS if member != without])
    topics = TOPICS if chooser.random() < 0.6 else chooser.sample(TOPICS, PIECE + 2)
    return what, name, (topics, chooser.choice(["uniform", "range"]))


@pytest.mark.parametrize("twin", [ConsumerTwin, ShareTwin, StreamsTwin])
@pytest.mark.parametrize("seed", range(12))
def test_the_log_is_that_of_heartbeats_in_one_piece(twin: Callable[[], Any], seed: int) -> None:
    """Changes between two steps of a heartbeat come before it."""
    chooser = random.Random(seed)
    prepared, plain = twin(), twin()
    disturbances: list[Action] = []
    counts = {True: 0, False: 0}

    def run_steps(steps: Steps[PreparedWrite | None]) -> PreparedWrite | None:
        rig: ShardRig = prepared.rig
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                found: PreparedWrite | None = stop.value
                break
            disturbance = some_action(chooser, without=action[1])
            # A topic is deleted before the steps in which the group forgets it.
            may_disturb = action[0] != "topic" and (action[0], disturbance[0]) != ("resolve", "resolve")
            if chooser.random() < 0.01 and may_disturb:
                disturbances.append(disturbance)
                rig.run_steps = None
                prepared.act(disturbance)
                rig.run_steps = run_steps
        counts[found is not None] += 1
        if found is not None and found.result.records:
            assert found.result.frames == frames_of(map(encode_record, found.result.records))
        return found

    prepared.rig.run_steps = run_steps
    for _ in range(60):
        action = some_action(chooser)
        prepared.act(action)
        for disturbance in disturbances:
            plain.act(disturbance)
        disturbances.clear()
        plain.act(action)
        assert prepared.rig.log == plain.rig.log
        assert prepared.answers == plain.answers
    assert counts[True] > 10


def test_a_heartbeat_is_computed_in_one_piece_after_some_attempts() -> None:
    rig, views = Rig(COUNTS), 0

    def run_steps(steps: Steps[PreparedWrite | None]) -> PreparedWrite | None:
        nonlocal views
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            views += 1
            rig.set_topics(t0=views % 3 + 2)

    rig.run_steps = run_steps
    client = Client(rig, "a", TOPICS)
    assert client.beat().error_code == ErrorCode.NONE
    assert views == preparation.ATTEMPTS
    assert len(client.partitions) == sum({**COUNTS, "t0": views % 3 + 2}.values())


@pytest.mark.parametrize("is_late", [False, True])
def test_a_resolution_begins_with_the_heartbeat_that_is_carried_out(is_late: bool) -> None:
    """The group does not wait for the resolution of an attempt that was given up."""
    rig = Rig(COUNTS)
    other = Client(rig, "b", TOPICS)
    other.beat()
    disturbed = 0

    def run_steps(steps: Steps[PreparedWrite | None]) -> PreparedWrite | None:
        nonlocal disturbed
        count = 0
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                found: PreparedWrite | None = stop.value
                break
            count += 1
            if count == 4 and not is_late:
                disturbed += rig.group.soft_state.is_resolving
                rig.set_topics(t0=5)
        if is_late:
            disturbed += rig.group.soft_state.is_resolving
            rig.set_topics(t0=5)
        return found

    rig.run_steps = run_steps
    Client(rig, "a", regex="t.*").beat()
    assert disturbed == 1
    assert [refresh.regexes for refresh in rig.refreshes] == [["t.*"]]
    rig.resolve_regexes()
    assert len(rig.group.resolved["t.*"].topics) == len(TOPICS)


def test_a_heartbeat_that_a_group_refuses_is_refused_when_it_is_carried_out() -> None:
    rig = Rig(COUNTS)
    Client(rig, "a", TOPICS).beat()
    results = []

    def run_steps(steps: Steps[PreparedWrite | None]) -> PreparedWrite | None:
        try:
            while True:
                next(steps)
        except StopIteration as stop:
            results.append(stop.value)
            return stop.value  # type: ignore[no-any-return]

    rig.run_steps = run_steps
    stranger = Client(rig, "b", TOPICS)
    stranger.epoch = 7
    assert stranger.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert results == [None]
    assert GROUP in rig.shard.consumer.by_id


def test_a_first_assignment_that_was_not_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group changed at each attempt, or is gone."""
    monkeypatch.setattr("pykbroker.groups.streams.groups.LARGE", PIECE)
    rig = StreamsRig(COUNTS, initial_rebalance_delay_ms=3_000)
    topology = Topology(subtopologies=[Subtopology(subtopology_id=name, source_topics=[name]) for name in TOPICS])
    thread = Thread(rig, "a", topology)
    thread.join()
    thread.beat()
    rig.advance(3_500)
    assert sum(map(len, rig.group.targets["a"].active.values())) == sum(COUNTS.values())
    assert modern_writes.FIRST_ASSIGNMENT.carry_out(rig.shard, rig.now_ms, FirstAssignment("gone")).records == []


def test_heartbeats_that_change_a_large_streams_group_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykbroker.groups.streams.groups.LARGE", PIECE)
    rig = StreamsRig(COUNTS)
    topology = Topology(subtopologies=[Subtopology(subtopology_id=name, source_topics=[name]) for name in TOPICS])
    thread = Thread(rig, "a", topology)
    settle(thread, Thread(rig, "b", topology))

    def is_long(member_id: str, epoch: int, **fields: Any) -> bool:
        unchanged = {"topology": None, "active_tasks": None, "standby_tasks": None, "warmup_tasks": None}
        identity = {"group_id": GROUP, "member_id": member_id, "member_epoch": epoch}
        request = StreamsGroupHeartbeatRequest(**{**unchanged, **identity, **fields})
        return rig.groups.is_long_heartbeat(request, rig.now_ms)

    assert rig.group.configured is not None
    assert not is_long("a", thread.epoch)
    assert not is_long("a", -1, topology=topology)
    assert is_long("a", thread.epoch, topology=topology)
    assert is_long("c", 0, topology=topology)


@pytest.mark.parametrize("disturbance", ["", "join", "leave", "a new delay"])
def test_the_first_assignment_of_a_large_streams_group(disturbance: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is computed when the initial delay has ended, of the group as it is when that is carried out."""
    monkeypatch.setattr("pykbroker.groups.streams.groups.LARGE", PIECE)
    rig = StreamsRig(COUNTS, initial_rebalance_delay_ms=3_000)
    topology = Topology(subtopologies=[Subtopology(subtopology_id=name, source_topics=[name]) for name in TOPICS])
    a, b = (Thread(rig, name, topology) for name in "ab")
    a.join()
    a.beat()
    steps_taken = 0

    def run_steps(steps: Steps[PreparedWrite | None]) -> PreparedWrite | None:
        nonlocal steps_taken
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            steps_taken += 1
            if steps_taken == 3:
                rig.run_steps = None
                if disturbance == "join":
                    b.join()
                elif disturbance:
                    a.leave()
                    if disturbance == "a new delay":
                        b.join()
                rig.run_steps = run_steps

    rig.run_steps = run_steps
    assert (a.epoch, rig.group.epoch, rig.group.assignment_epoch) == (1, 2, 1)
    rig.advance(3_500)
    assert steps_taken >= 3
    found = {member_id: sum(map(len, target.active.values())) for member_id, target in rig.group.targets.items()}
    count = sum(COUNTS.values())
    if disturbance == "":
        assert found == {"a": count}
        assert rig.loaded_shard().streams.by_id[GROUP].targets == rig.group.targets
    elif disturbance == "join":
        # The member that has joined after the end of the delay has computed it.
        assert sorted(found.values()) == [count // 2, count - count // 2]
    else:
        assert not any(found.values())
    if disturbance == "a new delay":
        b.beat()
        rig.advance(3_500)
        assert sum(map(len, rig.group.targets["b"].active.values())) == count


@pytest.mark.parametrize("twin", [ConsumerTwin, ShareTwin, StreamsTwin])
@pytest.mark.parametrize("seed", range(8))
def test_the_group_is_kept_as_the_log_has_it(twin: Callable[[], Any], seed: int) -> None:
    """Another coordinator reads the same partitions, in the same order: both assign alike from then on."""
    chooser, here = random.Random(seed), twin()
    for _ in range(40):
        here.act(some_action(chooser))
        loaded = getattr(here.rig.loaded_shard(), here.rig.groups.group_type).by_id
        for group_id, group in here.rig.groups.by_id.items():
            assert kept(loaded[group_id]) == kept(group)


def kept(group: Any) -> list[Any]:
    """The state that a group keeps of its records, in the order of the records."""
    if isinstance(group, StreamsGroup):
        topology = group.topology
        subtopologies = None if topology is None else list(topology.subtopologies.items())
        return [group.members, group.targets, topology, subtopologies]
    found: list[Any] = [ordered(group.targets[member_id], in_order) for member_id in sorted(group.targets)]
    for member_id in sorted(group.members):
        member = group.members[member_id]
        found += [member, ordered(member.assigned)]
        if isinstance(group, ConsumerGroup):
            found.append(ordered(member.pending_revocation))
    if isinstance(group, ShareGroup):
        for states in (group.initializing, group.initialized):
            found.append([(topic_id, state.name, list(state.partitions)) for topic_id, state in states.items()])
        found.append(group.deleting)
    return found


def ordered(assignment: Any, order: Callable[[Any], Any] = list) -> list[tuple[bytes, list[int]]]:
    """Topics and partitions in their order."""
    return [(topic_id, list(order(partitions))) for topic_id, partitions in assignment.items()]
