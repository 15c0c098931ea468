"""TopicEncoder: encoded topics of one Metadata response, from the cache or encoded now.

A response for all topics has thousands of partitions that differ in little but their index. So there is no object for
each: the codec encodes one for every combination of leader, epoch and replica lists, and its bytes are used for the
others with another partition index. That index follows the error code in every version. Topics with few partitions
often have equal ones: these are joined once (`Shape`). The bytes around a topic's name, id and partitions are encoded
once for all topics whose names have the same length.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import trio

from pykbroker.controller.metadata.image import NO_LEADER
from pykbroker.controller.turns import Turn
from pykbroker.coordination.partitioning import INTERNAL_TOPICS
from pykbroker.metadata.brokers_view import BrokersView
from pykbroker.protocol.acl_codes import TOPIC
from pykbroker.protocol.codec import encode_element
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykbroker.controller.metadata.image import PartitionImage, TopicImage
    from pykbroker.metadata.encoded_topics import Shape
    from pykbroker.requests.context import NodeContext

LISTENER_NOT_FOUND_VERSION: Final = 6
TOPIC_OPERATIONS_VERSION: Final = 8
TOPIC_ID_VERSION: Final = 10

PARTITIONS_PER_LOOK: Final = 200
"""Number of partitions, at half a microsecond each, that are encoded between two checks of the clock."""
TOPICS_PER_LOOK: Final = 50
"""Number of topics that are encoded between two checks of the clock."""
SHAPED_PARTITIONS_MAX: Final = 10
"""Largest number of partitions of a topic with a `Shape`: larger topics seldom have equal partitions."""

_INT32: Final = Struct(">i")
_UUID_BYTES: Final = 16
_INDEX_BEGINS, _INDEX_ENDS = 2, 6


class TopicEncoder:
    """Encodes topics for the client of one request, from the image that is the newest at its creation."""

    __slots__ = (
        "_blocks",
        "_context",
        "_frames",
        "_has_ids",
        "_has_operations",
        "_kept",
        "_partitions",
        "_shapes",
        "_since_look",
        "_turn",
        "_version",
        "_view",
        "image",
    )

    def __init__(self, context: NodeContext, *, with_operations: bool) -> None:
        metadata = context.services.metadata
        self.image = metadata.image
        self._context = context
        self._version = context.api_version
        self._has_operations = with_operations and context.api_version >= TOPIC_OPERATIONS_VERSION
        self._view = BrokersView(self.image, metadata, context.connection)
        self._has_ids = context.api_version >= TOPIC_ID_VERSION
        self._shapes = metadata.encoded_topics.shapes
        self._kept = metadata.encoded_topics.for_client(
            self.image, context.connection.listener_name, context.api_version, trio.current_time()
        )
        # Bytes before and after the index of a partition, by all other fields that the bytes depend on.
        self._partitions: dict[Any, tuple[bytes, bytes]] = {}
        # All partitions of the topics that have a shape.
        self._blocks: dict[Shape, bytes] = {}
        # (length of the name, number of partitions, is_internal) -> bytes of a topic before its name, after its id and
        # after its partitions.
        self._frames: dict[tuple[int, int, bool], tuple[bytes, bytes, bytes]] = {}
        self._turn = Turn()
        self._since_look = 0

    async def encoded(self, topics: Iterable[TopicImage]) -> list[Any]:
        """The topics' bytes, with the client's authorized operations on each if the request includes them.

        `topics` may do work for each topic, such as a call of the authorizer: it runs in the turns of the request.
        """
        kept, found = self._kept, []
        for topic in topics:
            encoded = kept.get(topic)
            if encoded is None:
                if len(topic.partitions) <= SHAPED_PARTITIONS_MAX:
                    block = self._block(self._shapes.of(topic))
                else:
                    block = await self._long_block(topic)
                encoded = self._framed(topic, block)
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
        """The topic with its last field replaced; in flexible versions the count of tagged fields, 0, follows it."""
        is_flexible = self._version in MetadataResponse.FLEXIBLE_VERSIONS
        end = len(encoded) - (1 if is_flexible else 0)
        return encoded[: end - _INT32.size] + _INT32.pack(operations) + encoded[end:]

    def _block(self, shape: Shape) -> bytes:
        """The partitions of the topics of a shape."""
        block = self._blocks.get(shape)
        if block is None:
            block = self._blocks[shape] = b"".join(map(self._partition, shape.partitions))
        return block

    async def _long_block(self, topic: TopicImage) -> bytes:
        """The partitions of a topic, in turns."""
        partitions: list[bytes] = []
        for partition in topic.partitions.values():
            partitions.append(self._partition(partition))
            self._since_look += 1
            if self._since_look >= PARTITIONS_PER_LOOK:
                self._since_look = 0
                await self._turn.end_if_over()
        return b"".join(partitions)

    def _partition(self, partition: PartitionImage) -> bytes:
        key = partition.replicas, partition.isr, partition.leader, partition.leader_epoch, partition.directories
        ends = self._partitions.get(key)
        if ends is None:
            encoded = encode_element(MetadataResponse, self._described(partition), self._version)
            ends = self._partitions[key] = encoded[:_INDEX_BEGINS], encoded[_INDEX_ENDS:]
        return ends[0] + _INT32.pack(partition.partition) + ends[1]

    def _framed(self, topic: TopicImage, block: bytes) -> bytes:
        """The topic with its partitions."""
        name = topic.name.encode()
        key = len(name), len(topic.partitions), topic.name in INTERNAL_TOPICS
        frame = self._frames.get(key)
        if frame is None:
            frame = self._frames[key] = self._frame(*key)
        before, between, behind = frame
        if self._has_ids:
            return b"".join((before, name, topic.topic_id, between, block, behind))
        return b"".join((before, name, between, block, behind))

    def _frame(self, name_length: int, count: int, is_internal: bool) -> tuple[bytes, bytes, bytes]:
        def encoded(letter: str) -> bytes:
            described = MetadataResponseTopic(
                name=letter * name_length,
                is_internal=is_internal,
                partitions=[b""] * count,  # type: ignore[list-item]  # elements may be given as their bytes
            )
            return encode_element(MetadataResponse, described, self._version)

        bare = encoded("x")
        # The name begins where two differ.
        begins = next(number for number, both in enumerate(zip(bare, encoded("y"), strict=True)) if both[0] != both[1])
        names_end = begins + name_length + (_UUID_BYTES if self._has_ids else 0)
        tail = self._tail_bytes()
        return bare[:begins], bare[names_end : len(bare) - tail], bare[len(bare) - tail :]

    def _tail_bytes(self) -> int:
        """Number of bytes after the partitions: operations, and the count of tagged fields."""
        has_operations = self._version >= TOPIC_OPERATIONS_VERSION
        is_flexible = self._version in MetadataResponse.FLEXIBLE_VERSIONS
        return (_INT32.size if has_operations else 0) + (1 if is_flexible else 0)

    def _described(self, partition: PartitionImage) -> MetadataResponsePartition:
        """A partition of the response; without a reachable leader it still has its replicas, in v0 live ones (P-26)."""
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
            response.replica_nodes = [replica for replica in partition.replicas if view.is_reachable(replica)]
            response.isr_nodes = [replica for replica in partition.isr if view.is_reachable(replica)]
            if len(response.replica_nodes) < len(partition.replicas) or len(response.isr_nodes) < len(partition.isr):
                response.error_code = ErrorCode.REPLICA_NOT_AVAILABLE
        error = view.leader_error(partition.leader)
        if error is not ErrorCode.NONE:
            response.leader_id = NO_LEADER
            response.error_code = (
                error if self._version >= LISTENER_NOT_FOUND_VERSION else ErrorCode.LEADER_NOT_AVAILABLE
            )
        return response
