"""Computation of a share group's target assignment."""

from __future__ import annotations

from pykbroker.groups.assignors.simple import assign_simple
from pykbroker.groups.assignors.spec import GroupSpec, MemberSpec
from pykbroker.groups.modern.group import NO_PARTITIONS, Assignment, assignor_order
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.result import LogRecord
from pykbroker.groups.share.group import ShareGroup
from pykbroker.groups.share.member import ShareMember
from pykbroker.groups.share.records import target_record
from pykbroker.protocol.steps import PIECE, Steps

ASSIGNOR = "simple"


def compute_target(
    group: ShareGroup, epoch: int, joining: ShareMember, topics: GroupTopics, now_ms: int, *, is_homogeneous: bool
) -> Steps[tuple[list[LogRecord], Assignment]]:
    """Records of the new target assignments that differ from the old ones, and the new one of a member.

    Only partitions whose state is initialized are assigned. The group and the topics must not change between the steps.

    Args:
        group: the group as its records say.
        epoch: the group epoch for which the assignment is.
        joining: the member whose request this is, in the place of its old value.
        topics: the topics of the cluster.
        now_ms: time, stored with the assignment.
        is_homogeneous: True if all members subscribe to the same topics.
    """
    members = {**group.members, joining.member_id: joining}
    ids_of: dict[frozenset[str], frozenset[bytes]] = {}
    specs = {}
    for count, member_id in enumerate(assignor_order(group.members, joining.member_id), 1):
        if not count % PIECE:
            yield
        member = members[member_id]
        names = member.subscribed_topic_names
        if names not in ids_of:
            ids_of[names] = topics.ids_of(names)
            yield
        specs[member_id] = MemberSpec(None, ids_of[names], group.target_of(member_id))
    partition_counts = yield from topics.partition_counts(frozenset().union(*ids_of))
    initialized = group.initialized

    def is_assignable(topic_id: bytes, partition: int) -> bool:
        return topic_id in initialized and partition in initialized[topic_id].partitions

    yield
    targets = yield from assign_simple(GroupSpec(specs, is_homogeneous), partition_counts, is_assignable)
    yield
    new = {member_id: targets.get(member_id, NO_PARTITIONS) for member_id in specs}
    records = yield from group.target_records(epoch, now_ms, new, target_record)
    return records, new[joining.member_id]
