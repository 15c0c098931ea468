"""Receivers of clients' metrics: Python classes that `metric.reporters` names as `module:Class`.

Apache Kafka loads Java classes from that setting and offers client metrics if one of them is a ClientTelemetry plugin.
Here an entry with a colon is a Python class with the method `export_metrics`; other entries, such as Kafka's default
`org.apache.kafka.common.metrics.JmxReporter`, have no effect.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Protocol

from pykbroker.config.definitions import ConfigError
from pykbroker.named_tuple import NamedTuple

KEY = "metric.reporters"


class TelemetryContext(NamedTuple):
    """The client that pushes metrics, and the push interval of its subscription in ms."""

    client_id: str
    client_software_name: str
    client_software_version: str
    client_host: str
    client_port: int
    principal: str
    listener_name: str
    push_interval_ms: int


class TelemetryPayload(NamedTuple):
    """Metrics of one client instance, whose id has 16 bytes.

    `data` is decompressed: an OpenTelemetry MetricsData message (protobuf, `content_type` "OTLP"). `is_terminating`: it
    is the last push of a client that stops.
    """

    client_instance_id: bytes
    is_terminating: bool
    content_type: str
    data: bytes


class TelemetryReceiver(Protocol):
    """A receiver; it is made without arguments. The broker waits for the method, so it must not block.

    If it raises, the client gets INVALID_RECORD.
    """

    def export_metrics(self, context: TelemetryContext, payload: TelemetryPayload) -> None: ...


def load_receivers(names: Iterable[str]) -> list[TelemetryReceiver]:
    """Makes the receivers that have these names.

    Raises:
        ConfigError: a class cannot be imported or made, or has no `export_metrics`.
    """
    return [_load(name) for name in names]


def _load(name: str) -> TelemetryReceiver:
    module, _, attribute = name.partition(":")
    try:
        receiver: TelemetryReceiver = getattr(import_module(module), attribute)()
    except Exception as error:
        raise ConfigError(KEY, name, f"it cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(getattr(receiver, "export_metrics", None)):
        raise ConfigError(KEY, name, "it has no method export_metrics")
    return receiver
