"""The rules for client instances and their subscriptions (KIP-714; P-202)."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.telemetry.client_instances import INSTANCE_COUNT_MAX, ClientInstances, Push
from pykbroker.telemetry.subscriptions import Requested, Subscription, in_map_order, requested

ONE, TWO = b"1" * 16, b"2" * 16
NOW = 1_700_000_000_000
INTERVAL = 10_000


@pytest.fixture
def instances() -> ClientInstances:
    made = ClientInstances()
    made.set_subscriptions([subscription()])
    return made


def subscription(metrics: str = "a.", interval_ms: int = INTERVAL, match: str = "") -> Subscription:
    return Subscription.from_configs({"metrics": metrics, "interval.ms": str(interval_ms), "match": match})


def ask(instances: ClientInstances, now_ms: int, client: bytes = ONE) -> ErrorCode:
    return instances.ask(client, {"client_id": "me"}, now_ms, "connection")[0]


def push(instances: ClientInstances, now_ms: int, **options: Any) -> ErrorCode:
    """A push that is right but for the options."""
    instance = instances._instances.get(ONE)
    request = {
        "subscription_id": 0 if instance is None else instance.subscription_id,
        "compression_type": 0,
        "size_bytes": 10,
        "is_terminating": False,
        **options,
    }
    return instances.push(ONE, {"client_id": "me"}, now_ms, "connection", Push(**request), 100)[0]


def test_a_client_may_ask_once_an_interval(instances: ClientInstances) -> None:
    assert ask(instances, NOW) == ErrorCode.NONE
    assert ask(instances, NOW + INTERVAL - 1) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert ask(instances, NOW + INTERVAL) == ErrorCode.NONE


def test_another_subscription_is_given_at_once(instances: ClientInstances) -> None:
    ask(instances, NOW)
    before = instances._instances[ONE].subscription_id
    instances.set_subscriptions([subscription("b.")])
    assert ask(instances, NOW + 1) == ErrorCode.NONE
    assert instances._instances[ONE].subscription_id != before


def test_the_first_push_may_be_early_and_the_next_may_not(instances: ClientInstances) -> None:
    ask(instances, NOW)
    assert push(instances, NOW + 1) == ErrorCode.NONE
    assert push(instances, NOW + INTERVAL) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(instances, NOW + 1 + INTERVAL) == ErrorCode.NONE


def test_nothing_comes_after_the_last_push(instances: ClientInstances) -> None:
    ask(instances, NOW)
    push(instances, NOW + 1)
    assert push(instances, NOW + 2, is_terminating=True) == ErrorCode.NONE
    assert push(instances, NOW + 3 * INTERVAL) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"subscription_id": 5}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"size_bytes": 101}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"size_bytes": 101, "subscription_id": 5}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
    ],
)
def test_a_wrong_push(instances: ClientInstances, options: dict[str, int], error: ErrorCode) -> None:
    """After the first two errors the client may ask again at once, for what it has got wrong."""
    ask(instances, NOW)
    assert push(instances, NOW + 1, **options) == error
    may_ask = error in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    assert (ask(instances, NOW + 2) == ErrorCode.NONE) is may_ask


def test_instances_end_after_three_intervals_or_a_minute(instances: ClientInstances) -> None:
    ask(instances, NOW)
    ask(instances, NOW + 60_000, TWO)
    assert ONE not in instances._instances
    instances.set_subscriptions([subscription(interval_ms=100_000)])
    ask(instances, NOW + 70_000, TWO)
    assert ask(instances, NOW + 70_001) == ErrorCode.NONE
    assert ask(instances, NOW + 70_000 + 299_999, TWO) == ErrorCode.NONE
    assert len(instances) == 2


def test_the_last_instance_of_a_connection_ends_with_it(instances: ClientInstances) -> None:
    """P-202: as Apache Kafka remembers one instance of a connection."""
    ask(instances, NOW)
    ask(instances, NOW, TWO)
    ask(instances, NOW + 1)
    instances.connection_closed("connection")
    instances.connection_closed("connection")
    assert ask(instances, NOW + 2) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert ask(instances, NOW + 2, TWO) == ErrorCode.NONE
    instances.set_subscriptions([subscription("b.")])
    assert ask(instances, NOW + 3) == ErrorCode.NONE, "made anew"
    instances.connection_closed("connection")
    assert ask(instances, NOW + 4) == ErrorCode.NONE


def test_the_number_of_instances_is_limited(instances: ClientInstances) -> None:
    for number in range(INSTANCE_COUNT_MAX + 5):
        ask(instances, NOW, number.to_bytes(16, "big"))
    assert len(instances) == INSTANCE_COUNT_MAX
    assert (4).to_bytes(16, "big") not in instances._instances


def test_metrics_whose_hashes_collide_are_in_the_order_of_their_subscriptions() -> None:
    """P-202. The order is a part of the subscription id."""
    metrics = {"b": "Aa", "a": "BB"}
    assert in_map_order(metrics) == ["a", "b"]
    found = requested([subscription(metrics[name]) for name in in_map_order(metrics)], {})
    assert found.metrics == ("BB", "Aa")


def test_subscriptions_that_match_are_added_up() -> None:
    subscriptions = [
        subscription("a,b", 20_000, "client_id=me,client_software_name=lib.*"),
        subscription("b,c", 15_000, "client_id=m"),
        subscription("d", 30_000),
    ]
    attributes = {"client_id": "me", "client_software_name": "librdkafka"}
    assert requested(subscriptions, attributes) == Requested(("a", "b", "d"), 20_000)
    assert requested(subscriptions, {"client_id": "m"}) == Requested(("b", "c", "d"), 15_000)
    assert requested([], attributes) == Requested((), 300_000)
    assert requested([*subscriptions, subscription("*")], attributes).metrics == ("*",)


def test_many_subscriptions_are_in_the_order_of_a_larger_map() -> None:
    """A ConcurrentHashMap doubles its 16 buckets at twelve entries."""
    assert in_map_order("PABCDEFGHIJK") == list("ABCDEFGHIJKP")
    assert in_map_order("PABCDEFGHIJ") == list("PABCDEFGHIJ")


def test_an_instance_that_has_expired_behind_one_that_has_not() -> None:
    """Instances are removed from the least recently used on, and one with a short interval may expire before it."""
    instances = ClientInstances()
    instances.set_subscriptions([subscription(match="client_id=me")])
    instances.ask(TWO, {"client_id": "slow"}, NOW, "other")
    ask(instances, NOW)
    before = instances._instances[ONE]
    assert before.expires_at_ms < instances._instances[TWO].expires_at_ms
    assert ask(instances, before.expires_at_ms) == ErrorCode.NONE
    assert instances._instances[ONE] is not before
