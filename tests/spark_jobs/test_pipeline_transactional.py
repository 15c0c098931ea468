"""The transactional sink on a fake Kafka: a batch is written once, whatever fails in between."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from pipeline import transactional
from pipeline.transactional import TransactionalSink


class FakeError(Exception):
    """Stands for KafkaException."""


class FakeKafka:
    """Committed records and numbers of groups; each step of `failures` fails once, before or after it took effect."""

    def __init__(self, *failures: str) -> None:
        self.failures = list(failures)
        self.records: list[tuple[str, Any]] = []
        self.numbers: dict[str, int] = {}
        self.opened = 0

    def fail_if_due(self, step: str) -> None:
        if step in self.failures:
            self.failures.remove(step)
            raise FakeError(step)

    def module(self) -> Any:
        kafka = self

        class Producer:
            def __init__(self, settings: Mapping[str, Any]) -> None:
                kafka.opened += 1
                self.pending: list[tuple[str, Any]] = []
                self.offset: tuple[str, int] | None = None

            def init_transactions(self, timeout_s: float) -> None:
                kafka.fail_if_due("init")

            def begin_transaction(self) -> None:
                self.pending, self.offset = [], None

            def produce(self, topic: str, value: Any, key: Any, on_delivery: Any, **more: Any) -> None:
                self.pending.append((topic, value))
                offset = len(kafka.records) + len(self.pending) - 1
                on_delivery(None, SimpleNamespace(partition=lambda: 0, offset=lambda: offset))

            def poll(self, timeout_s: float) -> None:
                pass

            def flush(self, timeout_s: float) -> int:
                kafka.fail_if_due("flush")
                return 0

            def send_offsets_to_transaction(self, offsets: list[Any], group: str, timeout_s: float) -> None:
                kafka.fail_if_due("offsets")
                if "offsets hang" in kafka.failures:
                    kafka.failures.remove("offsets hang")
                    threading.Event().wait()
                self.offset = (group, offsets[0].offset)

            def commit_transaction(self, timeout_s: float) -> None:
                kafka.fail_if_due("before commit")
                kafka.records += self.pending
                assert self.offset is not None
                kafka.numbers[self.offset[0]] = self.offset[1]
                kafka.fail_if_due("after commit")

        class Consumer:
            def __init__(self, settings: Mapping[str, Any]) -> None:
                assert settings["isolation.level"] == "read_committed"
                self.group = settings["group.id"]

            def committed(self, partitions: list[Any], timeout_s: float) -> list[Any]:
                return [SimpleNamespace(offset=kafka.numbers.get(self.group, -1001))]

            def consumer_group_metadata(self) -> str:
                return str(self.group)

        class TopicPartition:
            def __init__(self, topic: str, partition: int, offset: int = -1001) -> None:
                self.offset = offset

        return SimpleNamespace(
            Producer=Producer,
            Consumer=Consumer,
            TopicPartition=TopicPartition,
            KafkaException=FakeError,
            KafkaError=None,
        )


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional, "RETRY_PAUSE_S", 0)


def sink_on(kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch) -> TransactionalSink:
    monkeypatch.setitem(sys.modules, "confluent_kafka", kafka.module())
    return TransactionalSink("", "sink", "out")


def rows(*values: str) -> Any:
    def give() -> Iterator[Mapping[str, Any]]:
        for value in values:
            yield {"topic": "out", "key": None, "value": value}

    return give


@pytest.mark.parametrize("step", ["init", "flush", "offsets", "before commit", "after commit"])
def test_a_batch_is_there_once_whatever_step_fails(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = FakeKafka(step)
    sink = sink_on(kafka, monkeypatch)
    is_new = sink.write(rows("a", "b"), 0)
    assert kafka.records == [("out", "a"), ("out", "b")]
    # After a commit whose answer was lost, the number says that nothing is left to do.
    assert is_new == (step != "after commit")
    assert kafka.opened == 2
    assert sink.write(rows("c"), 1)
    assert [value for _, value in kafka.records] == ["a", "b", "c"]


def test_a_job_that_starts_again_leaves_out_what_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = FakeKafka()
    assert sink_on(kafka, monkeypatch).write(rows("a"), 7)
    again = sink_on(kafka, monkeypatch)
    assert again.written() == 7
    assert not again.write(rows("a"), 7)
    assert again.write(rows("b"), 8)
    assert [value for _, value in kafka.records] == ["a", "b"]


def test_rows_that_need_offsets_come_last_and_are_in_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = FakeKafka("before commit")
    sink = sink_on(kafka, monkeypatch)
    offsets: list[int] = []

    def begin() -> Iterator[Mapping[str, Any]]:
        offsets.clear()
        yield from rows("a", "b")()

    sink.write(begin, 0, lambda row, partition, offset: offsets.append(offset), lambda: rows(f"at {offsets}")())
    assert [value for _, value in kafka.records] == ["a", "b", "at [0, 1]"]


def test_a_broker_that_stays_away_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sink_on(FakeKafka(*["init"] * transactional.ATTEMPTS), monkeypatch)
    with pytest.raises(FakeError):
        sink.write(rows("a"), 0)


def test_a_call_that_does_not_come_back_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional, "OFFSETS_TIMEOUT_S", 0.0)
    monkeypatch.setattr(transactional, "OVERDUE_S", 0.2)
    kafka = FakeKafka("offsets hang")
    sink = sink_on(kafka, monkeypatch)
    assert sink.write(rows("a"), 0)
    assert kafka.records == [("out", "a")]
    assert kafka.opened >= 2
