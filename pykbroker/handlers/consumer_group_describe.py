"""ConsumerGroupDescribe (key 69): consumer groups with their members and assignments (KIP-848).

Versions 0-1. v1 type of each member (KIP-1099). Needs DESCRIBE on each group, and on the topics of its assignments.
"""

from __future__ import annotations

from pykbroker.controller.metadata.features import consumer_groups_enabled
from pykbroker.protocol.acl_codes import DESCRIBE, GROUP, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from pykbroker.requests.context import BrokerContext

HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


async def handle_consumer_group_describe(
    context: BrokerContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describes each group; those that the client may not see come first, as in Kafka."""
    protocols = context.services.config.groups.rebalance_protocols
    if "consumer" not in protocols or not consumer_groups_enabled(context.services.metadata.image):
        unsupported = ErrorCode.UNSUPPORTED_VERSION
        return ConsumerGroupDescribeResponse(
            groups=[DescribedGroup(group_id=group_id, error_code=unsupported) for group_id in request.group_ids]
        )
    refused = context.refused(DESCRIBE, GROUP, request.group_ids)
    failed = ErrorCode.GROUP_AUTHORIZATION_FAILED
    groups = [DescribedGroup(group_id=g, error_code=failed) for g in request.group_ids if g in refused]
    described = [context.services.groups.describe_consumer_group(g) for g in request.group_ids if g not in refused]
    if request.include_authorized_operations:
        for group in described:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = context.authorized_operations(GROUP, group.group_id)
    groups += [_visible(context, group) for group in described]
    return ConsumerGroupDescribeResponse(groups=groups)


def _visible(context: BrokerContext, group: DescribedGroup) -> DescribedGroup:
    """The group, or an error in its place if it has topics that the client may not see."""
    topics = {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
    if not context.refused(DESCRIBE, TOPIC, topics):
        return group
    failed = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DescribedGroup(group_id=group.group_id, error_code=failed, error_message=HIDDEN_TOPICS)
