"""Heartbeats of modern groups on one shard, and the writes that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.preparation import LARGE, PreparedWrite, prepare_write
from pykbroker.groups.result import DeletedTopics, FirstAssignment, GroupResult, Initialization, RegexRefresh
from pykbroker.groups.shard import GroupShard
from pykbroker.groups.share.group import ShareGroup
from pykbroker.groups.streams.group import Matched
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

    `prepared` is the result of `prepare_consumer_heartbeat` with the same arguments.
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


def prepare_consumer_heartbeat(
    shard: GroupShard, clock_ms: Callable[[], int], request: ConsumerGroupHeartbeatRequest, *client: Any
) -> Steps[PreparedWrite | None]:
    """Computes a heartbeat in steps, as far as it can be; see `prepare_write`.

    `client` are the arguments of `consumer_heartbeat` that describe the client.
    """
    consumer, is_joining = shard.consumer, request.member_epoch == 0
    return prepare_write(
        consumer,
        request.group_id,
        shard.any_group,
        clock_ms,
        consumer.beat,
        (request, *client),
        is_joining=is_joining,
    )


def is_long_consumer_heartbeat(shard: GroupShard, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> bool:
    """True for a heartbeat that should be prepared: it changes a member of a large group."""
    if request.member_epoch < 0:
        return False
    group = shard.consumer.by_id.get(request.group_id)
    if not _is_large(group, request.subscribed_topic_names):
        return False
    return group is None or not shard.consumer.is_steady(group, request, now_ms)


def regexes_resolved(
    shard: GroupShard,
    now_ms: int,
    refresh: RegexRefresh,
    matches: Mapping[str, frozenset[str]],
    version: int,
    started_ms: int,
    prepared: PreparedWrite | None = None,
) -> GroupResult:
    """Stores the topics that match regular expressions; `prepared` is the result of `prepare_regexes_resolved`."""
    shard.consumer.end_resolution(refresh.group_id)
    if prepared is not None and prepared.is_current(shard.any_group(refresh.group_id), shard.consumer):
        return prepared.result
    return shard.consumer.resolve(refresh, matches, version, started_ms, now_ms)


def prepare_regexes_resolved(
    shard: GroupShard, clock_ms: Callable[[], int], refresh: RegexRefresh, *found: Any
) -> Steps[PreparedWrite | None]:
    """Computes in steps what a resolution changes, as far as that can be; see `prepare_write`.

    `found` are the topics that match, the version of the metadata and the time at which the resolution began.
    """
    consumer = shard.consumer
    return prepare_write(
        consumer, refresh.group_id, shard.any_group, clock_ms, consumer.resolved_in, found, is_joining=False
    )


def share_heartbeat(
    shard: GroupShard,
    now_ms: int,
    request: ShareGroupHeartbeatRequest,
    client_id: str,
    client_host: str,
    prepared: PreparedWrite | None = None,
) -> GroupResult:
    """Handles ShareGroupHeartbeat, which was checked.

    `prepared` is the result of `prepare_share_heartbeat` with the same arguments.
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


def prepare_share_heartbeat(
    shard: GroupShard, clock_ms: Callable[[], int], request: ShareGroupHeartbeatRequest, *client: Any
) -> Steps[PreparedWrite | None]:
    """As `prepare_consumer_heartbeat`, for ShareGroupHeartbeat."""
    share, is_joining = shard.share, request.member_epoch == 0
    return prepare_write(
        share, request.group_id, shard.any_group, clock_ms, share.beat, (request, *client), is_joining=is_joining
    )


def is_long_share_heartbeat(shard: GroupShard, request: ShareGroupHeartbeatRequest) -> bool:
    """True for a heartbeat that should be prepared, as the group is large."""
    group = shard.share.by_id.get(request.group_id)
    return request.member_epoch >= 0 and _is_large(group, request.subscribed_topic_names)


