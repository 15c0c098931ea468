"""AlterReplicaLogDirs (key 34): move replicas between log directories of one broker (KIP-113).

Versions 1-2. v2 flexible. A broker here has one log directory, so a move either changes nothing or is impossible.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pykbroker.protocol.acl_codes import ALTER
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from pykbroker.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
    from pykbroker.requests.context import BrokerContext, BrokerServices


async def handle_alter_replica_log_dirs(
    context: BrokerContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Checks each partition independently; for one that is named twice the last directory counts."""
    paths: dict[str, dict[int, str]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for number in topic.partitions:
                paths.setdefault(topic.name, {})[number] = directory.path
    is_authorized = context.authorize_cluster(ALTER)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(
                        partition_index=number,
                        error_code=_move(context.services, name, number, path)
                        if is_authorized
                        else ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                    )
                    for number, path in partitions.items()
                ],
            )
            for name, partitions in paths.items()
        ]
    )


# Characters of a future replica's directory name in Kafka, besides topic and partition: ".", 32 digits, "-future", "-".
_FUTURE_NAME_LENGTH = 41
_DIRECTORY_NAME_LENGTH_MAX = 255


def _move(services: BrokerServices, topic: str, number: int, path: str) -> ErrorCode:
    if len(topic) + len(str(number)) + _FUTURE_NAME_LENGTH > _DIRECTORY_NAME_LENGTH_MAX:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    # The path is compared as text: clients take its spelling from DescribeLogDirs.
    if path != os.path.abspath(services.log_directory.path):
        return ErrorCode.LOG_DIR_NOT_FOUND
    if services.partitions.is_offline(topic, number):
        return ErrorCode.KAFKA_STORAGE_ERROR
    if services.partitions.get(topic, number) is not None:
        return ErrorCode.NONE
    known = services.metadata.image.topics_by_name.get(topic)
    if known is None or number not in known.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # Other APIs return NOT_LEADER_OR_FOLLOWER here; this one keeps its older code.
    return ErrorCode.REPLICA_NOT_AVAILABLE
