"""StreamsGroupDescribe of one group."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from pykbroker.groups.streams.configured import ConfiguredSubtopology, ConfiguredTopology, InternalTopic
from pykbroker.groups.streams.group import StreamsGroup
from pykbroker.groups.streams.member import StreamsMember
from pykbroker.groups.streams.tasks import Tasks
from pykbroker.groups.streams.topology import StreamsTopology
from pykbroker.java_order import timeline_order
from pykbroker.protocol.log_messages.streams_group_records import Subtopology as StoredSubtopology
from pykbroker.protocol.log_messages.streams_group_records import TopicInfo as StoredTopicInfo
from pykbroker.protocol.messages.streams_group_describe import Assignment, DescribedGroup, Member, Subtopology, Topology
from pykbroker.protocol.messages.streams_group_heartbeat import Endpoint, KeyValue, TaskIds, TopicInfo
from pykbroker.protocol.steps import Steps


def describe(group: StreamsGroup) -> Steps[DescribedGroup]:
    """The group with its topology and members; partition counts are known while the topology is ready (P-217)."""
    topology = None
    if group.shown is not None and group.shown.is_ready:
        topology = _configured(group.shown)
    elif group.topology is not None:
        topology = _declared(group.topology)
    described = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=topology,
    )
    for member_id in timeline_order(group.members):
        yield
        described.members.append(_member(group.members[member_id], group.targets.get(member_id)))
    return described


def _configured(topology: ConfiguredTopology) -> Topology:
    subtopologies = [
        _subtopology(subtopology_id, each, _internal(each.changelog_topics), _internal(each.repartition_source_topics))
        for subtopology_id, each in (topology.subtopologies or {}).items()
    ]
    return Topology(epoch=topology.epoch, subtopologies=subtopologies)


def _declared(topology: StreamsTopology) -> Topology:
    subtopologies = [
        _subtopology(
            subtopology_id, each, _stored(each.state_changelog_topics), _stored(each.repartition_source_topics)
        )
        for subtopology_id, each in sorted(topology.subtopologies.items())
    ]
    return Topology(epoch=topology.epoch, subtopologies=subtopologies)


def _subtopology(
    subtopology_id: str,
    subtopology: ConfiguredSubtopology | StoredSubtopology,
    changelog_topics: list[TopicInfo],
    repartition_source_topics: list[TopicInfo],
) -> Subtopology:
    return Subtopology(
        subtopology_id=subtopology_id,
        source_topics=sorted(subtopology.source_topics),
        repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
        state_changelog_topics=changelog_topics,
        repartition_source_topics=repartition_source_topics,
    )


def _internal(topics: Mapping[str, InternalTopic]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=topic.name,
            partitions=topic.partition_count,
            replication_factor=topic.replication_factor,
            topic_configs=[KeyValue(key=key, value=value) for key, value in topic.configs.items()],
        )
        for _, topic in sorted(topics.items())
    ]


def _stored(topics: Iterable[StoredTopicInfo]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[KeyValue(key=config.key, value=config.value) for config in topic.topic_configs],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def _member(member: StreamsMember, target: Tasks | None) -> Member:
    endpoint, assigned = member.user_endpoint, member.assigned
    return Member(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[KeyValue(key=key, value=value) for key, value in member.client_tags.items()],
        assignment=_assignment(assigned.active, assigned.standby, assigned.warmup),
        target_assignment=Assignment() if target is None else _assignment(*target),
    )


def _assignment(*roles: Mapping[str, Collection[int]]) -> Assignment:
    active, standby, warmup = (
        [TaskIds(subtopology_id=key, partitions=sorted(numbers)) for key, numbers in sorted(tasks.items())]
        for tasks in roles
    )
    return Assignment(active_tasks=active, standby_tasks=standby, warmup_tasks=warmup)
