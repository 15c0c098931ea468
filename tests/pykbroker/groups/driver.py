"""Drives a `GroupShard` in virtual time, with a list for a log, and checks the contract of `GroupResult` on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pykbroker.groups import member_requests, offset_cleanup, offset_commit, offset_fetch
from pykbroker.groups.classic.group import Group, GroupState
from pykbroker.groups.offset_log import decode_record, encode_record
from pykbroker.groups.result import GroupResult, Requester
from pykbroker.groups.shard import GroupShard
from pykbroker.protocol.codec import encode_versioned
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.consumer_protocol import ConsumerProtocolSubscription
from pykbroker.protocol.messages.heartbeat import HeartbeatRequest
from pykbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from pykbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from pykbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from pykbroker.protocol.steps import finished
from tests.pykbroker.groups.group_settings import classic_config
from tests.pykbroker.groups.shards import make_shard

START_MS = 1_700_000_000_000
DELAY_MS = 3_000
TOPIC_ID = bytes(15) + b"\x07"


def subscription(*topics: str, version: int = 1) -> bytes:
    """Metadata of a consumer in JoinGroup: its subscription, encoded."""
    return encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), version)


class Parked:
    """A waiter; `response` is None while it is parked."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.response: Any = None

    @property
    def join(self) -> JoinGroupResponse:
        assert isinstance(self.response, JoinGroupResponse), self.response
        return self.response

    @property
    def sync(self) -> SyncGroupResponse:
        assert isinstance(self.response, SyncGroupResponse), self.response
        return self.response

    @property
    def error(self) -> ErrorCode:
        assert self.response is not None, "still parked"
        return ErrorCode(self.response.error_code)


