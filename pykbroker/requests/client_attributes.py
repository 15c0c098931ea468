"""The attributes of a client by which client-metrics subscriptions select it (KIP-714)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.protocol.uuids import uuid_to_text

if TYPE_CHECKING:
    from pykbroker.requests.context import BrokerContext


def client_attributes(context: BrokerContext, client_instance_id: bytes) -> dict[str, str]:
    """The client's attributes by selector; a client that sent no ApiVersions of version 3 has unknown software."""
    connection = context.connection
    return {
        "client_instance_id": uuid_to_text(client_instance_id),
        "client_id": context.client_id,
        "client_software_name": connection.software_name,
        "client_software_version": connection.software_version,
        "client_source_address": connection.client_host,
        "client_source_port": str(connection.client_port),
    }
