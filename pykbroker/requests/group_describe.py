"""Common part of ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pykbroker.controller.turns import EachInTurns, Turn
from pykbroker.groups.administration import describe_modern_group, in_described_order
from pykbroker.protocol.acl_codes import DESCRIBE, GROUP, TOPIC
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.groups.modern.groups import ModernGroups
    from pykbroker.groups.shard import GroupShard
    from pykbroker.protocol.messages import consumer_group_describe, share_group_describe, streams_group_describe
    from pykbroker.requests.context import BrokerContext

    DescribeRequest = (
        consumer_group_describe.ConsumerGroupDescribeRequest
        | share_group_describe.ShareGroupDescribeRequest
        | streams_group_describe.StreamsGroupDescribeRequest
    )

G = TypeVar(
    "G",
    "consumer_group_describe.DescribedGroup",
    "share_group_describe.DescribedGroup",
    "streams_group_describe.DescribedGroup",
)

HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


def unsupported_groups(response: type[G], group_ids: Sequence[str]) -> list[G]:
    """UNSUPPORTED_VERSION for each group: the feature or the rebalance protocol is not enabled."""
    return [response(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION) for group_id in group_ids]


async def described_groups(
    context: BrokerContext,
    request: DescribeRequest,
    response: type[G],
    groups_of: Callable[[GroupShard], ModernGroups[Any, Any]],
    topics_of: Callable[[G], Iterable[Iterable[str]]],
    hidden_topics: str = HIDDEN_TOPICS,
    *,
    has_texts: bool = False,
) -> list[G]:
    """Each group of the request; those that the client may not describe come first, as in Kafka.

    A group with topics that the client may not describe is replaced by TOPIC_AUTHORIZATION_FAILED.

    Args:
        response: class of a described group.
        groups_of: the groups of the type in a shard.
        topics_of: topics that the description names, those of one member or a few after the other.
        hidden_topics: error message for a group with a topic that the client may not describe.
        has_texts: True if an error of the coordinator comes with its general text, as Kafka does for share groups alone
            (`getErrorDescribedGroupList` of the three requests).
    """
    refused = await context.refused_in_turns(DESCRIBE, GROUP, request.group_ids)
    failed = ErrorCode.GROUP_AUTHORIZATION_FAILED
    groups = [response(group_id=g, error_code=failed) for g in request.group_ids if g in refused]
    turn = Turn()
    allowed = [group_id for group_id in request.group_ids if group_id not in refused]
    empty = [group_id for group_id in allowed if not group_id]
    for group_id in empty + await in_described_order(context.services.groups, filter(None, allowed)):
        await turn.end_if_over()
        group = await describe_modern_group(context.services.groups, group_id, groups_of, response, has_texts=has_texts)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = context.authorized_operations(GROUP, group.group_id)
        if await _hides_topics(context, topics_of(group)):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            group = response(group_id=group.group_id, error_code=error, error_message=hidden_topics)
        groups.append(group)
    return groups


async def _hides_topics(context: BrokerContext, names: Iterable[Iterable[str]]) -> bool:
    """True if there is a topic that the client may not describe."""
    if context.services.authorizer is None:
        return False
    found: dict[str, None] = {}
    async for some in EachInTurns(names):
        found.update(dict.fromkeys(some))
    return bool(await context.refused_in_turns(DESCRIBE, TOPIC, found))
