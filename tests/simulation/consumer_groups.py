"""Members of a consumer group of KIP-848, and the partitions that each of them works on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import trio

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from tests.simulation.client import GROUP, Client, Unreachable
from tests.simulation.groups import HEARTBEAT_S, GroupMember, Rejoin, fetch_committed
from tests.simulation.history import History

REBALANCE_TIMEOUT_MS = 3000
FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)

Place = tuple[str, int]


class Holding(NamedTuple):
    """A member's hold of a partition, in counts of the roster: when its heartbeat was sent and when it was answered."""

    asked: int
    taken: int


class Roster:
    """The partitions that the members of one group work on, as they know it.

    Rule: a partition that a member has had all the time, and has in a heartbeat that is accepted, was given to nobody
    else meanwhile. "Meanwhile" counts from the request, as an answer may lie unread until its member has long been
    fenced: the heartbeat by which the other got the partition was sent after this member had it, and answered before
    this member's heartbeat was sent. One that was fenced and does not know it yet may have the partition too, as its
    next heartbeat is refused.
    """

    def __init__(self, client: Client, history: History, places: list[Place]) -> None:
        self._world = client.world
        self._history = history
        self._places = set(places)
        self._holders: dict[Place, dict[str, Holding]] = {place: {} for place in places}
        self._waiting: dict[str, set[Place]] = {}
        self.count = 0
        self.is_complete = False

    def takes(self, member: str, place: Place, asked: int) -> None:
        """A member begins to work on a partition; `asked` is the roster's count when its heartbeat was sent."""
        self.count += 1
        self._holders[place][member] = Holding(asked, self.count)
        self._history.count("partitions taken")

    def gives_up(self, member: str, place: Place) -> None:
        """A member has ended its work on a partition."""
        self._holders[place].pop(member, None)

    def confirmed(self, member: str, places: set[Place], before: int) -> None:
        """A heartbeat with these partitions was accepted; `before` is the roster's count when it was sent."""
        for place in places:
            mine = self._holders[place].get(member)
            if mine is None:
                continue
            others = [
                other
                for other, holding in self._holders[place].items()
                if other != member and mine.taken <= holding.asked and holding.taken <= before
            ]
            if others:
                self._world.broken(f"{member} has {place} by an accepted heartbeat, and {others} took it meanwhile")

    def is_done(self, member: str, places: set[Place]) -> None:
        """A member that is to stop has these partitions; all have stopped well when together they have each one."""
        self._waiting[member] = places
        together = [place for owned in self._waiting.values() for place in owned]
        if sorted(together) == sorted(self._places):
            self.is_complete = True


class HeartbeatingMember(ABC):
    """A member of a modern group: heartbeats, and joins as a new member when it is fenced.

    When it is to stop it goes on until the group has assigned everything once.
    """

    def __init__(self, client: Client, group: str, roster: Roster) -> None:
        self.must_stop = False
        self._client = client
        self._group = group
        self._roster = roster
        self._life = 0
        self._epoch = 0

    async def run(self) -> None:
        client = self._client
        while not (self.must_stop and self._roster.is_complete):
            try:
                await self._beat()
                await self._after_beat()
            except Rejoin as why:
                client.say(f"begins again in {self._group}: {why}")
                self._begin_again()
                await client.pause()
            except Unreachable as why:
                client.say(f"no heartbeat of {self._group}: {why}")
                self._on_no_response()
                await client.pause()

    async def _call(self, request: Message, owned: set[Place], before: int) -> Any:
        """The response to a heartbeat with these places; `before` is the roster's count when it is sent."""
        client = self._client
        response = await client.call_coordinator(GROUP, self._group, request)
        code = ErrorCode(response.error_code)
        if code in FENCED:
            raise Rejoin(code.name)
        if code != ErrorCode.NONE:
            client.forget_coordinator(GROUP, self._group)
            raise Unreachable(code.name)
        self._roster.confirmed(client.name, owned, before)
        return response

    def _next_life(self) -> None:
        """A new member id: what the member of before has sent may still arrive."""
        self._life += 1
        self._member_id = f"{self._client.name}-{self._life}"
        self._epoch = 0

    @abstractmethod
    async def _beat(self) -> None:
        """Sends a heartbeat and follows the response."""

    @abstractmethod
    async def _after_beat(self) -> None:
        """Does the member's work until the next heartbeat."""

    @abstractmethod
    def _begin_again(self) -> None:
        """Gives everything up and gets a new member id."""

    @abstractmethod
    def _on_no_response(self) -> None:
        """Follows a heartbeat that was perhaps handled."""


