"""IncrementalAlterConfigs (key 44): set, delete, append to or subtract from configs (KIP-339).

Versions 0-1. v1 flexible. The controller checks configs of topics, groups and client metrics; this broker checks its
own (dynamic settings, loggers) first, as in Kafka (P-153).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pykbroker.config.dynamic_changes import check_form, check_resource_name, check_settings, edited
from pykbroker.controller.metadata.commands import NO_ERROR, ApiError
from pykbroker.controller.metadata.configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    ConfigEdit,
    ConfigResourceEdits,
    IncrementalAlterConfigs,
)
from pykbroker.controller.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from pykbroker.protocol.acl_codes import ALTER_CONFIGS, CLUSTER, CLUSTER_NAME, GROUP, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pykbroker.requests.certificate_changes import check_tls
from pykbroker.requests.controller_calls import forwarded, has_moved, submit
from pykbroker.security.authorization import AUTHORIZATION_FAILED
from pykbroker.security.connection_info import ListenerKind

if TYPE_CHECKING:
    from pykbroker.protocol.messages.incremental_alter_configs import AlterConfigsResource
    from pykbroker.requests.context import NodeContext

STORED_TYPES = (TOPIC_RESOURCE, BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)


async def handle_incremental_alter_configs(
    context: NodeContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Changes each resource entirely or not at all, independently of the others."""
    counts = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    errors: list[ApiError | None] = []
    stored: list[ConfigResourceEdits] = []
    for resource in request.resources:
        error: ApiError | None
        if counts[resource.resource_type, resource.resource_name] > 1:
            error = ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        else:
            error = _decided_here(context, resource, request.validate_only)
        if error is None:
            error = _refusal(context, resource)
        errors.append(error)
        if error is None:
            stored.append(ConfigResourceEdits(resource.resource_type, resource.resource_name, _edits(resource)))
    answers = await _stored(
        context, request, stored, [r for r, e in zip(request.resources, errors, strict=True) if not e]
    )
    remaining = iter(answers)
    return IncrementalAlterConfigsResponse(
        responses=[
            _response(resource, next(remaining) if error is None else error)
            for resource, error in zip(request.resources, errors, strict=True)
        ]
    )


async def _stored(
    context: NodeContext,
    request: IncrementalAlterConfigsRequest,
    wanted: list[ConfigResourceEdits],
    resources: list[AlterConfigsResource],
) -> list[ApiError]:
    """Alters `wanted` on the controller; returns the result of each of `resources`, from which `wanted` was made."""
    if not wanted:
        return []
    answer = await forwarded(
        context, IncrementalAlterConfigsRequest(resources=resources, validate_only=request.validate_only)
    )
    if answer is not None:
        found = {(r.resource_type, r.resource_name): ApiError(r.error_code, r.error_message) for r in answer.responses}
        return [found[resource.resource_type, resource.resource_name] for resource in resources]
    timeout_ms = context.services.config.request_timeout_ms
    results, failure = await submit(context, IncrementalAlterConfigs(wanted, request.validate_only), timeout_ms)
    if has_moved(context, failure):
        return await _stored(context, request, wanted, resources)
    return [failure] * len(wanted) if results is None else [result.error for result in results]


def _edits(resource: AlterConfigsResource) -> list[ConfigEdit]:
    return [ConfigEdit(config.name, config.config_operation, config.value) for config in resource.configs]


def _decided_here(context: NodeContext, resource: AlterConfigsResource, validate_only: bool) -> ApiError | None:
    """Result of a resource that this node decides; None if the controller decides it."""
    edits = _edits(resource)
    error = check_form(
        [edit.name for edit in edits],
        [edit.name for edit in edits if edit.value is None and edit.operation != DELETE],
    )
    if error.is_failure:
        return error
    if resource.resource_type == BROKER_LOGGER_RESOURCE:
        if not context.authorize_cluster(ALTER_CONFIGS):
            return ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return _change_loggers(context, resource.resource_name, edits, validate_only)
    if resource.resource_type not in STORED_TYPES:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    if resource.resource_type == BROKER_RESOURCE:
        if context.listener_kind is ListenerKind.CONTROLLER:
            # Checked already by the broker that forwarded the request: only that broker has its own settings.
            return None
        services = context.services
        error = check_resource_name(resource.resource_name, services.node_id)
        if not error.is_failure:
            settings = edited(edits, resource.resource_name, services.metadata.image)
            if isinstance(settings, ApiError):
                return settings
            error = check_settings(settings, resource.resource_name, services.config, services.metadata.image)
            if services.tls is not None and not error.is_failure:
                error = check_tls(services, settings, resource.resource_name)
        return error if error.is_failure else None
    return None


def _change_loggers(context: NodeContext, name: str, edits: list[ConfigEdit], validate_only: bool) -> ApiError:
    """Changes levels of this process's loggers (KIP-412); they are not stored and are lost when the process ends."""
    from pykbroker.config.broker_loggers import LEVELS, ROOT, has_logger, set_level

    if not name.isdecimal():
        return ApiError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if int(name) != context.services.node_id:
        return ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected node id. Expected {context.services.node_id}, but received {name}",
        )
    for edit in edits:
        if edit.operation in (APPEND, SUBTRACT):
            verb = "APPEND" if edit.operation == APPEND else "SUBTRACT"
            return ApiError(
                ErrorCode.INVALID_REQUEST, f"{verb} operation is not allowed for the BROKER_LOGGER resource"
            )
        if edit.operation not in (SET, DELETE):
            return ApiError(ErrorCode.INVALID_REQUEST, f"Unknown log4j operation type: {edit.operation}")
        if not has_logger(edit.name):
            return ApiError(ErrorCode.INVALID_CONFIG, f"Logger {edit.name} does not exist!")
        if edit.operation == DELETE and edit.name == ROOT:
            return ApiError(ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed")
        if edit.operation == SET and edit.value not in LEVELS:
            return ApiError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {edit.name} to {edit.value} as it is not a supported log level. "
                f"Valid log levels are {', '.join(sorted(LEVELS))}",
            )
    if not validate_only:
        for edit in edits:
            set_level(edit.name, edit.value if edit.operation == SET else None)
    return NO_ERROR


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
