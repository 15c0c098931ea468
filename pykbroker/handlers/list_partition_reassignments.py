"""ListPartitionReassignments (key 46): partitions that are moving (KIP-455).

Version 0. With a single broker no partition moves; the image is searched all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.turns import EachInTurns
from pykbroker.protocol.acl_codes import DESCRIBE
from pykbroker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykbroker.controller.metadata.image import TopicImage
    from pykbroker.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
    from pykbroker.requests.context import NodeContext


async def handle_list_partition_reassignments(
    context: NodeContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Lists the partitions that are moving; null topics mean all. Unknown topics and partitions are left out."""
    context.require_cluster(DESCRIBE)
    image = context.services.metadata.image
    asked: list[tuple[TopicImage, Iterable[int]]] = []
    if request.topics is None:
        asked = [(topic, topic.partitions) for topic in image.topics_by_name.values()]
    else:
        for wanted in request.topics:
            topic = image.topics_by_name.get(wanted.name)
            if topic is not None:
                asked.append((topic, wanted.partition_indexes))
    response = ListPartitionReassignmentsResponse(error_message=None)
    async for topic, numbers in EachInTurns(asked):
        moving = [moved async for number in EachInTurns(numbers) if (moved := _moving(topic, number)) is not None]
        if moving:
            response.topics.append(OngoingTopicReassignment(name=topic.name, partitions=moving))
    return response


def _moving(topic: TopicImage, number: int) -> OngoingPartitionReassignment | None:
    partition = topic.partitions.get(number)
    if partition is None or not (partition.adding_replicas or partition.removing_replicas):
        return None
    return OngoingPartitionReassignment(
        partition_index=number,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
    )
