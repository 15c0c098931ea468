"""GetTelemetrySubscriptions (key 71): the metrics that a client is asked to push (KIP-714; P-202).

Version 0. Listed in ApiVersions if `metric.reporters` names a receiver of metrics (P-203). No permission is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from pykbroker.protocol.records.compression import GZIP, LZ4, SNAPPY, ZSTD
from pykbroker.protocol.uuids import ZERO_UUID, random_uuid
from pykbroker.requests.client_attributes import client_attributes

if TYPE_CHECKING:
    from pykbroker.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
    from pykbroker.requests.context import BrokerContext

ACCEPTED_COMPRESSION_TYPES = (ZSTD, LZ4, GZIP, SNAPPY)
"""Codecs of PushTelemetry, in the order of Kafka's preference."""


async def handle_get_telemetry_subscriptions(
    context: BrokerContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """The metrics and the interval for the client instance; a client without an id gets one.

    THROTTLING_QUOTA_EXCEEDED before the interval has ended, unless the subscriptions have changed.
    """
    services = context.services
    client_instance_id = request.client_instance_id
    if client_instance_id == ZERO_UUID:
        client_instance_id = random_uuid(services.random)
    instances = services.telemetry.instances()
    attributes = client_attributes(context, client_instance_id)
    error, instance = instances.ask(client_instance_id, attributes, services.clock.now_ms(), context.connection)
    services.telemetry.watch(context.connection)
    if error is not ErrorCode.NONE:
        return GetTelemetrySubscriptionsResponse(error_code=error)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=client_instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(ACCEPTED_COMPRESSION_TYPES),
        push_interval_ms=instance.push_interval_ms,
        telemetry_max_bytes=services.config.broker.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=list(instance.requested.metrics),
    )
