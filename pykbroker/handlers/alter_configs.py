"""AlterConfigs (key 33): replaces all configs of a resource; older than IncrementalAlterConfigs, still used (P-153).

Versions 0-2. v2 flexible. A config that the request does not name goes back to its default.
A controller's port checks less, with other texts (P-371).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.config.dynamic_changes import check_form
from pykbroker.controller.metadata.commands import ApiError
from pykbroker.controller.metadata.configs import AlterConfigs, ConfigResourceReplacement
from pykbroker.controller.metadata.image import BROKER_LOGGER_RESOURCE
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from pykbroker.requests.config_alteration import alter_each, check_at_broker, is_checked
from pykbroker.security.connection_info import ListenerKind

if TYPE_CHECKING:
    from pykbroker.protocol.messages.alter_configs import AlterConfigsResource
    from pykbroker.requests.context import NodeContext


async def handle_alter_configs(context: NodeContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Changes each resource entirely or not at all, independently of the others."""
    responses = await alter_each(
        context,
        request.resources,
        lambda resource: _decided_here(context, resource),
        lambda resources: AlterConfigsRequest(resources=resources, validate_only=request.validate_only),
        lambda resource: _replacement(context, resource),
        lambda changes: AlterConfigs(changes, request.validate_only, is_checked(context)),
        AlterConfigsResourceResponse,
    )
    return AlterConfigsResponse(responses=responses)


def _replacement(context: NodeContext, resource: AlterConfigsResource) -> ConfigResourceReplacement:
    configs = [(config.name, config.value) for config in resource.configs]
    if context.connection.listener_kind is ListenerKind.CONTROLLER:
        # The last value of a key counts, and a null value deletes it. A broker refuses both.
        configs = [(name, value) for name, value in dict(configs).items() if value is not None]
    return ConfigResourceReplacement(resource.resource_type, resource.resource_name, configs)


def _decided_here(context: NodeContext, resource: AlterConfigsResource) -> ApiError | None:
    """Result of a resource that this node decides; None if the controller decides it."""
    if context.connection.listener_kind is ListenerKind.CONTROLLER:
        if resource.resource_type == BROKER_LOGGER_RESOURCE:
            return ApiError(ErrorCode.INVALID_REQUEST, "Unexpected resource type BROKER_LOGGER.")
        return None
    error = check_form(
        [config.name for config in resource.configs],
        [config.name for config in resource.configs if config.value is None],
    )
    if error.is_failure:
        return error
    # Broker loggers are refused: this API is older than they are.
    settings = {config.name: config.value or "" for config in resource.configs}
    return check_at_broker(context, resource, lambda: settings)
