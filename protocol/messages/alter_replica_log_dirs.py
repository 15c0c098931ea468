"""AlterReplicaLogDirs (key 34): move replicas between log directories."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, int32, string


class AlterReplicaLogDirTopic(Message):
    name: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class AlterReplicaLogDir(Message):
    path: str = string("0+")
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic, "0+")


class AlterReplicaLogDirsRequest(Message, versions="1-2", flexible="2+", key=34):
    """AlterReplicaLogDirs request (API key 34): move replicas between log directories."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir, "0+")


class AlterReplicaLogDirPartitionResult(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class AlterReplicaLogDirTopicResult(Message):
    topic_name: str = string("0+")
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult, "0+")


class AlterReplicaLogDirsResponse(Message, versions="1-2", flexible="2+", key=34):
    """AlterReplicaLogDirs response (API key 34)."""

    throttle_time_ms: int = int32("0+")
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult, "0+")
