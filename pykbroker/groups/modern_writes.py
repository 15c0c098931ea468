"""Heartbeats of modern groups on one shard, and the writes that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from operator import attrgetter
from typing import Any

from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.consumer.groups import ConsumerGroups
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.preparation import LARGE, PreparedWrite, prepare_write
from pykbroker.groups.result import GroupResult, ResolvedRegexes
from pykbroker.groups.shard import GroupShard
from pykbroker.groups.share.group import ShareGroup
from pykbroker.groups.share.groups import ShareGroups
from pykbroker.groups.streams.group import Matched
from pykbroker.groups.streams.groups import StreamsGroups
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from pykbroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from pykbroker.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from pykbroker.protocol.steps import Steps, finished


def consumer_heartbeat(
    shard: GroupShard,
    now_ms: int,
    request: ConsumerGroupHeartbeatRequest,
    client_id: str,
    client_host: str,
    may_describe: Callable[[str], bool],
    prepared: PreparedWrite | None = None,
) -> GroupResult:
    """Handles ConsumerGroupHeartbeat, which was checked and has a member id.

    `prepared` is the result of `CONSUMER_HEARTBEAT.prepare` with the same arguments.
    """
    group_id = request.group_id
    if prepared is not None:
        if prepared.is_current(shard.any_group(group_id), shard.consumer):
            shard.consumer.keep_soft_state(prepared.group)
            return prepared.result
        shard.consumer.give_up(prepared)
    context = shard.consumer.context(group_id, now_ms, client_id, client_host, may_describe)
    try:
        result = shard.consumer.heartbeat(request, shard.any_group(group_id), context)
    except GroupError as error:
        response = ConsumerGroupHeartbeatResponse(error_code=error.error_code, error_message=error.message)
        result = GroupResult(response=response, replies=list(error.replies))
    result.regex_refresh = context.regex_refresh
    return result


def is_long_consumer_heartbeat(shard: GroupShard, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> bool:
    """True for a heartbeat that should be prepared: it changes a member of a large group."""
    if request.member_epoch < 0:
        return False
    group = shard.consumer.by_id.get(request.group_id)
    if not _is_large(group, request.subscribed_topic_names):
        return False
    return group is None or not shard.consumer.is_steady(group, request, now_ms)


def share_heartbeat(
    shard: GroupShard,
    now_ms: int,
    request: ShareGroupHeartbeatRequest,
    client_id: str,
    client_host: str,
    prepared: PreparedWrite | None = None,
) -> GroupResult:
    """Handles ShareGroupHeartbeat, which was checked.

    `prepared` is the result of `SHARE_HEARTBEAT.prepare` with the same arguments.
    """
    group_id = request.group_id
    if prepared is not None and prepared.is_current(shard.any_group(group_id), shard.share):
        shard.share.keep_soft_state(prepared.group)
        return prepared.result
    context = shard.share.context(group_id, now_ms, client_id, client_host)
    try:
        result = shard.share.heartbeat(request, shard.any_group(group_id), context)
    except GroupError as error:
        response = ShareGroupHeartbeatResponse(error_code=error.error_code, error_message=error.message)
        result = GroupResult(response=response)
    result.initialization = context.initialization
    return result


def is_long_share_heartbeat(shard: GroupShard, request: ShareGroupHeartbeatRequest) -> bool:
    """True for a heartbeat that should be prepared, as the group is large."""
    group = shard.share.by_id.get(request.group_id)
    return request.member_epoch >= 0 and _is_large(group, request.subscribed_topic_names)


def streams_heartbeat(
    shard: GroupShard,
    now_ms: int,
    request: StreamsGroupHeartbeatRequest,
    client_id: str,
    client_host: str,
    prepared: PreparedWrite | None = None,
) -> GroupResult:
    """Handles StreamsGroupHeartbeat, which was checked.

    `prepared` is the result of `STREAMS_HEARTBEAT.prepare` with the same arguments.
    """
    group_id = request.group_id
    group = shard.any_group(group_id)
    context = shard.streams.context(group_id, now_ms, client_id, client_host)
    try:
        if prepared is not None and prepared.is_current(group, shard.streams):
            result = shard.streams.finish_heartbeat(prepared, request, context)
        else:
            result = shard.streams.heartbeat(request, group, context)
    except GroupError as error:
        response = StreamsGroupHeartbeatResponse(error_code=error.error_code, error_message=error.message)
        result = GroupResult(response=response)
    else:
        result.missing_topics = context.missing_topics
    current = shard.streams.by_id.get(group_id)
    if current is not None and current.configured is not current.latest_shown:
        current.latest_shown = current.configured
        shard.show_later(Matched(current, current.configured))
    return result


def _is_large(group: ConsumerGroup | ShareGroup | None, names: Collection[str] | None) -> bool:
    """True if a group, or the topics that a member subscribes to, are so many that a heartbeat may take long."""
    if names is not None and len(names) > LARGE:
        return True
    if group is None:
        return False
    subscriptions = group.subscriptions
    return len(group.members) + len(subscriptions.by_name) + len(subscriptions.by_regex) > LARGE


class Heartbeat(NamedTuple):
    """A heartbeat to a group of one type, as `LargeWrites` prepares it.

    Attributes:
        groups_of: returns the groups of the type on a shard.
        carry_out: carries it out, given the shard, the time in ms, the request, the client and the prepared write.
    """

    groups_of: Callable[[GroupShard], Any]
    carry_out: Callable[..., GroupResult]

    def prepare(
        self, shard: GroupShard, clock_ms: Callable[[], int], request: Any, *client: Any
    ) -> Steps[PreparedWrite | None]:
        """Computes it in steps, as far as it can be; see `prepare_write`."""
        groups, arguments = self.groups_of(shard), (request, *client)
        is_joining = request.member_epoch == 0
        return prepare_write(groups, shard.any_group, clock_ms, type(groups).compute_heartbeat, arguments, is_joining)


class FollowUp:
    """A write that follows from heartbeats, to a group that may have been deleted since.

    Args:
        groups_of: returns the groups of its type on a shard.
        compute: computes it in steps and encodes its records, given these groups, the group, the time in ms and the
            request.
    """

    __slots__ = ("_compute", "_groups_of")

    def __init__(self, groups_of: Callable[[GroupShard], Any], compute: Callable[..., Steps[GroupResult]]) -> None:
        self._groups_of = groups_of
        self._compute = compute

    def prepare(self, shard: GroupShard, clock_ms: Callable[[], int], request: Any) -> Steps[PreparedWrite | None]:
        """Computes it in steps, as far as it can be; see `prepare_write`."""
        return prepare_write(self._groups_of(shard), shard.any_group, clock_ms, self._compute, (request,), False)

    def carry_out(
        self, shard: GroupShard, now_ms: int, request: Any, prepared: PreparedWrite | None = None
    ) -> GroupResult:
        """Carries it out; `prepared` is the result of `prepare` with the same request."""
        groups = self._groups_of(shard)
        if prepared is not None and prepared.is_current(shard.any_group(request.group_id), groups):
            return prepared.result
        group = groups.by_id.get(request.group_id)
        return GroupResult() if group is None else finished(self._compute(groups, group, now_ms, request))


class _RegexesResolved(FollowUp):
    def carry_out(
        self, shard: GroupShard, now_ms: int, request: ResolvedRegexes, prepared: PreparedWrite | None = None
    ) -> GroupResult:
        shard.consumer.end_resolution(request.group_id)
        return super().carry_out(shard, now_ms, request, prepared)


_consumer, _share, _streams = map(attrgetter, ("consumer", "share", "streams"))

CONSUMER_HEARTBEAT = Heartbeat(_consumer, consumer_heartbeat)
SHARE_HEARTBEAT = Heartbeat(_share, share_heartbeat)
STREAMS_HEARTBEAT = Heartbeat(_streams, streams_heartbeat)

REGEXES_RESOLVED = _RegexesResolved(_consumer, ConsumerGroups.resolved)
"""Stores the topics that match regular expressions, given as `ResolvedRegexes`."""

SHARE_INITIALIZED = FollowUp(_share, ShareGroups.initialized)
"""Notes share partitions as initialized, given as `Initialization`."""

TOPICS_FORGOTTEN = FollowUp(_share, ShareGroups.forget_topics)
"""Removes deleted topics from a share group's states, given as `DeletedTopics`."""

FIRST_ASSIGNMENT = FollowUp(_streams, StreamsGroups.assign_first)
"""Computes the first assignment of a Streams group, given as `FirstAssignment`."""
