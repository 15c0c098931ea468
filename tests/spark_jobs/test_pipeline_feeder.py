"""The feeder sends no more than it may, and all in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pipeline.feeder import AHEAD_SHARE, HEAD_SHARE, Feeder
from pipeline.records import Record

RECORDS = [Record("in", b"%d" % number, b"{}", number) for number in range(400)]
POLLS_OF_A_STOP = 60


class FakeProducer:
    """Acknowledges each record at once; tells what it was given, and when it is only asked to wait."""

    def __init__(self, on_record: Callable[[int], None], on_stop: Callable[[], None]) -> None:
        self._on_record, self._on_stop = on_record, on_stop
        self._sent = self._idle_polls = 0

    def produce(self, *_: Any, on_delivery: Callable[[Any, Any], None], **__: Any) -> None:
        self._sent += 1
        self._idle_polls = 0
        on_delivery(None, None)
        self._on_record(self._sent)

    def poll(self, _: float) -> None:
        self._idle_polls += 1
        if self._idle_polls == POLLS_OF_A_STOP:
            self._idle_polls = 0
            self._on_stop()

    def flush(self) -> None: ...


def test_the_input_waits_for_a_job_that_is_not_live(monkeypatch: pytest.MonkeyPatch) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    feeder = Feeder("", RECORDS, 0.001, lambda topic: topic)
    live_s = 0.0
    stops: list[int] = []

    def stopped() -> None:
        nonlocal live_s
        stops.append(feeder.count)
        live_s += 0.0005
        feeder.follow(live_s)

    def sent(count: int) -> None:
        assert count - 1 <= feeder.reach * len(RECORDS)

    monkeypatch.setattr(confluent_kafka, "Producer", lambda _: FakeProducer(sent, stopped))
    feeder.follow(live_s)
    feeder.go.set()
    feeder.work()
    assert feeder.count == len(RECORDS)
    first, second = (int((HEAD_SHARE + (1 - HEAD_SHARE) * share + AHEAD_SHARE) * len(RECORDS)) for share in (0, 0.5))
    assert stops == [first + 1, second + 1]


def test_an_input_of_no_length_waits_for_nobody() -> None:
    feeder = Feeder("", RECORDS, 0, lambda topic: topic)
    feeder.follow(0.0)
    assert feeder.reach == 1.0
