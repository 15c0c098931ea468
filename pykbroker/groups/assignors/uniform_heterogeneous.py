"""The uniform assignor for members with different subscriptions.

Members keep their partitions of topics that they still subscribe to, and free partitions go to the subscribers with
the fewest. Then partitions move from the most to the least loaded subscribers of each topic, until no move improves the
balance or `ROUNDS_MAX` is reached.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pykbroker.groups.assignors.spec import Assignment, MemberSpec, Partitions, as_copied, in_order
from pykbroker.java_order import copied_table_size, number_order, table_size_for
from pykbroker.protocol.steps import PIECE, Steps

ROUNDS_MAX = 16
"""Rounds over all topics. With overlapping subscriptions each round about halves the imbalance."""

NO_OWNER = -1
NO_LEVEL = -1, 0


def assign_heterogeneous(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int]
) -> Steps[dict[str, Assignment]]:
    """Target assignments by member id."""
    return (yield from _Balancer(members, partition_counts).assign())


def _signed_order(topic_id: bytes) -> tuple[int, int]:
    """Kafka compares topic ids as two signed numbers."""
    return int.from_bytes(topic_id[:8], "big", signed=True), int.from_bytes(topic_id[8:], "big", signed=True)


class _Levels:
    """Members by load: for each number of partitions the members that have so many.

    Sets of members are integers with the bit `1 << index` for each of them, because many topics ask for the least and
    the most loaded of their subscribers: an intersection costs far less than sorting these for each topic.
    """

    def __init__(self, sizes: Iterable[int]) -> None:
        self._members: dict[int, int] = {}
        for index, size in enumerate(sizes):
            self._members[size] = self._members.get(size, 0) | 1 << index
        self._sizes = sorted(self._members)

    def ascending(self, members: int) -> Iterator[tuple[int, int]]:
        """Number of partitions and members that have so many, of those in a set, from the least loaded on."""
        return self._levels_of(members, self._sizes)

    def descending(self, members: int) -> Iterator[tuple[int, int]]:
        """As `ascending`, from the most loaded on."""
        return self._levels_of(members, reversed(self._sizes))

    def imbalance(self, members: int) -> int:
        """Difference in partitions between the most and the least loaded of some members."""
        return next(self.descending(members))[0] - next(self.ascending(members))[0]

    def move(self, index: int, old_size: int, new_size: int) -> None:
        """Notes another number of partitions of a member."""
        left = self._members[old_size] ^ 1 << index
        if left:
            self._members[old_size] = left
        else:
            del self._members[old_size]
            del self._sizes[bisect_left(self._sizes, old_size)]
        if new_size not in self._members:
            insort(self._sizes, new_size)
        self._members[new_size] = self._members.get(new_size, 0) | 1 << index

    def _levels_of(self, members: int, sizes: Iterable[int]) -> Iterator[tuple[int, int]]:
        for size in sizes:
            found = self._members[size] & members
            if found:
                yield size, found


class _Owned:
    """The partitions of one topic by owner, ascending, and the set of the owners."""

    __slots__ = ("owners", "partitions")

    def __init__(self, owners: Sequence[int]) -> None:
        self.partitions: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            self.partitions.setdefault(owner, []).append(partition)
        self.owners = sum(1 << owner for owner in self.partitions)

    def move_last(self, giver: int, taker: int) -> int:
        """Moves the last partition of a member to another one; returns its number."""
        partition = self.partitions[giver].pop()
        if not self.partitions[giver]:
            self.owners ^= 1 << giver
        insort(self.partitions.setdefault(taker, []), partition)
        self.owners |= 1 << taker
        return partition


def _takers(levels: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The members that get a partition, one after the other, each with the number of those that it had until then.

    The members on the lowest level have one turn each, then those that are now on a level with them take part as well.
    `levels` are ascending, as they were before the first turn. There is no last turn.
    """
    ordered: list[int] = []
    next_size, members = next(levels)
    size = next_size
    while True:
        for index in ordered:
            yield size, index
        if size == next_size:
            while members:
                lowest = members & -members
                members ^= lowest
                ordered.append(lowest.bit_length() - 1)
                yield size, ordered[-1]
            next_size, members = next(levels, NO_LEVEL)
        size += 1


