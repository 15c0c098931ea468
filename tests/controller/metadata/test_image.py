"""Images: they are immutable, share all unchanged parts, and follow from their records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker.controller.metadata.brokers import (
    FenceBroker,
    StartControlledShutdown,
    UnfenceBroker,
    UnregisterBroker,
)
from pykbroker.controller.metadata.commands import Command, CommandRefused
from pykbroker.controller.metadata.configs import (
    AlterConfigs,
    ConfigEdit,
    ConfigResourceEdits,
    ConfigResourceReplacement,
    IncrementalAlterConfigs,
)
from pykbroker.controller.metadata.image import (
    EMPTY_IMAGE,
    ClusterImage,
    ImageDelta,
    InconsistentMetadata,
    changed_partitions,
)
from pykbroker.controller.metadata.image_builder import apply_records
from pykbroker.controller.metadata.image_delta import delta_between
from pykbroker.controller.metadata.producer_id_blocks import AllocateProducerIds
from pykbroker.controller.metadata.record_framing import decode_record, encode_record
from pykbroker.controller.metadata.snapshot import image_to_records
from pykbroker.controller.metadata.topics import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    NewTopic,
    TopicReference,
)
from pykbroker.protocol.log_messages import metadata_records as r
from tests.controller.world import World

NAMES = st.sampled_from(["a", "b", "a.b", "a_b", "c.d.e", "c_d.e", ""])
BROKERS = st.integers(1, 4)
CONFIGS = st.sampled_from(["retention.ms", "segment.bytes", "unclean.leader.election.enable", "cleanup.policy", "x"])
VALUES = st.sampled_from(["true", "1", "bad", "compact"])


@st.composite
def commands(draw: st.DrawFn) -> Any:
    """A command, or a function that makes one from the world (for what needs a broker's epoch)."""
    kind = draw(st.sampled_from(["create", "create", "delete", "grow", "edit", "replace", "broker", "broker", "ids"]))
    name = draw(NAMES)
    if kind == "create":
        assignments = draw(st.lists(st.lists(BROKERS, min_size=1, max_size=3), max_size=2))
        counts = (-1, -1) if assignments else (draw(st.integers(-1, 3)), draw(st.integers(-1, 3)))
        configs = draw(st.lists(st.tuples(CONFIGS, VALUES), max_size=2))
        return CreateTopics([NewTopic(name, *counts, list(enumerate(assignments)), configs)], draw(st.booleans()))
    if kind == "delete":
        return DeleteTopics([TopicReference(name)])
    if kind == "grow":
        return CreatePartitions([NewPartitions(name, draw(st.integers(1, 6)))])
    resource = (draw(st.sampled_from([2, 4])), draw(st.sampled_from(["a", "a.b", "", "1"])))
    if kind == "edit":
        edits = draw(st.lists(st.builds(ConfigEdit, CONFIGS, st.integers(0, 3), VALUES), max_size=2))
        return IncrementalAlterConfigs([ConfigResourceEdits(*resource, edits)])
    if kind == "replace":
        replaced = draw(st.dictionaries(CONFIGS, VALUES, max_size=2))
        return AlterConfigs([ConfigResourceReplacement(*resource, list(replaced.items()))])
    broker_id = draw(BROKERS)
    if kind == "ids":
        return lambda world: AllocateProducerIds(broker_id, epoch_of(world, broker_id))
    change = draw(st.sampled_from(["register", "fence", "unfence", "stop", "unregister"]))
    incarnation, is_fenced, is_clean = draw(st.integers(1, 3)), draw(st.booleans()), draw(st.booleans())

    def on(world: World) -> Command[Any] | None:
        if change == "register":
            world.register(broker_id, incarnation=incarnation, is_fenced=is_fenced, is_clean_restart=is_clean, rack="r")
            return None
        if change == "unregister":
            return UnregisterBroker(broker_id)
        # NamedTuples that are generic: their constructors are tuples to mypy.
        make: Any = {
            "fence": FenceBroker,
            "unfence": UnfenceBroker,
            "stop": StartControlledShutdown,
        }[change]
        made: Command[Any] = make(broker_id, epoch_of(world, broker_id))
        return made

    return on


def epoch_of(world: World, broker_id: int) -> int:
    broker = world.image.brokers.get(broker_id)
    return -1 if broker is None else broker.epoch


def carry_out(world: World, steps: list[Any]) -> None:
    for step in steps:
        try:
            command = step(world) if callable(step) else step
            if command is not None:
                world.do(command)
        except CommandRefused:
            pass


def rebuilt(image: ClusterImage, records: list[Any]) -> ClusterImage:
    values = [encode_record(record, 30) for record in records]
    return apply_records(
        EMPTY_IMAGE,
        [decode_record(value) for value in values],
        offset=image.offset,
        epoch=image.epoch,
        timestamp_ms=image.timestamp_ms,
    )


@settings(max_examples=200, deadline=None)
@given(st.lists(commands(), max_size=25))
def test_an_image_is_what_its_records_and_its_snapshot_say(steps: list[Any]) -> None:
    world = World([1, 2, 3])
    carry_out(world, steps)
    image = world.image
    assert rebuilt(image, world.records) == image
    snapshot = [decode_record(encode_record(record, 30)) for record in image_to_records(image)]
    assert (
        apply_records(EMPTY_IMAGE, snapshot, offset=image.offset, epoch=image.epoch, timestamp_ms=image.timestamp_ms)
        == image
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(commands(), max_size=15))
def test_images_keep_their_invariants(steps: list[Any]) -> None:
    world = World([1, 2, 3])
    seen = [world.image]
    for step in steps:
        old = world.image
        before = (dict(old.topics_by_id), dict(old.configs), dict(old.brokers), dict(old.colliding_names))
        carry_out(world, [step])
        assert before == (old.topics_by_id, old.configs, old.brokers, old.colliding_names)  # the old one stays
        seen.append(world.image)
    for image in seen:
        assert {t.name: t for t in image.topics_by_id.values()} == image.topics_by_name
        colliding = [name for names in image.colliding_names.values() for name in names]
        assert sorted(colliding) == sorted(name for name in image.topics_by_name if "." in name or "_" in name)
        for topic in image.topics_by_name.values():
            assert list(topic.partitions) == list(range(len(topic.partitions)))
            for partition in topic.partitions.values():
                assert set(partition.isr) <= set(partition.replicas)
                assert partition.isr
                assert partition.leader == -1 or partition.leader in partition.isr
                if partition.leader != -1:
                    assert partition.leader in image.brokers


@settings(max_examples=100, deadline=None)
@given(st.lists(commands(), max_size=10))
def test_deltas_tell_what_changed(steps: list[Any]) -> None:
    world = World([1, 2, 3])
    for step in steps:
        old = world.image
        carry_out(world, [step])
        if world.image is old:
            continue
        delta, found = world.image.delta, delta_between(old, world.image)
        assert {t.topic_id for t in delta.created_topics} == {t.topic_id for t in found.created_topics}
        assert {t.topic_id for t in delta.deleted_topics} == {t.topic_id for t in found.deleted_topics}
        assert {a.topic_id: (a, b) for a, b in delta.changed_topics} == {
            a.topic_id: (a, b) for a, b in found.changed_topics
        }
        assert delta.brokers >= found.brokers
        assert delta.configs >= found.configs


def test_what_a_batch_did_not_touch_is_shared() -> None:
    world = World()
    world.do(CreateTopics([NewTopic("a"), NewTopic("b")]))
    old = world.image
    world.do(CreatePartitions([NewPartitions("a", 9)]))
    new = world.image
    assert new.topics_by_name["b"] is old.topics_by_name["b"]
    assert new.brokers is old.brokers
    assert new.configs is old.configs
    assert [(a.name, len(b.partitions)) for a, b in new.delta.changed_topics] == [("a", 9)]


def test_a_topic_made_again_in_one_batch_is_another_one() -> None:
    world = World()
    world.do(CreateTopics([NewTopic("a_b", configs=[("retention.ms", "1")])]))
    old_id = world.image.topics_by_name["a_b"].topic_id
    new_id = bytes([5]) * 16
    world.apply([r.RemoveTopicRecord(topic_id=old_id), r.TopicRecord(name="a_b", topic_id=new_id)])
    delta = world.image.delta
    assert [t.topic_id for t in delta.deleted_topics] == [old_id]
    assert [t.topic_id for t in delta.created_topics] == [new_id]
    assert world.image.topic_config("a_b") == {}
    assert world.image.colliding_names == {"a_b": ("a_b",)}


def test_a_metadata_transaction_takes_effect_at_its_end_or_not_at_all() -> None:
    """KIP-868, over several batches."""
    world = World()
    world.apply([r.BeginTransactionRecord(), r.TopicRecord(name="a", topic_id=bytes([1]) * 16)])
    assert "a" not in world.image.topics_by_name
    assert world.image.open_transaction is not None
    world.apply([r.TopicRecord(name="b", topic_id=bytes([2]) * 16), r.EndTransactionRecord()])
    assert set(world.image.topics_by_name) == {"a", "b"}
    world.apply([r.BeginTransactionRecord(), r.TopicRecord(name="c", topic_id=bytes([3]) * 16)])
    world.apply([r.AbortTransactionRecord(reason="no")])
    assert set(world.image.topics_by_name) == {"a", "b"}
    assert world.image.open_transaction is None


def test_records_of_other_parts_are_kept() -> None:
    """Records that no command here writes survive a snapshot: Kafka may have written them."""
    world = World()
    quota = r.ClientQuotaRecord(entity=[r.EntityData(entity_type="user", entity_name=None)], key="k", value=1.5)
    scram = r.UserScramCredentialRecord(name="a", mechanism=1, salt=b"s", iterations=4096)
    token = r.DelegationTokenRecord(token_id="t")
    world.apply([quota, scram, token])
    snapshot = list(image_to_records(world.image))
    for record in (quota, scram, token):
        assert record in snapshot
    world.apply(
        [
            r.ClientQuotaRecord(entity=quota.entity, key="k", remove=True),
            r.RemoveUserScramCredentialRecord(name="a", mechanism=1),
            r.RemoveDelegationTokenRecord(token_id="t"),
        ]
    )
    assert not world.image.kept_records


def test_eligible_leader_replicas_are_kept_and_cleared() -> None:
    """As records of Kafka have them (KIP-966)."""
    world = World()
    world.do(CreateTopics([NewTopic("t", 1)]))
    topic_id = world.image.topics_by_name["t"].topic_id
    world.apply(
        [r.PartitionChangeRecord(partition_id=0, topic_id=topic_id, eligible_leader_replicas=[1], last_known_elr=[1])]
    )
    assert world.image.topics_by_name["t"].partitions[0].eligible_leader_replicas == (1,)
    world.apply([r.ClearElrRecord(topic_name="t"), r.ClearElrRecord()])
    assert world.image.topics_by_name["t"].partitions[0].eligible_leader_replicas == ()


@pytest.mark.parametrize(
    "record",
    [
        r.PartitionRecord(topic_id=bytes([9]) * 16, partition_id=0),
        r.PartitionChangeRecord(topic_id=bytes([9]) * 16, partition_id=0),
        r.RemoveTopicRecord(topic_id=bytes([9]) * 16),
        r.FenceBrokerRecord(id=9, epoch=1),
        r.UnfenceBrokerRecord(id=1, epoch=12345),
        r.UnregisterBrokerRecord(broker_id=9),
        r.BrokerRegistrationChangeRecord(broker_id=9),
        r.EndTransactionRecord(),
        r.ClearElrRecord(topic_name="none"),
        r.RemoveAccessControlEntryRecord(id=bytes([9]) * 16),
    ],
)
def test_records_that_contradict_the_image_stop_it(record: Any) -> None:
    with pytest.raises(InconsistentMetadata):
        World().apply([record])


def test_an_empty_delta() -> None:
    world = World()
    world.apply([r.NoOpRecord()])
    assert world.image.delta == ImageDelta()


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (r.BeginTransactionRecord(), "a metadata transaction begins inside another one"),
        (r.PartitionChangeRecord(partition_id=7), "a change of the unknown partition t-7"),
        (r.ProducerIdsRecord(next_producer_id=1000), "the next producer id would go from 1000 to 1000"),
    ],
)
def test_records_that_cannot_follow_the_ones_before_stop_the_image(record: Any, reason: str) -> None:
    world = World()
    world.do(CreateTopics([NewTopic("t", 1, 1)]))
    world.do(AllocateProducerIds(1, epoch_of(world, 1)))
    if isinstance(record, r.BeginTransactionRecord):
        world.apply([r.BeginTransactionRecord()])
    elif isinstance(record, r.PartitionChangeRecord):
        record.topic_id = world.image.topics_by_name["t"].topic_id
    with pytest.raises(InconsistentMetadata, match=reason):
        world.apply([record])


