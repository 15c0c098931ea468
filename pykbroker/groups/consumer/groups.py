"""The consumer groups of one partition of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykbroker.config.values import ConsumerGroupValues
from pykbroker.groups.classic.group import EMPTY, Group
from pykbroker.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE
from pykbroker.groups.consumer import heartbeat as heartbeats
from pykbroker.groups.consumer.context import HeartbeatContext
from pykbroker.groups.consumer.describe import describe
from pykbroker.groups.consumer.group import CONSUMER_GROUP_TYPE, ConsumerGroup
from pykbroker.groups.consumer.leaving import fence_members
from pykbroker.groups.consumer.member import ConsumerMember
from pykbroker.groups.consumer.migration import check_upgrade, upgrade
from pykbroker.groups.consumer.records import group_tombstones
from pykbroker.groups.consumer.regexes import resolved
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.group import LEAVING_EPOCHS
from pykbroker.groups.modern.groups import ModernGroups
from pykbroker.groups.modern.preparation import PreparedWrite, encode_in_steps
from pykbroker.groups.offset_log import group_tombstone
from pykbroker.groups.result import GroupResult, LogRecord, ResolvedRegexes
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.consumer_group_describe import DescribedGroup
from pykbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykbroker.protocol.steps import Steps, finished


class ConsumerGroups(ModernGroups[ConsumerGroup, ConsumerGroupValues]):
    """Consumer groups by id."""

    group_type = CONSUMER_GROUP_TYPE
    protocol_type = CONSUMER_PROTOCOL_TYPE
    group_class = ConsumerGroup

    # Requests

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, other: object | None, context: HeartbeatContext
    ) -> GroupResult:
        """Handles ConsumerGroupHeartbeat; a member that joins creates the group or converts a classic group.

        `other` is the group of another type with this id, if there is one.

        Raises:
            GroupError: the request is refused.
        """
        if request.member_epoch in LEAVING_EPOCHS:
            return heartbeats.leave(self.find(request.group_id, other), request, context)
        is_joining = request.member_epoch == 0
        if isinstance(other, Group) and is_joining:
            return self._heartbeat_of_classic(request, other, context)
        group = self.get_or_make(request.group_id, other, is_joining=is_joining)
        result = finished(heartbeats.heartbeat(group, request, context))
        self.keep_soft_state(group)
        return result

    def context(
        self, group_id: str, now_ms: int, client_id: str, client_host: str, may_describe: Callable[[str], bool]
    ) -> HeartbeatContext:
        return HeartbeatContext(self.settings_of(group_id), self.topics, now_ms, client_id, client_host, may_describe)

    def compute_heartbeat(
        self, group: ConsumerGroup, now_ms: int, request: ConsumerGroupHeartbeatRequest, *client: Any
    ) -> Steps[GroupResult]:
        """Computes a heartbeat that does not leave, and encodes its records; see `prepare_write`.

        `client` are the arguments of `context` that describe the client.
        """
        context = self.context(group.group_id, now_ms, *client)
        is_done = False
        try:
            result = yield from heartbeats.heartbeat(group, request, context)
            result.regex_refresh = context.regex_refresh
            if result.records:
                result.frames = yield from encode_in_steps(result.records)
            is_done = True
        finally:
            if not is_done and context.regex_refresh is not None:
                group.soft_state.is_resolving = False
        return result

    def give_up(self, prepared: PreparedWrite) -> None:
        """Undoes the effect of a prepared heartbeat that is not carried out: the start of a resolution."""
        if prepared.result.regex_refresh is not None:
            prepared.group.soft_state.is_resolving = False

    def is_steady(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> bool:
        """True for the heartbeat of a member that has its assignment and asks for nothing else, as most are."""
        member = group.members.get(request.member_id)
        return (
            member is not None
            and request.member_epoch != 0
            and request.subscribed_topic_names is None
            and request.subscribed_topic_regex is None
            and member.is_reconciled_to(group.epoch)
            and not group.has_expired_metadata(now_ms)
        )

    def _heartbeat_of_classic(
        self, request: ConsumerGroupHeartbeatRequest, other: Group, context: HeartbeatContext
    ) -> GroupResult:
        """Handles the heartbeat of a member that joins a classic group."""
        conversion = GroupResult()
        try:
            group = self._converted(request.group_id, other, context, conversion)
            result = finished(heartbeats.heartbeat(group, request, context))
        except GroupError as error:
            error.replies = conversion.replies
            raise
        result.records = conversion.records + result.records
        result.notes = conversion.notes + result.notes
        result.replies = conversion.replies + result.replies
        self.keep_soft_state(group)
        return result

    def _converted(
        self, group_id: str, other: Group, context: HeartbeatContext, conversion: GroupResult
    ) -> ConsumerGroup:
        soft_state = self.soft_state_of(group_id)
        if other.state is EMPTY:
            conversion.records.append(group_tombstone(group_id))
            return ConsumerGroup(group_id, soft_state)
        check_upgrade(other, context.settings)
        # Its members must join the consumer group; or the classic group again, if the upgrade or its append fails.
        other.answer_parked(ErrorCode.REBALANCE_IN_PROGRESS, context.now_ms, conversion)
        return upgrade(other, soft_state, context.topics, context.now_ms, conversion)

    def resolved(self, group: ConsumerGroup, now_ms: int, found: ResolvedRegexes) -> Steps[GroupResult]:
        """Stores the topics that match regular expressions; the records are encoded, see `prepare_write`."""
        result = yield from resolved(group, found, self.topics, now_ms)
        if result.records:
            result.frames = yield from encode_in_steps(result.records)
        return result

    def end_resolution(self, group_id: str) -> None:
        """Lets heartbeats of a group ask for its regular expressions to be resolved again."""
        soft_state = self._soft_states.get(group_id)
        if soft_state is not None:
            soft_state.is_resolving = False

    def described(self, group: ConsumerGroup) -> Steps[DescribedGroup]:
        """A group for ConsumerGroupDescribe."""
        return describe(group, self.settings.assignors[0], self.topics)

    # The log

    def tombstones(self, group_id: str) -> list[LogRecord]:
        """Tombstones of everything that is stored for a group."""
        group = self.by_id[group_id]
        return group_tombstones(group_id, group.members, group.resolved)

    # Time

    def remove_member(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> GroupResult:
        """Records that remove a member, or make a classic group if only classic members stay."""
        return fence_members(group, [member], self.settings_of(group.group_id), self.topics, now_ms)
