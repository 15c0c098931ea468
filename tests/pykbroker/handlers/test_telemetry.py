"""GetTelemetrySubscriptions and PushTelemetry, with receivers that the settings name (KIP-714; P-202, P-203)."""

from __future__ import annotations

import gzip
from typing import Any, ClassVar

import pytest

from pykbroker.config.definitions import ConfigError
from pykbroker.errors import KafkaError
from pykbroker.handlers.api_versions import handle_api_versions
from pykbroker.handlers.get_telemetry_subscriptions import handle_get_telemetry_subscriptions
from pykbroker.handlers.push_telemetry import handle_push_telemetry
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import ConfigRecord
from pykbroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykbroker.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from pykbroker.protocol.messages.push_telemetry import PushTelemetryRequest
from pykbroker.requests.context import RequestContext
from pykbroker.telemetry.client_telemetry import ClientTelemetry
from pykbroker.telemetry.receivers import TelemetryContext, TelemetryPayload
from tests.support.admin import apply_records, call, make_context, make_services
from tests.support.services import Services

HERE = f"{__name__}:"
TELEMETRY_APIS = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}


class Clock:
    def __init__(self) -> None:
        self.time_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.time_ms


class Receiver:
    """Keeps what it is given."""

    received: ClassVar[list[tuple[TelemetryContext, TelemetryPayload]]] = []

    def export_metrics(self, context: TelemetryContext, payload: TelemetryPayload) -> None:
        Receiver.received.append((context, payload))


class FailingReceiver:
    def export_metrics(self, context: TelemetryContext, payload: TelemetryPayload) -> None:
        raise OSError("the disk is full")


class NoReceiver:
    pass


@pytest.fixture(autouse=True)
def _forget() -> None:
    Receiver.received = []


def context_with(receiver: str, **properties: str) -> RequestContext[Services]:
    services = make_services({"metric.reporters": receiver, **properties})
    return make_context(services=services.replaced(clock=Clock()), client_id="me")


def subscribe(context: RequestContext[Services], **configs: str | None) -> None:
    cache = context.services.metadata
    records = [
        ConfigRecord(resource_type=16, resource_name="s", name=name.replace("_", "."), value=value)
        for name, value in configs.items()
    ]
    cache.apply(cache.image, apply_records(cache.image, records))


def ask(context: RequestContext[Services], client: bytes = bytes(16)) -> Any:
    return call(
        handle_get_telemetry_subscriptions, context, GetTelemetrySubscriptionsRequest(client_instance_id=client)
    )


def push(context: RequestContext[Services], subscription: Any, metrics: bytes = b"metrics", codec: int = 0) -> int:
    request = PushTelemetryRequest(
        client_instance_id=subscription.client_instance_id,
        subscription_id=subscription.subscription_id,
        compression_type=codec,
        metrics=metrics,
    )
    code: int = call(handle_push_telemetry, context, request).error_code
    return code


def test_metrics_reach_the_receiver_decompressed() -> None:
    context = context_with(f"org.apache.kafka.common.metrics.JmxReporter,{HERE}Receiver")
    versions = ApiVersionsRequest(client_software_name="mine", client_software_version="7")
    context.api_version = 4
    call(handle_api_versions, context, versions)
    context.api_version = 0
    subscribe(context, metrics="a.,b.", interval_ms="1000", match="client_software_name=mi.*")
    subscription = ask(context)
    assert subscription.client_instance_id != bytes(16)
    assert subscription.requested_metrics == ["b.", "a."]  # a Java set's order
    assert subscription.accepted_compression_types == [4, 3, 1, 2]
    assert (subscription.push_interval_ms, subscription.telemetry_max_bytes) == (1000, 1_048_576)
    assert push(context, subscription, gzip.compress(b"metrics"), 1) == ErrorCode.NONE
    ((client, payload),) = Receiver.received
    assert client == TelemetryContext("me", "mine", "7", "127.0.0.1", 50000, "User:ANONYMOUS", "PLAINTEXT", 1000)
    assert payload == TelemetryPayload(subscription.client_instance_id, False, "OTLP", b"metrics")


