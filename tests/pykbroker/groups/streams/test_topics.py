"""Topologies beside the topics that exist: counts of internal topics, and the reasons that members are told (P-211)."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.streams.checks import check_names, named_topics
from pykbroker.groups.streams.configured import ConfiguredTopology, StatusCode, configure, summary
from pykbroker.groups.streams.internal_topic_creation import ERRORS_MAX, InternalTopicCreation
from pykbroker.groups.streams.topology import topology_from, topology_value
from pykbroker.java_order import hash_order
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.streams_group_heartbeat import (
    CopartitionGroup,
    KeyValue,
    Subtopology,
    TopicInfo,
    Topology,
)
from pykbroker.protocol.steps import finished
from tests.pykbroker.groups.shard_rig import image_of

INVALID, UNKNOWN = ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_SERVER_ERROR


def configured(*subtopologies: Subtopology, **topics: int) -> ConfiguredTopology:
    topology = topology_from(finished(topology_value(Topology(subtopologies=list(subtopologies)))))
    return finished(configure(topology, GroupTopics(image_of(topics))))


def refusal(*subtopologies: Subtopology, **topics: int) -> tuple[ErrorCode, str | None]:
    with pytest.raises(GroupError) as raised:
        configured(*subtopologies, **topics)
    return raised.value.error_code, raised.value.message


def counts(topology: ConfiguredTopology) -> dict[str, int]:
    return {name: topic.partition_count for name, topic in topology.missing.items()}


def test_repartition_topics_follow_what_writes_to_them() -> None:
    """Through a chain of them, whatever the order of the subtopologies."""
    chain = (
        Subtopology(
            subtopology_id="2",
            repartition_source_topics=[TopicInfo(name="r2")],
            state_changelog_topics=[TopicInfo(name="c")],
        ),
        Subtopology(
            subtopology_id="1", repartition_source_topics=[TopicInfo(name="r1")], repartition_sink_topics=["r2"]
        ),
        Subtopology(subtopology_id="0", source_topics=["a", "b"], repartition_sink_topics=["r1"]),
    )
    found = configured(*chain, a=2, b=5)
    assert counts(found) == {"r1": 5, "r2": 5, "c": 5}
    assert found.problem is not None
    assert found.problem.status is StatusCode.MISSING_INTERNAL_TOPICS
    assert found.subtopologies is not None
    assert [subtopology.task_count for subtopology in found.subtopologies.values()] == [5, 5, 5]
    ready = configured(*chain, a=2, b=5, r1=5, r2=5, c=5)
    assert ready.is_ready


def test_a_declared_count_wins() -> None:
    found = configured(
        Subtopology(subtopology_id="0", source_topics=["a"], repartition_sink_topics=["r"]),
        Subtopology(subtopology_id="1", repartition_source_topics=[TopicInfo(name="r", partitions=7)]),
        a=2,
    )
    assert counts(found) == {"r": 7}


def test_joined_topics_have_one_count() -> None:
    group = CopartitionGroup(source_topics=[0], repartition_source_topics=[0])
    found = configured(
        Subtopology(subtopology_id="0", source_topics=["a"], repartition_sink_topics=["r"]),
        Subtopology(
            subtopology_id="1",
            source_topics=["b"],
            repartition_source_topics=[TopicInfo(name="r")],
            copartition_groups=[group],
        ),
        a=2,
        b=4,
    )
    assert counts(found) == {"r": 4}


def test_joined_repartition_topics_take_the_most() -> None:
    group = CopartitionGroup(repartition_source_topics=[0, 1])
    found = configured(
        Subtopology(subtopology_id="0", source_topics=["a"], repartition_sink_topics=["r"]),
        Subtopology(subtopology_id="1", source_topics=["b"], repartition_sink_topics=["s"]),
        Subtopology(
            subtopology_id="2",
            repartition_source_topics=[TopicInfo(name="r"), TopicInfo(name="s")],
            copartition_groups=[group],
        ),
        a=2,
        b=4,
    )
    assert counts(found) == {"r": 4, "s": 4}


@pytest.mark.parametrize(
    ("repartition", "topics", "detail"),
    [
        (0, {"a": 2, "b": 3}, "Following topics do not have the same number of partitions: [{a=2, b=3}]"),
        (
            5,
            {"a": 2, "b": 2},
            (
                "Number of partitions [5] of repartition topic [r] doesn't match number of partitions [2] of the "
                "source topic."
            ),
        ),
        (0, {"a": 2, "b": 2, "r": 9}, "Existing topic r has different number of partitions: expected 2, found 9"),
    ],
)
def test_joined_topics_that_differ(repartition: int, topics: dict[str, int], detail: str) -> None:
    group = CopartitionGroup(source_topics=[0, 1], repartition_source_topics=[0])
    found = configured(
        Subtopology(
            subtopology_id="0",
            source_topics=["a", "b"],
            repartition_sink_topics=["r"],
            repartition_source_topics=[TopicInfo(name="r", partitions=repartition)],
            copartition_groups=[group],
        ),
        **topics,
    )
    assert found.problem == (StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail)
    assert found.subtopologies is None


def test_missing_sources_are_named() -> None:
    found = configured(Subtopology(subtopology_id="0", source_topics=["d", "b", "a", "c"]), c=1)
    assert found.problem == (StatusCode.MISSING_SOURCE_TOPICS, "Source topics a, b, d are missing.")
    assert summary(["a", "b", "c", "d", "e"]) == "a, b, c and 2 additional topics"


def test_topologies_without_sense() -> None:
    source = Subtopology(subtopology_id="0", source_topics=["a"])
    repartition = [TopicInfo(name="r")]
    assert refusal(
        Subtopology(subtopology_id="0", repartition_source_topics=repartition, repartition_sink_topics=["r"])
    )[0] is (ErrorCode.STREAMS_INVALID_TOPOLOGY)
    code, message = refusal(source, Subtopology(subtopology_id="1", repartition_source_topics=repartition), a=1)
    assert code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert message is not None
    assert message.endswith("a repartition source topic is never used as a sink topic.")
    assert refusal(Subtopology(subtopology_id="0")) == (
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
        "No source topics found for subtopology 0",
    )
    broken = CopartitionGroup(source_topics=[3])
    assert refusal(Subtopology(subtopology_id="0", source_topics=["a"], copartition_groups=[broken]), a=1) == (
        ErrorCode.UNKNOWN_SERVER_ERROR,
        None,
    )
    assert refusal(source, source, a=1)[0] is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_changelog_topic_counts_for_no_other_changelog() -> None:
    """The counts of all changelog topics are decided before one of them is the count of a repartition topic."""
    found = configured(
        Subtopology(subtopology_id="0", source_topics=["a"], state_changelog_topics=[TopicInfo(name="r")]),
        Subtopology(subtopology_id="1", source_topics=["b"], repartition_sink_topics=["r"]),
        Subtopology(
            subtopology_id="2",
            repartition_source_topics=[TopicInfo(name="r")],
            state_changelog_topics=[TopicInfo(name="c")],
        ),
        a=7,
        b=2,
    )
    assert counts(found)["c"] == 2


def test_the_first_fault_of_a_topology_is_told() -> None:
    """In the order of Kafka's hash table of subtopologies, and in an internal topic in the order of its checks."""
    invalid, negative = TopicInfo(name="?"), TopicInfo(name="r", partitions=-1)
    config = KeyValue(key="k", value="v")
    source: dict[str, Any] = {"source_topics": ["a"], "repartition_sink_topics": ["?"]}
    assert refusal(Subtopology(subtopology_id="0", state_changelog_topics=[invalid], **source), a=1)[0] is INVALID
    twice = TopicInfo(name="?", topic_configs=[config, config])
    assert refusal(Subtopology(subtopology_id="0", state_changelog_topics=[twice], **source), a=1)[0] is UNKNOWN
    both = [
        Subtopology(subtopology_id="0", repartition_source_topics=[invalid, negative], **source),
        Subtopology(subtopology_id="1", repartition_source_topics=[negative]),
    ]
    assert refusal(*both, a=1)[0] is INVALID
    reverse = [
        Subtopology(subtopology_id="16", state_changelog_topics=[invalid], **source),
        Subtopology(subtopology_id="2", source_topics=["a"], state_changelog_topics=[twice]),
    ]
    assert hash_order(["16", "2"]) == ["2", "16"]
    assert refusal(*reverse, a=1)[0] is UNKNOWN


