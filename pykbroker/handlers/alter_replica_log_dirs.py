"""AlterReplicaLogDirs (key 34): move replicas between log directories of one broker (KIP-113).

Versions 1-2. v2 flexible. The response says that the moves have begun (P-300); DescribeLogDirs shows them while they
last. A move ends early if the directory is the one where the replica is; a cordoned directory is refused (P-370). The
directory of a replica that is not here yet is noted, and used when the replica comes (P-278), so
`kafka-reassign-partitions` can name directories for new ones.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from pykbroker.controller.turns import EachInTurns
from pykbroker.logstore.errors import StorageError
from pykbroker.logstore.log_directory import LogDirectory
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

log = logging.getLogger(__name__)


async def handle_alter_replica_log_dirs(
    context: BrokerContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Checks each partition independently; for one that is named twice the last directory counts.

    Raises:
        KafkaError: CLUSTER_AUTHORIZATION_FAILED. The response has each partition as often as it is named.
    """
    context.require_cluster(ALTER)
    paths: dict[str, dict[int, str]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for number in topic.partitions:
                paths.setdefault(topic.name, {})[number] = directory.path
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(
                        partition_index=number,
                        error_code=_move(context.services, name, number, path),
                    )
                    async for number, path in EachInTurns(partitions.items())
                ],
            )
            async for name, partitions in EachInTurns(paths.items())
        ]
    )


# Characters of a future replica's directory name in Kafka, besides topic and partition: ".", 32 digits, "-future", "-".
_FUTURE_NAME_LENGTH = 41
_DIRECTORY_NAME_LENGTH_MAX = 255


def _move(services: BrokerServices, topic: str, number: int, path: str) -> ErrorCode:
    if len(topic) + len(str(number)) + _FUTURE_NAME_LENGTH > _DIRECTORY_NAME_LENGTH_MAX:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    # The path is compared as text: clients take its spelling from DescribeLogDirs.
    logs = services.log_directory
    directory_id = b""
    if isinstance(logs, LogDirectory):
        if path != os.path.abspath(logs.path):
            return ErrorCode.LOG_DIR_NOT_FOUND
    else:
        ids = {os.path.abspath(directory.path): known for known, directory in logs.online.items()}
        if path not in ids:
            is_offline = path in map(os.path.abspath, (*logs.offline.values(), *logs.unopened))
            return ErrorCode.KAFKA_STORAGE_ERROR if is_offline else ErrorCode.LOG_DIR_NOT_FOUND
        directory_id = ids[path]
    if services.metadata.is_cordoned(path):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if services.partitions.is_offline(topic, number):
        return ErrorCode.KAFKA_STORAGE_ERROR
    partition = services.partitions.get(topic, number)
    if partition is not None:
        if services.directory_moves is not None:
            try:
                services.directory_moves.begin(partition, directory_id)
            except StorageError as error:
                log.warning("%s cannot be moved to %s: %s", partition, path, error)
                return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE
    if not isinstance(logs, LogDirectory):
        logs.prefer(topic, number, directory_id)
    known = services.metadata.image.topics_by_name.get(topic)
    if known is None or number not in known.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # Other APIs return NOT_LEADER_OR_FOLLOWER here; this one keeps its older code.
    return ErrorCode.REPLICA_NOT_AVAILABLE
