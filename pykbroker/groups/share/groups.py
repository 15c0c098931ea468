"""The share groups of one partition of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykbroker.config.values import ShareGroupValues
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.group import LEAVE_GROUP_MEMBER_EPOCH
from pykbroker.groups.modern.groups import ModernGroups
from pykbroker.groups.modern.preparation import encode_in_steps
from pykbroker.groups.result import DeletedTopics, GroupResult, Initialization, LogRecord
from pykbroker.groups.share import heartbeat as heartbeats
from pykbroker.groups.share import offsets
from pykbroker.groups.share.describe import describe
from pykbroker.groups.share.group import SHARE_GROUP_TYPE, ShareGroup
from pykbroker.groups.share.heartbeat import ShareHeartbeatContext
from pykbroker.groups.share.initialization import initialized_record, uninitialized_record
from pykbroker.groups.share.member import ShareMember
from pykbroker.groups.share.records import group_tombstones
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.share_group_describe import DescribedGroup
from pykbroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from pykbroker.protocol.steps import Steps, finished


class ShareGroups(ModernGroups[ShareGroup, ShareGroupValues]):
    """Share groups by id."""

    group_type = SHARE_GROUP_TYPE
    protocol_type = SHARE_GROUP_TYPE
    group_class = ShareGroup

    def tombstones(self, group_id: str) -> list[LogRecord]:
        """Tombstones of everything that is stored for a group."""
        return group_tombstones(group_id, self.by_id[group_id].members)

    # Requests

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, other: object | None, context: ShareHeartbeatContext
    ) -> GroupResult:
        """Handles ShareGroupHeartbeat; a member that joins creates the group.

        Args:
            request: the request, which was checked.
            other: the group of another type with this id, if there is one.
            context: settings, topics, time and client.

        Raises:
            GroupError: the request is refused.
        """
        if request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH:
            return heartbeats.leave(self.find(request.group_id, other), request, context)
        group = self.get_or_make(request.group_id, other, is_joining=request.member_epoch == 0)
        result = finished(heartbeats.heartbeat(group, request, context))
        self.keep_soft_state(group)
        return result

    def context(self, group_id: str, now_ms: int, client_id: str, client_host: str) -> ShareHeartbeatContext:
        return ShareHeartbeatContext(self.settings_of(group_id), self.topics, now_ms, client_id, client_host)

    def compute_heartbeat(
        self, group: ShareGroup, now_ms: int, request: ShareGroupHeartbeatRequest, *client: Any
    ) -> Steps[GroupResult]:
        """Computes a heartbeat that does not leave, and encodes its records; see `prepare_write`.

        `client` are the arguments of `context` that describe the client.
        """
        context = self.context(group.group_id, now_ms, *client)
        result = yield from heartbeats.heartbeat(group, request, context)
        result.initialization = context.initialization
        if result.records:
            result.frames = yield from encode_in_steps(result.records)
        return result

    def described(self, group: ShareGroup) -> Steps[DescribedGroup]:
        """A group for ShareGroupDescribe."""
        return describe(group, self.topics)

    def initialized(self, group: ShareGroup, now_ms: int, done: Initialization) -> Steps[GroupResult]:
        """Notes share partitions as initialized; the record is encoded, see `prepare_write`."""
        result = GroupResult(applies_at_append=True)
        if done.partitions:
            result.records.append((yield from initialized_record(group, done.partitions, self.topics, now_ms)))
            result.frames = yield from encode_in_steps(result.records)
        return result

    def not_initialized(self, failed: Initialization) -> GroupResult:
        """Forgets that share partitions are being initialized, so that a later heartbeat tries again."""
        group = self.by_id.get(failed.group_id)
        record = None if group is None else uninitialized_record(group, failed.partitions, self.topics)
        return GroupResult() if record is None else GroupResult(records=[record], applies_at_append=True)

    def empty_group(self, group_id: str, other: object | None) -> ShareGroup:
        """A share group without members, for administration.

        Raises:
            GroupError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        group = self.find(group_id, other)
        if group.members:
            raise GroupError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
        return group

    def alter_offsets(
        self, group_id: str, other: object | None, wanted: offsets.WantedOffsets, now_ms: int
    ) -> GroupResult:
        """Handles AlterShareGroupOffsets, which creates the group if it does not exist; see `offsets.alter`.

        Raises:
            GroupError: GROUP_ID_NOT_FOUND: the group is of another type, NON_EMPTY_GROUP.
        """
        group = self.get_or_make(group_id, other, is_joining=True)
        if group.members:
            raise GroupError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
        return offsets.alter(group, wanted, self.topics, now_ms)

    def delete_offsets(self, group_id: str, other: object | None, names: Iterable[str]) -> GroupResult:
        """Begins DeleteShareGroupOffsets; see `offsets.begin_deletion`.

        Raises:
            GroupError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        return offsets.begin_deletion(self.empty_group(group_id, other), names, self.topics)

    def offsets_deleted(self, group_id: str, topic_ids: Iterable[bytes]) -> GroupResult:
        """Ends DeleteShareGroupOffsets, if the group is still there."""
        group = self.by_id.get(group_id)
        return GroupResult() if group is None else offsets.end_deletion(group, topic_ids, self.topics)

    def begin_deletion(self, group_id: str) -> GroupResult:
        """The share partitions whose state must be deleted before an empty group; see `offsets`. Or NON_EMPTY_GROUP."""
        group = self.by_id.get(group_id)
        if group is None:
            return GroupResult(response={})
        if group.members:
            return GroupResult(response=ErrorCode.NON_EMPTY_GROUP)
        return offsets.begin_group_deletion(group, self.topics)

    def with_topics(self, topic_ids: frozenset[bytes]) -> list[ShareGroup]:
        """The groups whose states have one of these topics."""
        return [group for group in self.by_id.values() if group.has_state_of(topic_ids)]

    def forget_topics(self, group: ShareGroup, now_ms: int, deleted: DeletedTopics) -> Steps[GroupResult]:
        """Removes deleted topics from the states of a group; the record is encoded, see `prepare_write`."""
        result = GroupResult(applies_at_append=True)
        if group.has_state_of(deleted.topic_ids):
            result.records.append((yield from offsets.forget_topics(group, deleted.topic_ids, self.topics, now_ms)))
            result.frames = yield from encode_in_steps(result.records)
        return result

    # Time

    def remove_member(self, group: ShareGroup, member: ShareMember, now_ms: int) -> GroupResult:
        return heartbeats.remove_member(group, member, self.topics)
