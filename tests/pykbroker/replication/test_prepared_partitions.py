"""New partitions of a large change are made in steps before it is applied; lookups find them from then on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pykbroker.controller.metadata.image import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ClusterImage,
    ImageDelta,
    PartitionImage,
    TopicImage,
)
from pykbroker.controller.metadata.image_delta import delta_between
from pykbroker.coordination.partitioning import OFFSETS_TOPIC
from pykbroker.logstore.errors import StorageError
from pykbroker.replication.partition import Partition
from tests.support.data_path import DataPath, cluster_image, topic_image

COUNT = 40


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    found = DataPath(tmp_path, cluster_image(topic_image("old", 2)))
    yield found
    found.close()


def change(old: ClusterImage, *topics: TopicImage) -> ClusterImage:
    new = cluster_image(*topics)
    new.delta = delta_between(old, new)
    return new


def first_image(path: DataPath) -> ClusterImage:
    return path.services.metadata.image


def held(path: DataPath, topic: str) -> list[Partition]:
    found = [path.partitions.get(topic, number) for number in range(COUNT)]
    return [partition for partition in found if partition is not None]


def test_nobody_finds_a_partition_before_the_image_is_applied(path: DataPath) -> None:
    old = first_image(path)
    before = held(path, "old")
    new = change(old, old.topics_by_name["old"], topic_image("new", COUNT))
    steps = 0
    for _ in path.partitions.prepare(old, new):
        steps += 1
        assert held(path, "new") == []
        assert [partition.topic for partition in path.partitions.all()] == ["old", "old"]
    assert steps == COUNT
    logs = [log for log in path.directory if log.topic == "new"]
    assert len(logs) == COUNT
    path.partitions.apply(old, new)
    assert [partition.log for partition in held(path, "new")] == logs
    assert all(partition.is_leader for partition in held(path, "new"))
    assert path.partitions.get_by_id(new.topics_by_name["new"].topic_id, 3) is path.partitions.get("new", 3)
    assert held(path, "old") == before


def test_new_partitions_of_a_known_topic(path: DataPath) -> None:
    old = first_image(path)
    before = held(path, "old")
    new = change(old, topic_image("old", COUNT, leader_epoch=1, partition_epoch=1))
    assert sum(1 for _ in path.partitions.prepare(old, new)) == COUNT
    assert held(path, "old") == before
    assert [partition.leader_epoch for partition in before] == [1, 1]
    path.partitions.apply(old, new)
    assert len(held(path, "old")) == COUNT
    assert held(path, "old")[:2] == before
    assert [partition.leader_epoch for partition in held(path, "old")] == [1] * COUNT


def many(path: DataPath, name: str = "many") -> ClusterImage:
    """An image with a topic that this broker leads."""
    old = first_image(path)
    new = change(old, old.topics_by_name["old"], topic_image(name, COUNT, followers=(2,)))
    path.partitions.apply(old, new)
    new.delta = ImageDelta()
    return new


def test_changed_partitions_are_updated_one_after_the_other_and_once(
    path: DataPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kafka, whose ReplicaManager applies a change of the metadata partition by partition."""
    old = many(path)
    new = change(
        old,
        old.topics_by_name["old"],
        topic_image("many", COUNT, leader=2, followers=(1,), leader_epoch=1, partition_epoch=1),
    )
    updates: list[int] = []
    update = Partition.update

    def watched(self: Partition, image: PartitionImage) -> None:
        updates.append(image.partition)
        update(self, image)

    monkeypatch.setattr(Partition, "update", watched)
    steps = path.partitions.prepare(old, new)
    leading = [sum(partition.is_leader for partition in held(path, "many")) for _ in steps]
    assert leading == list(range(COUNT - 1, -1, -1))
    path.partitions.apply(old, new)
    assert sorted(updates) == list(range(COUNT))
    assert {(partition.leader_id, partition.leader_epoch) for partition in held(path, "many")} == {(2, 1)}


def test_changes_that_a_snapshot_overtakes_are_applied_with_it(path: DataPath) -> None:
    old = many(path)
    new = change(
        old,
        old.topics_by_name["old"],
        topic_image("many", COUNT, leader=2, followers=(1,), leader_epoch=1, partition_epoch=1),
    )
    steps = iter(path.partitions.prepare(old, new))
    for _ in range(5):
        next(steps)
    newer = change(old, old.topics_by_name["old"], topic_image("many", COUNT, leader_epoch=2, partition_epoch=2))
    path.partitions.apply(old, newer)
    assert list(steps) == []
    assert {(partition.is_leader, partition.leader_epoch) for partition in held(path, "many")} == {(True, 2)}


