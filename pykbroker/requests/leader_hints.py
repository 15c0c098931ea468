"""Leaders named in errors of Produce, Fetch, ShareFetch and ShareAcknowledge, and their addresses (KIP-951).

A client that came to the wrong broker goes to the leader without another Metadata request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker.replication.partition import Partition
    from pykbroker.requests.context import BrokerContext

HINTED_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""Errors of a partition with which its leader is named."""


class NodeEndpoint(Protocol):
    """Address of a broker in a response; each API has a class of its own."""

    node_id: int


Endpoint = TypeVar("Endpoint", bound=NodeEndpoint)


def leader_of(
    context: BrokerContext, topic_id: bytes, partition_index: int, partition: Partition | None
) -> tuple[int, int]:
    """Leader and leader epoch of a partition, -1 each if unknown; `partition` is None if this broker has no replica."""
    if partition is not None:
        return partition.leader_id, partition.leader_epoch
    topic = context.services.metadata.topic_by_id(topic_id)
    image = None if topic is None else topic.partitions.get(partition_index)
    return (-1, -1) if image is None else (image.leader, image.leader_epoch)


def add_endpoint(
    context: BrokerContext, endpoints: list[Endpoint], leader_id: int, make: Callable[..., Endpoint]
) -> None:
    """Adds the address of a leader, by this client's listener, unless it is there already or unknown."""
    endpoint = context.services.metadata.endpoint(leader_id, context.connection)
    if endpoint is not None and all(known.node_id != leader_id for known in endpoints):
        endpoints.append(make(node_id=leader_id, host=endpoint.host, port=endpoint.port, rack=endpoint.rack))