class ConsumerProtocolMember(HeartbeatingMember, GroupMember):
    """Heartbeats, works on what it is given, commits with its epoch, and begins again when it is fenced.

    When it is to stop it goes on until the group has assigned every partition once.
    """

    def __init__(self, client: Client, history: History, group: str, partitions: list[Place], roster: Roster) -> None:
        GroupMember.__init__(self, client, history, group, partitions)
        HeartbeatingMember.__init__(self, client, group, roster)
        self._owned: set[Place] = set()
        self._positions: dict[Place, int] = {}
        self._must_be_full = True
        self._begin_again()

    async def _after_beat(self) -> None:
        if self.must_stop:
            self._roster.is_done(self._client.name, set(self._owned))
        await self._work()

    def _on_no_response(self) -> None:
        self._must_be_full = True

    def _begin_again(self) -> None:
        for place in self._owned:
            self._roster.gives_up(self._client.name, place)
        self._next_life()
        self._generation = 0
        self._owned, self._positions = set(), {}
        self._must_be_full = True

    async def _beat(self) -> None:
        client, roster = self._client, self._roster
        missing = [topic for topic, _ in self._partitions if topic not in client.topic_ids]
        if missing:
            await client.refresh(missing)
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(self._owned):
            topics.setdefault(topic, []).append(partition)
        is_full = self._must_be_full
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_full else -1,
            subscribed_topic_names=sorted({topic for topic, _ in self._partitions}) if is_full else None,
            topic_partitions=[
                TopicPartitions(topic_id=client.topic_ids.get(topic, bytes(16)), partitions=numbers)
                for topic, numbers in topics.items()
            ],
        )
        before, owned = roster.count, set(self._owned)
        response = await self._call(request, owned, before)
        self._must_be_full = False
        self._epoch = self._generation = response.member_epoch
        if response.assignment is not None:
            names = {topic_id: name for name, topic_id in client.topic_ids.items()}
            self._take(
                {(names[t.topic_id], number) for t in response.assignment.topic_partitions for number in t.partitions},
                before,
            )

    def _take(self, places: set[Place], asked: int) -> None:
        name = self._client.name
        for place in sorted(self._owned - places):
            self._roster.gives_up(name, place)
            self._positions.pop(place, None)
        for place in sorted(places - self._owned):
            self._roster.takes(name, place, asked)
        self._owned = places
        self._client.say(f"epoch {self._epoch} of {self._group}: {sorted(places)}")
        self._history.count("assignments taken")

    async def _work(self) -> None:
        """Until the next heartbeat. After a commit without an answer it begins again."""
        client = self._client
        beat_at = trio.current_time() + HEARTBEAT_S
        while trio.current_time() < beat_at:
            await trio.sleep(client.random.uniform(0.02, 0.1))
            if not self._owned:
                continue
            place = client.random.choice(sorted(self._owned))
            if place not in self._positions:
                found = await fetch_committed(client, self._history, self._group, [place])
                self._positions[place] = max(found.get(place, 0), 0)
            end = await self._read(*place, self._positions[place])
            if end > self._positions[place]:
                await trio.sleep(client.random.uniform(0.05, 0.2))
                try:
                    await self._commit(*place, end)
                except Unreachable as error:
                    raise Rejoin(f"a commit has no answer: {error}") from None
                self._positions[place] = end
