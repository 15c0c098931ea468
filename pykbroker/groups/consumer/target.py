"""Computation of a group's target assignment by an assignor."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.groups.assignors.range import assign_range
from pykbroker.groups.assignors.spec import Assignor, GroupSpec, MemberSpec
from pykbroker.groups.assignors.uniform import assign_uniform
from pykbroker.groups.consumer.group import ConsumerGroup, ResolvedRegex
from pykbroker.groups.consumer.member import ConsumerMember
from pykbroker.groups.consumer.records import target_record
from pykbroker.groups.modern.group import NO_PARTITIONS, Assignment, assignor_order
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.result import LogRecord
from pykbroker.protocol.steps import PIECE, Steps

ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""Assignors of consumer groups by name."""


def subscribed_names(member: ConsumerMember, resolved: Mapping[str, ResolvedRegex]) -> frozenset[str]:
    """Topics that a member subscribes to, by name or by a regular expression that is resolved; some may not exist."""
    names = member.subscribed_topic_names
    if member.subscribed_topic_regex and member.subscribed_topic_regex in resolved:
        names = names | resolved[member.subscribed_topic_regex].topics
    return names


def compute_target(
    group: ConsumerGroup,
    epoch: int,
    joining: ConsumerMember,
    assignor: str,
    topics: GroupTopics,
    now_ms: int,
    *,
    is_homogeneous: bool,
) -> Steps[tuple[list[LogRecord], Assignment]]:
    """Records of the new target assignments that differ from the old ones, and the new one of a member.

    The group and the topics must not change between the steps.

    Args:
        group: the group as its records say.
        epoch: the group epoch for which the assignment is.
        joining: the member whose request this is, in the place of its old value or of the static member it replaces.
        assignor: name of the assignor.
        topics: the topics of the cluster.
        now_ms: time, stored with the assignment.
        is_homogeneous: True if all members subscribe to the same topics.
    """
    members = dict(group.members)
    previous = group.static_member(joining.instance_id)
    target_owner = joining.member_id
    if previous is not None and previous.member_id != joining.member_id:
        del members[previous.member_id]
        target_owner = previous.member_id
    members[joining.member_id] = joining
    ids_of: dict[tuple[frozenset[str], str | None], frozenset[bytes]] = {}
    names: set[str] = set()
    specs = {}
    for count, member_id in enumerate(assignor_order(group.members, joining.member_id), 1):
        if not count % PIECE:
            yield
        if member_id not in members:
            continue
        member = members[member_id]
        key = (member.subscribed_topic_names, member.subscribed_topic_regex)
        if key not in ids_of:
            own = subscribed_names(member, group.resolved)
            names |= own
            ids_of[key] = topics.ids_of(own)
            yield
        current = group.target_of(target_owner if member_id == joining.member_id else member_id)
        specs[member_id] = MemberSpec(member.instance_id, ids_of[key], current)
    partition_counts = yield from topics.partition_counts(names)
    yield
    targets = yield from ASSIGNORS[assignor](GroupSpec(specs, is_homogeneous), partition_counts)
    yield
    new = {member_id: targets.get(member_id, NO_PARTITIONS) for member_id in specs}
    records = yield from group.target_records(epoch, now_ms, new, target_record)
    return records, new[joining.member_id]