def test_changed_subscriptions_are_told_at_once() -> None:
    context = context_with(f"{HERE}Receiver")
    first = ask(context)
    assert (first.requested_metrics, first.push_interval_ms) == ([], 300_000)
    assert ask(context, first.client_instance_id).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    subscribe(context, metrics="a.")
    second = ask(context, first.client_instance_id)
    assert second.requested_metrics == ["a."]
    assert push(context, first) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    subscribe(context, metrics=None)
    assert ask(context, first.client_instance_id).requested_metrics == []


def test_the_last_instance_of_a_connection_is_forgotten_with_it() -> None:
    context = context_with(f"{HERE}Receiver")
    closed: list[str] = []
    context.connection.when_closed("share sessions", lambda: closed.append("sessions"))
    first, second = ask(context), ask(context)
    context.connection.call_when_closed()
    assert closed == ["sessions"]
    assert ask(context, first.client_instance_id).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert ask(context, second.client_instance_id).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("metrics", "codec"), [(b"no gzip", 1), (gzip.compress(bytes(2000)), 1)], ids=["malformed", "too large"]
)
@pytest.mark.parametrize("receiver", [f"{HERE}Receiver", ""])
def test_what_cannot_be_decompressed_is_an_invalid_record(receiver: str, metrics: bytes, codec: int) -> None:
    """P-202. Without a receiver too."""
    context = context_with(receiver, **{"telemetry.max.bytes": "1000"})
    assert push(context, ask(context), metrics, codec) == ErrorCode.INVALID_RECORD
    assert Receiver.received == []


def test_a_receiver_that_fails_is_an_invalid_record() -> None:
    context = context_with(f"{HERE}FailingReceiver")
    assert push(context, ask(context)) == ErrorCode.INVALID_RECORD


def test_an_id_that_no_client_has_is_refused() -> None:
    context = context_with(f"{HERE}Receiver")
    for client in (bytes(16), bytes(15) + b"\x01"):
        request = PushTelemetryRequest(client_instance_id=client)
        with pytest.raises(KafkaError) as refused:
            call(handle_push_telemetry, context, request)
        assert refused.value.error_code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("receiver", "is_listed"), [(f"{HERE}Receiver", True), ("org.example.Reporter", False)])
def test_the_apis_are_listed_with_a_receiver(receiver: str, is_listed: bool) -> None:
    """P-203. Without one they are served too, as in Kafka."""
    context = context_with(receiver)
    response = encode(call(handle_api_versions, context, ApiVersionsRequest()), context.api_version)
    listed = {one.api_key for one in decode(ApiVersionsResponse, context.api_version, response).api_keys}
    assert (listed & TELEMETRY_APIS) == (TELEMETRY_APIS if is_listed else set())
    assert push(context, ask(context)) == ErrorCode.NONE
    assert len(Receiver.received) == is_listed


@pytest.mark.parametrize(
    ("receiver", "reason"),
    [
        ("no_such_module:Receiver", "cannot be loaded: ModuleNotFoundError"),
        (f"{HERE}Missing", "cannot be loaded: AttributeError"),
        (f"{HERE}NoReceiver", "has no method export_metrics"),
    ],
)
def test_a_receiver_that_cannot_be_loaded_stops_the_start(receiver: str, reason: str) -> None:
    context = context_with(receiver)
    with pytest.raises(ConfigError, match=reason):
        context.services.telemetry.load()


def test_a_receiver_that_can_no_longer_be_loaded(caplog: pytest.LogCaptureFixture) -> None:
    """The dynamic setting names a class that is not there: the log says why metrics do not arrive."""
    telemetry = ClientTelemetry(make_services({"metric.reporters": "no_such_module:Class"}).metadata)
    nothing: Any = None
    with pytest.raises(ConfigError, match="no_such_module"):
        telemetry.export(nothing, nothing)
    assert "client metrics are not passed on to the receivers: " in caplog.text
