"""Modules and codecs that a broker loads at its start, for a process that loads them once and is forked into several.

A single broker imports late and little, because only its first answer counts. A module that is imported here is not
imported by each node, whose imports take half of its start, and codecs of messages, half a millisecond each, are not
compiled there. A module that is missing here costs time and nothing else: `python -X importtime -m pykbroker start
--nodes 3` shows the modules that a node still imports on lines that begin with "node 1".
"""

from __future__ import annotations

import importlib

from pykbroker.named_tuple import NamedTuple


class CodecStep(NamedTuple):
    """The codec of one version of a message in `module`, which a broker reads or writes."""

    module: str
    message: str
    version: int
    is_read: bool = False


MODULES = (
    "pykbroker.cli.start.node_process",
    "pykbroker.cli.start.run",
    "pykbroker.cli.start.config",
    "pykbroker.config.environment",
    "pykbroker.config.properties_file",
    "encodings.ascii",
    "encodings.idna",
    "trio",
    "pykbroker.node.broker",
    "pykbroker.metadata.broker_clients",
    "pykbroker.controller.active_controller",
    "pykbroker.controller.metadata.broker_elections",
    "pykbroker.controller.metadata.image_builder",
    "pykbroker.controller.metadata.image_delta",
    "pykbroker.controller.metadata.periodic_elections",
    "pykbroker.controller.metadata.topic_names",
    "pykbroker.controller.metadata.topics",
    "pykbroker.controller.peers",
    "pykbroker.controller.fetch_snapshot",
    "pykbroker.node.controller_registration",
    "pykbroker.node.controller_server",
    "pykbroker.handlers.api_versions",
    "pykbroker.handlers.broker_heartbeat",
    "pykbroker.handlers.broker_registration",
    "pykbroker.handlers.metadata",
    "pykbroker.handlers.vote",
    "pykbroker.network.listener",
    "pykbroker.cli.log_output",
    "pykbroker.protocol.messages.broker_heartbeat",
    "pykbroker.protocol.messages.broker_registration",
    "pykbroker.protocol.messages.controller_registration",
    "pykbroker.protocol.messages.list_offsets",
    "pykbroker.replication.fetcher",
    "pykbroker.replication.alter_partition_manager",
    "pykbroker.replication.replication_tasks",
)

_RECORDS = "pykbroker.protocol.log_messages."
CODECS = (
    CodecStep(_RECORDS + "metadata_records", "BeginTransactionRecord", 0),
    CodecStep(_RECORDS + "metadata_records", "EndTransactionRecord", 0),
    CodecStep(_RECORDS + "metadata_records", "FeatureLevelRecord", 0),
    CodecStep(_RECORDS + "metadata_records", "ConfigRecord", 0),
    CodecStep(_RECORDS + "metadata_records", "RegisterBrokerRecord", 4),
    CodecStep(_RECORDS + "raft_records", "LeaderChangeMessage", 0),
    *(
        CodecStep("pykbroker.protocol.messages.api_versions", f"ApiVersions{kind}", version, kind == "Request")
        for version in (0, 3, 4)
        for kind in ("Request", "Response")
    ),
)
"""Codecs of a first start, and of the first request of clients, as the client libraries in Python send it."""

USED_BY_CLIENTS = (
    "encodings.utf_16_be",
    "pykbroker.cli.start.initial_topics",
    "pykbroker.config.descriptions",
    "pykbroker.coordination.loader",
    "pykbroker.coordination.partition_writer",
    "pykbroker.coordination.shard",
    "pykbroker.groups.classic.group",
    "pykbroker.groups.in_flight",
    "pykbroker.groups.classic.joins",
    "pykbroker.groups.classic.leaves",
    "pykbroker.groups.classic.members",
    "pykbroker.groups.offset_log",
    "pykbroker.groups.member_requests",
    "pykbroker.groups.offset_commit",
    "pykbroker.groups.offset_fetch",
    "pykbroker.groups.offsets",
    "pykbroker.groups.result",
    "pykbroker.groups.pending_offsets",
    "pykbroker.groups.shard",
    "pykbroker.groups.classic.subscription",
    "pykbroker.groups.classic.syncs",
    "pykbroker.handlers.create_topics",
    "pykbroker.handlers.describe_groups",
    "pykbroker.handlers.fetch",
    "pykbroker.handlers.find_coordinator",
    "pykbroker.handlers.heartbeat",
    "pykbroker.handlers.join_group",
    "pykbroker.handlers.leave_group",
    "pykbroker.handlers.list_offsets",
    "pykbroker.handlers.offset_commit",
    "pykbroker.handlers.offset_fetch",
    "pykbroker.handlers.produce",
    "pykbroker.handlers.sync_group",
    "pykbroker.security.client_address",
    "pykbroker.protocol.log_messages.consumer_offsets",
    "pykbroker.protocol.log_messages.consumer_protocol",
)
"""Further modules that are imported for topics, records and consumer groups."""

_VERSIONS_USED_BY_CLIENTS = {
    "metadata": (5, 12, 13),
    "create_topics": (3, 4, 7),
    "init_producer_id": (4,),
    "produce": (7, 9, 10),
    "find_coordinator": (1, 2, 6),
    "join_group": (5, 7),
    "sync_group": (3, 5),
    "heartbeat": (3, 4),
    "offset_fetch": (3, 8, 9),
    "list_offsets": (3, 7, 11),
    "fetch": (11, 12, 16),
    "offset_commit": (3, 8, 9),
    "leave_group": (1, 5),
}
"""Versions that aiokafka 0.14, confluent-kafka 2.16 and kafka-python 3.0 use; fewer than three if some agree."""

CODECS_USED_BY_CLIENTS = (
    *(
        CodecStep(
            f"pykbroker.protocol.messages.{api}", f"{api.title().replace('_', '')}{kind}", version, kind == "Request"
        )
        for api, versions in _VERSIONS_USED_BY_CLIENTS.items()
        for version in versions
        for kind in ("Request", "Response")
    ),
    CodecStep(_RECORDS + "metadata_records", "TopicRecord", 0),
    CodecStep(_RECORDS + "metadata_records", "PartitionRecord", 2),
    CodecStep(_RECORDS + "metadata_records", "ProducerIdsRecord", 0),
    CodecStep(_RECORDS + "consumer_offsets", "GroupMetadataKey", 0),
    CodecStep(_RECORDS + "consumer_offsets", "GroupMetadataValue", 3),
    CodecStep(_RECORDS + "consumer_offsets", "OffsetCommitKey", 0),
    CodecStep(_RECORDS + "consumer_offsets", "OffsetCommitValue", 4),
    CodecStep(_RECORDS + "consumer_protocol", "ConsumerProtocolSubscription", 0, is_read=True),
)
"""Codecs of the messages with which these clients create topics, produce, and consume in a group."""


AT_START: tuple[str | CodecStep, ...] = (*MODULES, *CODECS)
FOR_CLIENTS: tuple[str | CodecStep, ...] = (*USED_BY_CLIENTS, *CODECS_USED_BY_CLIENTS)


def prepare(step: str | CodecStep) -> None:
    """Imports a module, or compiles a codec."""
    if isinstance(step, str):
        importlib.import_module(step)
        return
    from pykbroker.protocol import codec

    message_type = getattr(importlib.import_module(step.module), step.message)
    (codec.prepare_to_read if step.is_read else codec.prepare_to_write)(message_type, step.version)


def prepare_all() -> None:  # pragma: no cover: runs in the process that starts several nodes
    """Imports the modules and compiles the codecs that are needed at a start."""
    for step in AT_START:
        prepare(step)
