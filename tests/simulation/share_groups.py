"""Members of a share group of KIP-932, and what each was told of each record."""

from __future__ import annotations

from typing import Any

import trio

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages import share_acknowledge, share_fetch
from pykbroker.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from pykbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from pykbroker.share_partitions.acknowledgement import ACCEPT, REJECT, RELEASE
from tests.simulation.client import GROUP, Client, Unreachable
from tests.simulation.groups import HEARTBEAT_S
from tests.simulation.history import History

GROUP_RESOURCE = 32
MAX_WAIT_MS = 200
LOCK_S = 1.0
"""Duration of an acquisition lock."""
NOTHING_STORED = -1

Place = tuple[str, int]


class Ledger:
    """Answers that the members of one group got about each record.

    Rules: a record whose acceptance was confirmed is not delivered again, and not accepted again; in the end every
    record is delivered for good.
    """

    def __init__(self, client: Client, history: History, places: list[Place]) -> None:
        self.places = places
        self._world = client.world
        self._history = history
        self._accepted: dict[tuple[Place, int], tuple[str, int]] = {}
        self.count = 0
        self.is_complete = False

    def delivered(self, member: str, place: Place, first: int, last: int, before: int) -> None:
        """A member got records; `before` is the ledger's count when it asked."""
        self._history.count("shared records delivered", last - first + 1)
        for offset in range(first, last + 1):
            accepted = self._accepted.get((place, offset))
            if accepted is not None and accepted[1] <= before:
                self._world.broken(f"{member} is given {place} offset {offset}, which {accepted[0]} has accepted")

    def accepted(self, member: str, place: Place, first: int, last: int, *, may_have_expired: bool) -> None:
        """A member was told that its acceptance of records is stored.

        If its locks may have expired meanwhile, another member may have accepted them first: like Apache Kafka's, the
        leader says nothing of records that are before the start offset by then.
        """
        self.count += 1
        self._history.count("shared records accepted", last - first + 1)
        for offset in range(first, last + 1):
            before = self._accepted.setdefault((place, offset), (member, self.count))
            if before[1] != self.count and not may_have_expired:
                self._world.broken(f"{member} accepts {place} offset {offset}, which {before[0]} has accepted")


