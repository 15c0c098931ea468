"""The adapters when a client library fails: calls that are repeated, and errors for the test."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("kafka")

import kafka.errors
from confluent_kafka import KafkaError, KafkaException

from pykbroker.testing import client_confluent_kafka, client_kafka_python
from pykbroker.testing.client_confluent_kafka import ConfluentKafka
from pykbroker.testing.client_kafka_python import KafkaPython
from pykbroker.testing.client_library import LocalBrokerError, NewRecord, NewTopic, Reading
from pykbroker.testing.client_settings import Access

ACCESS = Access("127.0.0.1:1")
LEADER_AWAY = kafka.errors.LeaderNotAvailableError("no leader")
NOT_AUTHORIZED = kafka.errors.TopicAuthorizationFailedError("no")


class Clock:
    """The module `time` of an adapter: a sleep only moves the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.monotonic = lambda: self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(client_kafka_python, "time", clock)
    monkeypatch.setattr(client_confluent_kafka, "time", clock)
    return clock


class Closeable:
    """A client of any library, which is closed."""

    DEFAULT_CONFIG: dict[str, Any] = {}  # noqa: RUF012  as that of the library

    def __init__(self, *_: Any, **__: Any) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def raising(*errors: BaseException | Any) -> Callable[..., Any]:
    """A function whose calls raise these errors in order, or return a value that is no error; the last one repeats."""
    left = list(errors)

    def call(*_: Any, **__: Any) -> Any:
        outcome = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return call


# kafka-python


def read_by_kafka_python(monkeypatch: pytest.MonkeyPatch, *outcomes: Any) -> Any:
    monkeypatch.setattr(client_kafka_python, "KafkaConsumer", Closeable)
    monkeypatch.setattr(client_kafka_python, "_read", raising(*outcomes))
    return KafkaPython().consume(ACCESS, Reading("t", 1, 1.0, True, "read_committed"))


def test_a_partition_without_leader_is_read_again(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    assert read_by_kafka_python(monkeypatch, LEADER_AWAY, LEADER_AWAY, ["record"]) == ["record"]
    assert clock.now == pytest.approx(0.2)


@pytest.mark.parametrize(("error", "waited_s"), [(LEADER_AWAY, 1.0), (NOT_AUTHORIZED, 0.0)])
def test_a_read_that_fails(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, error: kafka.errors.KafkaError, waited_s: float
) -> None:
    """A retriable error at the deadline, any other one at once."""
    with pytest.raises(LocalBrokerError, match="t could not be read"):
        read_by_kafka_python(monkeypatch, error)
    assert clock.now == pytest.approx(waited_s, abs=0.11)


def test_the_end_of_a_topic_that_is_not_reached(clock: Clock) -> None:
    consumer = SimpleNamespace(
        partitions_for_topic=lambda topic: {0},
        assign=lambda partitions: None,
        seek_to_beginning=lambda *partitions: None,
        end_offsets=lambda partitions: dict.fromkeys(partitions, 5),
        position=lambda partition: 3,
        poll=lambda timeout_ms: clock.sleep(timeout_ms / 1000) or {},  # type: ignore[func-returns-value]
    )
    with pytest.raises(LocalBrokerError, match="the end of t was not reached in time"):
        client_kafka_python._read(consumer, "t", None, 1.0, True)


@pytest.mark.parametrize("error", [kafka.errors.CoordinatorNotAvailableError(), kafka.errors.GroupIdNotFoundError()])
def test_a_group_without_a_coordinator_is_dead(monkeypatch: pytest.MonkeyPatch, error: kafka.errors.KafkaError) -> None:
    monkeypatch.setattr(client_kafka_python, "KafkaAdminClient", Closeable)
    monkeypatch.setattr(client_kafka_python, "_describe", raising(error, NOT_AUTHORIZED))
    with KafkaPython().group_states(ACCESS, "g") as ask:
        assert ask(1.0) == ("dead", 0)
    states = KafkaPython().group_states(ACCESS, "g")
    with pytest.raises(LocalBrokerError, match="group g could not be described"), states as ask:
        ask(1.0)


@pytest.mark.skipif(not client_kafka_python._NOT_SENT, reason="this kafka-python has no such error")
def test_a_controller_that_stays_away(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    admin = type("Admin", (Closeable,), {"create_topics": raising(client_kafka_python._NOT_SENT[0](1))})
    monkeypatch.setattr(client_kafka_python, "KafkaAdminClient", admin)
    with pytest.raises(LocalBrokerError, match="topic t was not created"):
        KafkaPython().create_topic(ACCESS, NewTopic("t", 1, 1, {}), 1.0)
    assert clock.now == pytest.approx(1.0, abs=0.11)


# confluent-kafka


def test_a_record_that_librdkafka_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = raising(KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)))
    monkeypatch.setattr(client_confluent_kafka, "Producer", lambda settings: SimpleNamespace(produce=refused))
    with pytest.raises(LocalBrokerError, match="record 0 was not written to t"):
        ConfluentKafka().produce(ACCESS, "t", [NewRecord(None, b"v", (), None)], 1.0)


