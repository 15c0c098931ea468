"""Topics in Metadata responses: the same bytes as without anything kept or shared, from one image, in turns."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio

from pykbroker.controller.metadata.broker_elections import has_its_directory
from pykbroker.controller.metadata.image import ClusterImage, PartitionImage, TopicImage
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.handlers.metadata import handle_metadata
from pykbroker.metadata.encoded_topics import KEPT_S, SETS_MAX, STRAY_MAX, EncodedTopics
from pykbroker.protocol.codec import encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import (
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from pykbroker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pykbroker.protocol.uuids import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from pykbroker.requests.context import RequestContext
from pykbroker.requests.topic_encoder import TopicEncoder
from pykbroker.security.authorization import EVERY_OPERATION
from tests.support.admin import DIRECTORY_ID, apply_records, make_context, make_services
from tests.support.services import Services
from tests.support.ticking_clock import TickingClock

BROKERS = (1, 2, 3)
FENCED = 3
GONE = 4
TOPIC = 2


def _topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def _varied_image(image: ClusterImage, generator: random.Random, topics: int) -> ClusterImage:
    """Topics with all that a partition can have: no leader, a fenced one, one that is gone, lost directories."""
    records: list[Any] = [FenceBrokerRecord(id=FENCED, epoch=image.brokers[FENCED].epoch)]
    for number in range(1, topics + 1):
        name = "__consumer_offsets" if number == 1 else f"topic-{number}"
        records.append(TopicRecord(name=name, topic_id=_topic_id(number)))
        for partition in range(generator.choice((1, 2, 130))):
            replicas = generator.sample((*BROKERS, GONE), generator.randint(1, 4))
            records.append(
                PartitionRecord(
                    partition_id=partition,
                    topic_id=_topic_id(number),
                    replicas=replicas,
                    isr=replicas[: generator.randint(1, len(replicas))],
                    leader=generator.choice((*replicas, -1)),
                    leader_epoch=generator.randint(0, 2),
                    partition_epoch=partition,
                    directories=[
                        generator.choice((DIRECTORY_ID + bytes([replica]), UNASSIGNED_DIRECTORY, LOST_DIRECTORY))
                        for replica in replicas
                    ],
                )
            )
    return apply_records(image, records)


def _plainly(context: RequestContext[Services], with_operations: bool) -> list[MetadataResponseTopic]:
    """All topics as objects, each partition looked at by itself."""
    image, metadata, version = context.services.metadata.image, context.services.metadata, context.api_version
    topics = []
    for topic in image.topics_by_name.values():
        described = MetadataResponseTopic(
            name=topic.name, topic_id=topic.topic_id, is_internal=topic.name.startswith("__")
        )
        if with_operations and version >= 8:
            described.topic_authorized_operations = EVERY_OPERATION[TOPIC]
        for partition in topic.partitions.values():
            alive = [r for r in partition.replicas if r in image.brokers and not image.brokers[r].is_fenced]
            offline = [r for r in partition.replicas if r not in alive or not has_its_directory(image, partition, r)]
            one = MetadataResponsePartition(
                partition_index=partition.partition,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=alive if version == 0 else list(partition.replicas),
                isr_nodes=[r for r in partition.isr if version or r in alive],
                offline_replicas=offline,
            )
            if version == 0 and len(alive) < len(partition.replicas):
                one.error_code = ErrorCode.REPLICA_NOT_AVAILABLE
            leader = metadata.endpoint(partition.leader, context.connection)
            if leader is None or leader.is_fenced:
                one.leader_id = -1
                has_listener_error = partition.leader in image.brokers and version >= 6
                one.error_code = ErrorCode.LISTENER_NOT_FOUND if has_listener_error else ErrorCode.LEADER_NOT_AVAILABLE
            described.partitions.append(one)
        topics.append(described)
    return topics


@pytest.mark.parametrize("with_operations", [False, True])
@pytest.mark.parametrize("version", list(MetadataResponse.VERSIONS))
def test_the_bytes_are_those_of_every_partition_by_itself(version: int, with_operations: bool) -> None:
    """P-26, in every version, made new and from what was kept."""
    services = make_services({"node.id": "1"}, BROKERS)
    services.metadata.image = _varied_image(services.metadata.image, random.Random(version), 12)
    context = make_context(version, services=services)
    request = MetadataRequest(
        topics=[] if version == 0 else None, include_topic_authorized_operations=with_operations and version >= 8
    )
    for _ in range(2):
        response: MetadataResponse = trio.run(handle_metadata, context, request)
        encoded = encode(response, version)
        response.topics = _plainly(context, with_operations)
        assert encoded == encode(response, version)


class _Counted:
    """Counts the topics that are encoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self.partitions = 0
        framed = TopicEncoder._framed
        partition = TopicEncoder._partition

        def counting(encoder: TopicEncoder, topic: TopicImage, block: bytes) -> bytes:
            self.names.append(topic.name)
            return framed(encoder, topic, block)

        def counting_partition(encoder: TopicEncoder, image: PartitionImage) -> bytes:
            self.partitions += 1
            return partition(encoder, image)

        monkeypatch.setattr(TopicEncoder, "_framed", counting)
        monkeypatch.setattr(TopicEncoder, "_partition", counting_partition)

    def taken(self) -> list[str]:
        names, self.names = self.names, []
        return names


