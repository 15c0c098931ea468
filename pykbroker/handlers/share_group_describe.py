"""ShareGroupDescribe (key 77): share groups with their members and assignments (KIP-932).

Version 1. Needs DESCRIBE on each group, and on the topics of its assignments.
"""

from __future__ import annotations

from pykbroker.controller.metadata.features import share_groups_enabled
from pykbroker.protocol.acl_codes import DESCRIBE, GROUP, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from pykbroker.requests.context import BrokerContext

HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


async def handle_share_group_describe(
    context: BrokerContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Describes each group; those that the client may not see come first, as in Kafka."""
    if not share_groups_enabled(context.services.metadata.image):
        unsupported = ErrorCode.UNSUPPORTED_VERSION
        return ShareGroupDescribeResponse(
            groups=[DescribedGroup(group_id=group_id, error_code=unsupported) for group_id in request.group_ids]
        )
    refused = context.refused(DESCRIBE, GROUP, request.group_ids)
    failed = ErrorCode.GROUP_AUTHORIZATION_FAILED
    groups = [DescribedGroup(group_id=g, error_code=failed) for g in request.group_ids if g in refused]
    described = [context.services.groups.share.describe(g) for g in request.group_ids if g not in refused]
    if request.include_authorized_operations:
        for group in described:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = context.authorized_operations(GROUP, group.group_id)
    groups += [_visible(context, group) for group in described]
    return ShareGroupDescribeResponse(groups=groups)


def _visible(context: BrokerContext, group: DescribedGroup) -> DescribedGroup:
    """The group, or an error in its place if it has topics that the client may not see."""
    topics = {topic.topic_name for member in group.members for topic in member.assignment.topic_partitions}
    if not context.refused(DESCRIBE, TOPIC, topics):
        return group
    failed = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DescribedGroup(group_id=group.group_id, error_code=failed, error_message=HIDDEN_TOPICS)
