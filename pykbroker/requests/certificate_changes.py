"""Check of dynamic settings against the key stores and trust stores that they name (P-244), for both alter APIs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.config.dynamic_changes import usable_levels
from pykbroker.controller.metadata.commands import NO_ERROR, ApiError
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
    cluster_wide, own = usable_levels(services.metadata.image, services.node_id)
    levels = (cluster_wide, settings) if resource_name else (settings, own)
    reason = services.tls.refusal_of_change(services.config.with_dynamic(*levels))
    return NO_ERROR if reason is None else ApiError(ErrorCode.INVALID_REQUEST, reason)
