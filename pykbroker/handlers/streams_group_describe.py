"""StreamsGroupDescribe (key 89): Streams groups with their topology, members and tasks (KIP-1071).

Version 0. Needs DESCRIBE on each group, and on all topics of its topology.
"""

from __future__ import annotations

from collections.abc import Iterator

from pykbroker.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from pykbroker.requests.context import BrokerContext
from pykbroker.requests.group_describe import described_groups, unsupported_groups

HIDDEN_TOPICS = "The described group uses topics that the client is not authorized to describe."


async def handle_streams_group_describe(
    context: BrokerContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    """Describes each group; those that the client may not see come first, as in Kafka."""
    if not context.services.groups.serves_streams_groups:
        return StreamsGroupDescribeResponse(groups=unsupported_groups(DescribedGroup, request.group_ids))
    groups = await described_groups(
        context, request, DescribedGroup, lambda shard: shard.streams, _topics_of, HIDDEN_TOPICS
    )
    return StreamsGroupDescribeResponse(groups=groups)


def _topics_of(group: DescribedGroup) -> Iterator[list[str]]:
    for subtopology in () if group.topology is None else group.topology.subtopologies or ():
        yield subtopology.source_topics
        yield subtopology.repartition_sink_topics
        yield [topic.name for topic in subtopology.repartition_source_topics]
        yield [topic.name for topic in subtopology.state_changelog_topics]
