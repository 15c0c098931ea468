"""OffsetFetch (P-112, P-113)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pykbroker.controller.turns import in_turns
from pykbroker.errors import CoordinatorError
from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.consumer.member import ConsumerMember
from pykbroker.groups.offsets import CommittedOffset
from pykbroker.groups.shard import GroupShard
from pykbroker.groups.streams.group import StreamsGroup
from pykbroker.java_order import string_hash, timeline_number_order, timeline_order
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from pykbroker.protocol.steps import PIECE, Steps
from pykbroker.protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from pykbroker.groups.coordinator import GroupCoordinator


async def fetch_offsets(
    coordinator: GroupCoordinator, request: OffsetFetchRequestGroup, require_stable: bool = False
) -> OffsetFetchResponseGroup:
    """Committed offsets of one group; topics by name."""
    try:
        _, shard = coordinator.runtime.find(request.group_id)
    except CoordinatorError as error:
        return OffsetFetchResponseGroup(group_id=request.group_id, error_code=error.error_code)
    return await in_turns(fetch(shard, request, require_stable))


async def fetch_stable_offsets(
    coordinator: GroupCoordinator, request: OffsetFetchRequestGroup
) -> OffsetFetchResponseGroup:
    """As `fetch_offsets` with `require_stable`, after commits that are not replicated yet (P-369)."""
    try:
        number, _ = coordinator.runtime.find(request.group_id)
    except CoordinatorError as error:
        return OffsetFetchResponseGroup(group_id=request.group_id, error_code=error.error_code)
    try:
        await coordinator.runtime.wait_replicated(number)
    except CoordinatorError as error:
        # Clients before 3.9 know no COORDINATOR_NOT_AVAILABLE here; and this broker may be deposed.
        is_late = error.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        code = ErrorCode.NOT_COORDINATOR if is_late else error.error_code
        return OffsetFetchResponseGroup(group_id=request.group_id, error_code=code)
    return await fetch_offsets(coordinator, request, require_stable=True)


def fetch(
    shard: GroupShard, request: OffsetFetchRequestGroup, require_stable: bool = False
) -> Steps[OffsetFetchResponseGroup]:
    """Committed offsets of a group, all of them if `topics` is None; later steps do not see later commits.

    A missing group and a share group have none, which is no error (P-112). With `require_stable` a partition whose
    offset an open transaction may change gets UNSTABLE_OFFSET_COMMIT (P-113). All of them come in the order of the hash
    tables in which Kafka keeps them (P-652).
    """
    group_id = request.group_id
    group = shard.any_group(group_id) if require_stable else shard.committed_group(group_id)
    error = ErrorCode.NONE
    if isinstance(group, ConsumerGroup | StreamsGroup):
        error = _check_fetch(group, request.member_id, request.member_epoch)
    if error is not ErrorCode.NONE:
        return OffsetFetchResponseGroup(group_id=group_id, error_code=error)
    # Offsets may be left of a group that was forgotten without tombstones (P-381).
    committed_topics = {} if group is None else shard.offsets.of_group(group_id)
    unstable = shard.unstable_offsets(group_id) if require_stable else ()
    found: Iterable[tuple[str, bytes, list[tuple[int, CommittedOffset | None]]]]
    if request.topics is None:
        captured = {name: dict(partitions) for name, partitions in committed_topics.items()}
        # A hash takes 2 us when it is computed first, and is known from then on.
        for number, name in enumerate(captured, 1):
            string_hash(name)
            if not number % PIECE:
                yield
        found = (
            (name, ZERO_UUID, [(number, captured[name][number]) for number in timeline_number_order(captured[name])])
            for name in timeline_order(captured)
        )
    else:
        listed = []
        for topic in request.topics:
            partitions = committed_topics.get(topic.name, {})
            listed.append(
                (topic.name, topic.topic_id, [(number, partitions.get(number)) for number in topic.partition_indexes])
            )
        found = listed
    topics = []
    count = 0
    for name, topic_id, offsets in found:
        answered = []
        for number, committed in offsets:
            if (name, number) in unstable:
                answered.append(without_offset(number, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            else:
                answered.append(_fetched(number, _same_topic(committed, topic_id)))
            count += 1
            if not count % PIECE:
                yield
        topics.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=answered))
    return OffsetFetchResponseGroup(group_id=group_id, topics=topics)


def _check_fetch(group: ConsumerGroup | StreamsGroup, member_id: str | None, member_epoch: int) -> ErrorCode:
    """Error of an OffsetFetch; one without a member is from an administrator or an older client."""
    if member_id is None:
        # With an epoch, Kafka looks for the member null, and its table of members fails.
        return ErrorCode.NONE if member_epoch < 0 else ErrorCode.UNKNOWN_SERVER_ERROR
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member_epoch == member.member_epoch:
        return ErrorCode.NONE
    return member.epoch_error if isinstance(member, ConsumerMember) else ErrorCode.STALE_MEMBER_EPOCH


def _same_topic(committed: CommittedOffset | None, topic_id: bytes) -> CommittedOffset | None:
    """The committed offset; None if it was for an earlier topic of the same name."""
    if committed is None or ZERO_UUID in (topic_id, committed.topic_id) or committed.topic_id == topic_id:
        return committed
    return None


def _fetched(partition: int, committed: CommittedOffset | None) -> OffsetFetchResponsePartitions:
    if committed is None:
        return without_offset(partition, ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def without_offset(partition: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    """A partition of a response that has no offset; NONE if none is committed."""
    return OffsetFetchResponsePartitions(partition_index=partition, committed_offset=-1, metadata="", error_code=error)