def share_initialized(
    shard: GroupShard, now_ms: int, done: Initialization, prepared: PreparedWrite | None = None
) -> GroupResult:
    """Notes share partitions as initialized; `prepared` is the result of `prepare_share_initialized`."""
    if prepared is not None and prepared.is_current(shard.any_group(done.group_id), shard.share):
        return prepared.result
    return shard.share.initialized(done, now_ms)


def prepare_share_initialized(
    shard: GroupShard, clock_ms: Callable[[], int], done: Initialization
) -> Steps[PreparedWrite | None]:
    """Computes in steps that share partitions are initialized, as far as that can be; see `prepare_write`."""
    share = shard.share
    return prepare_write(
        share, done.group_id, shard.any_group, clock_ms, share.initialized_in, (done,), is_joining=False
    )


def forget_topics(
    shard: GroupShard, now_ms: int, deleted: DeletedTopics, prepared: PreparedWrite | None = None
) -> GroupResult:
    """Removes deleted topics from a share group's states; `prepared` is that of `prepare_forgetting_topics`."""
    if prepared is not None and prepared.is_current(shard.any_group(deleted.group_id), shard.share):
        return prepared.result
    return shard.share.forget_topics(deleted, now_ms)


def prepare_forgetting_topics(
    shard: GroupShard, clock_ms: Callable[[], int], deleted: DeletedTopics
) -> Steps[PreparedWrite | None]:
    """Computes in steps that a share group forgets deleted topics, as far as that can be; see `prepare_write`."""
    share = shard.share
    return prepare_write(
        share, deleted.group_id, shard.any_group, clock_ms, share.forget_topics_of, (deleted,), is_joining=False
    )


def streams_heartbeat(
    shard: GroupShard,
    now_ms: int,
    request: StreamsGroupHeartbeatRequest,
    client_id: str,
    client_host: str,
    prepared: PreparedWrite | None = None,
) -> GroupResult:
    """Handles StreamsGroupHeartbeat, which was checked.

    `prepared` is the result of `prepare_streams_heartbeat` with the same arguments.
    """
    group_id = request.group_id
    group = shard.any_group(group_id)
    context = shard.streams.context(group_id, now_ms, client_id, client_host)
    try:
        if prepared is not None and prepared.is_current(group, shard.streams):
            result = shard.streams.finish_beat(prepared, request, context)
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


def prepare_streams_heartbeat(
    shard: GroupShard, clock_ms: Callable[[], int], request: StreamsGroupHeartbeatRequest, *client: Any
) -> Steps[PreparedWrite | None]:
    """As `prepare_consumer_heartbeat`, for StreamsGroupHeartbeat."""
    streams, is_joining = shard.streams, request.member_epoch == 0
    return prepare_write(
        streams, request.group_id, shard.any_group, clock_ms, streams.beat, (request, *client), is_joining=is_joining
    )


def first_assignment(
    shard: GroupShard, now_ms: int, wanted: FirstAssignment, prepared: PreparedWrite | None = None
) -> GroupResult:
    """The first assignment of a Streams group; `prepared` is the result of `prepare_first_assignment`."""
    if prepared is not None and prepared.is_current(shard.any_group(wanted.group_id), shard.streams):
        return prepared.result
    group = shard.streams.by_id.get(wanted.group_id)
    return GroupResult() if group is None else finished(shard.streams.assign_first(group, now_ms, wanted))


def prepare_first_assignment(
    shard: GroupShard, clock_ms: Callable[[], int], wanted: FirstAssignment
) -> Steps[PreparedWrite | None]:
    """Computes the first assignment of a Streams group in steps, as far as that can be; see `prepare_write`."""
    streams = shard.streams
    return prepare_write(
        streams, wanted.group_id, shard.any_group, clock_ms, streams.assign_first, (wanted,), is_joining=False
    )


def _is_large(group: ConsumerGroup | ShareGroup | None, names: Collection[str] | None) -> bool:
    """True if a group, or the topics that a member subscribes to, are so many that a heartbeat may take long."""
    if names is not None and len(names) > LARGE:
        return True
    if group is None:
        return False
    subscriptions = group.subscriptions
    return len(group.members) + len(subscriptions.by_name) + len(subscriptions.by_regex) > LARGE
