"""Member epochs in OffsetCommit and OffsetFetch of Streams groups (KIP-1071)."""

from __future__ import annotations

from pykbroker.groups.offsets import MEMBER_EPOCH_VERSION, has_too_large_metadata, is_anonymous
from pykbroker.groups.streams.group import StreamsGroup
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.offset_commit import OffsetCommitRequest


def check_commit(group: StreamsGroup, request: OffsetCommitRequest, api_version: int, metadata_max: int) -> ErrorCode:
    """Error of a commit, NONE if the group accepts it. One without an epoch is from an administrator.

    Partitions with metadata above `metadata_max` have an error of their own; their tasks do not count here.
    """
    epoch = request.generation_id_or_member_epoch
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    if request.member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if api_version < MEMBER_EPOCH_VERSION:
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE if _is_current(group, request, metadata_max) else ErrorCode.STALE_MEMBER_EPOCH


def check_transactional_commit(group: StreamsGroup, request: OffsetCommitRequest, metadata_max: int) -> ErrorCode:
    """Error of a transactional commit; requests without a member, generation and instance need none."""
    epoch = request.generation_id_or_member_epoch
    if (epoch < 0 and not group.members) or is_anonymous(request):
        return ErrorCode.NONE
    if request.member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if _is_current(group, request, metadata_max) else ErrorCode.ILLEGAL_GENERATION


def _is_current(group: StreamsGroup, request: OffsetCommitRequest, metadata_max: int) -> bool:
    """True for the member's epoch, and for an older one if the member got the tasks of all partitions at it or before.

    An application may commit what it processed while the response with its new epoch is on its way.
    """
    epoch, member = request.generation_id_or_member_epoch, group.members[request.member_id]
    if epoch >= member.member_epoch:
        return epoch == member.member_epoch
    readers = {} if group.topology is None else group.topology.readers
    for topic in request.topics:
        partitions = [p for p in topic.partitions if not has_too_large_metadata(p, metadata_max)]
        if not partitions:
            continue
        subtopology = readers.get(topic.name)
        if subtopology is None:
            return False
        key = subtopology.subtopology_id
        assigned, revoked = member.assigned.active.get(key, {}), member.pending_revocation.active.get(key, {})
        for partition in partitions:
            number = partition.partition_index
            assigned_epoch = assigned.get(number, revoked.get(number))
            if assigned_epoch is None or epoch < assigned_epoch:
                return False
    return True
