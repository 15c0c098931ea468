"""ControllerRegistration (key 70): a controller joins the cluster."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, boolean, int16, int32, string, uuid
from pykbroker.protocol.messages.broker_registration import Feature, Listener


class ControllerRegistrationRequest(Message, versions="0", flexible="0+", key=70):
    """ControllerRegistration request (API key 70): a controller joins the cluster."""

    controller_id: int = int32("0+")
    incarnation_id: bytes = uuid("0+")
    zk_migration_ready: bool = boolean("0+")
    listeners: list[Listener] = array(Listener, "0+")
    features: list[Feature] = array(Feature, "0+")


class ControllerRegistrationResponse(Message, versions="0", flexible="0+", key=70):
    """ControllerRegistration response (API key 70)."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
