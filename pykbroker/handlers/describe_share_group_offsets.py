"""DescribeShareGroupOffsets (key 90): start offsets of share groups, and how far they lag behind (KIP-932, KIP-1226).

Versions 0 and 1; v1 lag. Needs DESCRIBE on each group and on the topics.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import trio

from pykbroker.controller.metadata.features import share_groups_enabled
from pykbroker.controller.turns import EachInTurns
from pykbroker.errors import CoordinatorError
from pykbroker.java_order import to_signed_long
from pykbroker.protocol.acl_codes import DESCRIBE, GROUP, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import SERVER_ERROR_MESSAGE, TEXTS
from pykbroker.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from pykbroker.requests.latest_offsets import LatestOffset, latest_offsets

if TYPE_CHECKING:
    from pykbroker.requests.context import BrokerContext

UNINITIALIZED = -1
NO_LAG = -1

Partitions = Mapping[bytes, Collection[int]]
"""Topic id -> partitions."""


async def handle_describe_share_group_offsets(
    context: BrokerContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Describes the offsets of each group (P-190)."""
    described: dict[int, DescribeShareGroupOffsetsResponseGroup] = {}

    async def describe(number: int, group: DescribeShareGroupOffsetsRequestGroup) -> None:
        described[number] = await _describe(context, group)

    # All at once: with a share coordinator that does not answer each of them takes half a minute.
    async with trio.open_nursery() as nursery:
        for number, group in enumerate(request.groups):
            nursery.start_soon(describe, number, group)
    return DescribeShareGroupOffsetsResponse(groups=[group for _, group in sorted(described.items())])


async def _describe(
    context: BrokerContext, asked: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    if not share_groups_enabled(context.services.metadata.image):
        return DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id, error_code=ErrorCode.UNSUPPORTED_VERSION)
    if not context.authorize(DESCRIBE, GROUP, asked.group_id):
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=asked.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED
        )
    if asked.topics is None:
        return await _describe_all(context, asked.group_id)
    refused = await context.refused_in_turns(DESCRIBE, TOPIC, (topic.topic_name for topic in asked.topics))
    # By topic id, in the order of the request; the values are dicts because a topic may be named several times.
    partitions: dict[bytes, dict[int, None]] = {}
    missing: list[DescribeShareGroupOffsetsResponseTopic] = []
    hidden: list[DescribeShareGroupOffsetsResponseTopic] = []
    is_refused = False
    for topic in asked.topics:
        image = None if topic.topic_name in refused else context.services.metadata.topic(topic.topic_name)
        if image is not None:
            partitions.setdefault(image.topic_id, {}).update(dict.fromkeys(topic.partitions))
            is_refused = is_refused or not topic.partitions or min(topic.partitions) < 0
            continue
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if topic.topic_name in refused else ErrorCode.NONE
        (hidden if code else missing).append(
            DescribeShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                partitions=[
                    DescribeShareGroupOffsetsResponsePartition(
                        partition_index=number,
                        start_offset=UNINITIALIZED,
                        error_code=code,
                        error_message=TEXTS.get(code),
                    )
                    for number in topic.partitions
                ],
            )
        )
    if is_refused or (partitions and not asked.group_id):
        # Kafka's persister takes no such request, and nothing of the group is answered.
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=asked.group_id, error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message=SERVER_ERROR_MESSAGE
        )
    found = await _summaries(context, asked.group_id, partitions)
    return DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id, topics=found + missing + hidden)


async def _describe_all(context: BrokerContext, group_id: str) -> DescribeShareGroupOffsetsResponseGroup:
    """The offsets of all partitions that the group has; those of topics that the client may not see are left out."""
    try:
        initialized = context.services.groups.share.initialized_partitions(group_id)
    except CoordinatorError as error:
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=group_id, error_code=error.error_code, error_message=TEXTS.get(error.error_code)
        )
    metadata = context.services.metadata
    names = {
        topic_id: topic.name
        async for topic_id in EachInTurns(initialized)
        if (topic := metadata.topic_by_id(topic_id)) is not None
    }
    refused = await context.refused_in_turns(DESCRIBE, TOPIC, names.values())
    visible = {
        topic_id: sorted(initialized[topic_id])
        async for topic_id, name in EachInTurns(names.items())
        if name not in refused
    }
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group_id, topics=await _summaries(context, group_id, visible)
    )


async def _summaries(
    context: BrokerContext, group_id: str, partitions: Partitions
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    services = context.services
    names = {
        topic_id: topic.name
        async for topic_id in EachInTurns(partitions)
        if (topic := services.metadata.topic_by_id(topic_id)) is not None
    }
    topic_partitions = [
        (topic_id, number) async for topic_id, numbers in EachInTurns(partitions.items()) for number in numbers
    ]
    summaries = await services.groups.share.summaries(group_id, topic_partitions)
    lagging = [
        (names[topic_id], number)
        async for (topic_id, number), summary in EachInTurns(summaries.items())
        if summary is not None and summary[0] != UNINITIALIZED and summary[2] >= 0
    ]
    ends = await latest_offsets(services, lagging) if lagging else {}
    return [
        DescribeShareGroupOffsetsResponseTopic(
            topic_name=names[topic_id],
            topic_id=topic_id,
            partitions=[
                _partition(number, summaries[topic_id, number], ends.get((names[topic_id], number)))
                for number in numbers
            ],
        )
        async for topic_id, numbers in EachInTurns(partitions.items())
    ]


def _partition(
    number: int, summary: tuple[int, int, int] | None, end: LatestOffset | None
) -> DescribeShareGroupOffsetsResponsePartition:
    """A partition; the errors of its state are not shown, as in Kafka, and those of its end offset are."""
    if summary is None:
        return DescribeShareGroupOffsetsResponsePartition(partition_index=number, start_offset=UNINITIALIZED)
    start_offset, leader_epoch, complete_count = summary
    if end is not None and end.error is not ErrorCode.NONE:
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=number, error_code=end.error, error_message=TEXTS.get(end.error)
        )
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=number,
        start_offset=start_offset,
        leader_epoch=leader_epoch,
        # Clients may store any start offset; Java's difference stays within a long.
        lag=NO_LAG if end is None else to_signed_long(end.offset - start_offset - complete_count),
    )
