"""OffsetFetch (key 9), versions 1 to 10.

v2 null topics mean all; the error of the group is a field of the response (in v1 each partition has it). v5 leader
epoch (KIP-320). v7 require_stable (KIP-447): no offset that an open transaction may change (P-113), and none that a
commit replaces which is not replicated yet (P-369). v8 several groups (KIP-709). v9 member id and epoch, which are
ignored for classic groups. v10 topics by id.
"""

from __future__ import annotations

from pykbroker.controller.turns import Turn, in_turns
from pykbroker.groups.offset_fetch import fetch_offsets, fetch_stable_offsets, without_offset
from pykbroker.protocol.acl_codes import DESCRIBE, GROUP, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from pykbroker.protocol.steps import PIECE, Steps
from pykbroker.protocol.uuids import ZERO_UUID
from pykbroker.requests.context import BrokerContext

GROUP_ERROR_VERSION = 2
SEVERAL_GROUPS_VERSION = 8
TOPIC_IDS_VERSION = 10


async def handle_offset_fetch(context: BrokerContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Returns committed offsets; a partition without one has offset -1 and no error (P-112)."""
    if context.api_version >= SEVERAL_GROUPS_VERSION:
        groups, turn = [], Turn()
        for group in request.groups:
            groups.append(await _fetch_group(context, group, request.require_stable))
            await turn.end_if_over()
        return OffsetFetchResponse(groups=groups)
    topics = None
    if request.topics is not None:
        topics = [OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in request.topics]
    single = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    return await in_turns(_single_group_response(await _fetch_group(context, single, request.require_stable)))


async def _fetch_group(
    context: BrokerContext, group: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    names_by_id = context.services.metadata.image.topics_by_id
    use_ids = context.api_version >= TOPIC_IDS_VERSION
    refused: list[OffsetFetchResponseTopics] = []
    requested = group.topics
    if use_ids and requested is not None:
        for topic in requested:
            found = names_by_id.get(topic.topic_id)
            topic.name = "" if found is None else found.name
    response = await _authorized_offsets(context, group, refused, require_stable)
    if response.error_code != ErrorCode.NONE:
        if context.api_version < GROUP_ERROR_VERSION:
            response.topics = [_failed(topic, ErrorCode(response.error_code)) for topic in requested or []]
        return response
    if use_ids and requested is None:
        response.topics = _with_ids(context, response.topics)
    response.topics += refused
    return response


async def _authorized_offsets(
    context: BrokerContext,
    group: OffsetFetchRequestGroup,
    refused: list[OffsetFetchResponseTopics],
    require_stable: bool,
) -> OffsetFetchResponseGroup:
    """The offsets of topics that the client may DESCRIBE; adds others that it named, and unknown ids, to `refused`."""
    if not context.authorize(DESCRIBE, GROUP, group.group_id):
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    requested = group.topics
    if requested is not None:
        use_ids = context.api_version >= TOPIC_IDS_VERSION
        names = (topic.name for topic in requested if topic.name or not use_ids)
        hidden = await context.refused_in_turns(DESCRIBE, TOPIC, names)
        group.topics = []
        for topic in requested:
            if use_ids and not topic.name:
                refused.append(_failed(topic, ErrorCode.UNKNOWN_TOPIC_ID))
            elif topic.name in hidden:
                refused.append(_failed(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            else:
                group.topics.append(topic)
    response = await (fetch_stable_offsets if require_stable else fetch_offsets)(context.services.groups, group)
    if requested is None:
        hidden = await context.refused_in_turns(DESCRIBE, TOPIC, (topic.name for topic in response.topics))
        response.topics = [topic for topic in response.topics if topic.name not in hidden]
    return response


def _failed(topic: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    partitions = [without_offset(p, error) for p in topic.partition_indexes]
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _with_ids(context: BrokerContext, topics: list[OffsetFetchResponseTopics]) -> list[OffsetFetchResponseTopics]:
    """Existing topics with their ids. The others are left out: this version names topics by id only."""
    image = context.services.metadata.image
    for topic in topics:
        found = image.topics_by_name.get(topic.name)
        topic.topic_id = ZERO_UUID if found is None else found.topic_id
    return [topic for topic in topics if topic.topic_id != ZERO_UUID]


def _single_group_response(group: OffsetFetchResponseGroup) -> Steps[OffsetFetchResponse]:
    """The response of the versions before 8, which have one group."""
    response = OffsetFetchResponse(error_code=group.error_code)
    count = 0
    for topic in group.topics:
        partitions = []
        for partition in topic.partitions:
            partitions.append(
                OffsetFetchResponsePartition(
                    partition_index=partition.partition_index,
                    committed_offset=partition.committed_offset,
                    committed_leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.metadata,
                    error_code=partition.error_code,
                )
            )
            count += 1
            if not count % PIECE:
                yield
        response.topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    return response