class ShareMember:
    """Heartbeats, acquires records, accepts most of them, gives some back, and forgets others.

    When it is to stop it goes on until nothing is left to be delivered.
    """

    def __init__(self, client: Client, group: str, ledger: Ledger) -> None:
        self.must_stop = False
        self._client = client
        self._group = group
        self._ledger = ledger
        self._life = 0
        self._epoch = 0
        self._owned: list[Place] = []
        self._is_configured = False
        # Without an answer it does not know if it was given another assignment.
        self._must_be_full = True

    async def run(self) -> None:
        client = self._client
        while not (self.must_stop and self._ledger.is_complete):
            try:
                if not self._is_configured:
                    await self._configure()
                await self._beat()
                await self._work()
                if self.must_stop:
                    await self._see_if_complete()
            except Unreachable as why:
                client.say(f"share group {self._group}: {why}")
                await client.pause()

    async def _configure(self) -> None:
        """The group begins at the beginning, with short locks."""
        values = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(round(LOCK_S * 1000))}
        configs = [AlterableConfig(name=name, value=value) for name, value in values.items()]
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=self._group, configs=configs)
        response = await self._client.call_any(IncrementalAlterConfigsRequest(resources=[resource]))
        if response.responses[0].error_code != ErrorCode.NONE:
            raise Unreachable(f"no settings: {ErrorCode(response.responses[0].error_code).name}")
        self._is_configured = True

    async def _beat(self) -> None:
        client = self._client
        topics = sorted({topic for topic, _ in self._ledger.places})
        missing = [topic for topic in topics if topic not in client.topic_ids]
        if missing:
            await client.refresh(missing)
        request = ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id=f"{client.name}-{self._life}",
            member_epoch=self._epoch,
            subscribed_topic_names=topics if self._must_be_full else None,
        )
        self._must_be_full = True
        response = await client.call_coordinator(GROUP, self._group, request)
        code = ErrorCode(response.error_code)
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self._life += 1
            self._epoch, self._owned = 0, []
            raise Unreachable(code.name)
        if code != ErrorCode.NONE:
            client.forget_coordinator(GROUP, self._group)
            raise Unreachable(code.name)
        self._must_be_full = False
        self._epoch = response.member_epoch
        if response.assignment is not None:
            names = {topic_id: name for name, topic_id in client.topic_ids.items()}
            self._owned = [
                (names[found.topic_id], number)
                for found in response.assignment.topic_partitions
                for number in found.partitions
            ]

    async def _work(self) -> None:
        """Until the next heartbeat."""
        client = self._client
        beat_at = trio.current_time() + HEARTBEAT_S
        while trio.current_time() < beat_at:
            await trio.sleep(client.random.uniform(0.02, 0.1))
            if self._owned:
                await self._share(client.random.choice(self._owned))

    async def _share(self, place: Place) -> None:
        """One round: some records of a partition, and what becomes of them."""
        client, ledger = self._client, self._ledger
        info = await client.leader_of(*place)
        before, asked_at = ledger.count, trio.current_time()
        partition = share_fetch.FetchPartition(partition_index=place[1])
        topic = share_fetch.FetchTopic(topic_id=client.topic_ids[place[0]], partitions=[partition])
        request = share_fetch.ShareFetchRequest(
            group_id=self._group,
            member_id=f"{client.name}-{self._life}",
            share_session_epoch=0,
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_records=client.random.choice((1, 5, 100)),
            batch_size=100,
            share_acquire_mode=client.random.choice((0, 1)),
            topics=[topic],
        )
        response = await self._ask(place, info.leader, request)
        for found in response.responses:
            for data in found.partitions:
                if data.error_code != ErrorCode.NONE:
                    client.forget(*place)
                    raise Unreachable(f"no records of {place}: {ErrorCode(data.error_code).name}")
                runs = [(each.first_offset, each.last_offset) for each in data.acquired_records]
                for first, last in runs:
                    ledger.delivered(client.name, place, first, last, before)
                await trio.sleep(client.random.uniform(0.0, 0.1))
                await self._acknowledge(place, info.leader, runs, asked_at)

    async def _acknowledge(self, place: Place, leader: int, runs: list[tuple[int, int]], asked_at: float) -> None:
        client = self._client
        # It calls nothing back from what it has forgotten: the locks expire.
        kept = [run for run in runs if client.random.random() < 0.95]
        kinds = [client.random.choices((ACCEPT, RELEASE, REJECT), (17, 2, 1))[0] for _ in kept]
        if not kept:
            return
        batches = [
            share_fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
            for (first, last), kind in zip(kept, kinds, strict=True)
        ]
        partition = share_acknowledge.AcknowledgePartition(partition_index=place[1], acknowledgement_batches=batches)
        topic = share_acknowledge.AcknowledgeTopic(topic_id=client.topic_ids[place[0]], partitions=[partition])
        request = share_acknowledge.ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=f"{client.name}-{self._life}",
            share_session_epoch=1,
            topics=[topic],
        )
        response = await self._ask(place, leader, request)
        for found in response.responses:
            for data in found.partitions:
                if data.error_code != ErrorCode.NONE:
                    client.forget(*place)
                    raise Unreachable(f"{place} is not acknowledged: {ErrorCode(data.error_code).name}")
        may_have_expired = trio.current_time() - asked_at >= LOCK_S
        for (first, last), kind in zip(kept, kinds, strict=True):
            if kind == ACCEPT:
                self._ledger.accepted(client.name, place, first, last, may_have_expired=may_have_expired)

    async def _ask(self, place: Place, leader: int, request: Message) -> Any:
        client = self._client
        try:
            response = await client.call(leader, request)
        except Unreachable:
            client.forget(*place)
            raise
        if response.error_code != ErrorCode.NONE:
            raise Unreachable(f"share session at {leader}: {ErrorCode(response.error_code).name}")
        return response

    async def _see_if_complete(self) -> None:
        """Everything is delivered for good when no partition lags."""
        client, group = self._client, self._group
        asked = [DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)]
        response = await client.call_coordinator(GROUP, group, DescribeShareGroupOffsetsRequest(groups=asked))
        lags = {
            (topic.topic_name, found.partition_index): (found.start_offset, found.lag, found.error_code)
            for topic in response.groups[0].topics
            for found in topic.partitions
        }
        for place in self._ledger.places:
            start_offset, lag, code = lags.get(place, (NOTHING_STORED, -1, 0))
            if code != ErrorCode.NONE or lag > 0:
                return
            if lag < 0 and (start_offset != NOTHING_STORED or await client.end_offset(*place) > 0):
                return
        self._ledger.is_complete = True
