"""The simple assignor of share groups: members share partitions and get equal numbers of them as far as possible.

A partition goes to `sharing` members: members / partitions, rounded up. Members keep what they have as long as neither
they nor the partition has too much. With different subscriptions every topic is shared among its subscribers alone.

As in Apache Kafka, a topic to which no member subscribes any longer is left to its members if subscriptions differ, and
a topic of which a member gives everything up stays in its assignment, with no partitions.
Choices among equals are Kafka's (P-384): they follow the order of members, topics and partitions in its hash tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil

from pykbroker.groups.assignors.spec import Assignment, GroupSpec, MemberSpec, Partitions, as_copied, in_order
from pykbroker.groups.table_order import table_order_in_steps
from pykbroker.java_order import (
    copied_table_size,
    number_order,
    partition_hash,
    table_order,
    table_size_of_items,
    uuid_hash,
)
from pykbroker.protocol.steps import PIECE, Steps

_Partition = tuple[bytes, int]


def assign_simple(
    group: GroupSpec,
    partition_counts: Mapping[bytes, int],
    is_assignable: Callable[[bytes, int], bool] = lambda topic_id, partition: True,
) -> Steps[dict[str, Assignment]]:
    """Target assignments by member id; partitions that are not assignable yet get no new members."""
    members = group.members
    # Most members of a large group have the same topics.
    wanted = frozenset[bytes]().union(*{member.topic_ids for member in members.values()})
    subscribed = [topic_id for topic_id in partition_counts if topic_id in wanted]
    if not subscribed:
        return {}
    targets: dict[bytes, list[_Partition]] = {}
    for count, topic_id in enumerate(subscribed, 1):
        targets[topic_id] = [
            (topic_id, number) for number in range(partition_counts[topic_id]) if is_assignable(topic_id, number)
        ]
        if not count % PIECE:
            yield
    results: dict[str, dict[bytes, list[int]]] = {member_id: {} for member_id in members}
    indices = {member_id: index for index, member_id in enumerate(members)}
    yield from (_share_all if group.is_homogeneous else _share_each_topic)(members, targets, indices, results)
    assignments = {}
    for member_id, result in results.items():
        assigned = members[member_id].assigned
        changed = {}
        for count, (topic_id, partitions) in enumerate(result.items(), 1):
            changed[topic_id] = _changed(assigned.get(topic_id), partitions)
            if not count % PIECE:
                yield
        assignments[member_id] = yield from as_copied(changed, assigned)
    return assignments


def _share_all(
    members: Mapping[str, MemberSpec],
    targets: Mapping[bytes, Sequence[_Partition]],
    indices: Mapping[str, int],
    results: dict[str, dict[bytes, list[int]]],
) -> Steps[None]:
    """Shares all partitions among all members, which subscribe to the same topics."""
    present = {}
    for member_id, member in members.items():
        present[member_id] = yield from _present(member, targets)
        results[member_id] = {topic_id: [] for topic_id in member.assigned if topic_id in targets}
    everything = [partition for partitions in targets.values() for partition in partitions]
    yield from _share_partitions(everything, list(members), present, indices, results, partition_hash)


def _share_each_topic(
    members: Mapping[str, MemberSpec],
    targets: Mapping[bytes, Sequence[_Partition]],
    indices: Mapping[str, int],
    results: dict[str, dict[bytes, list[int]]],
) -> Steps[None]:
    """Shares each topic among its subscribers. A topic without any stays with the members that have it."""
    subscribers: dict[bytes, list[str]] = {topic_id: [] for topic_id in targets}
    having: dict[bytes, list[str]] = {topic_id: [] for topic_id in targets}
    for member_id, member in members.items():
        for topic_id in member.topic_ids & targets.keys():
            subscribers[topic_id].append(member_id)
        for topic_id in member.assigned.keys() & targets.keys():
            having[topic_id].append(member_id)
        yield
    for count, (topic_id, partitions) in enumerate(targets.items(), 1):
        if not count % PIECE:
            yield
        present = {member_id: _present_of(members[member_id], topic_id) for member_id in having[topic_id]}
        for member_id in present:
            results[member_id][topic_id] = []
        yield from _share_partitions(partitions, subscribers[topic_id], present, indices, results, _number)
    for member_id, member in members.items():
        for topic_id, present_partitions in member.assigned.items():
            if topic_id not in targets:
                results[member_id][topic_id] = list(in_order(present_partitions))
        yield


def _changed(present: frozenset[int] | None, partitions: list[int]) -> frozenset[int]:
    """The partitions of a topic that a member keeps and gets, in the order of Kafka's set."""
    if present is not None and present == frozenset(partitions):
        return present
    return Partitions(number_order(partitions, copied_table_size(len(present or ()))))


def _number(partition: _Partition) -> int:
    """The hash code of a partition among those of one topic."""
    return partition[1]


