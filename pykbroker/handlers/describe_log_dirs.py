"""DescribeLogDirs (key 35): size and placement of logs on disk.

Versions 1-5. v2 flexible; v3 top-level error; v4 total and usable bytes of the volume (KIP-827); v5 cordoned
directories (`cordoned.log.dirs`, KIP-1066, P-370).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pykbroker.controller.metadata.metadata_versions import CORDONED_LOG_DIRS
from pykbroker.controller.turns import Turn
from pykbroker.errors import KafkaError
from pykbroker.logstore.errors import StorageError
from pykbroker.logstore.log_directory import LogDirectory
from pykbroker.protocol.acl_codes import DESCRIBE
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykbroker.logstore.partition_log import PartitionLog
    from pykbroker.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
    from pykbroker.replication.partition import Partition
    from pykbroker.requests.context import BrokerContext


async def handle_describe_log_dirs(context: BrokerContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Describes the log directories and the requested logs in them; null means all logs (P-154, P-277)."""
    if not context.authorize_cluster(DESCRIBE):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted: dict[str, set[int]] | None = None
    if request.topics is not None:
        wanted = {}
        for asked in request.topics:
            wanted.setdefault(asked.topic, set()).update(asked.partitions)
    found: dict[str, dict[str, DescribeLogDirsTopic]] = {}
    partitions = context.services.partitions
    turn = Turn()
    for partition in list(partitions.all()):
        await turn.end_if_over()
        if partitions.get(partition.topic, partition.partition) is not partition:
            # Deleted meanwhile.
            continue
        if wanted is not None and partition.partition not in wanted.get(partition.topic, ()):
            continue
        _add(found, partition, partition.log, max(partition.high_watermark - partition.log.log_end_offset, 0))
        future = partition.future
        if future is not None:
            # The copy of a replica that moves (P-300).
            lag = partition.log.log_end_offset - future.log_end_offset
            _add(found, partition, future, lag, is_future=True)
    log_directory = context.services.log_directory
    if isinstance(log_directory, LogDirectory):
        return DescribeLogDirsResponse(results=[_result(context, log_directory, found)])
    results = [_result(context, directory, found) for directory in log_directory.online.values()]
    results += [_failed(path) for path in (*log_directory.offline.values(), *log_directory.unopened)]
    return DescribeLogDirsResponse(results=_in_order(results, context.services.config.log.dirs))


def _in_order(results: list[DescribeLogDirsResult], paths: Sequence[str]) -> list[DescribeLogDirsResult]:
    """The results in the order of `log.dirs`, as in Kafka, where a failed directory keeps its place."""
    positions = {os.path.abspath(path): position for position, path in enumerate(paths)}
    return sorted(results, key=lambda result: positions.get(result.log_dir, len(positions)))


def _add(
    found: dict[str, dict[str, DescribeLogDirsTopic]],
    partition: Partition,
    log: PartitionLog,
    lag: int,
    *,
    is_future: bool = False,
) -> None:
    topics = found.setdefault(log.path.rpartition("/")[0], {})
    topic = topics.get(partition.topic)
    if topic is None:
        topic = topics[partition.topic] = DescribeLogDirsTopic(name=partition.topic)
    topic.partitions.append(
        DescribeLogDirsPartition(
            partition_index=partition.partition,
            partition_size=log.size_bytes,
            offset_lag=lag,
            is_future_key=is_future,
        )
    )


def _failed(path: str, error_code: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(error_code=error_code, log_dir=os.path.abspath(path))


def _result(
    context: BrokerContext, directory: LogDirectory, found: dict[str, dict[str, DescribeLogDirsTopic]]
) -> DescribeLogDirsResult:
    try:
        total_bytes, usable_bytes = directory.filesystem.space(directory.path)
    except StorageError:
        # As in Kafka, a directory that cannot be read does not hide the others. It is not offline, and Java's
        # IOException has no error code of its own.
        return _failed(directory.path, ErrorCode.UNKNOWN_SERVER_ERROR)
    metadata = context.services.metadata
    return DescribeLogDirsResult(
        log_dir=os.path.abspath(directory.path),
        topics=list(found.get(directory.path, {}).values()),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        is_cordoned=metadata.image.metadata_version >= CORDONED_LOG_DIRS and metadata.is_cordoned(directory.path),
    )
