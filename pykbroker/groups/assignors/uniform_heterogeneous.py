"""The uniform assignor for members with different subscriptions.

Members keep what they may have, the free partitions go to the subscribers with the fewest, and then partitions move
from the most to the least loaded subscribers of each topic, until no move makes it better or `ROUNDS_MAX` is reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pykbroker.groups.assignors.spec import Assignment, MemberSpec, Partitions, as_copied, in_order
from pykbroker.java_order import copied_table_size, number_order, table_size_for

ROUNDS_MAX = 16
"""Rounds over all topics. With overlapping subscriptions each round about halves the imbalance."""

NO_OWNER = -1


def assign_heterogeneous(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int]
) -> dict[str, Assignment]:
    """Target assignments by member id."""
    return _Balancer(members, partition_counts).assign()


def _signed_order(topic_id: bytes) -> tuple[int, int]:
    """Kafka compares topic ids as two signed numbers."""
    return int.from_bytes(topic_id[:8], "big", signed=True), int.from_bytes(topic_id[8:], "big", signed=True)


class _Loads:
    """The subscribers of a topic by load, from which the least and the most loaded are taken in turns.

    Members at one end with the same number of partitions form a range. Each member of a range has one turn, then the
    range takes in the members that are now on a level with it.
    """

    def __init__(self, sizes: Sequence[int], subscribers: Sequence[int]) -> None:
        self._sizes = sizes
        self._members = sorted(subscribers, key=lambda member: (sizes[member], member))
        self._low_end = 0
        self._low_size = sizes[self._members[0]] - 1
        self._low_next = 0
        self._high_start = self._high_end = len(self._members)
        self._high_size = sizes[self._members[-1]] + 1
        self._high_next = len(self._members) - 1
        self.imbalance = sizes[self._members[-1]] - sizes[self._members[0]]

    @property
    def is_balanced(self) -> bool:
        return self._high_size - self._low_size <= 1

    def least(self) -> int:
        """The next member to get a partition; the caller gives it one."""
        if self._low_next >= self._low_end:
            self._low_size += 1
            while self._low_end < len(self._members) and self._size_at(self._low_end) == self._low_size:
                self._low_end += 1
            self._low_next = 0
        self._low_next += 1
        return self._members[self._low_next - 1]

    def most(self) -> int:
        """The next member to lose a partition, or `NO_OWNER`; the caller takes one from it or excludes it."""
        if self._high_next < self._high_start:
            if self._high_end <= self._high_start and self._high_start > 0:
                self._high_size = self._size_at(self._high_start - 1)
            else:
                self._high_size -= 1
            while self._high_start > 0 and self._size_at(self._high_start - 1) == self._high_size:
                self._high_start -= 1
            self._high_next = self._high_end - 1
        if self._high_next < 0:
            return NO_OWNER
        self._high_next -= 1
        return self._members[self._high_next + 1]

    def exclude_most(self) -> None:
        """Takes the member out that `most` returned last: it has no partition of the topic."""
        members, index = self._members, self._high_next + 1
        self._high_end -= 1
        members[index], members[self._high_end] = members[self._high_end], members[index]

    def _size_at(self, index: int) -> int:
        return self._sizes[self._members[index]]


class _Set:
    """A HashSet of partitions: those that it has in the order in which they were put, and the size of its table."""

    __slots__ = ("_table_size", "partitions")

    def __init__(self, table_size: int, partitions: Iterable[int]) -> None:
        self._table_size = table_size
        self.partitions = dict.fromkeys(partitions)

    def add(self, partition: int) -> None:
        self.partitions[partition] = None
        if len(self.partitions) > self._table_size * 3 // 4:
            self._table_size *= 2

    def remove(self, partition: int) -> None:
        del self.partitions[partition]

    def in_order(self) -> list[int]:
        """The partitions as its iterator has them."""
        return number_order(self.partitions, self._table_size)


class _Balancer:
    def __init__(self, members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int]) -> None:
        self._members = list(members.items())
        self._sizes = [0] * len(members)
        self._subscribers: dict[bytes, list[int]] = {}
        for index, (_, member) in enumerate(self._members):
            for topic_id in member.topic_ids:
                self._subscribers.setdefault(topic_id, []).append(index)
        self._partition_counts = partition_counts
        self._changed: dict[tuple[int, bytes], _Set] = {}
        self._owners = {topic_id: [NO_OWNER] * partition_counts[topic_id] for topic_id in self._subscribers}
        self._order = sorted(
            self._subscribers,
            key=lambda topic_id: (
                -partition_counts[topic_id] / len(self._subscribers[topic_id]),
                len(self._subscribers[topic_id]),
                _signed_order(topic_id),
            ),
        )

    def assign(self) -> dict[str, Assignment]:
        self._keep()
        for topic_id in self._order:
            self._give_free(topic_id)
        self._balance()
        targets: dict[str, Assignment] = {}
        for index, (member_id, member) in enumerate(self._members):
            target: Assignment = {}
            for topic_id in dict.fromkeys((*member.assigned, *member.topic_ids)):
                changed = self._changed.get((index, topic_id))
                if changed is None and topic_id in member.topic_ids and topic_id in member.assigned:
                    target[topic_id] = member.assigned[topic_id]
                elif changed is not None and changed.partitions:
                    target[topic_id] = Partitions(changed.in_order())
            targets[member_id] = as_copied(target, member.assigned)
        return targets

    def _keep(self) -> None:
        for index, (_, member) in enumerate(self._members):
            for topic_id, partitions in member.assigned.items():
                if topic_id not in member.topic_ids:
                    continue
                owners = self._owners[topic_id]
                for partition in partitions:
                    if partition < len(owners) and owners[partition] == NO_OWNER:
                        owners[partition] = index
                        self._sizes[index] += 1
                    else:
                        self._set(index, topic_id).remove(partition)

    def _give_free(self, topic_id: bytes) -> None:
        owners = self._owners[topic_id]
        free = [partition for partition, owner in enumerate(owners) if owner == NO_OWNER]
        if not free:
            return
        loads = _Loads(self._sizes, self._subscribers[topic_id])
        for partition in free:
            index = loads.least()
            owners[partition] = index
            self._sizes[index] += 1
            self._set(index, topic_id).add(partition)

    def _set(self, index: int, topic_id: bytes) -> _Set:
        """The partitions of a topic that a member has, to be changed."""
        found = self._changed.get((index, topic_id))
        if found is None:
            present = self._members[index][1].assigned.get(topic_id)
            table_size = self._new_table_size(topic_id) if present is None else copied_table_size(len(present))
            ordered = () if present is None else number_order(in_order(present), table_size)
            found = self._changed[index, topic_id] = _Set(table_size, ordered)
        elif not found.partitions:
            found = self._changed[index, topic_id] = _Set(self._new_table_size(topic_id), ())
        return found

    def _new_table_size(self, topic_id: bytes) -> int:
        """The size of the table for as many partitions as a subscriber gets on average."""
        share = -(-self._partition_counts[topic_id] // len(self._subscribers[topic_id]))
        return table_size_for(int(share / 0.75 + 1))

    def _balance(self) -> None:
        shared = [topic_id for topic_id in self._order if len(self._subscribers[topic_id]) > 1]
        last_moved = NO_OWNER
        for _ in range(ROUNDS_MAX):
            for index, topic_id in enumerate(shared):
                if index == last_moved:
                    return
                if self._balance_topic(topic_id) or last_moved == NO_OWNER:
                    last_moved = index

    def _balance_topic(self, topic_id: bytes) -> bool:
        """Moves partitions of a topic from its most to its least loaded subscribers; True if one was moved."""
        loads = _Loads(self._sizes, self._subscribers[topic_id])
        if loads.imbalance <= 1:
            return False
        owners = self._owners[topic_id]
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            owned.setdefault(owner, []).append(partition)
        has_moved = False
        while True:
            giver = loads.most()
            while giver != NO_OWNER and not owned.get(giver):
                loads.exclude_most()
                giver = loads.most()
            if giver == NO_OWNER:
                return has_moved
            partition = owned[giver].pop()
            taker = loads.least()
            if loads.is_balanced:
                return has_moved
            owners[partition] = taker
            self._set(giver, topic_id).remove(partition)
            self._set(taker, topic_id).add(partition)
            self._sizes[giver] -= 1
            self._sizes[taker] += 1
            has_moved = True
