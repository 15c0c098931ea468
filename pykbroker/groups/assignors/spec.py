"""Arguments and results of an assignor."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pykbroker.named_tuple import NamedTuple


class MemberSpec(NamedTuple):
    """A member as an assignor sees it.

    Attributes:
        topic_ids: subscribed topics that exist.
        assigned: the member's present target assignment, topic id -> partitions.
    """

    instance_id: str | None
    rack_id: str | None
    topic_ids: frozenset[bytes]
    assigned: Mapping[bytes, frozenset[int]]


class TopicSpec(NamedTuple):
    """A topic as an assignor sees it; `racks` has the racks of each partition's replicas, if they are known."""

    partition_count: int
    racks: Mapping[int, frozenset[str]]


Assignment = dict[bytes, frozenset[int]]
"""Topic id -> partitions; topics without partitions are left out."""

Assignor = Callable[[Mapping[str, MemberSpec], Mapping[bytes, TopicSpec], bool], dict[str, Assignment]]
"""Target assignments by member id, given the members in the order of Kafka's hash table, all of their topics in that of
their names, and True if all members subscribe alike."""
