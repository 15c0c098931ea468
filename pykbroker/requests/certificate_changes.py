"""Check of dynamic settings against the key stores and trust stores that they name (P-244), for both alter APIs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.config.dynamic_changes import usable_settings
from pykbroker.controller.metadata.commands import NO_ERROR, ApiError
from pykbroker.controller.metadata.image import BROKER_RESOURCE
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykbroker.requests.context import NodeServices


def check_tls(services: NodeServices, settings: Mapping[str, str], resource_name: str) -> ApiError:
    """Error unless the listeners of this node can take the settings, which passed all other checks.

    Args:
        services: of the handler.
        settings: all settings that the resource would have.
        resource_name: id of this broker, or the empty name for all brokers.
    """
    if services.tls is None:
        return NO_ERROR
    configs = services.metadata.image.configs
    cluster_wide, own = settings, settings
    if resource_name:
        cluster_wide, _ = usable_settings(configs.get((BROKER_RESOURCE, ""), {}), is_one_broker=False)
    else:
        own, _ = usable_settings(configs.get((BROKER_RESOURCE, str(services.node_id)), {}), is_one_broker=True)
    reason = services.tls.refusal_of_change(services.config.with_dynamic(cluster_wide, own))
    return NO_ERROR if reason is None else ApiError(ErrorCode.INVALID_REQUEST, reason)
