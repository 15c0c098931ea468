"""The range assignor: each topic is cut into ranges, one for each subscriber, as classic range assignors do.

Members are ordered by instance id, those without one after them by member id. Partitions with the same number of
several topics go to the same member where all members subscribe alike.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.groups.assignors.spec import Assignment, GroupSpec
from pykbroker.protocol.steps import PIECE, Steps


def assign_range(group: GroupSpec, partition_counts: Mapping[bytes, int]) -> Steps[dict[str, Assignment]]:
    """Target assignments by member id; the present assignments are not taken into account."""
    members = group.members
    ordered = sorted(
        members,
        key=lambda member_id: (members[member_id].instance_id is None, members[member_id].instance_id or member_id),
    )
    targets: dict[str, Assignment] = {member_id: {} for member_id in ordered}
    subscriptions = dict.fromkeys(members[member_id].topic_ids for member_id in ordered)
    # A flag for each subscription, True if it has the topic -> the topic's subscribers. Even with very many members and
    # topics there are few such combinations.
    subscribers_of: dict[tuple[bool, ...], list[str]] = {}
    done = 0
    for topic_id, partition_count in partition_counts.items():
        having = tuple([topic_id in subscription for subscription in subscriptions])
        subscribers = subscribers_of.get(having)
        if subscribers is None:
            wanted = {subscription for subscription in subscriptions if topic_id in subscription}
            subscribers = [member_id for member_id in ordered if members[member_id].topic_ids in wanted]
            subscribers_of[having] = subscribers
        if not subscribers:
            continue
        quota, extra = divmod(partition_count, len(subscribers))
        start = 0
        for index, member_id in enumerate(subscribers):
            end = start + quota + (index < extra)
            if start == end:
                break
            targets[member_id][topic_id] = frozenset(range(start, end))
            start = end
            done += 1
            if not done % PIECE:
                yield
    return targets
