"""Member epochs in OffsetCommit and OffsetFetch of consumer groups (KIP-848, KIP-1251)."""

from __future__ import annotations

from pykbroker.groups.consumer.group import ConsumerGroup
from pykbroker.groups.offsets import MEMBER_EPOCH_VERSION, has_too_large_metadata, is_anonymous
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.offset_commit import OffsetCommitRequest


def check_commit(group: ConsumerGroup, request: OffsetCommitRequest, api_version: int) -> ErrorCode:
    """Error of a commit as a whole, NONE if the group accepts it; `check_partitions` has to follow.

    A commit without an epoch is from an administrator, or a consumer that assigns its partitions itself.
    """
    epoch = request.generation_id_or_member_epoch
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.classic is None and api_version < MEMBER_EPOCH_VERSION:
        return ErrorCode.UNSUPPORTED_VERSION
    return member.epoch_error if epoch > member.member_epoch else ErrorCode.NONE


def check_transactional_commit(group: ConsumerGroup, request: OffsetCommitRequest) -> ErrorCode:
    """Error of a transactional commit as a whole; requests without a member, generation and instance need none."""
    epoch = request.generation_id_or_member_epoch
    if (epoch < 0 and not group.members) or is_anonymous(request):
        return ErrorCode.NONE
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.ILLEGAL_GENERATION if epoch > member.member_epoch else ErrorCode.NONE


def check_partitions(
    group: ConsumerGroup, request: OffsetCommitRequest, metadata_max: int, *, is_transactional: bool
) -> ErrorCode:
    """Error of a commit with an older epoch, if the member got one of the partitions after that epoch.

    A consumer may commit what it consumed while the response with its new epoch is on its way. Partitions with metadata
    above `metadata_max` have an error of their own and do not count here.
    """
    epoch = request.generation_id_or_member_epoch
    member = group.members.get(request.member_id)
    if member is None or epoch == member.member_epoch or (is_transactional and is_anonymous(request)):
        return ErrorCode.NONE
    for topic in request.topics:
        for partition in topic.partitions:
            if has_too_large_metadata(partition, metadata_max):
                continue
            assigned_epoch = member.assignment_epoch_of(topic.topic_id, partition.partition_index)
            if assigned_epoch is None or epoch < assigned_epoch:
                return ErrorCode.ILLEGAL_GENERATION if is_transactional else member.epoch_error
    return ErrorCode.NONE
