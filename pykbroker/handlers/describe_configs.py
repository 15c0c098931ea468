"""DescribeConfigs (key 32): settings of topics, brokers, loggers, client metrics and groups (KIP-133).

Versions 1-4. v1 source and synonyms (KIP-226); v3 type and documentation (KIP-569); v4 flexible. The documentation is
in our own words, the rest is as in Kafka: secrets are null, and a broker describes only its own settings and the
cluster-wide dynamic settings (empty name) (P-151, P-152).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykbroker.config.descriptions import ConfigEntry, ConfigViews
from pykbroker.controller.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from pykbroker.controller.metadata.topic_names import reason_invalid
from pykbroker.controller.turns import Turn
from pykbroker.errors import KafkaError
from pykbroker.java_order import java_int
from pykbroker.protocol.acl_codes import CLUSTER, CLUSTER_NAME, DESCRIBE_CONFIGS, GROUP, TOPIC
from pykbroker.protocol.codec import encode_element
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from pykbroker.security.authorization import AUTHORIZATION_FAILED

if TYPE_CHECKING:
    from collections.abc import Collection

    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
    from pykbroker.requests.context import NodeContext

ACL_RESOURCE_TYPES = {TOPIC_RESOURCE: TOPIC, GROUP_RESOURCE: GROUP}
"""Config resource types that are authorized by their own ACLs; all others are authorized by the cluster's."""

BROKER_LOGGER_SOURCE = 6
DESCRIBED_TYPES = (TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)
MALFORMED_TEXT = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)


async def handle_describe_configs(context: NodeContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describes each resource independently, in turns: a request can name a thousand topics of 33 settings each.

    As in Kafka those that the client may not see come last.
    """
    if any(resource.resource_type not in DESCRIBED_TYPES for resource in request.resources):
        raise KafkaError(ErrorCode.INVALID_REQUEST, MALFORMED_TEXT)
    services = context.services
    image = services.metadata.image
    views = ConfigViews(services.config, services.metadata.config, image, services.node_id)
    turn = Turn()
    results: list[Any] = []
    unauthorized: list[Any] = []
    for resource in request.resources:
        kind = ACL_RESOURCE_TYPES.get(resource.resource_type, CLUSTER)
        name = CLUSTER_NAME if kind == CLUSTER else resource.resource_name
        # Encoded here, so that turns divide the encoding too, and not with the whole response.
        if context.authorize(DESCRIBE_CONFIGS, kind, name):
            result = _described(context, request, resource, views, image)
            results.append(encode_element(DescribeConfigsResponse, result, context.api_version))
        else:
            result = _unauthorized(resource, kind)
            unauthorized.append(encode_element(DescribeConfigsResponse, result, context.api_version))
        await turn.end_if_over()
    return DescribeConfigsResponse(results=results + unauthorized)


def _unauthorized(resource: DescribeConfigsResource, kind: int) -> DescribeConfigsResult:
    code, message = AUTHORIZATION_FAILED[kind]
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _described(
    context: NodeContext,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
    views: ConfigViews,
    image: ClusterImage,
) -> DescribeConfigsResult:
    # As in Kafka, the message is empty instead of null on success and for an unknown topic.
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        entries = _entries(context, views, resource, image)
    except KafkaError as error:
        result.error_code = error.error_code
        result.error_message = error.message
    else:
        result.configs = [_shown(entry, request, resource.resource_type) for entry in entries]
    return result


def _entries(
    context: NodeContext, views: ConfigViews, resource: DescribeConfigsResource, image: ClusterImage
) -> list[ConfigEntry]:
    """Configs of one resource; all of them if the request's keys are null or empty.

    Raises:
        KafkaError: there is no such resource, or this broker does not answer for it.
    """
    name, kind = resource.resource_name, resource.resource_type
    keys: Collection[str] | None = resource.configuration_keys or None
    if kind == TOPIC_RESOURCE:
        reason = reason_invalid(name)
        if reason is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        if name not in image.topics_by_name:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        return views.topic(image.topic_config(name), keys)
    if kind == BROKER_RESOURCE:
        if not name:
            return views.cluster_wide(keys)
        if _broker_id(name) != context.services.node_id:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {context.services.node_id} or empty string, but received {name}",
            )
        return views.broker(keys)
    if kind == BROKER_LOGGER_RESOURCE:
        return _loggers(context, name, keys)
    if kind == CLIENT_METRICS_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return views.client_metrics(image.configs.get((kind, name), {}), keys)
    assert kind == GROUP_RESOURCE
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    return views.group(image.configs.get((kind, name), {}), keys)


def _broker_id(name: str) -> int:
    broker_id = java_int(name)
    if broker_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    return broker_id


def _loggers(context: NodeContext, name: str, keys: Collection[str] | None) -> list[ConfigEntry]:
    """The loggers of this process with their levels (KIP-412), by Kafka's level names."""
    from pykbroker.config.broker_loggers import logger_levels

    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if _broker_id(name) != context.services.node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {context.services.node_id} but received {name}",
        )
    return [
        ConfigEntry(logger, level, BROKER_LOGGER_SOURCE, False, False, 0, [])
        for logger, level in logger_levels().items()
        if keys is None or logger in keys
    ]


def _shown(entry: ConfigEntry, request: DescribeConfigsRequest, resource_type: int) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        config_type=entry.type,
        documentation=_documentation(entry.name, request, resource_type),
    )
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in entry.synonyms
        ]
    return result


def _documentation(name: str, request: DescribeConfigsRequest, resource_type: int) -> str | None:
    """The text on one config: null unless asked for. That of a logger is always "", as Kafka never sets the field."""
    if resource_type == BROKER_LOGGER_RESOURCE:
        return ""
    if not request.include_documentation:
        return None
    from pykbroker.config.definitions import documentation

    if resource_type == TOPIC_RESOURCE:
        return documentation.topic_documentation(name)
    if resource_type == BROKER_RESOURCE:
        return documentation.broker_documentation(name)
    return documentation.GROUP_DOCUMENTATION.get(name)
