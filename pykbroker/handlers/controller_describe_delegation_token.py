"""DescribeDelegationToken (key 41) on a controller's port: always an error (P-378).

Versions 1-3. Kafka's controllers list the API, and have no code for it. Brokers describe delegation tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pykbroker.requests.controller_refusal import refuse_at_controller

if TYPE_CHECKING:
    from pykbroker.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
    from pykbroker.requests.context import ControllerContext


async def handle_controller_describe_delegation_token(
    context: ControllerContext, request: DescribeDelegationTokenRequest
) -> NoReturn:
    """Refuses the request with UNKNOWN_SERVER_ERROR, whatever the client's rights."""
    refuse_at_controller(context)
