"""Importing this imports what each node of a cluster imports: for a process that is forked into several of them.

A single broker imports late and little, as its first answer is what counts. Here what is imported once is not imported
in each node, which is half of its start. A module that is missing here costs time and nothing else: `python -X
importtime -m pykbroker start --nodes 3` shows on lines that begin with "node 1" what is still imported there.
"""

from __future__ import annotations

import importlib

MODULES = (
    "encodings.ascii",
    "encodings.idna",
    "trio",
    "pykbroker.broker",
    "pykbroker.broker_clients",
    "pykbroker.controller.active_controller",
    "pykbroker.controller.metadata.elections",
    "pykbroker.controller.metadata.image_builder",
    "pykbroker.controller.metadata.image_delta",
    "pykbroker.controller.metadata.periodic_elections",
    "pykbroker.controller.metadata.topic_names",
    "pykbroker.controller.metadata.topics",
    "pykbroker.controller.peers",
    "pykbroker.controller.snapshot_exchange",
    "pykbroker.controller_registration",
    "pykbroker.controller_server",
    "pykbroker.handlers.api_versions",
    "pykbroker.handlers.broker_heartbeat",
    "pykbroker.handlers.broker_registration",
    "pykbroker.handlers.metadata",
    "pykbroker.handlers.vote",
    "pykbroker.listener",
    "pykbroker.log_output",
    "pykbroker.protocol.messages.broker_heartbeat",
    "pykbroker.protocol.messages.broker_registration",
    "pykbroker.protocol.messages.controller_registration",
    "pykbroker.protocol.messages.list_offsets",
    "pykbroker.replication.fetcher",
    "pykbroker.replication.isr_changes",
    "pykbroker.replication.replica_manager",
)

for name in MODULES:
    importlib.import_module(name)