def test_only_what_changed_is_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = _Counted(monkeypatch)
    services = make_services(None, (1, 2))
    cache = services.metadata
    services.controller.submit_now(CreateTopics([NewTopic(name, 2) for name in "abc"]))  # type: ignore[attr-defined]

    def ask(version: int = 12, listener_name: str = "PLAINTEXT") -> list[str]:
        context = make_context(version, services=services, listener_name=listener_name)
        trio.run(handle_metadata, context, MetadataRequest(topics=None))
        return counted.taken()

    assert ask() == ["a", "b", "c"]
    assert ask() == []
    by_name = MetadataRequest(topics=[MetadataRequestTopic(name="b")])
    trio.run(handle_metadata, make_context(12, services=services), by_name)
    assert counted.taken() == []
    change = PartitionChangeRecord(topic_id=cache.image.topics_by_name["b"].topic_id, partition_id=1, leader=-1)
    cache.image = apply_records(cache.image, [change])
    assert ask() == ["b"]
    assert ask(13) == ask(10) == [], "versions in which topics have the same bytes"
    assert ask(9) == ["a", "b", "c"], "another version"
    assert ask(12, "INNER") == ["a", "b", "c"], "another listener, where brokers may not be reached"
    cache.image = apply_records(cache.image, [FenceBrokerRecord(id=2, epoch=cache.image.brokers[2].epoch)])
    assert ask() == ["a", "b", "c"], "brokers have changed"


def test_versions_share_only_what_is_the_same_in_them() -> None:
    """All versions of one broker, each behind the one before it."""
    services = make_services({"node.id": "1"}, BROKERS)
    services.metadata.image = _varied_image(services.metadata.image, random.Random(0), 12)
    for version in (*MetadataResponse.VERSIONS, *list(MetadataResponse.VERSIONS)[::-1]):
        context = make_context(version, services=services)
        request = MetadataRequest(topics=[] if version == 0 else None)
        response: MetadataResponse = trio.run(handle_metadata, context, request)
        encoded = encode(response, version)
        response.topics = _plainly(context, with_operations=False)
        assert encoded == encode(response, version), version


@pytest.mark.parametrize("version", [5, 9, 12])
def test_names_of_every_length(version: int) -> None:
    """Their length is one byte or two, and may look like a letter of theirs."""
    services = make_services()
    cache = services.metadata
    names = [letter * length for length in range(1, 250) for letter in "xy"]
    records: list[Any] = []
    for number, name in enumerate(names):
        records.append(TopicRecord(name=name, topic_id=_topic_id(number)))
        partitions = range(number % 2 + 120)
        records += [
            PartitionRecord(topic_id=_topic_id(number), partition_id=p, replicas=[1], isr=[1], leader=1)
            for p in (partitions if 119 <= len(name) <= 121 else range(1))
        ]
    cache.image = apply_records(cache.image, records)
    context = make_context(version, services=services)
    response: MetadataResponse = trio.run(handle_metadata, context, MetadataRequest(topics=None))
    encoded = encode(response, version)
    response.topics = _plainly(context, with_operations=False)
    assert encoded == encode(response, version)


