"""Metrics that clients push (KIP-714); Apache Kafka judges them without a receiver too, but does not list the APIs."""

from __future__ import annotations

import gzip

from pykbroker.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from pykbroker.protocol.messages.push_telemetry import PushTelemetryRequest
from tests.differential.scenarios.admin import CLIENT_METRICS, DELETE, SET, Admin
from tests.differential.world import World

METRICS = ("org.apache.kafka.producer.", "org.apache.kafka.consumer.fetch.manager.", "a.b", "c", "z.y.x", "total")


def client_telemetry(world: World) -> None:
    """P-202."""
    admin = Admin(world)
    first, second, third = (bytes([number]) * 16 for number in (0x21, 0x82, 0xE3))

    def ask(client: bytes) -> int:
        response = world.call(GetTelemetrySubscriptionsRequest(client_instance_id=client), 0)
        number: int = response.subscription_id
        return number

    def push(client: bytes, subscription_id: int, metrics: bytes = b"", codec: int = 0, *, last: bool = False) -> None:
        request = PushTelemetryRequest(
            client_instance_id=client,
            subscription_id=subscription_id,
            terminating=last,
            compression_type=codec,
            metrics=metrics,
        )
        world.call(request, 0)

    def subscribe(name: str, **configs: str | None) -> None:
        edits = [(key.replace("_", "."), DELETE if value is None else SET, value) for key, value in configs.items()]
        admin.edit((CLIENT_METRICS, name, edits))

    number = ask(first)
    ask(first)
    subscribe("all", metrics=",".join(METRICS), interval_ms="200000")
    number = ask(first)
    push(first, number, b"metrics")
    push(first, number, b"metrics")
    push(first, number + 1, b"", last=True)
    push(first, number, b"", last=True)
    ask(first)
    push(second, 0, b"metrics")
    number = ask(second)
    push(second, number, b"metrics", 9, last=True)
    number = ask(third)
    push(third, number, gzip.compress(b"metrics"), 1)
    push(third, number, bytes(1048577), last=True)
    push(bytes(16), 0)
    push(bytes(15) + b"\x01", 0)
    # Another subscription, for nobody here, for those whose software is unknown, and for everything.
    subscribe("others", metrics="d", interval_ms="100", match="client_id=nobody.*")
    ask(third)
    subscribe(
        "some", metrics="c,d", interval_ms="150000", match="client_source_address=127.*,client_source_port=[0-9]+"
    )
    ask(third)
    subscribe("some", metrics="*")
    ask(third)
    subscribe("some", metrics=None, interval_ms=None, match=None)
    ask(third)
    for match in ("x", "client_id=", "client_id=a=b", "client_id=a==", "nope=1", "client_id=(", "=a", "client_id"):
        subscribe("matches", match=match)
    subscribe("all", metrics=None, interval_ms=None)
    ask(third)
