"""TopicEncoder: topics as they stand in one Metadata response, from what is kept in encoded form or made now.

A response for all topics names thousands of partitions that differ in little but their number. So there is no object
for each: one is made and encoded by the codec for every different leader, epoch and list of replicas, and its bytes
serve the others with another partition index. That index lies behind the error code in every version.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import trio

from pykbroker.metadata.brokers_view import BrokersView
from pykbroker.metadata.metadata_cache import INTERNAL_TOPICS
from pykbroker.protocol.acl_codes import TOPIC
from pykbroker.protocol.codec import encode_element
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from pykbroker.requests.turn import Turn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykbroker.controller.metadata.image import PartitionImage, TopicImage
    from pykbroker.requests.context import RequestContext

NO_LEADER: Final = -1
LISTENER_NOT_FOUND_VERSION: Final = 6
TOPIC_OPERATIONS_VERSION: Final = 8

PARTITIONS_PER_LOOK: Final = 200
"""Partitions encoded, at half a microsecond each, before the clock is looked at."""
TOPICS_PER_LOOK: Final = 50
"""Topics answered before the clock is looked at."""

_INT32: Final = Struct(">i")
_INDEX_BEGINS, _INDEX_ENDS = 2, 6


class TopicEncoder:
    """Encodes topics of one image, the newest when it is made, for the client of one request."""

    __slots__ = (
        "_context",
        "_has_operations",
        "_kept",
        "_partitions",
        "_since_look",
        "_turn",
        "_version",
        "_view",
        "image",
    )

    def __init__(self, context: RequestContext, *, with_operations: bool) -> None:
        metadata = context.services.metadata
        self.image = metadata.image
        self._context = context
        self._version = context.api_version
        self._has_operations = with_operations and context.api_version >= TOPIC_OPERATIONS_VERSION
        self._view = BrokersView(self.image, metadata, context.connection)
        self._kept = metadata.encoded_topics.for_client(
            self.image, context.listener_name, context.api_version, trio.current_time()
        )
        # By all of a partition that its bytes depend on, without its index.
        self._partitions: dict[Any, tuple[bytes, bytes]] = {}
        self._turn = Turn()
        self._since_look = 0

    async def encoded(self, topics: Iterable[TopicImage]) -> list[Any]:
        """The topics' bytes, with what the client may do to each where the request wants that.

        `topics` may do work for each, such as asking the authorizer: it is done in the turns of the request.
        """
        kept, found = self._kept, []
        for topic in topics:
            encoded = kept.get(topic)
            if encoded is None:
                encoded = await self._encode(topic)
                kept.put(topic, encoded, self.image)
            if self._has_operations:
                encoded = self._with_operations(encoded, self._context.authorized_operations(TOPIC, topic.name))
            found.append(encoded)
            self._since_look += 1
            if self._since_look >= TOPICS_PER_LOOK:
                self._since_look = 0
                await self._turn.end_if_over()
        return found

    def _with_operations(self, encoded: bytes, operations: int) -> bytes:
        """The topic with its last field replaced; in flexible versions the count of tagged fields, none, is behind."""
        is_flexible = self._version in MetadataResponse.FLEXIBLE_VERSIONS
        end = len(encoded) - (1 if is_flexible else 0)
        return encoded[: end - _INT32.size] + _INT32.pack(operations) + encoded[end:]

    async def _encode(self, topic: TopicImage) -> bytes:
        partitions: list[bytes] = []
        heads_and_tails = self._partitions
        pack = _INT32.pack
        for partition in topic.partitions.values():
            key = partition.replicas, partition.isr, partition.leader, partition.leader_epoch, partition.directories
            ends = heads_and_tails.get(key)
            if ends is None:
                encoded = encode_element(MetadataResponse, self._described(partition), self._version)
                ends = heads_and_tails[key] = encoded[:_INDEX_BEGINS], encoded[_INDEX_ENDS:]
            partitions.append(ends[0] + pack(partition.partition) + ends[1])
            self._since_look += 1
            if self._since_look >= PARTITIONS_PER_LOOK:
                self._since_look = 0
                await self._turn.end_if_over()
        described = MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=partitions,  # type: ignore[arg-type]  # elements may be given as their bytes
        )
        return encode_element(MetadataResponse, described, self._version)

    def _described(self, partition: PartitionImage) -> MetadataResponsePartition:
        """P-26: without a reachable leader the replica lists are still filled; v0 leaves out the dead ones."""
        view = self._view
        response = MetadataResponsePartition(
            partition_index=partition.partition,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            offline_replicas=view.offline_replicas(partition),
        )
        if self._version == 0:
            response.replica_nodes = [replica for replica in partition.replicas if view.is_alive(replica)]
            response.isr_nodes = [replica for replica in partition.isr if view.is_alive(replica)]
            if len(response.replica_nodes) < len(partition.replicas) or len(response.isr_nodes) < len(partition.isr):
                response.error_code = ErrorCode.REPLICA_NOT_AVAILABLE
        error = view.leader_error(partition.leader)
        if error is not ErrorCode.NONE:
            response.leader_id = NO_LEADER
            response.error_code = (
                error if self._version >= LISTENER_NOT_FOUND_VERSION else ErrorCode.LEADER_NOT_AVAILABLE
            )
        return response
