"""ControllerRegistration (key 70): a controller registers its listeners and supported features (KIP-919).

Version 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.brokers import RegisterController
from pykbroker.controller.metadata.image import Endpoint
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
        endpoints=[Endpoint(e.name, e.host, e.port, e.security_protocol) for e in request.listeners],
        features={f.name: (f.min_supported_version, f.max_supported_version) for f in request.features},
    )
    await submit_command(context, command)
    # The field may be null, but its declaration has an empty default.
    return ControllerRegistrationResponse(error_message=None)
