"""AssignReplicasToDirs (key 73): a broker reports the log directories of its replicas (KIP-858).

Version 0. Brokers with several log directories send it for each replica (`replication.directory_reports`), ours with
one directory when that is full (`replication.full_disk`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.directory_assignments import AssignReplicasToDirs, DirectoryReplicas
from pykbroker.protocol.acl_codes import CLUSTER_ACTION
from pykbroker.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsResponse,
    DirectoryDataResponse,
    PartitionDataResponse,
    TopicDataResponse,
)
from pykbroker.requests.controller_calls import submit_command

if TYPE_CHECKING:
    from pykbroker.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
    from pykbroker.requests.context import ControllerContext


async def handle_assign_replicas_to_dirs(
    context: ControllerContext, request: AssignReplicasToDirsRequest
) -> AssignReplicasToDirsResponse:
    """Records the directories; the response has an error code for each replica."""
    context.require_cluster(CLUSTER_ACTION)
    command = AssignReplicasToDirs(
        request.broker_id,
        request.broker_epoch,
        [
            DirectoryReplicas(
                directory.id,
                [
                    (topic.topic_id, partition.partition_index)
                    for topic in directory.topics
                    for partition in topic.partitions
                ],
            )
            for directory in request.directories
        ],
    )
    errors = [iter(of_directory) for of_directory in await submit_command(context, command)]
    return AssignReplicasToDirsResponse(
        directories=[
            DirectoryDataResponse(
                id=directory.id,
                topics=[
                    TopicDataResponse(
                        topic_id=topic.topic_id,
                        partitions=[
                            PartitionDataResponse(
                                partition_index=partition.partition_index, error_code=next(of_directory)
                            )
                            for partition in topic.partitions
                        ],
                    )
                    for topic in directory.topics
                ],
            )
            for directory, of_directory in zip(request.directories, errors, strict=True)
        ]
    )
