"""Members of a Streams group of KIP-1071, and the active tasks that each of them has."""

from __future__ import annotations

from collections.abc import Iterable

import trio

from pykbroker.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from tests.simulation.client import GROUP, Client
from tests.simulation.consumer_groups import REBALANCE_TIMEOUT_MS, HeartbeatingMember, Roster
from tests.simulation.groups import HEARTBEAT_S

LEAVE_CHANCE = 0.03
"""That a member leaves between two heartbeats and comes back; it vanishes without a word as often."""
LEFT = -1

Task = tuple[str, int]


def topology_of(group: str, topics: Iterable[str]) -> Topology:
    """One subtopology for each source topic, the first of which has a state store with a changelog."""
    subtopologies = [
        Subtopology(subtopology_id=str(number), source_topics=[name]) for number, name in enumerate(topics)
    ]
    changelog = TopicInfo(name=f"{group}-store-changelog", partitions=0, replication_factor=-1)
    subtopologies[0].state_changelog_topics = [changelog]
    return Topology(epoch=0, subtopologies=subtopologies)


def tasks_in(listed: list[TaskIds]) -> set[Task]:
    """Tasks of one role of a message."""
    return {(ids.subtopology_id, number) for ids in listed for number in ids.partitions}


def task_ids(tasks: set[Task]) -> list[TaskIds]:
    """Tasks of one role for a message."""
    found: dict[str, list[int]] = {}
    for subtopology_id, number in sorted(tasks):
        found.setdefault(subtopology_id, []).append(number)
    return [TaskIds(subtopology_id=key, partitions=numbers) for key, numbers in found.items()]


class MemberEpochs:
    """Epochs that the members of one group were told.

    Rules: those of a member never go back, and one that joins for the first time gets none below what another was
    told before it asked.
    """

    def __init__(self, client: Client) -> None:
        self._world = client.world
        self._told: dict[str, int] = {}
        self.newest = 0

    def told(self, member_id: str, epoch: int) -> None:
        """An answer has a member's epoch."""
        last = self._told.get(member_id)
        if last is not None and epoch < last:
            self._world.broken(f"{member_id} is told epoch {epoch}, it had {last}")
        self._told[member_id] = epoch
        self.newest = max(self.newest, epoch)

    def joined(self, member_id: str, epoch: int, before: int) -> None:
        """A new member's first request was answered; `before` is `newest` when it asked."""
        if epoch < before:
            self._world.broken(f"{member_id} joins in epoch {epoch}, somebody was told {before} before")
        self.told(member_id, epoch)


class StreamsMember(HeartbeatingMember):
    """Heartbeats and follows its tasks; leaves or vanishes at times, and begins again.

    After a request without an answer it joins again under its id: the broker tells tasks once, so that it cannot know
    which it has. When it is to stop it goes on until the group has assigned every active task once.
    """

    def __init__(self, client: Client, group: str, topology: Topology, roster: Roster, epochs: MemberEpochs) -> None:
        super().__init__(client, group, roster)
        self._topology = topology
        self._epochs = epochs
        self._keeps_process = client.random.random() < 0.5
        self._active: set[Task] = set()
        self._standby: set[Task] = set()
        self._begin_again()

    async def _after_beat(self) -> None:
        if self.must_stop:
            self._roster.is_done(self._client.name, set(self._active))
        else:
            await self._leave_perhaps()
        await trio.sleep(HEARTBEAT_S)

    def _on_no_response(self) -> None:
        self._drop_tasks()

    def _drop_tasks(self) -> None:
        """It has no tasks and is to join."""
        for task in self._active:
            self._roster.gives_up(self._client.name, task)
        self._active, self._standby = set(), set()
        self._epoch = 0

    def _begin_again(self) -> None:
        self._drop_tasks()
        self._next_life()
        self._process_id = self._client.name if self._keeps_process else self._member_id
        self._is_unknown = True

    async def _leave_perhaps(self) -> None:
        fate = self._client.random.random()
        if fate < 2 * LEAVE_CHANCE:
            member_id = self._member_id
            self._begin_again()
            if fate < LEAVE_CHANCE:
                request = StreamsGroupHeartbeatRequest(group_id=self._group, member_id=member_id, member_epoch=LEFT)
                await self._client.call_coordinator(GROUP, self._group, request)

    async def _beat(self) -> None:
        roster, epochs = self._roster, self._epochs
        is_joining = self._epoch == 0
        request = StreamsGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_joining else -1,
            topology=self._topology if is_joining else None,
            process_id=self._process_id if is_joining else None,
            active_tasks=task_ids(self._active),
            standby_tasks=task_ids(self._standby),
            warmup_tasks=[],
        )
        before, newest, owned = roster.count, epochs.newest, set(self._active)
        is_first, self._is_unknown = self._is_unknown, False
        response = await self._call(request, owned, before)
        if is_first:
            epochs.joined(self._member_id, response.member_epoch, newest)
        else:
            epochs.told(self._member_id, response.member_epoch)
        self._epoch = response.member_epoch
        if response.active_tasks is not None:
            self._take(tasks_in(response.active_tasks), before)
            self._standby = tasks_in(response.standby_tasks or [])

    def _take(self, tasks: set[Task], asked: int) -> None:
        name = self._client.name
        for task in sorted(self._active - tasks):
            self._roster.gives_up(name, task)
        for task in sorted(tasks - self._active):
            self._roster.takes(name, task, asked)
        self._active = tasks
        self._client.say(f"epoch {self._epoch} of {self._group}: tasks {sorted(tasks)}")
