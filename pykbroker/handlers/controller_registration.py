"""ControllerRegistration (key 70): a controller registers its listeners and supported features (KIP-919).

Version 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.brokers import RegisterController
from pykbroker.controller.metadata.endpoints_and_features import read_endpoints, read_features
from pykbroker.protocol.acl_codes import CLUSTER_ACTION
from pykbroker.protocol.messages.controller_registration import ControllerRegistrationResponse
from pykbroker.requests.controller_calls import submit_command

if TYPE_CHECKING:
    from pykbroker.protocol.messages.controller_registration import ControllerRegistrationRequest
    from pykbroker.requests.context import ControllerContext


async def handle_controller_registration(
    context: ControllerContext, request: ControllerRegistrationRequest
) -> ControllerRegistrationResponse:
    """Registers the controller; replaces its earlier registration."""
    context.require_cluster(CLUSTER_ACTION)
    command = RegisterController(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        endpoints=read_endpoints(request.listeners),
        features=read_features(request.features),
    )
    await submit_command(context, command)
    # The field may be null, but its declaration has an empty default.
    return ControllerRegistrationResponse(error_message=None)
