"""StreamsGroupDescribe (key 89): Streams groups with their topology, members and tasks (KIP-1071).

Version 0. Needs DESCRIBE on each group, and on all topics of its topology.
"""

from __future__ import annotations

from pykbroker.controller.metadata.features import streams_groups_enabled
from pykbroker.protocol.acl_codes import DESCRIBE, GROUP, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from pykbroker.requests.context import BrokerContext

HIDDEN_TOPICS = "The described group uses topics that the client is not authorized to describe."


async def handle_streams_group_describe(
    context: BrokerContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    """Describes each group; those that the client may not see come first, as in Kafka."""
    protocols = context.services.config.groups.rebalance_protocols
    if "streams" not in protocols or not streams_groups_enabled(context.services.metadata.image):
        unsupported = ErrorCode.UNSUPPORTED_VERSION
        return StreamsGroupDescribeResponse(
            groups=[DescribedGroup(group_id=group_id, error_code=unsupported) for group_id in request.group_ids]
        )
    refused = context.refused(DESCRIBE, GROUP, request.group_ids)
    failed = ErrorCode.GROUP_AUTHORIZATION_FAILED
    groups = [DescribedGroup(group_id=g, error_code=failed) for g in request.group_ids if g in refused]
    described = [context.services.groups.streams.describe(g) for g in request.group_ids if g not in refused]
    if request.include_authorized_operations:
        for group in described:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = context.authorized_operations(GROUP, group.group_id)
    groups += [_visible(context, group) for group in described]
    return StreamsGroupDescribeResponse(groups=groups)


def _visible(context: BrokerContext, group: DescribedGroup) -> DescribedGroup:
    """The group, or an error in its place if its topology has topics that the client may not see."""
    subtopologies = () if group.topology is None else group.topology.subtopologies or ()
    topics = {
        name
        for subtopology in subtopologies
        for name in (
            *subtopology.source_topics,
            *subtopology.repartition_sink_topics,
            *(topic.name for topic in subtopology.repartition_source_topics),
            *(topic.name for topic in subtopology.state_changelog_topics),
        )
    }
    if not context.refused(DESCRIBE, TOPIC, topics):
        return group
    failed = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DescribedGroup(group_id=group.group_id, error_code=failed, error_message=HIDDEN_TOPICS)
