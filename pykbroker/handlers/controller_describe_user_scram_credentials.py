"""DescribeUserScramCredentials (key 50) on a controller's port: always an error (P-378).

Version 0. Kafka's controllers list the API, and have no code for it. Brokers describe users with SCRAM credentials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pykbroker.requests.controller_refusal import refuse_at_controller

if TYPE_CHECKING:
    from pykbroker.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
    from pykbroker.requests.context import ControllerContext


async def handle_controller_describe_user_scram_credentials(
    context: ControllerContext, request: DescribeUserScramCredentialsRequest
) -> NoReturn:
    """Refuses the request with UNKNOWN_SERVER_ERROR, whatever the client's rights."""
    refuse_at_controller(context)
