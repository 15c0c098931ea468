"""Arguments and results of an assignor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

from pykbroker.java_order import copied_table_size, number_order
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.steps import PIECE, Steps


class Partitions(frozenset[int]):
    """Partitions of one topic, equal to any set of the same numbers, in the order in which Kafka's set has them.

    The record of a target assignment has the partitions in this order. Two numbers in the same bucket of Kafka's set
    have the order in which they were added to it.
    """

    __slots__ = ("in_order",)

    in_order: tuple[int, ...]

    def __new__(cls, in_order: Iterable[int]) -> Self:
        ordered = tuple(dict.fromkeys(in_order))
        self = super().__new__(cls, ordered)
        self.in_order = ordered
        return self


def in_order(partitions: frozenset[int]) -> Sequence[int]:
    """Partitions in the order of Kafka's set if that is known, else ascending."""
    return partitions.in_order if isinstance(partitions, Partitions) else sorted(partitions)


def as_copied(target: Assignment, present: Mapping[bytes, frozenset[int]]) -> Steps[Assignment]:
    """A new target of a member, in the order of partitions that Kafka's has.

    Kafka copies the sets of partitions that stay unchanged, and a copy may have another order than its original.
    """
    if target == present:
        return target
    copied = {}
    for count, (topic_id, partitions) in enumerate(target.items(), 1):
        if len(partitions) > 1 and partitions is present.get(topic_id):
            partitions = Partitions(number_order(in_order(partitions), copied_table_size(len(partitions))))
        copied[topic_id] = partitions
        if not count % PIECE:
            yield
    return copied


class MemberSpec(NamedTuple):
    """A member as an assignor sees it.

    Attributes:
        topic_ids: subscribed topics that exist.
        assigned: the member's present target assignment, topic id -> partitions.
    """

    instance_id: str | None
    topic_ids: frozenset[bytes]
    assigned: Mapping[bytes, frozenset[int]]


class GroupSpec(NamedTuple):
    """A group as an assignor sees it.

    Attributes:
        members: members by id, in the order of Kafka's hash table.
        is_homogeneous: True if all members subscribe to the same topics.
    """

    members: Mapping[str, MemberSpec]
    is_homogeneous: bool


Assignment = dict[bytes, frozenset[int]]
"""Topic id -> partitions. The simple assignor keeps topics of which a member has none left; the others have no such."""

Assignor = Callable[[GroupSpec, Mapping[bytes, int]], Steps[dict[str, Assignment]]]
"""Target assignments by member id, in steps between which the arguments must not change: a group, and topic id ->
partition count of all its topics, in the order of Kafka's set of their names."""