def read_by_librdkafka(monkeypatch: pytest.MonkeyPatch, consumer: dict[str, Any]) -> Any:
    calls = {"assign": lambda partitions: None, "close": lambda: None, **consumer}
    monkeypatch.setattr(client_confluent_kafka, "Consumer", lambda settings: SimpleNamespace(**calls))
    return ConfluentKafka().consume(ACCESS, Reading("t", None, 1.0, True, "read_committed"))


def topic(*partitions: int, error: Any = None) -> Callable[..., Any]:
    found = SimpleNamespace(partitions=dict.fromkeys(partitions), error=error)
    return lambda name, timeout: SimpleNamespace(topics={name: found})


def test_the_end_of_a_topic_that_librdkafka_does_not_reach(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    def consume(count: int, timeout_s: float) -> list[Any]:
        clock.sleep(timeout_s)
        return []

    with pytest.raises(LocalBrokerError, match="the end of t was not reached within 1 s"):
        read_by_librdkafka(monkeypatch, {"list_topics": topic(0), "consume": consume})


def test_a_fatal_error_of_librdkafka(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Other errors are those of a moment, such as a leader that is away: the read goes on until its deadline."""
    fatal = KafkaError(KafkaError._FATAL, "it is over", fatal=True)
    messages = [SimpleNamespace(error=lambda error=error: error) for error in (KafkaError(5), fatal)]
    with pytest.raises(LocalBrokerError, match="t could not be read: it is over"):
        read_by_librdkafka(monkeypatch, {"list_topics": topic(0), "consume": lambda count, timeout_s: messages})


@pytest.mark.parametrize(
    ("list_topics", "text"),
    [
        (raising(KafkaException(KafkaError(KafkaError._TRANSPORT, "no broker"))), "the partitions of t are not known"),
        (topic(error=KafkaError(3, "unknown topic")), "there is no topic t: unknown topic"),
        (topic(), "there is no topic t: no partitions"),
    ],
)
def test_a_topic_that_librdkafka_does_not_find(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, list_topics: Callable[..., Any], text: str
) -> None:
    with pytest.raises(LocalBrokerError, match=text):
        read_by_librdkafka(monkeypatch, {"list_topics": list_topics})


def test_a_group_that_librdkafka_cannot_describe(monkeypatch: pytest.MonkeyPatch) -> None:
    loading, refused = (KafkaException(KafkaError(code)) for code in (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, 30))
    answers = SimpleNamespace(result=raising(loading, refused))
    admin = SimpleNamespace(describe_consumer_groups=lambda groups, request_timeout: {"g": answers})
    monkeypatch.setattr(client_confluent_kafka, "AdminClient", lambda settings: admin)
    with ConfluentKafka().group_states(ACCESS, "g") as ask:
        assert ask(1.0) == ("dead", 0)
        with pytest.raises(LocalBrokerError, match="group g could not be described"):
            ask(1.0)