def _share_partitions(
    targets: Sequence[_Partition],
    subscribers: Sequence[str],
    present: Mapping[str, Sequence[_Partition]],
    indices: Mapping[str, int],
    results: Mapping[str, dict[bytes, list[int]]],
    hash_of: Callable[[_Partition], int],
) -> Steps[None]:
    """Shares partitions of some topics among their subscribers; they are in the order of the hash codes `hash_of`.

    Args:
        targets: the partitions.
        subscribers: members that may have them, in order.
        present: for each member that has some, in the order of members, those that it has, in Kafka's order.
        indices: place of each member in the order.
        results: topic id -> partitions of each member, to which those of these topics are added.
        hash_of: the hash code of a partition.
    """
    sharing = -(-len(subscribers) // len(targets)) if targets else 0
    room = _fair_counts(sharing * len(targets), subscribers)
    is_long = len(targets) > PIECE
    owned: dict[str, dict[_Partition, None]] = {}
    for member_id, partitions in present.items():
        if is_long:
            yield
        # A member with too many gives up the first ones.
        excess = max(0, len(partitions) - room.get(member_id, 0))
        lost = frozenset(table_order(partitions, hash_of)[:excess] if excess else ())
        owned[member_id] = {partition: None for partition in partitions if partition not in lost}
    for member_id in subscribers:
        owned.setdefault(member_id, {})
    holders = yield from _limited_holders(present, owned, sharing, indices)
    for partition in targets:
        holders.setdefault(partition, [])
    unfilled = [member_id for member_id in subscribers if len(owned[member_id]) < room[member_id]]
    if unfilled:
        # Kafka adds them by HashMap.computeIfAbsent, which puts a key at the head of its bucket.
        ordered = yield from table_order_in_steps(reversed(holders), hash_of, table_size_of_items(len(targets)))
        if is_long:
            yield
        _fill_members({partition: holders[partition] for partition in ordered}, sharing, unfilled, owned, room)
    for member_id, kept in owned.items():
        if is_long:
            yield
        result = results[member_id]
        for topic_id, number in kept:
            result.setdefault(topic_id, []).append(number)


def _limited_holders(
    present: Mapping[str, Sequence[_Partition]],
    owned: Mapping[str, dict[_Partition, None]],
    sharing: int,
    indices: Mapping[str, int],
) -> Steps[dict[_Partition, list[str]]]:
    """The members that keep each partition, at most `sharing`: the first ones lose it, also in `owned`."""
    had: dict[_Partition, list[str]] = {}
    for count, (member_id, partitions) in enumerate(present.items(), 1):
        for partition in partitions:
            had.setdefault(partition, []).append(member_id)
        if not count % PIECE or len(partitions) > PIECE:
            yield
    holders: dict[_Partition, list[str]] = {}
    for count, (partition, sharers) in enumerate(had.items(), 1):
        keeping = [sharer for sharer in _in_order(sharers, indices) if partition in owned[sharer]]
        excess = max(0, len(keeping) - sharing)
        for member_id in keeping[:excess]:
            del owned[member_id][partition]
        holders[partition] = keeping[excess:]
        if not count % PIECE:
            yield
    return holders


def _present(member: MemberSpec, targets: Mapping[bytes, object]) -> Steps[list[_Partition]]:
    """The partitions of the topics of `targets` that a member has, in Kafka's order."""
    found: list[_Partition] = []
    ordered = yield from table_order_in_steps(member.assigned, uuid_hash)
    for count, topic_id in enumerate(ordered, 1):
        if topic_id in targets:
            found += _present_of(member, topic_id)
        if not count % PIECE:
            yield
    return found


def _present_of(member: MemberSpec, topic_id: bytes) -> list[_Partition]:
    """The partitions of one topic that a member has, in Kafka's order."""
    partitions = member.assigned[topic_id]
    return [(topic_id, number) for number in number_order(in_order(partitions), copied_table_size(len(partitions)))]


def _in_order(sharers: Sequence[str], indices: Mapping[str, int]) -> list[str]:
    """The members of a partition in the order of Kafka's set of their indices."""
    if len(sharers) < 2:
        return list(sharers)
    by_index = {indices[member_id]: member_id for member_id in sharers}
    return [by_index[index] for index in number_order(sorted(by_index))]


def _fair_counts(total: int, subscribers: Sequence[str]) -> dict[str, int]:
    """The number of partitions that each subscriber should have; they differ by one at most."""
    share = total / len(subscribers)
    return {member_id: ceil(share * (index + 1)) - ceil(share * index) for index, member_id in enumerate(subscribers)}


def _fill_members(
    holders: Mapping[_Partition, list[str]],
    sharing: int,
    unfilled: list[str],
    owned: Mapping[str, dict[_Partition, None]],
    room: Mapping[str, int],
) -> None:
    """Gives partitions with too few members, in their order, to members with room, in turns.

    A partition that all members with room have already stays with fewer members, as in Kafka.
    """
    turn = 0
    has_given = False
    for partition, present in holders.items():
        missing = sharing - len(present)
        sharers = set(present) if missing > 0 else set()
        while missing > 0 and unfilled:
            if turn >= len(unfilled):
                if not has_given:
                    break
                turn, has_given = 0, False
            member_id = unfilled[turn]
            turn += 1
            # Kafka looks at the members that the partition had before its turn, not at those that it has got since.
            if member_id in sharers:
                continue
            owned[member_id][partition] = None
            missing -= 1
            has_given = True
            if len(owned[member_id]) >= room[member_id]:
                turn -= 1
                del unfilled[turn]
        if not unfilled:
            return
