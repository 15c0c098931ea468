"""Members of a consumer group, by the classic protocol, and what a group has committed."""

from __future__ import annotations

import json

import trio

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.heartbeat import HeartbeatRequest
from pykbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from pykbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pykbroker.protocol.records.batch import iter_batches
from tests.simulation.client import GROUP, Client, Unreachable
from tests.simulation.history import History

SESSION_TIMEOUT_MS = 3000
REBALANCE_TIMEOUT_MS = 3000
HEARTBEAT_S = 0.6


async def fetch_committed(
    client: Client, history: History, group: str, partitions: list[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """Committed offsets of a group by (topic, partition), -1 for none. Raises Unreachable."""
    missing = [topic for topic, _ in partitions if topic not in client.topic_ids]
    if missing:
        await client.refresh(missing)
    before = {key: history.committed_before(group, *key) for key in partitions}
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    request = OffsetFetchRequest(
        require_stable=True,
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=[
                    OffsetFetchRequestTopics(
                        name=topic, topic_id=client.topic_ids.get(topic, bytes(16)), partition_indexes=numbers
                    )
                    for topic, numbers in topics.items()
                ],
            )
        ],
    )
    response = (await client.call_coordinator(GROUP, group, request)).groups[0]
    codes = [response.error_code, *(found.error_code for topic in response.topics for found in topic.partitions)]
    for code in codes:
        if code != ErrorCode.NONE:
            client.forget_coordinator(GROUP, group)
            raise Unreachable(f"offsets of {group}: {ErrorCode(code).name}")
    offsets = {
        (topic.name or _name_of(client, topic.topic_id), found.partition_index): found.committed_offset
        for topic in response.topics
        for found in topic.partitions
    }
    for key in partitions:
        history.told_committed(client.name, group, *key, offsets.get(key, -1), before[key])
    return offsets


def _name_of(client: Client, topic_id: bytes) -> str:
    return next((name for name, known in client.topic_ids.items() if known == topic_id), "")


class Rejoin(Exception):
    """The member must join again."""


class GroupMember:
    """Joins, reads what it is given from where the group stands, commits, and rejoins when told to."""

    def __init__(self, client: Client, history: History, group: str, partitions: list[tuple[str, int]]) -> None:
        self._client = client
        self._history = history
        self._group = group
        self._partitions = partitions
        self._member_id = ""
        self._generation = -1
        self.must_stop = False

    async def run(self) -> None:
        while not self.must_stop:
            try:
                mine = await self._join()
                await self._consume(mine)
            except (Unreachable, Rejoin) as why:
                self._client.say(f"rejoins {self._group}: {why}")
                await self._client.pause()

    async def _join(self) -> list[tuple[str, int]]:
        client = self._client
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="simple", metadata=b"")],
        )
        joined = await client.call_coordinator(GROUP, self._group, request, REBALANCE_TIMEOUT_MS + 3000)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            raise Rejoin("with a member id")
        self._check(joined.error_code)
        self._member_id, self._generation = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == joined.member_id:
            members = sorted(member.member_id for member in joined.members)
            for number, member in enumerate(members):
                part = self._partitions[number :: len(members)]
                assignments.append(SyncGroupRequestAssignment(member_id=member, assignment=json.dumps(part).encode()))
        synced = await client.call_coordinator(
            GROUP,
            self._group,
            SyncGroupRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._member_id,
                protocol_type="consumer",
                protocol_name="simple",
                assignments=assignments,
            ),
            REBALANCE_TIMEOUT_MS + 3000,
        )
        self._check(synced.error_code)
        mine = [(topic, partition) for topic, partition in json.loads(synced.assignment or b"[]")]
        client.say(f"generation {self._generation} of {self._group}: {mine}")
        self._history.count("generations joined")
        return mine

    async def _consume(self, mine: list[tuple[str, int]]) -> None:
        client = self._client
        positions = await fetch_committed(client, self._history, self._group, mine) if mine else {}
        beat_at = trio.current_time() + HEARTBEAT_S
        while not self.must_stop:
            if mine:
                key = client.random.choice(mine)
                end = await self._read(*key, max(positions.get(key, 0), 0))
                if end > positions.get(key, -1):
                    # What the application does with the records.
                    await trio.sleep(client.random.uniform(0.05, 0.3))
                    await self._commit(*key, end)
                    positions[key] = end
            if trio.current_time() >= beat_at:
                beat_at = trio.current_time() + HEARTBEAT_S
                request = HeartbeatRequest(
                    group_id=self._group, generation_id=self._generation, member_id=self._member_id
                )
                self._check((await client.call_coordinator(GROUP, self._group, request)).error_code)
            await trio.sleep(client.random.uniform(0.02, 0.1))

    async def _read(self, topic: str, partition: int, position: int) -> int:
        client = self._client
        info = await client.leader_of(topic, partition)
        try:
            found = await client.fetch(info.leader, topic, partition, position, max_wait_ms=0)
        except Unreachable:
            client.forget(topic, partition)
            return position
        if found.error_code != ErrorCode.NONE:
            client.forget(topic, partition)
            return position
        end = position
        for batch in iter_batches(bytes(found.records or b"")):
            end = batch.last_offset + 1
        return end

    async def _commit(self, topic: str, partition: int, offset: int) -> None:
        """Commits under this generation. After a commit without an answer it joins again: a request that still
        arrives by the old connection is of an old generation then."""
        parts = [
            OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
        ]
        topic_id = self._client.topic_ids.get(topic, bytes(16))
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=parts)],
        )
        response = await self._client.call_coordinator(GROUP, self._group, request)
        self._check(response.topics[0].partitions[0].error_code)
        self._client.say(f"{self._group} has committed {offset} for {topic}-{partition}")
        self._history.committed(self._group, topic, partition, offset)

    def _check(self, error_code: int) -> None:
        code = ErrorCode(error_code)
        if code == ErrorCode.NONE:
            return
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        elif code != ErrorCode.REBALANCE_IN_PROGRESS:
            self._client.forget_coordinator(GROUP, self._group)
        raise Rejoin(code.name)
