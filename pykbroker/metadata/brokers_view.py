"""BrokersView: leaders and offline replicas as clients of one listener see them, under one image of the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.broker_elections import has_its_directory
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.controller.metadata.image import ClusterImage, PartitionImage
    from pykbroker.metadata.metadata_cache import MetadataCache
    from pykbroker.security.connection_info import ConnectionInfo


class BrokersView:
    """Leaders and offline replicas under one image, for one request.

    Thousands of partitions have few different leaders and replica lists, so each of them is computed once and kept.
    """

    __slots__ = ("_client", "_leader_errors", "_metadata", "_offline_replicas", "_reachable", "image")

    def __init__(self, image: ClusterImage, metadata: MetadataCache, client: ConnectionInfo) -> None:
        self.image = image
        self._metadata = metadata
        self._client = client
        self._leader_errors: dict[int, ErrorCode] = {}
        self._reachable: dict[int, bool] = {}
        self._offline_replicas: dict[tuple[tuple[int, ...], tuple[bytes, ...]], list[int]] = {}

    def leader_error(self, leader: int) -> ErrorCode:
        """The error of a partition with this leader; NONE if the client can reach it (P-26).

        LISTENER_NOT_FOUND for a registered broker that is fenced or has no listener of the client's name,
        LEADER_NOT_AVAILABLE without such a broker.
        """
        error = self._leader_errors.get(leader)
        if error is None:
            address = self._metadata.endpoint(leader, self._client, self.image)
            if address is not None and not address.is_fenced:
                error = ErrorCode.NONE
            elif leader in self.image.brokers:
                error = ErrorCode.LISTENER_NOT_FOUND
            else:
                error = ErrorCode.LEADER_NOT_AVAILABLE
            self._leader_errors[leader] = error
        return error

    def is_reachable(self, broker_id: int) -> bool:
        """True for a broker that is registered, not fenced, and has a listener of the client's name."""
        found = self._reachable.get(broker_id)
        if found is None:
            address = self._metadata.endpoint(broker_id, self._client, self.image)
            found = self._reachable[broker_id] = address is not None and not address.is_fenced
        return found

    def offline_replicas(self, partition: PartitionImage) -> list[int]:
        """Replicas whose broker the client cannot reach, or has reported the log directory as failed (KIP-858; P-27).

        Partitions with the same replicas share the list: do not change it.
        """
        key = partition.replicas, partition.directories
        offline = self._offline_replicas.get(key)
        if offline is None:
            offline = self._offline_replicas[key] = [
                replica
                for replica in partition.replicas
                if not self.is_reachable(replica) or not has_its_directory(self.image, partition, replica)
            ]
        return offline
