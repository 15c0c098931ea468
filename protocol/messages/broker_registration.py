"""BrokerRegistration (key 62): a broker joins the cluster."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, boolean, int16, int32, int64, string, uint16, uuid


class Listener(Message):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class Feature(Message):
    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class BrokerRegistrationRequest(Message, versions="0-4", flexible="0+", key=62):
    """BrokerRegistration request (API key 62): a broker joins the cluster."""

    broker_id: int = int32("0+")
    cluster_id: str = string("0+")
    incarnation_id: bytes = uuid("0+")
    listeners: list[Listener] = array(Listener, "0+")
    features: list[Feature] = array(Feature, "0+")
    rack: str | None = string("0+", nullable="0+")
    is_migrating_zk_broker: bool = boolean("1+")
    log_dirs: list[bytes] = array(uuid, "2+", ignorable=True)
    previous_broker_epoch: int = int64("3+", default=-1, ignorable=True)


class BrokerRegistrationResponse(Message, versions="0-4", flexible="0+", key=62):
    """BrokerRegistration response (API key 62)."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    broker_epoch: int = int64("0+", default=-1)
