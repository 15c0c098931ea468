"""The range assignor: each topic is cut into ranges, one for each subscriber, as classic range assignors do.

Members are ordered by instance id, those without one after them by member id. Partitions with the same number of
several topics go to the same member where all members subscribe alike.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.groups.assignors.spec import Assignment, MemberSpec, TopicSpec


def assign_range(
    members: Mapping[str, MemberSpec], topics: Mapping[bytes, TopicSpec], is_homogeneous: bool
) -> dict[str, Assignment]:
    """Target assignments by member id; the present assignments are not taken into account."""
    ordered = sorted(
        members,
        key=lambda member_id: (members[member_id].instance_id is None, members[member_id].instance_id or member_id),
    )
    targets: dict[str, Assignment] = {member_id: {} for member_id in ordered}
    for topic_id, topic in topics.items():
        subscribers = ordered if is_homogeneous else [m for m in ordered if topic_id in members[m].topic_ids]
        if is_homogeneous and ordered and topic_id not in members[ordered[0]].topic_ids:
            continue
        if not subscribers:
            continue
        quota, extra = divmod(topic.partition_count, len(subscribers))
        start = 0
        for index, member_id in enumerate(subscribers):
            end = start + quota + (index < extra)
            if start == end:
                break
            targets[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return targets