def test_logs_of_old_kafkas_fence_and_unfence_by_records_of_their_own() -> None:
    """Since metadata.version 3.3-IV0 both are BrokerRegistrationChangeRecords; old records stay in the log."""
    world = World()
    epoch = epoch_of(world, 1)
    for record, is_fenced in ((r.FenceBrokerRecord, True), (r.UnfenceBrokerRecord, False)):
        world.apply([record(id=1, epoch=epoch)])
        assert world.image.brokers[1].is_fenced is is_fenced
        assert world.image.delta.brokers


def test_of_names_that_collide_the_others_stay_when_one_goes() -> None:
    """Records may have them though CreateTopics refuses them: Kafka before 0.10 made such topics."""
    world = World()
    ids = {name: bytes([number]) * 16 for number, name in enumerate(("a.b", "a_b", "a.b.c"), start=1)}
    world.apply([r.TopicRecord(name=name, topic_id=topic_id) for name, topic_id in ids.items()])
    world.apply([r.RemoveTopicRecord(topic_id=ids["a.b"])])
    (result,) = world.do(CreateTopics([NewTopic("a.b", 1, 1)]))
    assert "collides with existing topic: a_b" in (result.error.message or "")
    world.apply([r.RemoveTopicRecord(topic_id=ids["a_b"])])
    (result,) = world.do(CreateTopics([NewTopic("a.b", 1, 1)]))
    assert not result.error.is_failure


def test_an_image_is_no_other_thing() -> None:
    assert World().image != 5


def test_changed_partitions_of_a_topic_are_those_that_are_not_shared() -> None:
    """A change of one partition of a topic with thousands costs its subscribers no more than that."""
    world = World([1, 2])
    world.do(CreateTopics([NewTopic("t", 5, 2)]))
    before = world.image.topics_by_name["t"]
    world.apply([r.PartitionChangeRecord(topic_id=before.topic_id, partition_id=3, isr=[1])])
    world.do(CreatePartitions([NewPartitions("t", 6)]))
    after = world.image.topics_by_name["t"]
    assert changed_partitions(before, before) == []
    assert changed_partitions(before, after) == [after.partitions[3], after.partitions[5]]
