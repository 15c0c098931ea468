"""Modules that each broker imports at its start, for a process that imports them once and is forked into several.

A single broker imports late and little, as its first answer is what counts. Here what is imported once is not imported
in each node, which is half of its start. A module that is missing here costs time and nothing else: `python -X
importtime -m pykbroker start --nodes 3` shows on lines that begin with "node 1" what is still imported there.
"""

from __future__ import annotations

import importlib

MODULES = (
    "pykbroker.cli.start",
    "pykbroker.cli.start_config",
    "pykbroker.config.environment",
    "pykbroker.config.properties_file",
    "encodings.ascii",
    "encodings.idna",
    "trio",
    "pykbroker.node.broker",
    "pykbroker.metadata.broker_clients",
    "pykbroker.controller.active_controller",
    "pykbroker.controller.metadata.elections",
    "pykbroker.controller.metadata.image_builder",
    "pykbroker.controller.metadata.image_delta",
    "pykbroker.controller.metadata.periodic_elections",
    "pykbroker.controller.metadata.topic_names",
    "pykbroker.controller.metadata.topics",
    "pykbroker.controller.peers",
    "pykbroker.controller.snapshot_exchange",
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
    "pykbroker.replication.isr_changes",
    "pykbroker.replication.replica_manager",
)

USED_BY_CLIENTS = (
    "encodings.utf_16_be",
    "pykbroker.cli.initial_topics",
    "pykbroker.config.descriptions",
    "pykbroker.coordination.log_io",
    "pykbroker.groups.group",
    "pykbroker.groups.in_flight",
    "pykbroker.groups.joins",
    "pykbroker.groups.leaves",
    "pykbroker.groups.log_io",
    "pykbroker.groups.members",
    "pykbroker.groups.offset_log",
    "pykbroker.groups.offset_requests",
    "pykbroker.groups.offsets",
    "pykbroker.groups.output",
    "pykbroker.groups.pending_offsets",
    "pykbroker.groups.shard",
    "pykbroker.groups.subscription",
    "pykbroker.groups.syncs",
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
"""Modules that topics, records and consumer groups import besides."""


def import_all() -> None:
    """Import MODULES."""
    for name in MODULES:
        importlib.import_module(name)
