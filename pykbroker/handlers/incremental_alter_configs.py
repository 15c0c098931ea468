"""IncrementalAlterConfigs (key 44): set, delete, append to or subtract from configs (KIP-339).

Versions 0-1. v1 flexible. The controller checks configs of topics, groups and client metrics; this broker checks its
own (dynamic settings, loggers) first, as in Kafka (P-153). A controller's port checks less, with other texts (P-371).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.config.dynamic_changes import check_form, edited
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
from pykbroker.controller.metadata.image import BROKER_LOGGER_RESOURCE
from pykbroker.java_order import java_int
from pykbroker.protocol.acl_codes import ALTER_CONFIGS, CLUSTER, CLUSTER_ACTION
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import SERVER_ERROR_MESSAGE
from pykbroker.protocol.messages.alter_configs import AlterConfigsResourceResponse
from pykbroker.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pykbroker.requests.config_alteration import alter_each, check_at_broker, is_checked
from pykbroker.security.authorization import AUTHORIZATION_FAILED
from pykbroker.security.connection_info import ListenerKind

if TYPE_CHECKING:
    from pykbroker.protocol.messages.incremental_alter_configs import AlterConfigsResource
    from pykbroker.requests.context import NodeContext


async def handle_incremental_alter_configs(
    context: NodeContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Changes each resource entirely or not at all, independently of the others."""
    validate_only = request.validate_only
    responses = await alter_each(
        context,
        request.resources,
        lambda resource: _decided_here(context, resource, validate_only),
        lambda resources: IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only),
        lambda resource: ConfigResourceEdits(resource.resource_type, resource.resource_name, _edits(context, resource)),
        lambda changes: IncrementalAlterConfigs(changes, validate_only, is_checked(context)),
        AlterConfigsResourceResponse,
        changes_loggers=True,
    )
    return IncrementalAlterConfigsResponse(responses=responses)


def _given_edits(resource: AlterConfigsResource) -> list[ConfigEdit]:
    return [ConfigEdit(config.name, config.config_operation, config.value) for config in resource.configs]


def _edits(context: NodeContext, resource: AlterConfigsResource) -> list[ConfigEdit]:
    edits = _given_edits(resource)
    if context.connection.listener_kind is ListenerKind.BROKER:
        return edits
    # A controller takes the last edit of a key, and a null value for a deletion. A broker refuses both.
    return [
        edit._replace(operation=DELETE) if edit.operation == SET and edit.value is None else edit
        for edit in {edit.name: edit for edit in edits}.values()
    ]


def _decided_here(context: NodeContext, resource: AlterConfigsResource, validate_only: bool) -> ApiError | None:
    """Result of a resource that this node decides; None if the controller decides it."""
    edits = _given_edits(resource)
    if context.connection.listener_kind is ListenerKind.CONTROLLER:
        if resource.resource_type != BROKER_LOGGER_RESOURCE:
            return None
        if not context.authorize_cluster(CLUSTER_ACTION):
            return AUTHORIZATION_FAILED[CLUSTER]
        error = _change_loggers(context, resource.resource_name, edits, validate_only)
        # A controller, unlike a broker, has a text for an error without one.
        return ApiError(error.code, SERVER_ERROR_MESSAGE) if error == _UNKNOWN_OPERATION else error
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
    name, image = resource.resource_name, context.services.metadata.image
    return check_at_broker(context, resource, lambda: edited(edits, name, image))


_UNKNOWN_OPERATION = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
"""Error of an operation that does not exist: Kafka's RuntimeLoggerManager has no operation to look at then."""


def _change_loggers(context: NodeContext, name: str, edits: list[ConfigEdit], validate_only: bool) -> ApiError:
    """Changes levels of this process's loggers (KIP-412); they are not stored and are lost when the process ends."""
    from pykbroker.config.broker_loggers import LEVELS, ROOT, has_logger, set_level

    node_id = java_int(name)
    if node_id is None:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if node_id != context.services.node_id:
        return ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected node id. Expected {context.services.node_id}, but received {node_id}",
        )
    for edit in edits:
        if edit.operation in (APPEND, SUBTRACT):
            verb = "APPEND" if edit.operation == APPEND else "SUBTRACT"
            return ApiError(
                ErrorCode.INVALID_REQUEST, f"{verb} operation is not allowed for the BROKER_LOGGER resource"
            )
        if edit.operation not in (SET, DELETE):
            return _UNKNOWN_OPERATION
        if not has_logger(edit.name):
            return ApiError(ErrorCode.INVALID_CONFIG, f"Logger {edit.name} does not exist!")
        if edit.operation == DELETE and edit.name == ROOT:
            return ApiError(ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed")
        if edit.operation == SET and edit.value not in LEVELS:
            level = "null" if edit.value is None else edit.value
            return ApiError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {edit.name} to {level} as it is not a supported log level. "
                f"Valid log levels are {', '.join(sorted(LEVELS))}",
            )
    if not validate_only:
        for edit in edits:
            set_level(edit.name, edit.value if edit.operation == SET else None)
    return NO_ERROR
