"""The simple assignor of share groups: members share partitions, each as many as every other as far as possible.

A partition goes to `sharing` members: members / partitions, rounded up. Members keep what they have as long as neither
they nor the partition has too much. With different subscriptions every topic is shared among its subscribers alone.

As in Apache Kafka, a topic to which no member subscribes any longer is left to its members if subscriptions differ.
Kafka's choice among equals follows Java's hash order; here it is the order of topic ids, partitions and members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil

from pykbroker.groups.assignors.spec import Assignment, MemberSpec, TopicSpec

_Partition = tuple[bytes, int]


def assign_simple(
    members: Mapping[str, MemberSpec],
    topics: Mapping[bytes, TopicSpec],
    is_homogeneous: bool,
    is_assignable: Callable[[bytes, int], bool] = lambda topic_id, partition: True,
) -> dict[str, Assignment]:
    """Target assignments by member id; partitions that are not assignable yet get no new members."""
    subscribed = sorted(frozenset[bytes]().union(*(member.topic_ids for member in members.values())))
    if not subscribed:
        return {}
    targets = {topic_id: _target_partitions(topic_id, topics[topic_id], is_assignable) for topic_id in subscribed}
    results: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in members}
    if is_homogeneous:
        everything = [partition for topic_id in subscribed for partition in targets[topic_id]]
        _share(everything, list(members), frozenset(subscribed), members, results)
    else:
        for topic_id in subscribed:
            subscribers = [member_id for member_id, member in members.items() if topic_id in member.topic_ids]
            _share(targets[topic_id], subscribers, frozenset((topic_id,)), members, results)
        for member_id, member in members.items():
            for topic_id in member.assigned.keys() - targets.keys():
                results[member_id][topic_id] = set(member.assigned[topic_id])
    return {
        member_id: {topic_id: frozenset(partitions) for topic_id, partitions in result.items() if partitions}
        for member_id, result in results.items()
    }


def _target_partitions(
    topic_id: bytes, topic: TopicSpec, is_assignable: Callable[[bytes, int], bool]
) -> list[_Partition]:
    return [(topic_id, partition) for partition in range(topic.partition_count) if is_assignable(topic_id, partition)]


def _share(
    targets: Sequence[_Partition],
    subscribers: Sequence[str],
    topic_ids: frozenset[bytes],
    members: Mapping[str, MemberSpec],
    results: dict[str, dict[bytes, set[int]]],
) -> None:
    """Shares partitions of some topics among their subscribers."""
    sharing = -(-len(subscribers) // len(targets)) if targets else 0
    room = _room(sharing * len(targets), subscribers)
    owned: dict[str, set[_Partition]] = {}
    holders: dict[_Partition, list[str]] = {}
    for member_id, member in members.items():
        had = sorted(
            (topic_id, p) for topic_id in topic_ids & member.assigned.keys() for p in member.assigned[topic_id]
        )
        # A member with too many gives up the first ones.
        kept = had[max(0, len(had) - room.get(member_id, 0)) :]
        owned[member_id] = set(kept)
        for partition in kept:
            holders.setdefault(partition, []).append(member_id)
    for partition, sharers in holders.items():
        excess = len(sharers) - sharing
        if excess > 0:
            for member_id in sharers[:excess]:
                owned[member_id].remove(partition)
            del sharers[:excess]
    for partition in targets:
        holders.setdefault(partition, [])
    unfilled = [member_id for member_id in subscribers if len(owned[member_id]) < room[member_id]]
    _fill(holders, sharing, unfilled, owned, room)
    for member_id, partitions in owned.items():
        for topic_id, number in partitions:
            results[member_id].setdefault(topic_id, set()).add(number)


def _room(total: int, subscribers: Sequence[str]) -> dict[str, int]:
    """The number of partitions that each subscriber should have; they differ by one at most."""
    share = total / len(subscribers)
    return {member_id: ceil(share * (index + 1)) - ceil(share * index) for index, member_id in enumerate(subscribers)}


def _fill(
    holders: Mapping[_Partition, list[str]],
    sharing: int,
    unfilled: list[str],
    owned: Mapping[str, set[_Partition]],
    room: Mapping[str, int],
) -> None:
    """Gives partitions with too few members to members with room, in turns.

    A partition that all members with room have already stays with fewer members, as in Kafka.
    """
    turn = 0
    has_given = False
    for partition in sorted(holders):
        missing = sharing - len(holders[partition])
        sharers = set(holders[partition]) if missing > 0 else set()
        while missing > 0 and unfilled:
            if turn >= len(unfilled):
                if not has_given:
                    break
                turn, has_given = 0, False
            member_id = unfilled[turn]
            turn += 1
            # Kafka looks at the members before the partition's turn and those that it got since.
            if member_id in sharers:
                continue
            owned[member_id].add(partition)
            missing -= 1
            has_given = True
            if len(owned[member_id]) >= room[member_id]:
                turn -= 1
                del unfilled[turn]
        if not unfilled:
            return
