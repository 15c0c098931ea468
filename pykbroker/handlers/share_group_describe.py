"""ShareGroupDescribe (key 77): share groups with their members and assignments (KIP-932).

Version 1. Needs DESCRIBE on each group, and on the topics of its assignments.
"""

from __future__ import annotations

from collections.abc import Iterator

from pykbroker.controller.metadata.features import share_groups_enabled
from pykbroker.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from pykbroker.requests.context import BrokerContext
from pykbroker.requests.group_describe import described_groups, unsupported_groups


async def handle_share_group_describe(
    context: BrokerContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Describes each group; those that the client may not see come first, as in Kafka."""
    if not share_groups_enabled(context.services.metadata.image):
        return ShareGroupDescribeResponse(groups=unsupported_groups(DescribedGroup, request.group_ids))
    groups = await described_groups(
        context, request, DescribedGroup, lambda shard: shard.share, _topics_of, has_texts=True
    )
    return ShareGroupDescribeResponse(groups=groups)


def _topics_of(group: DescribedGroup) -> Iterator[list[str]]:
    for member in group.members:
        yield [topic.topic_name for topic in member.assignment.topic_partitions]
