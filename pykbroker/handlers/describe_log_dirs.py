"""DescribeLogDirs (key 35): size and placement of logs on disk.

Versions 1-5. v2 flexible; v3 top-level error; v4 total and usable bytes of the volume (KIP-827); v5 cordoned
(KIP-1066; a directory here never is).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pykbroker.protocol.acl_codes import DESCRIBE
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from pykbroker.requests.turn import Turn

if TYPE_CHECKING:
    from pykbroker.logstore.log_directory import LogDirectory
    from pykbroker.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
    from pykbroker.requests.context import BrokerContext


async def handle_describe_log_dirs(context: BrokerContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Describes the one log directory and the requested logs in it; null means all logs (P-154)."""
    if not context.authorize_cluster(DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted: dict[str, set[int]] | None = None
    if request.topics is not None:
        wanted = {}
        for asked in request.topics:
            wanted.setdefault(asked.topic, set()).update(asked.partitions)
    topics: dict[str, DescribeLogDirsTopic] = {}
    partitions = context.services.partitions
    turn = Turn()
    for partition in list(partitions.all()):
        await turn.end_if_over()
        if partitions.get(partition.topic, partition.partition) is not partition:
            # Deleted meanwhile.
            continue
        if wanted is not None and partition.partition not in wanted.get(partition.topic, ()):
            continue
        topic = topics.get(partition.topic)
        if topic is None:
            topic = topics[partition.topic] = DescribeLogDirsTopic(name=partition.topic)
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=partition.partition,
                partition_size=partition.log.size_bytes,
                offset_lag=max(partition.high_watermark - partition.log.log_end_offset, 0),
                is_future_key=False,
            )
        )
    directory = context.services.log_directory
    return DescribeLogDirsResponse(results=[_result(directory, list(topics.values()))])


def _result(directory: LogDirectory, topics: list[DescribeLogDirsTopic]) -> DescribeLogDirsResult:
    total_bytes, usable_bytes = directory.filesystem.space(directory.path)
    return DescribeLogDirsResult(
        log_dir=os.path.abspath(directory.path),
        topics=topics,
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
