"""AlterConfigs (key 33): replaces all configs of a resource; older than IncrementalAlterConfigs, still used (P-153).

Versions 0-2. v2 flexible. A config that the request does not name goes back to its default.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pykbroker.config.dynamic_changes import check_form, check_resource_name, check_settings
from pykbroker.controller.metadata.commands import ApiError
from pykbroker.controller.metadata.configs import AlterConfigs, ConfigResourceReplacement
from pykbroker.controller.metadata.image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from pykbroker.protocol.acl_codes import ALTER_CONFIGS, CLUSTER, CLUSTER_NAME, GROUP, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from pykbroker.requests.certificate_changes import check_tls
from pykbroker.requests.controller_calls import forwarded, has_moved, submit
from pykbroker.security.authorization import AUTHORIZATION_FAILED
from pykbroker.security.connection_info import ListenerKind

if TYPE_CHECKING:
    from pykbroker.protocol.messages.alter_configs import AlterConfigsResource
    from pykbroker.requests.context import NodeContext

# Without broker loggers: this API is older than they are.
STORED_TYPES = (TOPIC_RESOURCE, BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)


async def handle_alter_configs(context: NodeContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Changes each resource entirely or not at all, independently of the others."""
    counts = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    errors: list[ApiError | None] = []
    stored: list[ConfigResourceReplacement] = []
    for resource in request.resources:
        error: ApiError | None
        if counts[resource.resource_type, resource.resource_name] > 1:
            error = ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        else:
            error = _decided_here(context, resource)
        if error is None:
            error = _refusal(context, resource)
        errors.append(error)
        if error is None:
            configs = [(config.name, config.value) for config in resource.configs]
            stored.append(ConfigResourceReplacement(resource.resource_type, resource.resource_name, configs))
    answers = await _stored(
        context, request, stored, [r for r, e in zip(request.resources, errors, strict=True) if not e]
    )
    remaining = iter(answers)
    return AlterConfigsResponse(
        responses=[
            _response(resource, next(remaining) if error is None else error)
            for resource, error in zip(request.resources, errors, strict=True)
        ]
    )


async def _stored(
    context: NodeContext,
    request: AlterConfigsRequest,
    wanted: list[ConfigResourceReplacement],
    resources: list[AlterConfigsResource],
) -> list[ApiError]:
    """Alters `wanted` on the controller; returns the result of each of `resources`, from which `wanted` was made."""
    if not wanted:
        return []
    answer = await forwarded(context, AlterConfigsRequest(resources=resources, validate_only=request.validate_only))
    if answer is not None:
        found = {(r.resource_type, r.resource_name): ApiError(r.error_code, r.error_message) for r in answer.responses}
        return [found[resource.resource_type, resource.resource_name] for resource in resources]
    timeout_ms = context.services.config.request_timeout_ms
    results, failure = await submit(context, AlterConfigs(wanted, request.validate_only), timeout_ms)
    if has_moved(context, failure):
        return await _stored(context, request, wanted, resources)
    return [failure] * len(wanted) if results is None else [result.error for result in results]


def _decided_here(context: NodeContext, resource: AlterConfigsResource) -> ApiError | None:
    """Result of a resource that this node decides; None if the controller decides it."""
    error = check_form(
        [config.name for config in resource.configs],
        [config.name for config in resource.configs if config.value is None],
    )
    if error.is_failure:
        return error
    if resource.resource_type not in STORED_TYPES:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    if resource.resource_type == BROKER_RESOURCE:
        if context.listener_kind is ListenerKind.CONTROLLER:
            # Checked already by the broker that forwarded the request: only that broker has its own settings.
            return None
        error = check_resource_name(resource.resource_name, context.services.node_id)
        if not error.is_failure:
            settings = {config.name: config.value or "" for config in resource.configs}
            error = check_settings(
                settings, resource.resource_name, context.services.config, context.services.metadata.image
            )
            if context.services.tls is not None and not error.is_failure:
                error = check_tls(context.services, settings, resource.resource_name)
    return error if error.is_failure else None


def _refusal(context: NodeContext, resource: AlterConfigsResource) -> ApiError | None:
    """Authorization error of a resource, None if the client may change it. Kafka checks a broker's own errors first."""
    kind = {TOPIC_RESOURCE: TOPIC, GROUP_RESOURCE: GROUP}.get(resource.resource_type, CLUSTER)
    name = CLUSTER_NAME if kind == CLUSTER else resource.resource_name
    return None if context.authorize(ALTER_CONFIGS, kind, name) else AUTHORIZATION_FAILED[kind]


def _response(resource: AlterConfigsResource, error: ApiError) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