def _givers(levels: Iterator[tuple[int, int]], owned: _Owned) -> Iterator[tuple[int, int]]:
    """The members that give up a partition, one after the other, each with its number of partitions before that.

    The members on the highest level have one turn each, the last one first, then those that are now on a level with
    them take part as well; members without a partition of the topic are left out. `levels` are descending, as they
    were before the first turn.

    Kafka has the members in an array and puts the first one that has had its turn into the place of one that it leaves
    out: the first of the next turns becomes the last. Hence the rotations.
    """
    owners = owned.owners
    kept: deque[int] = deque()
    next_size, members = next(levels)
    size = next_size
    while True:
        ordered: deque[int] = deque()
        for index in kept:
            if owned.partitions[index]:
                yield size, index
                ordered.append(index)
            else:
                ordered.rotate(-1)
        if size == next_size:
            left = members & owners
            while left:
                index = left.bit_length() - 1
                ordered.rotate(-(members >> index + 1).bit_count())
                yield size, index
                ordered.append(index)
                others = (1 << index) - 1
                members &= others
                left &= others
            ordered.rotate(-members.bit_count())
            next_size, members = next(levels, NO_LEVEL)
        kept = ordered
        if kept:
            size -= 1
        elif members:
            size = next_size
        else:
            return


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
        self._partition_counts = partition_counts
        subscribed: dict[frozenset[bytes], int] = {}
        for index, (_, member) in enumerate(self._members):
            subscribed[member.topic_ids] = subscribed.get(member.topic_ids, 0) | 1 << index
        self._subscribers: dict[bytes, int] = {}
        for topic_ids, indexes in subscribed.items():
            for topic_id in topic_ids:
                self._subscribers[topic_id] = self._subscribers.get(topic_id, 0) | indexes
        self._subscriber_count = {topic_id: found.bit_count() for topic_id, found in self._subscribers.items()}
        self._changed: list[dict[bytes, _Set]] = [{} for _ in members]
        self._owners = {topic_id: [NO_OWNER] * partition_counts[topic_id] for topic_id in self._subscribers}
        self._order: list[bytes] = []
        self._owned: dict[bytes, _Owned] = {}

    def _sort(self) -> None:
        partition_counts = self._partition_counts
        self._order = sorted(
            self._subscribers,
            key=lambda topic_id: (
                -partition_counts[topic_id] / self._subscriber_count[topic_id],
                self._subscriber_count[topic_id],
                _signed_order(topic_id),
            ),
        )

    def assign(self) -> Steps[dict[str, Assignment]]:
        yield
        self._sort()
        yield from self._keep_assigned()
        self._levels = _Levels(self._sizes)
        for count, topic_id in enumerate(self._order, 1):
            self._assign_free(topic_id)
            if not count % PIECE:
                yield
        yield from self._balance()
        targets = {}
        for (member_id, member), changed in zip(self._members, self._changed, strict=True):
            target = yield from self._target(member, changed)
            targets[member_id] = yield from as_copied(target, member.assigned)
        return targets

    def _target(self, member: MemberSpec, changed: Mapping[bytes, _Set]) -> Steps[Assignment]:
        target: Assignment = {}
        for count, topic_id in enumerate(dict.fromkeys((*member.assigned, *changed)), 1):
            if not count % PIECE:
                yield
            if topic_id not in changed:
                if topic_id in member.topic_ids:
                    target[topic_id] = member.assigned[topic_id]
            elif changed[topic_id].partitions:
                target[topic_id] = Partitions(changed[topic_id].in_order())
        return target

    def _keep_assigned(self) -> Steps[None]:
        done = 0
        for index, (_, member) in enumerate(self._members):
            for topic_id, partitions in member.assigned.items():
                done += 1
                if not done % PIECE:
                    yield
                if topic_id not in member.topic_ids:
                    continue
                owners = self._owners[topic_id]
                for partition in partitions:
                    if partition < len(owners) and owners[partition] == NO_OWNER:
                        owners[partition] = index
                        self._sizes[index] += 1
                    else:
                        self._partitions_to_change(index, topic_id).remove(partition)

    def _assign_free(self, topic_id: bytes) -> None:
        owners = self._owners[topic_id]
        free = [partition for partition, owner in enumerate(owners) if owner == NO_OWNER]
        if not free:
            return
        before: dict[int, int] = {}
        takers = _takers(self._levels.ascending(self._subscribers[topic_id]))
        for partition, (_, index) in zip(free, takers, strict=False):
            owners[partition] = index
            self._add_size(index, 1, before)
            self._partitions_to_change(index, topic_id).add(partition)
        self._move_levels(before)

    def _add_size(self, index: int, change: int, before: dict[int, int]) -> None:
        """Changes the number of a member's partitions; `before` gets the one before the first change."""
        before.setdefault(index, self._sizes[index])
        self._sizes[index] += change

    def _move_levels(self, before: Mapping[int, int]) -> None:
        """Notes the changed numbers of partitions, given the ones before, when no turns are left."""
        for index, size in before.items():
            self._levels.move(index, size, self._sizes[index])

    def _partitions_to_change(self, index: int, topic_id: bytes) -> _Set:
        """The partitions of a topic that a member has, to be changed."""
        found = self._changed[index].get(topic_id)
        if found is None:
            present = self._members[index][1].assigned.get(topic_id)
            table_size = self._new_table_size(topic_id) if present is None else copied_table_size(len(present))
            ordered = () if present is None else number_order(in_order(present), table_size)
            found = self._changed[index][topic_id] = _Set(table_size, ordered)
        elif not found.partitions:
            found = self._changed[index][topic_id] = _Set(self._new_table_size(topic_id), ())
        return found

    def _new_table_size(self, topic_id: bytes) -> int:
        """The size of the table for as many partitions as a subscriber gets on average."""
        share = -(-self._partition_counts[topic_id] // self._subscriber_count[topic_id])
        return table_size_for(int(share / 0.75 + 1))

    def _balance(self) -> Steps[None]:
        shared = [topic_id for topic_id in self._order if self._subscriber_count[topic_id] > 1]
        last_moved = NO_OWNER
        for _ in range(ROUNDS_MAX):
            for index, topic_id in enumerate(shared):
                if not index % PIECE:
                    yield
                if index == last_moved:
                    return
                if self._balance_topic(topic_id) or last_moved == NO_OWNER:
                    last_moved = index

    def _balance_topic(self, topic_id: bytes) -> bool:
        """Moves partitions of a topic from its most to its least loaded subscribers; True if one was moved."""
        subscribers = self._subscribers[topic_id]
        if self._levels.imbalance(subscribers) <= 1:
            return False
        owned = self._owned.get(topic_id)
        if owned is None:
            owned = self._owned[topic_id] = _Owned(self._owners[topic_id])
        before: dict[int, int] = {}
        takers = _takers(self._levels.ascending(subscribers))
        for giver_size, giver in _givers(self._levels.descending(subscribers), owned):
            taker_size, taker = next(takers)
            if giver_size - taker_size <= 1:
                break
            partition = owned.move_last(giver, taker)
            self._partitions_to_change(giver, topic_id).remove(partition)
            self._partitions_to_change(taker, topic_id).add(partition)
            self._add_size(giver, -1, before)
            self._add_size(taker, 1, before)
        self._move_levels(before)
        return bool(before)
