"""The uniform assignor: numbers of partitions that differ by one at most, and as few moves as that allows.

Balance comes first, then stickiness: a member keeps what it has up to its quota. Racks play no part, as in Kafka 4.3.
Choices among equals are Kafka's (P-384): they follow the order of members, topics and partitions in its hash tables.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.groups.assignors.spec import Assignment, GroupSpec, MemberSpec, Partitions, as_copied, in_order
from pykbroker.groups.assignors.uniform_heterogeneous import assign_heterogeneous
from pykbroker.groups.table_order import table_order_in_steps
from pykbroker.java_order import copied_table_size, number_order, uuid_hash
from pykbroker.protocol.steps import PIECE, Steps

NO_PARTITIONS: frozenset[int] = frozenset()


def assign_uniform(group: GroupSpec, partition_counts: Mapping[bytes, int]) -> Steps[dict[str, Assignment]]:
    """Target assignments by member id."""
    if not group.members:
        return {}
    assign = _assign_homogeneous if group.is_homogeneous else assign_heterogeneous
    return (yield from assign(group.members, partition_counts))


def _assign_homogeneous(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int]
) -> Steps[dict[str, Assignment]]:
    subscribed = next(iter(members.values())).topic_ids
    if not subscribed:
        return {}
    taken: dict[bytes, set[int]] = {topic_id: set() for topic_id in subscribed}
    done = 0
    for member in members.values():
        for topic_id, partitions in member.assigned.items():
            if topic_id in taken:
                taken[topic_id] |= partitions
            done += 1
            if not done % PIECE:
                yield
    total = sum(partition_counts[topic_id] for topic_id in subscribed)
    ordered = yield from table_order_in_steps(
        filter(subscribed.__contains__, partition_counts), uuid_hash, copied_table_size(len(subscribed))
    )
    yield
    free: list[tuple[bytes, int]] = []
    for count, topic_id in enumerate(ordered, 1):
        if len(taken[topic_id]) < partition_counts[topic_id]:
            present = taken[topic_id]
            free += [(topic_id, number) for number in range(partition_counts[topic_id]) if number not in present]
        if not count % PIECE:
            yield
    quota, extra = divmod(total, len(members))
    targets: dict[str, Assignment] = {}
    unfilled: list[tuple[str, int]] = []
    for index, (member_id, member) in enumerate(members.items()):
        room = quota + (extra > 0)
        target, room = yield from _keep_assigned(member, subscribed, room, free)
        uses_extra = extra > 0
        # The last members must take the extra partitions that are left.
        if room > 0 and uses_extra and len(members) - index > extra:
            room -= 1
            uses_extra = False
        if room > 0:
            unfilled.append((member_id, room))
        extra -= uses_extra
        targets[member_id] = target
    yield from _assign_free(targets, unfilled, free)
    for member_id, target in targets.items():
        targets[member_id] = yield from as_copied(target, members[member_id].assigned)
    return targets


def _keep_assigned(
    member: MemberSpec, subscribed: frozenset[bytes], room: int, free: list[tuple[bytes, int]]
) -> Steps[tuple[Assignment, int]]:
    """The part of its assignment that a member keeps, and the room that is left; the rest goes to `free`."""
    target: Assignment = {}
    ordered_topics = yield from table_order_in_steps(member.assigned, uuid_hash)
    for count, topic_id in enumerate(ordered_topics):
        if not count % PIECE:
            yield
        if topic_id not in subscribed:
            continue
        partitions = member.assigned[topic_id]
        if len(partitions) <= room:
            target[topic_id] = partitions
            room -= len(partitions)
            continue
        ordered = number_order(in_order(partitions), copied_table_size(len(partitions)))
        if room > 0:
            target[topic_id] = Partitions(ordered[:room])
        free += [(topic_id, partition) for partition in ordered[room:]]
        room = 0
    return target, room


def _assign_free(
    targets: dict[str, Assignment], unfilled: list[tuple[str, int]], free: list[tuple[bytes, int]]
) -> Steps[None]:
    """Gives the free partitions to the members with room, in order."""
    start = 0
    for member_id, room in unfilled:
        given: dict[bytes, list[int]] = {}
        for topic_id, partition in free[start : start + room]:
            given.setdefault(topic_id, []).append(partition)
        start += room
        target = targets[member_id]
        for count, (topic_id, partitions) in enumerate(given.items(), 1):
            if not count % PIECE:
                yield
            if len(partitions) == 1 and topic_id not in target:
                target[topic_id] = Partitions(partitions)
                continue
            # A copy of the set that there is, as large as that needs, or a new one.
            present = in_order(target.get(topic_id, NO_PARTITIONS))
            table_size = copied_table_size(len(present))
            ordered = number_order([*number_order(present, table_size), *partitions], table_size)
            target[topic_id] = Partitions(ordered)
