"""Topologies as Kafka Streams declares them."""

from __future__ import annotations

from pykbroker.protocol.messages.streams_group_heartbeat import KeyValue, Subtopology, TopicInfo, Topology


def stateless(*source_topics: str, epoch: int = 0) -> Topology:
    """One subtopology that keeps no state."""
    return Topology(epoch=epoch, subtopologies=[Subtopology(subtopology_id="0", source_topics=list(source_topics))])


def word_count(application: str, source_topic: str) -> Topology:
    """Words are repartitioned, and counted in a store with a changelog topic."""
    repartition = f"{application}-words-repartition"
    changelog = TopicInfo(
        name=f"{application}-store-changelog", topic_configs=[KeyValue(key="cleanup.policy", value="compact")]
    )
    return Topology(
        subtopologies=[
            Subtopology(subtopology_id="0", source_topics=[source_topic], repartition_sink_topics=[repartition]),
            Subtopology(
                subtopology_id="1",
                repartition_source_topics=[TopicInfo(name=repartition)],
                state_changelog_topics=[changelog],
            ),
        ]
    )