def test_topics_with_the_same_partitions_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics with equal partitions have one shape, found once; a topic whose partitions change gets another shape."""
    counted = _Counted(monkeypatch)
    services = make_services(None, (1,))
    cache = services.metadata
    topics = [NewTopic(f"t{number}", 3) for number in range(40)]
    services.controller.submit_now(CreateTopics([*topics, NewTopic("long", 50)]))  # type: ignore[attr-defined]

    def ask(version: int) -> int:
        trio.run(handle_metadata, make_context(version, services=services), MetadataRequest(topics=None))
        partitions, counted.partitions = counted.partitions, 0
        return partitions

    assert ask(12) == ask(9) == 3 + 50
    shapes = cache.encoded_topics.shapes
    shape = shapes.of(cache.image.topics_by_name["t0"])
    assert shapes.of(cache.image.topics_by_name["t1"]) is shape
    change = PartitionChangeRecord(topic_id=cache.image.topics_by_name["t1"].topic_id, partition_id=1, leader=-1)
    cache.image = apply_records(cache.image, [change])
    assert ask(8) == 3 + 3 + 50
    assert shapes.of(cache.image.topics_by_name["t1"]) is not shape
    assert shapes.of(cache.image.topics_by_name["t0"]) is shape
    cache.encoded_topics.release_unused(float("inf"))
    assert len(shapes) == 0


def test_what_is_kept_has_bounds() -> None:
    services = make_services()
    cache = services.metadata
    services.controller.submit_now(CreateTopics([NewTopic(name, 2) for name in "abc"]))  # type: ignore[attr-defined]
    kept = EncodedTopics()
    for version in range(4, 4 + SETS_MAX + 3):
        kept.for_client(cache.image, "PLAINTEXT", version, now_s=version - 4)
    assert len(kept) == SETS_MAX
    oldest = kept.for_client(cache.image, "PLAINTEXT", 7, now_s=SETS_MAX + 3)
    kept.release_unused(KEPT_S + SETS_MAX + 2.5)
    assert len(kept) == 1
    for number in range(1000):
        record = TopicRecord(name=f"t{number}", topic_id=_topic_id(number))
        cache.image = apply_records(cache.image, [record])
        oldest.put(cache.image.topics_by_name[f"t{number}"], b"", cache.image)
        cache.image = apply_records(cache.image, [RemoveTopicRecord(topic_id=_topic_id(number))])
        kept.for_client(cache.image, "PLAINTEXT", 7, now_s=SETS_MAX + 3)
        kept.shapes.of(TopicImage(f"t{number}", _topic_id(number), {0: PartitionImage(0, (number,), (), 0, 0, 0)}))
    assert len(oldest) <= len(cache.image.topics_by_id) + STRAY_MAX + 1
    assert len(kept.shapes) <= len(cache.image.topics_by_id) + STRAY_MAX + 1


def test_a_deleted_topic_is_freed_at_once() -> None:
    """Its image is large if it had many partitions, and clients that ask for others would keep it."""
    services = make_services(None, (1,))
    cache = services.metadata
    services.controller.submit_now(CreateTopics([NewTopic("large", 1000), NewTopic("other", 2)]))  # type: ignore[attr-defined]
    for version in (8, 12):
        trio.run(handle_metadata, make_context(version, services=services), MetadataRequest(topics=None))
    encoded = [cache.encoded_topics.for_client(cache.image, "PLAINTEXT", version, 0.0) for version in (8, 12)]
    assert [len(topics) for topics in encoded] == [2, 2]
    old = cache.image
    large, other = old.topics_by_name["large"], old.topics_by_name["other"]
    cache.apply(old, apply_records(old, [RemoveTopicRecord(topic_id=large.topic_id)]))
    assert [len(topics) for topics in encoded] == [1, 1]
    assert not any(topics.get(large) for topics in encoded)
    assert all(topics.get(other) for topics in encoded)


def test_others_have_their_turns_and_the_answer_is_of_one_image() -> None:
    """A request for 10,000 partitions goes on while topics are deleted, and answers as of its beginning."""
    services = make_services()
    cache = services.metadata
    for topics in ([NewTopic("long", 9_000)], [NewTopic(f"short-{n}", 1) for n in range(1_000)]):
        services.controller.submit_now(CreateTopics(topics))  # type: ignore[attr-defined]
    context = make_context(12, services=services)
    expected = trio.run(handle_metadata, context, MetadataRequest(topics=None)).topics
    cache.encoded_topics = EncodedTopics()
    steps = 0

    async def delete_topics(is_done: Callable[[], bool]) -> None:
        nonlocal steps
        while not is_done():
            steps += 1
            record = RemoveTopicRecord(topic_id=cache.image.topics_by_name[f"short-{999 - steps}"].topic_id)
            cache.image = apply_records(cache.image, [record])
            await trio.lowlevel.checkpoint()

    async def main() -> list[Any]:
        answers: list[MetadataResponse] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete_topics, lambda: bool(answers))
            answers.append(await handle_metadata(context, MetadataRequest(topics=None)))
        return answers[0].topics

    assert trio.run(main, clock=TickingClock()) == expected
    assert steps > 40
    assert len(trio.run(handle_metadata, context, MetadataRequest(topics=None)).topics) == 1_001 - steps
