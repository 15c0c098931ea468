"""PushTelemetry (key 72): metrics of a client, for the broker's receivers (KIP-714; P-202).

Version 0. Listed in ApiVersions if `metric.reporters` names a receiver of metrics (P-203). No permission is needed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pykbroker.errors import KafkaError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.push_telemetry import PushTelemetryResponse
from pykbroker.protocol.records.compression import decompress
from pykbroker.protocol.uuids import uuid_to_text
from pykbroker.requests.client_attributes import client_attributes
from pykbroker.telemetry.client_instances import RESERVED_IDS, Push
from pykbroker.telemetry.receivers import TelemetryContext, TelemetryPayload

if TYPE_CHECKING:
    from pykbroker.protocol.messages.push_telemetry import PushTelemetryRequest
    from pykbroker.requests.context import BrokerContext

log = logging.getLogger(__name__)


async def handle_push_telemetry(context: BrokerContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Passes the metrics on; INVALID_RECORD if they cannot be decompressed or a receiver fails."""
    services = context.services
    client_instance_id = request.client_instance_id
    if client_instance_id in RESERVED_IDS:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    instances = services.telemetry.instances()
    error, instance = instances.push(
        client_instance_id,
        client_attributes(context, client_instance_id),
        services.clock.now_ms(),
        context.connection,
        Push(request.subscription_id, request.compression_type, len(request.metrics), request.terminating),
        services.config.broker.telemetry_max_bytes,
    )
    services.telemetry.watch(context.connection)
    if error is ErrorCode.NONE and request.metrics:
        try:
            _export(context, request, instance.push_interval_ms)
        except Exception as failure:  # A receiver is the user's code, and may raise anything.
            log.error("metrics of client instance %s are lost: %r", uuid_to_text(client_instance_id), failure)
            error = instance.last_error = ErrorCode.INVALID_RECORD
    return PushTelemetryResponse(error_code=error)


def _export(context: BrokerContext, request: PushTelemetryRequest, push_interval_ms: int) -> None:
    services, connection = context.services, context.connection
    data = decompress(request.compression_type, request.metrics, services.config.broker.telemetry_max_bytes)
    client = TelemetryContext(
        client_id=context.client_id,
        client_software_name=connection.software_name,
        client_software_version=connection.software_version,
        client_host=connection.client_host,
        client_port=connection.client_port,
        principal=connection.principal,
        listener_name=connection.listener_name,
        push_interval_ms=push_interval_ms,
    )
    payload = TelemetryPayload(request.client_instance_id, request.terminating, "OTLP", data)
    services.telemetry.export(client, payload)
