"""FetchSnapshot (key 59, KIP-630): the leader's snapshot for a replica whose log ends before the leader's starts.

The file is sent as it is, in pieces. The replica uses it only after it has parsed it as a whole snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykbroker.controller.node_client import NodeClient
from pykbroker.controller.raft.log_view import OffsetAndEpoch
from pykbroker.controller.raft.quorum import ReplicaKey
from pykbroker.controller.raft_wire import PARTITION, TOPIC
from pykbroker.protocol.error_codes import ErrorCode, answered_error
from pykbroker.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderIdAndEpoch,
    PartitionSnapshot,
    PartitionSnapshotResponse,
    SnapshotId,
    SnapshotIdResponse,
    TopicSnapshot,
    TopicSnapshotResponse,
)

PIECE_SIZE_MAX = 8 << 20
"""Largest number of bytes in one response, even if the request allows more."""

SNAPSHOT_SIZE_MAX = 2 << 30
"""Largest size of a snapshot in bytes, as in Kafka, where a position is in effect an int32."""

ReadSlice = Callable[[OffsetAndEpoch, int, int], "tuple[int, bytes] | None"]
"""Function of (snapshot, position, most bytes) that returns (size of the file, bytes); None without the snapshot."""


class SnapshotUnavailable(Exception):
    """The leader no longer has the snapshot, or no longer leads; the next Fetch shows which.

    Attributes:
        error: error code of the response; NONE if it has other bytes than requested.
        known: leader id and epoch of the response, None if it has none.
    """

    def __init__(self, why: str, error: ErrorCode = ErrorCode.NONE, known: tuple[int, int] | None = None) -> None:
        super().__init__(why)
        self.error = error
        self.known = known


def snapshot_response(
    request: FetchSnapshotRequest, cluster_id: str, leader: tuple[int, int], is_leader: bool, read_slice: ReadSlice
) -> FetchSnapshotResponse:
    """Response to a FetchSnapshot request. `leader` is the (leader id, epoch) that this node knows."""
    if request.cluster_id is not None and request.cluster_id != cluster_id:
        return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
    topic, asked = request.topics[0], request.topics[0].partitions[0]
    piece = PartitionSnapshotResponse(
        index=asked.partition, current_leader=LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
    )
    response = FetchSnapshotResponse(topics=[TopicSnapshotResponse(name=topic.name, partitions=[piece])])
    piece.unaligned_records = b""
    if topic.name != TOPIC or asked.partition != PARTITION:
        piece.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        piece.current_leader = LeaderIdAndEpoch()
    elif asked.current_leader_epoch < leader[1]:
        piece.error_code = ErrorCode.FENCED_LEADER_EPOCH
    elif asked.current_leader_epoch > leader[1]:
        piece.error_code = ErrorCode.UNKNOWN_LEADER_EPOCH
    elif not is_leader:
        piece.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    else:
        _fill_piece(piece, asked, request.max_bytes, read_slice)
    return response


def _fill_piece(
    piece: PartitionSnapshotResponse, asked: PartitionSnapshot, size_max: int, read_slice: ReadSlice
) -> None:
    wanted = asked.snapshot_id
    size = min(max(size_max, 0), PIECE_SIZE_MAX)
    found = read_slice(OffsetAndEpoch(wanted.end_offset, wanted.epoch), max(asked.position, 0), size)
    if found is None:
        piece.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
    elif not 0 <= asked.position < found[0]:
        piece.error_code = ErrorCode.POSITION_OUT_OF_RANGE
    else:
        piece.snapshot_id = SnapshotIdResponse(end_offset=wanted.end_offset, epoch=wanted.epoch)
        piece.size, piece.position, piece.unaligned_records = found[0], asked.position, found[1]


async def download_snapshot(
    client: NodeClient,
    snapshot: OffsetAndEpoch,
    epoch: int,
    replica: ReplicaKey,
    cluster_id: str,
    timeout_ms: int,
    *,
    max_bytes: int,
    on_piece: Callable[[], None],
) -> bytes:
    """Downloads a leader's snapshot file and returns its bytes.

    Args:
        timeout_ms: time limit of each piece.
        max_bytes: largest size of a piece (`controller.quorum.fetch.snapshot.max.bytes`).
        on_piece: called after each piece.

    Raises:
        SnapshotUnavailable: the leader refuses, or sends other bytes than requested.
        NodeUnreachable, ProtocolError: no usable response.
    """
    content = bytearray()
    while True:
        request = _request(snapshot, epoch, replica, cluster_id, position=len(content), max_bytes=max_bytes)
        response = await client.request(request, timeout_ms)
        piece = _only_piece(response)
        if piece is None or piece.error_code != ErrorCode.NONE:
            error = answered_error(response.error_code if piece is None else piece.error_code)
            known = None
            if piece is not None and piece.current_leader.leader_epoch >= 0:
                known = piece.current_leader.leader_id, piece.current_leader.leader_epoch
            why = f"{client.address} does not give snapshot {snapshot}: {error.name}"
            raise SnapshotUnavailable(why, error, known)
        records = piece.unaligned_records or b""
        if piece.position != len(content) or not records or not 0 < piece.size <= SNAPSHOT_SIZE_MAX:
            raise SnapshotUnavailable(
                f"{client.address} answers with other bytes of snapshot {snapshot} than requested"
            )
        content += records
        on_piece()
        if len(content) >= piece.size:
            return bytes(content[: piece.size])


def _only_piece(response: FetchSnapshotResponse) -> Any:
    if response.error_code != ErrorCode.NONE or not response.topics or not response.topics[0].partitions:
        return None
    return response.topics[0].partitions[0]


def _request(
    snapshot: OffsetAndEpoch, epoch: int, replica: ReplicaKey, cluster_id: str, *, position: int, max_bytes: int
) -> FetchSnapshotRequest:
    partition = PartitionSnapshot(
        partition=PARTITION,
        current_leader_epoch=epoch,
        snapshot_id=SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        position=position,
        replica_directory_id=replica.directory_id,
    )
    return FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=replica.node_id,
        max_bytes=max_bytes,
        topics=[TopicSnapshot(name=TOPIC, partitions=[partition])],
    )
