"""The refusal of APIs that a controller's port lists without serving them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn

from pykbroker.errors import KafkaError
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.requests.context import ControllerContext

log = logging.getLogger(__name__)


def refuse_at_controller(context: ControllerContext) -> NoReturn:
    """Refuses the request as Kafka's `ControllerApis.handle` does one that it has no code for (P-378).

    Raises:
        KafkaError: always, UNKNOWN_SERVER_ERROR.
    """
    log.warning(
        "%s of %s came to a controller's port, where it is not served: send it to a broker",
        context.api_key.name,
        context.client_host,
    )
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