def test_deleted_partitions_go_one_after_the_other(path: DataPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Kafka, whose ReplicaManager stops one after the other."""
    old = many(path)
    assert list(path.partitions.prepare(old, change(old, old.topics_by_name["old"]))) == []
    assert len(held(path, "many")) == COUNT
    monkeypatch.setattr("pykbroker.controller.metadata.image.LARGE_DELETION", COUNT)
    deleted = held(path, "many")
    steps = path.partitions.prepare(old, change(old, old.topics_by_name["old"]))
    assert [len(held(path, "many")) for _ in steps] == list(range(COUNT - 1, -1, -1))
    assert all(partition.is_closed for partition in deleted)
    assert {log.topic for log in path.directory} == {"old"}
    path.partitions.apply(old, change(old, old.topics_by_name["old"]))
    assert len(held(path, "old")) == 2
    assert path.partitions.get_by_id(old.topics_by_name["many"].topic_id, 0) is None


def test_partitions_whose_deletion_a_snapshot_overtakes(path: DataPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are left go with the snapshot, even if it has another topic of this name."""
    monkeypatch.setattr("pykbroker.controller.metadata.image.LARGE_DELETION", COUNT)
    old = many(path)
    deleted = held(path, "many")
    steps = iter(path.partitions.prepare(old, change(old, old.topics_by_name["old"])))
    for _ in range(5):
        next(steps)
    again = topic_image("many", COUNT)._replace(topic_id=b"n" * 16)
    path.partitions.apply(old, change(old, old.topics_by_name["old"], again))
    assert list(steps) == []
    assert all(partition.is_closed for partition in deleted)
    assert len(held(path, "many")) == COUNT
    assert not set(deleted) & set(held(path, "many"))


def test_partitions_of_coordinators_are_left_to_the_application(path: DataPath) -> None:
    """Their shards are loaded and unloaded in the same step."""
    old = many(path, OFFSETS_TOPIC)
    changed = topic_image(OFFSETS_TOPIC, COUNT, leader=2, followers=(1,), leader_epoch=1, partition_epoch=1)
    new = change(old, old.topics_by_name["old"], changed)
    assert list(path.partitions.prepare(old, new)) == []
    assert all(partition.is_leader for partition in held(path, OFFSETS_TOPIC))
    path.partitions.apply(old, new)
    assert not any(partition.is_leader for partition in held(path, OFFSETS_TOPIC))
    assert list(path.partitions.prepare(new, change(new, new.topics_by_name["old"]))) == []
    assert len(held(path, OFFSETS_TOPIC)) == COUNT


def test_a_topic_with_the_name_of_a_deleted_one_is_left_to_the_application(path: DataPath) -> None:
    """Its logs have the same names, and the old ones are still used."""
    old = first_image(path)
    again = topic_image("old", COUNT)._replace(topic_id=b"n" * 16)
    new = change(old, again)
    before = held(path, "old")
    assert list(path.partitions.prepare(old, new)) == []
    assert held(path, "old") == before
    path.partitions.apply(old, new)
    assert len(held(path, "old")) == COUNT
    assert not set(before) & set(held(path, "old"))


def test_a_log_that_cannot_be_made_is_left_to_the_application(
    path: DataPath, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    old = first_image(path)
    new = change(old, old.topics_by_name["old"], topic_image("new", COUNT))
    create_log = path.directory.create_log

    def fails(topic: str, partition: int, *arguments: object) -> object:
        if partition == 7:
            raise StorageError("/data/new-7", "no space left")
        return create_log(topic, partition, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(path.directory, "create_log", fails)
        for _ in path.partitions.prepare(old, new):
            pass
        assert not caplog.messages
        path.partitions.apply(old, new)
    assert caplog.messages == ["new-7 cannot be served for now: /data/new-7: no space left"]
    assert len(held(path, "new")) == COUNT - 1
    assert path.partitions.is_offline("new", 7)
    path.partitions.open_offline(new)
    assert len(held(path, "new")) == COUNT


def test_a_snapshot_in_place_of_the_image_has_other_topics(path: DataPath) -> None:
    """A controller that lags behind gets a snapshot while it prepares; the prepared topics are gone again."""
    old = first_image(path)
    new = change(old, old.topics_by_name["old"], topic_image("new", COUNT), topic_image("kept", COUNT))
    for _ in path.partitions.prepare(old, new):
        pass
    kept = topic_image("kept", COUNT, leader_epoch=3, partition_epoch=3)
    again = topic_image("new", 1)._replace(topic_id=b"n" * 16)
    snapshot = change(old, old.topics_by_name["old"], kept, again)
    path.partitions.apply(old, snapshot)
    assert [partition.topic_id for partition in held(path, "new")] == [b"n" * 16]
    assert [log.topic_id for log in path.directory if log.topic == "new"] == [b"n" * 16]
    assert [partition.leader_epoch for partition in held(path, "kept")] == [3] * COUNT


def test_the_preparation_ends_with_a_snapshot_in_place_of_the_image(path: DataPath) -> None:
    """The rest is there already, and each of its logs would have two partitions."""
    old = first_image(path)
    new = change(old, old.topics_by_name["old"], topic_image("new", COUNT))
    steps = path.partitions.prepare(old, new)
    for _ in range(COUNT // 2):
        next(steps)
    assert path.partitions.is_preparing
    snapshot = change(old, old.topics_by_name["old"], topic_image("new", COUNT))
    path.partitions.apply(old, snapshot)
    assert not path.partitions.is_preparing
    served = held(path, "new")
    assert len(served) == COUNT
    assert list(steps) == []
    assert not path.partitions.is_preparing
    grown = change(snapshot, old.topics_by_name["old"], topic_image("new", COUNT, leader_epoch=1, partition_epoch=1))
    path.partitions.apply(snapshot, grown)
    assert held(path, "new") == served


def test_a_directory_that_fails_takes_prepared_partitions_along(path: DataPath) -> None:
    old = first_image(path)
    new = change(old, old.topics_by_name["old"], topic_image("new", COUNT))
    for _ in path.partitions.prepare(old, new):
        pass
    path.partitions.take_offline([("new", 5)])
    assert path.partitions.is_offline("new", 5)
    path.partitions.apply(old, new)
    assert len(held(path, "new")) == COUNT  # the application has opened it again: this directory is there


def test_offline_logs_that_are_opened_again_leave_prepared_partitions_alone(path: DataPath) -> None:
    old = first_image(path)
    path.partitions.take_offline([("old", 1)])
    new = change(old, topic_image("old", COUNT, partition_epoch=1))
    for _ in path.partitions.prepare(old, new):
        pass
    path.partitions.open_offline(old)
    assert len(held(path, "old")) == 2
    path.partitions.apply(old, new)
    assert len(held(path, "old")) == COUNT


def test_the_rest_of_a_preparation_leaves_the_brokers_of_a_snapshot_alone(path: DataPath) -> None:
    """Leaders would compare their followers with brokers that are not the present ones, until the next image."""
    old = many(path)
    new = change(
        old,
        topic_image("old", 2, leader_epoch=1, partition_epoch=1),
        topic_image("many", COUNT, leader_epoch=1, partition_epoch=1),
    )
    steps = path.partitions.prepare(old, new)
    next(steps)
    assert path.partitions.environment.brokers.brokers is new.brokers
    snapshot = change(old, *new.topics_by_name.values())
    path.partitions.apply(old, snapshot)
    assert list(steps) == []
    assert path.partitions.environment.brokers.brokers is snapshot.brokers


def test_an_updated_partition_that_is_opened_again_meanwhile_is_updated_again(path: DataPath) -> None:
    """It was opened with the state of the image that is still published."""
    old = many(path)
    changed = topic_image("many", COUNT, leader=2, followers=(1,), leader_epoch=1, partition_epoch=1)
    new = change(old, old.topics_by_name["old"], changed)
    for _ in path.partitions.prepare(old, new):
        pass
    path.partitions.take_offline([("many", 5)])
    path.partitions.open_offline(old)
    path.partitions.apply(old, new)
    assert {(partition.leader_id, partition.leader_epoch) for partition in held(path, "many")} == {(2, 1)}


NAMES = [f"t{number}" for number in range(COUNT)]


def with_configs(old: ClusterImage, configs: Mapping[tuple[int, str], Mapping[str, str]]) -> ClusterImage:
    """An image with the topics of another one, and these settings of resources."""
    new = cluster_image(*old.topics_by_name.values())
    new.configs = configs
    new.delta = delta_between(old, new)
    return new


def of_topics(**settings: str) -> dict[tuple[int, str], dict[str, str]]:
    """The same settings for each of `NAMES`."""
    return {(TOPIC_RESOURCE, name): {key.replace("_", "."): text for key, text in settings.items()} for name in NAMES}


def retentions(path: DataPath) -> list[int]:
    """Retention of each of `NAMES` in ms."""
    return [partition.log.config.retention_ms for name in NAMES for partition in held(path, name)]


@pytest.fixture
def small_topics(path: DataPath) -> ClusterImage:
    """The image with `NAMES`, whose retention is 5 ms."""
    old = first_image(path)
    topics = cluster_image(*old.topics_by_name.values(), *(topic_image(name, 1) for name in NAMES))
    topics.delta = delta_between(old, topics)
    path.partitions.apply(old, topics)
    image = with_configs(topics, of_topics(retention_ms="5"))
    path.partitions.apply(topics, image)
    assert retentions(path) == [5] * COUNT
    image.delta = ImageDelta()
    return image


def test_changed_settings_are_used_one_topic_after_the_other(
    path: DataPath, small_topics: ClusterImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = with_configs(small_topics, of_topics(retention_ms="6"))
    changed = [retentions(path).count(6) for _ in path.partitions.prepare(small_topics, new)]
    assert changed == list(range(1, COUNT + 1))
    with monkeypatch.context() as patch:
        patch.setattr(path.partitions, "_log_config_for", None)  # nothing is left to do
        path.partitions.apply(small_topics, new)
    assert retentions(path) == [6] * COUNT


def test_changed_defaults_of_the_broker_are_used_one_topic_after_the_other(
    path: DataPath, small_topics: ClusterImage
) -> None:
    defaults = {(BROKER_RESOURCE, ""): {"log.retention.ms": "7"}}
    new = with_configs(small_topics, {**of_topics(cleanup_policy="compact"), **defaults})
    assert sum(1 for _ in path.partitions.prepare(small_topics, new)) == COUNT + 1  # and topic "old"
    path.partitions.apply(small_topics, new)
    assert retentions(path) == [7] * COUNT
    assert {partition.log.config.retention_ms for partition in held(path, "old")} == {7}


def test_changed_settings_of_another_broker_or_group_change_no_log(path: DataPath, small_topics: ClusterImage) -> None:
    others = {
        (BROKER_RESOURCE, "2"): {"log.retention.ms": "7"},
        (GROUP_RESOURCE, "g"): {"share.auto.offset.reset": "x"},
    }
    new = with_configs(small_topics, {**small_topics.configs, **others})
    assert list(path.partitions.prepare(small_topics, new)) == []


def test_settings_that_a_snapshot_does_not_have_are_taken_back(path: DataPath, small_topics: ClusterImage) -> None:
    new = with_configs(small_topics, of_topics(retention_ms="6"))
    steps = path.partitions.prepare(small_topics, new)
    for _ in range(COUNT // 2):
        next(steps)
    snapshot = with_configs(small_topics, of_topics(retention_ms="5"))
    assert not snapshot.delta.configs
    path.partitions.apply(small_topics, snapshot)
    assert list(steps) == []
    assert retentions(path) == [5] * COUNT


def test_new_logs_get_the_settings_of_a_snapshot_in_place_of_the_image(path: DataPath) -> None:
    old = first_image(path)
    new = change(old, old.topics_by_name["old"], topic_image("new", COUNT))
    for _ in path.partitions.prepare(old, new):
        pass
    snapshot = cluster_image(*new.topics_by_name.values())
    snapshot.configs = {(BROKER_RESOURCE, ""): {"log.retention.ms": "7"}}
    snapshot.delta = delta_between(old, snapshot)
    path.partitions.apply(old, snapshot)
    assert {partition.log.config.retention_ms for partition in held(path, "new")} == {7}
    assert len(held(path, "new")) == COUNT


def test_new_logs_lose_settings_that_a_snapshot_does_not_have(path: DataPath) -> None:
    """The snapshot comes before the settings are prepared, which the new logs have had from the start."""
    old = first_image(path)
    topics = topic_image("new", COUNT), topic_image("old", COUNT, leader_epoch=1, partition_epoch=1)
    new = cluster_image(*topics)
    new.configs = {(TOPIC_RESOURCE, topic.name): {"retention.ms": "6"} for topic in topics}
    new.delta = delta_between(old, new)
    steps = path.partitions.prepare(old, new)
    for _ in range(2 * COUNT):
        next(steps)
    snapshot = change(old, *topics)
    assert not snapshot.delta.configs
    path.partitions.apply(old, snapshot)
    assert list(steps) == []
    assert [len(held(path, topic.name)) for topic in topics] == [COUNT, COUNT]
    settings = [partition.log.config.retention_ms for topic in topics for partition in held(path, topic.name)]
    assert 6 not in settings


def test_a_log_that_is_opened_with_the_old_settings_gets_the_new_ones(
    path: DataPath, small_topics: ClusterImage
) -> None:
    new = with_configs(small_topics, of_topics(retention_ms="6"))
    for _ in path.partitions.prepare(small_topics, new):
        pass
    path.partitions.take_offline([("t3", 0)])
    path.partitions.open_offline(small_topics)
    assert retentions(path).count(5) == 1
    path.partitions.apply(small_topics, new)
    assert retentions(path) == [6] * COUNT
