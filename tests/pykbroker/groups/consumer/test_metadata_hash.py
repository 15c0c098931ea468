"""The hash of a group's topics, with values of Kafka's own hash4j."""

from __future__ import annotations

from pykbroker.controller.metadata.image import BrokerImage
from pykbroker.controller.metadata.image_delta import delta_between
from pykbroker.groups.modern.metadata_hash import group_hash, topic_hash
from pykbroker.groups.modern.topics import GroupTopics
from tests.pykbroker.groups.shard_rig import image_of


def test_a_topics_hash_is_kafkas() -> None:
    """P-179."""
    assert topic_hash("töpic", bytes(range(1, 17)), {0: ["rack2", "r1"], 1: []}) == 8613572177064278459


def test_the_hash_of_a_topic_without_racks() -> None:
    """P-179: the numbers of the partitions alone."""
    topic_id = bytes(range(1, 17))
    assert topic_hash("topic", topic_id, dict.fromkeys(range(3), ())) == 3190354542107363292


def test_a_groups_hash_is_kafkas() -> None:
    """P-179: in the order of the topics' names."""
    assert group_hash([("b", -7), ("a", 5)]) == -4646943608980624969
    assert group_hash([]) == 0


def test_the_racks_of_replicas_are_in_the_hash() -> None:
    """P-179: those of brokers that are registered and have one; without any rack a partition counts without them."""
    image = image_of({"t": 2})
    without = GroupTopics(image).hash_of(["t"])
    image.brokers = {1: BrokerImage(1, 1, bytes(16), (), {}, "r1", False, False, ())}
    topic = image.topics_by_name["t"]
    expected = group_hash([("t", topic_hash("t", topic.topic_id, {0: ["r1"], 1: ["r1"]}))])
    assert GroupTopics(image).hash_of(["t"]) == expected != without
    assert GroupTopics(image).hash_of(["t", "missing"]) == expected


def test_hashes_are_kept_until_a_rack_changes() -> None:
    """A broker that is fenced, or comes back, changes none of them."""
    old, broker = image_of({"t": 2}), BrokerImage(1, 1, bytes(16), (), {}, "r1", False, False, ())
    old.brokers = {1: broker}
    topics = GroupTopics(old)
    first = topics.hash_of(["t"])
    for rack, is_same in (("r1", True), ("r2", False)):
        new = image_of({"t": 2})
        new.topics_by_name, new.topics_by_id = old.topics_by_name, old.topics_by_id
        new.brokers = {1: broker._replace(rack=rack, is_fenced=True)}
        new.delta = delta_between(old, new)
        assert new.delta.brokers
        topics.update(new)
        assert ("t" in topics._hashes) is is_same
        assert (topics.hash_of(["t"]) == first) is is_same
