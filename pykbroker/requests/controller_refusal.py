"""The handler of APIs that a controller's port lists, as Kafka's does, without serving them (P-378)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NoReturn

from pykbroker.errors import KafkaError
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.requests.context import ControllerContext

log = logging.getLogger(__name__)


async def refuse_at_controller(context: ControllerContext, request: Any) -> NoReturn:
    """Refuses the request, whatever the client's rights: Kafka's `ControllerApis.handle` has no code for it.

    Raises:
        KafkaError: always, UNKNOWN_SERVER_ERROR.
    """
    log.warning(
        "%s of %s came to a controller's port, where it is not served: send it to a broker",
        context.api_key.name,
        context.connection.client_host,
    )
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
