"""FetchSnapshot (key 59): read a snapshot of the metadata log."""

from __future__ import annotations

from typing import Any

from pykbroker.protocol.fields import Message, array, int16, int32, int64, records, string, struct, uuid
from pykbroker.protocol.messages.begin_quorum_epoch import NodeEndpoint


class SnapshotId(Message):
    end_offset: int = int64("0+")
    epoch: int = int32("0+")


class PartitionSnapshot(Message):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("0+")
    snapshot_id: SnapshotId = struct(SnapshotId, "0+")
    position: int = int64("0+")
    replica_directory_id: bytes = uuid("1+", tag=0, tagged="1+", ignorable=True)


class TopicSnapshot(Message):
    name: str = string("0+")
    partitions: list[PartitionSnapshot] = array(PartitionSnapshot, "0+")


class FetchSnapshotRequest(Message, versions="0-1", flexible="0+", key=59):
    """FetchSnapshot request (API key 59): read a snapshot of the metadata log."""

    cluster_id: str | None = string("0+", default=None, nullable="0+", tag=0, tagged="0+")
    replica_id: int = int32("0+", default=-1)
    max_bytes: int = int32("0+", default=2147483647)
    topics: list[TopicSnapshot] = array(TopicSnapshot, "0+")


class SnapshotIdResponse(Message):
    end_offset: int = int64("0+")
    epoch: int = int32("0+")


class LeaderIdAndEpoch(Message):
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class PartitionSnapshotResponse(Message):
    index: int = int32("0+")
    error_code: int = int16("0+")
    snapshot_id: SnapshotIdResponse = struct(SnapshotIdResponse, "0+")
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "0+", tag=0, tagged="0+")
    size: int = int64("0+")
    position: int = int64("0+")
    unaligned_records: Any = records("0+")


class TopicSnapshotResponse(Message):
    name: str = string("0+")
    partitions: list[PartitionSnapshotResponse] = array(PartitionSnapshotResponse, "0+")


class FetchSnapshotResponse(Message, versions="0-1", flexible="0+", key=59):
    """FetchSnapshot response (API key 59)."""

    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    topics: list[TopicSnapshotResponse] = array(TopicSnapshotResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0, tagged="1+")