class Driver:
    """One shard with its log. `append_error` is what the next appends fail with."""

    def __init__(self, **settings: Any) -> None:
        self.config = classic_config(**settings)
        self.shard = make_shard(self.config)
        self.now_ms = START_MS
        self.log: list[tuple[bytes, bytes | None]] = []
        self.append_error = ErrorCode.NONE
        self.notes: list[str] = []
        self.details: list[str] = []
        self._member_count = 0

    def group(self, group_id: str = "g") -> Group:
        return self.shard.groups[group_id]

    @property
    def state(self) -> GroupState:
        return self.group().state

    def carry_out(self, result: GroupResult | None) -> ErrorCode:
        """Handle a result as the runtime does; gives the error of the last append."""
        error = ErrorCode.NONE
        while result is not None:
            self.notes += result.notes
            self.details += result.details
            for waiter, response in result.replies:
                assert isinstance(waiter, Parked)
                assert waiter.response is None, f"{waiter.name} answered twice"
                waiter.response = response
            if not result.records:
                return error
            error = self.append_error
            first_offset = len(self.log)
            if error is ErrorCode.NONE:
                self.log += [encode_record(record) for record in result.records]
            result = self.shard.stored(result, error, self.now_ms, first_offset)
        return error

    def advance(self, duration_ms: int) -> None:
        """Lets time pass, firing timers when they are due."""
        target_ms = self.now_ms + duration_ms
        while True:
            due = [g for g in self.shard.groups.values() if g.wake_ms is not None and g.wake_ms <= target_ms]
            if not due:
                break
            group = min(due, key=lambda g: g.wake_ms or 0)
            self.now_ms = max(self.now_ms, group.wake_ms or 0)
            self.carry_out(group.expire_due(self.now_ms))
        self.now_ms = target_ms

    def replayed(self) -> GroupShard:
        """A new shard with what the log says."""
        shard = make_shard(self.config)
        for offset, (key, value) in enumerate(self.log):
            record = decode_record(key, value)
            assert record is not None
            shard.replay(record, self.now_ms, offset)
        return shard

    # Requests

    def join(
        self,
        member_id: str = "",
        *,
        group_id: str = "g",
        version: int = 9,
        client_id: str = "c",
        instance_id: str | None = None,
        protocol_type: str = "consumer",
        protocols: Sequence[tuple[str, bytes]] | None = None,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        reason: str | None = None,
    ) -> Parked:
        self._member_count += 1
        waiter = Parked(f"join of {member_id or client_id}")
        chosen = [("range", subscription("t"))] if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in chosen],
            reason=reason,
        )
        requester = Requester(client_id, "/127.0.0.1", version, self._member_count.to_bytes(16, "big"))
        self.carry_out(member_requests.classic_group_join(self.shard, self.now_ms, request, requester, waiter))
        return waiter

    def new_member(self, **options: object) -> tuple[str, Parked]:
        """Joins as clients do since version 4: an id first, then the join with it."""
        first = self.join(**options)  # type: ignore[arg-type]
        assert first.error is ErrorCode.MEMBER_ID_REQUIRED
        member_id = first.join.member_id
        return member_id, self.join(member_id, **options)  # type: ignore[arg-type]

    def sync(
        self,
        member_id: str,
        generation_id: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
    ) -> Parked:
        waiter = Parked(f"sync of {member_id}")
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in (assignments or {}).items()],
        )
        self.carry_out(member_requests.classic_group_sync(self.shard, self.now_ms, request, waiter))
        return waiter

    def heartbeat(self, member_id: str, generation_id: int, instance_id: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id="g", member_id=member_id, group_instance_id=instance_id, generation_id=generation_id
        )
        return member_requests.classic_group_heartbeat(self.shard, request, self.now_ms)

    def leave(self, *members: tuple[str, str | None]) -> list[ErrorCode]:
        identities = [MemberIdentity(member_id=m, group_instance_id=i, reason="tired") for m, i in members]
        result = member_requests.classic_group_leave(
            self.shard, self.now_ms, LeaveGroupRequest(group_id="g", members=identities)
        )
        self.carry_out(result)
        return [ErrorCode(member.error_code) for member in result.response.members]

    def commit(
        self,
        offset: int,
        *,
        group_id: str = "g",
        generation_id: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
        topic: str = "t",
        topic_id: bytes = TOPIC_ID,
        partition: int = 0,
        metadata: str | None = "",
        retention_ms: int = -1,
        version: int = 9,
        leader_epoch: int = -1,
    ) -> ErrorCode:
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=topic_id,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=leader_epoch,
                            committed_metadata=metadata,
                        )
                    ],
                )
            ],
        )
        result = offset_commit.commit(self.shard, self.now_ms, request, version)
        error = self.carry_out(result)
        return error or ErrorCode(result.response.topics[0].partitions[0].error_code)

    def fetch(self, topic: str = "t", partition: int = 0, *, group_id: str = "g", topic_id: bytes = bytes(16)) -> int:
        topics = [OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=[partition])]
        request = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
        response = finished(offset_fetch.fetch(self.shard, request))
        return response.topics[0].partitions[0].committed_offset

    def expire(self) -> None:
        for result in offset_cleanup.expire_offsets(self.shard, self.now_ms):
            self.carry_out(result)

    # Ready-made groups

    def stable(self, count: int = 1, **options: object) -> list[str]:
        """A Stable group of that many dynamic members; the first leads. Gives their ids."""
        members = [self.new_member(**options) for _ in range(count)]
        self.advance(DELAY_MS * 2)
        generation_id = members[0][1].join.generation_id
        assignments = {member_id: member_id.encode() for member_id, _ in members}
        for member_id, _ in reversed(members):
            given = assignments if member_id == members[0][0] else None
            last = self.sync(member_id, generation_id, given, protocol_type=None, protocol_name=None)
        assert last.error is ErrorCode.NONE
        return [member_id for member_id, _ in members]

    def stable_static(self, *instance_ids: str, version: int = 9, **options: object) -> dict[str, str]:
        """A Stable group of static members; gives instance id -> member id."""
        joins = {i: self.join(instance_id=i, version=version, **options) for i in instance_ids}  # type: ignore[arg-type]
        self.advance(DELAY_MS * 2)
        ids = {instance_id: parked.join.member_id for instance_id, parked in joins.items()}
        leader_id = next(iter(ids.values()))
        for instance_id, member_id in reversed(ids.items()):
            assignments = {m: m.encode() for m in ids.values()} if member_id == leader_id else None
            self.sync(member_id, self.group().generation_id, assignments, instance_id=instance_id)
        assert self.state is GroupState.STABLE
        return ids
