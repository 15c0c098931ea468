"""Common part of AlterConfigs and IncrementalAlterConfigs: each resource changes entirely or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pykbroker.config.dynamic_changes import check_resource_name, check_settings, usable_levels, with_own_variables
from pykbroker.controller.metadata.commands import NO_ERROR, ApiError, ItemRefused
from pykbroker.controller.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from pykbroker.controller.turns import EachInTurns
from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import ALTER_CONFIGS, CLUSTER, CLUSTER_NAME, GROUP, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.requests.controller_calls import forwarded_or_submitted
from pykbroker.security.authorization import AUTHORIZATION_FAILED
from pykbroker.security.connection_info import ListenerKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykbroker.controller.metadata.commands import Command
    from pykbroker.protocol.fields import Message
    from pykbroker.requests.context import NodeContext, NodeServices

STORED_TYPES = (TOPIC_RESOURCE, BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)
"""Types of resources whose configs the controller stores; those of broker loggers are not stored."""


class ConfigResource(Protocol):
    """A resource of either request."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


R = TypeVar("R", bound=ConfigResource)
Change = TypeVar("Change")
Response = TypeVar("Response")


async def alter_each(
    context: NodeContext,
    resources: Sequence[R],
    decide: Callable[[R], ApiError | None],
    request_of: Callable[[list[R]], Message],
    change_of: Callable[[R], Change],
    command_of: Callable[[list[Change]], Command[Any]],
    response: Callable[..., Response],
    *,
    changes_loggers: bool = False,
) -> list[Response]:
    """Responses of the resources, in their order.

    A controller's port has one response for a resource that comes twice, and Kafka's order: resources that it does not
    check, refused ones, stored ones, loggers.

    Args:
        response: class of a resource's response.
        changes_loggers: the request may change loggers; at a controller's port each time that it names one.
        decide: result of a resource that this node decides; None if the controller decides it.
        request_of: request with some of the resources, to be forwarded to the active controller.
        change_of: the change of one resource's configs.
        command_of: command that makes some of the changes.
    """
    counts = Counter([(resource.resource_type, resource.resource_name) async for resource in EachInTurns(resources)])
    is_controller = context.connection.listener_kind is ListenerKind.CONTROLLER
    # Types whose resources a controller's port takes once; it looks at the others each time that they come.
    once = STORED_TYPES if changes_loggers else (*STORED_TYPES, BROKER_LOGGER_RESOURCE)
    if is_controller:
        resources = _without_repetitions(resources, once)
    errors: list[ApiError | None] = []
    ranks: list[int] = []
    async for resource in EachInTurns(resources):
        is_repeated = counts[resource.resource_type, resource.resource_name] > 1 and (
            not is_controller or resource.resource_type in once
        )
        error, rank = _checked(context, resource, decide, is_repeated=is_repeated, changes_loggers=changes_loggers)
        errors.append(error)
        ranks.append(rank if is_controller else 0)
    wanted = [resource for resource, error in zip(resources, errors, strict=True) if error is None]
    stored = iter(await _stored(context, wanted, request_of, change_of, command_of))
    results = [next(stored) if error is None else error for error in errors]
    responses = [
        response(
            error_code=result.code,
            error_message=result.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        async for resource, result in EachInTurns(zip(resources, results, strict=True))
    ]
    return [responses[number] for number in sorted(range(len(responses)), key=ranks.__getitem__)]


def _checked(
    context: NodeContext,
    resource: R,
    decide: Callable[[R], ApiError | None],
    *,
    is_repeated: bool,
    changes_loggers: bool,
) -> tuple[ApiError | None, int]:
    """Result of a resource, None if the controller decides it; and its rank in the order of a controller's response."""
    is_controller = context.connection.listener_kind is ListenerKind.CONTROLLER
    if is_controller and resource.resource_type not in (*STORED_TYPES, BROKER_LOGGER_RESOURCE):
        return ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unknown resource type {resource.resource_type}."), 0
    if is_repeated:
        text = "Duplicate resource." if is_controller else "Each resource must appear at most once."
        return ApiError(ErrorCode.INVALID_REQUEST, text), 0
    error = decide(resource)
    if error is not None:
        return error, 3 if changes_loggers and resource.resource_type == BROKER_LOGGER_RESOURCE else 1
    error = _refusal(context, resource)
    return error, 2 if error is None else 1


def _without_repetitions(resources: Sequence[R], types: Collection[int]) -> list[R]:
    """The resources without those of the given types that came before."""
    seen: set[tuple[int, str]] = set()
    left = []
    for resource in resources:
        key = resource.resource_type, resource.resource_name
        if key not in seen:
            left.append(resource)
        if resource.resource_type in types:
            seen.add(key)
    return left


async def _stored(
    context: NodeContext,
    resources: list[R],
    request_of: Callable[[list[R]], Message],
    change_of: Callable[[R], Change],
    command_of: Callable[[list[Change]], Command[Any]],
) -> list[ApiError]:
    """Alters the configs of `resources` on the controller.

    Raises:
        KafkaError: the whole change failed at a controller's port, where all resources of the request get the error,
            also those that were refused before (P-685).
    """
    if not resources:
        return []
    changes = [change_of(resource) async for resource in EachInTurns(resources)]
    answer, results, failure = await forwarded_or_submitted(context, request_of(resources), lambda: command_of(changes))
    if answer is not None:
        found = {(r.resource_type, r.resource_name): ApiError(r.error_code, r.error_message) for r in answer.responses}
        return [found[resource.resource_type, resource.resource_name] for resource in resources]
    if results is None:
        if context.connection.listener_kind is ListenerKind.CONTROLLER:
            raise KafkaError(failure.code, failure.message)
        return [failure] * len(resources)
    return [result.error for result in results]


def is_checked(context: NodeContext) -> bool:
    """False for a request that came to a controller's port directly, so that no broker has checked its settings."""
    return context.connection.listener_kind is ListenerKind.BROKER or context.connection.is_forwarded


def check_at_broker(
    context: NodeContext, resource: ConfigResource, settings: Callable[[], Mapping[str, str]]
) -> ApiError | None:
    """Error that a broker finds before it asks the controller; None if there is none.

    A broker checks the settings of brokers, as the controller does not have them. `settings` gives the new values by
    key, or raises ItemRefused.
    """
    if resource.resource_type not in STORED_TYPES:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    if resource.resource_type != BROKER_RESOURCE:
        return None
    services, name = context.services, resource.resource_name
    error = check_resource_name(name, services.node_id)
    if error.is_failure:
        return error
    try:
        values = with_own_variables(settings())
    except ItemRefused as refused:
        return refused.error
    error = check_settings(values, name, services.config, services.metadata.image)
    if not error.is_failure:
        error = check_tls(services, values, name)
    return error if error.is_failure else None


def _refusal(context: NodeContext, resource: ConfigResource) -> ApiError | None:
    """Authorization error of a resource, None if the client may change it. Kafka checks a broker's own errors first."""
    kind = {TOPIC_RESOURCE: TOPIC, GROUP_RESOURCE: GROUP}.get(resource.resource_type, CLUSTER)
    name = CLUSTER_NAME if kind == CLUSTER else resource.resource_name
    return None if context.authorize(ALTER_CONFIGS, kind, name) else AUTHORIZATION_FAILED[kind]


def check_tls(services: NodeServices, settings: Mapping[str, str], resource_name: str) -> ApiError:
    """Error unless the listeners of this node can use the key and trust stores of dynamic settings (P-244).

    All other checks have passed.

    Args:
        services: of the handler.
        settings: all settings that the resource would have.
        resource_name: id of this broker, or the empty name for all brokers.
    """
    if services.tls is None:
        return NO_ERROR
    cluster_wide, own = usable_levels(services.metadata.image, services.node_id)
    levels = (cluster_wide, settings) if resource_name else (settings, own)
    reason = services.tls.refusal_of_change(services.config.with_dynamic(*levels))
    return NO_ERROR if reason is None else ApiError(ErrorCode.INVALID_REQUEST, reason)
