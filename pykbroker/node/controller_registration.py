"""Registration of a controller (KIP-919): its endpoints and supported features, once for each start of the process.

As in Kafka's ControllerRegistrationManager: while the metadata lacks the registration of this incarnation, the
controller sends ControllerRegistration to the active controller. Brokers and tools find controllers by these records.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from pykbroker.controller.metadata.endpoints_and_features import endpoints_as, features_as
from pykbroker.controller.metadata.metadata_versions import CONTROLLER_REGISTRATION, METADATA_VERSION
from pykbroker.errors import KafkaError
from pykbroker.protocol.error_codes import ErrorCode, answered_error
from pykbroker.protocol.uuids import random_uuid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykbroker.controller.metadata.image import ClusterImage, Endpoint
    from pykbroker.controller.node import ControllerNode
    from pykbroker.metadata.controller_channel import ControllerChannel
    from pykbroker.node.host import Host

log = logging.getLogger(__name__)

TIMEOUT_MS = 5000
RETRY_FIRST_S = 0.1
RETRY_MAX_S = 60.0


class ControllerRegistration:
    """Keeps this controller registered while `run` runs.

    Args:
        node_id: id of this controller.
        endpoints: its listeners for other nodes.
        controller: source of the metadata image.
        channel: connection to the active controller.
        host: draws the incarnation id.
    """

    def __init__(
        self,
        node_id: int,
        endpoints: Sequence[Endpoint],
        controller: ControllerNode,
        channel: ControllerChannel,
        host: Host,
    ) -> None:
        self._node_id = node_id
        self._endpoints = endpoints
        self._controller = controller
        self._channel = channel
        self._incarnation_id = random_uuid(host.random)
        self._changed = trio.Event()

    def on_metadata_change(self, old: ClusterImage, new: ClusterImage) -> None:
        """Wakes `run` if the registration is missing. A subscriber of metadata changes."""
        if self._is_due(new):
            self._changed.set()

    async def run(self) -> None:
        """Registers whenever the metadata lacks this incarnation, until it is cancelled."""
        failures = 0
        while True:
            if not self._is_due(self._controller.image):
                await self._changed.wait()
                self._changed = trio.Event()
                continue
            try:
                await self._register()
                failures = 0
            except KafkaError as error:
                failures += 1
                if failures == 1:
                    log.warning("this controller is not registered yet: %s", error.message or error.error_code.name)
            # A successful registration appears in the metadata a moment later.
            await trio.sleep(min(RETRY_MAX_S, RETRY_FIRST_S * 2.0 ** min(failures, 10)))

    def _is_due(self, image: ClusterImage) -> bool:
        if image.features.get(METADATA_VERSION, 0) < CONTROLLER_REGISTRATION:
            return False
        known = image.controllers.get(self._node_id)
        return known is None or known.incarnation_id != self._incarnation_id

    async def _register(self) -> None:
        from pykbroker.protocol.messages.broker_registration import Feature, Listener
        from pykbroker.protocol.messages.controller_registration import ControllerRegistrationRequest

        request = ControllerRegistrationRequest(
            controller_id=self._node_id,
            incarnation_id=self._incarnation_id,
            listeners=endpoints_as(Listener, self._endpoints),
            features=features_as(Feature, self._controller.settings.supported_features),
        )
        response = await self._channel.request(request, TIMEOUT_MS)
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(answered_error(response.error_code), response.error_message or "")
