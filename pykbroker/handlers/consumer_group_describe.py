"""ConsumerGroupDescribe (key 69): consumer groups with their members and assignments (KIP-848).

Versions 0-1. v1 type of each member (KIP-1099). Needs DESCRIBE on each group, and on the topics of its assignments.
"""

from __future__ import annotations

from collections.abc import Iterator

from pykbroker.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from pykbroker.requests.context import BrokerContext
from pykbroker.requests.group_describe import described_groups, unsupported_groups


async def handle_consumer_group_describe(
    context: BrokerContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describes each group; those that the client may not see come first, as in Kafka."""
    if not context.services.groups.serves_consumer_groups:
        return ConsumerGroupDescribeResponse(groups=unsupported_groups(DescribedGroup, request.group_ids))
    groups = await described_groups(context, request, DescribedGroup, lambda shard: shard.consumer, _topics_of)
    return ConsumerGroupDescribeResponse(groups=groups)


def _topics_of(group: DescribedGroup) -> Iterator[list[str]]:
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            yield [topic.topic_name for topic in assignment.topic_partitions]