def test_names_that_no_topology_may_have() -> None:
    """P-211."""
    topology = Topology(
        subtopologies=[
            Subtopology(
                source_topics=["a", "__consumer_offsets"],
                repartition_sink_topics=["r", "a"],
                repartition_source_topics=[TopicInfo(name="s")],
                state_changelog_topics=[TopicInfo(name="c c")],
            )
        ]
    )
    names = named_topics(topology)
    assert names == ["a", "__consumer_offsets", "r", "s", "c c"]
    with pytest.raises(GroupError) as internal:
        check_names(names)
    assert internal.value.message == (
        "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited."
    )
    with pytest.raises(GroupError) as invalid:
        check_names(["a", "c c", "."])
    assert invalid.value.message == "Topic names c c,. are not valid topic names."
    assert invalid.value.error_code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    check_names(["a"])


def test_a_topic_is_created_once_and_again_after_a_failure() -> None:
    """P-211."""
    creation = InternalTopicCreation()
    assert creation.begin(["a", "b"], 0) == ["a", "b"]
    assert creation.begin(["a", "c"], 0) == ["c"]
    creation.end(["a", "b"], {"a": "no room"}, 100, 10)
    assert creation.failures(["a", "b", "c"], 109) == {"a": "no room"}
    assert creation.begin(["a", "b"], 109) == ["b"]
    assert creation.failures(["a"], 110) == {}
    assert creation.begin(["a"], 110) == ["a"]


