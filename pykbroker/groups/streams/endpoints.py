"""The endpoints of a Streams group's members and the partitions that each has, for interactive queries."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.modern.topics import GroupTopics
from pykbroker.groups.streams.configured import ConfiguredSubtopology
from pykbroker.groups.streams.group import StreamsGroup
from pykbroker.groups.streams.member import StreamsMember
from pykbroker.java_order import hash_order
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.streams_group_heartbeat import Endpoint, EndpointToPartitions, TopicPartition


def endpoints_of(group: StreamsGroup, member: StreamsMember, topics: GroupTopics) -> list[EndpointToPartitions]:
    """Endpoints of all members; the last one is that of `member`, the new value of the member that sent the request.

    Raises:
        GroupError: UNKNOWN_SERVER_ERROR, as in Kafka: a member has an endpoint, and its partitions are unknown
            because the topology is not configured or a topic is gone.
    """
    others = [other for member_id, other in group.members.items() if member_id != member.member_id]
    return [found for each in (*others, member) if (found := _endpoint_of(group, each, topics)) is not None]


def _endpoint_of(group: StreamsGroup, member: StreamsMember, topics: GroupTopics) -> EndpointToPartitions | None:
    endpoint = member.user_endpoint
    if endpoint is None:
        return None
    cached = group.endpoints.get(member.member_id)
    if cached is not None:
        return cached
    subtopologies = None if group.configured is None else group.configured.subtopologies
    if subtopologies is None:
        raise GroupError(ErrorCode.UNKNOWN_SERVER_ERROR)
    found = EndpointToPartitions(
        user_endpoint=Endpoint(host=endpoint.host, port=endpoint.port),
        active_partitions=_partitions(member.assigned.active, subtopologies, topics),
        standby_partitions=_partitions(member.assigned.standby, subtopologies, topics),
    )
    group.endpoints[member.member_id] = found
    return found


def _partitions(
    tasks: Mapping[str, Collection[int]], subtopologies: Mapping[str, ConfiguredSubtopology], topics: GroupTopics
) -> list[TopicPartition]:
    listed = []
    # Kafka's standby tasks are in a HashMap, which is made of a sorted record; its active ones have a random order.
    for subtopology_id in hash_order(sorted(tasks)):
        numbers = tasks[subtopology_id]
        if subtopology_id not in subtopologies:
            raise GroupError(ErrorCode.UNKNOWN_SERVER_ERROR)
        for name in subtopologies[subtopology_id].consumed_topics:
            topic_id = topics.id_of(name)
            if topic_id is None:
                raise GroupError(ErrorCode.UNKNOWN_SERVER_ERROR)
            # A topic may have fewer partitions than the subtopology has tasks.
            count = min(topics.partition_count(topic_id), len(numbers))
            listed.append(TopicPartition(topic=name, partitions=sorted(numbers)[:count]))
    return listed
