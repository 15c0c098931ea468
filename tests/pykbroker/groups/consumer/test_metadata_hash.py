"""The hash of a group's topics, with values of Kafka's own hash4j."""

from __future__ import annotations

from pykbroker.groups.modern.metadata_hash import group_hash, topic_hash


def test_a_topics_hash_is_kafkas() -> None:
    """P-179."""
    assert topic_hash("töpic", bytes(range(1, 17)), {0: ["rack2", "r1"], 1: []}) == 8613572177064278459


def test_a_groups_hash_is_kafkas() -> None:
    """P-179: in the order of the topics' names."""
    assert group_hash([("b", -7), ("a", 5)]) == -4646943608980624969
    assert group_hash([]) == 0