def test_failures_are_few() -> None:
    creation = InternalTopicCreation()
    for number in range(ERRORS_MAX + 5):
        creation.end([], {f"t{number}": "no"}, number, 1_000_000)
    kept = creation.failures([f"t{number}" for number in range(ERRORS_MAX + 5)], ERRORS_MAX)
    assert len(kept) == ERRORS_MAX
    assert "t4" not in kept


def test_repartition_topics_alone_that_are_joined() -> None:
    """P-211: all that have a declared count must have the same one."""
    group = CopartitionGroup(repartition_source_topics=[0, 1])

    def joined(*declared: int) -> ConfiguredTopology:
        topics = [TopicInfo(name=name, partitions=count) for name, count in zip("rs", declared, strict=True)]
        source = Subtopology(subtopology_id="0", source_topics=["a"], repartition_sink_topics=["r", "s"])
        reader = Subtopology(subtopology_id="1", repartition_source_topics=topics, copartition_groups=[group])
        return configured(source, reader, a=2)

    assert counts(joined(3, 3)) == {"r": 3, "s": 3}
    assert counts(joined(3, 0)) == {"r": 3, "s": 3}
    assert joined(3, 4).problem == (
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Following topics do not have the same number of partitions: [{r=3, s=4}]",
    )


def test_copartition_groups_of_nothing() -> None:
    """P-211: an empty one joins nothing; a position before the first topic is a fault as one after the last."""
    empty = Subtopology(subtopology_id="0", source_topics=["a"], copartition_groups=[CopartitionGroup()])
    assert configured(empty, a=1).is_ready
    before = CopartitionGroup(source_topics=[-1])
    assert refusal(Subtopology(subtopology_id="0", source_topics=["a"], copartition_groups=[before]), a=1) == (
        UNKNOWN,
        None,
    )


@pytest.mark.parametrize(
    "topics", [[TopicInfo(name="r", partitions=-1)], [TopicInfo(name="r", partitions=2)] * 2], ids=["negative", "twice"]
)
def test_repartition_topics_without_sense(topics: list[TopicInfo]) -> None:
    source = Subtopology(subtopology_id="0", source_topics=["a"], repartition_sink_topics=["r"])
    assert refusal(source, Subtopology(subtopology_id="1", repartition_source_topics=topics), a=1) == (UNKNOWN, None)


def test_many_missing_topics_are_in_the_order_of_a_larger_table() -> None:
    """The order in which a broker creates them: more than twelve are in a Java table of 32 buckets."""
    changelogs = [TopicInfo(name=name) for name in "PABCDEFGHIJKL"]
    found = configured(Subtopology(subtopology_id="0", source_topics=["a"], state_changelog_topics=changelogs), a=2)
    assert list(found.missing) == list("ABCDEFGHIJKLP"), "with 16 buckets P would come first"
