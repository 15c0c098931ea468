"""benchmarks/spark.py: the order in which the brokers are measured, and what is said of a p99."""

from __future__ import annotations

import pytest

pytest.importorskip("confluent_kafka")

from benchmarks.spark import notes_of_triggers, triggers_since, turns


def test_each_broker_is_the_first_in_every_second_round() -> None:
    order = turns(["one batch", "catch-up"], ["pykbroker", "kafka"], 2)

    assert list(order) == [
        ("one batch", "pykbroker"),
        ("one batch", "kafka"),
        ("catch-up", "pykbroker"),
        ("catch-up", "kafka"),
        ("one batch", "kafka"),
        ("one batch", "pykbroker"),
        ("catch-up", "kafka"),
        ("catch-up", "pykbroker"),
    ]


def progress(timestamp: str, rows: int, milliseconds: int) -> dict[str, object]:
    return {"timestamp": timestamp, "numInputRows": rows, "durationMs": {"triggerExecution": milliseconds}}


def test_triggers_of_the_warm_up_and_without_records_do_not_count() -> None:
    found = [
        progress("2026-11-25T18:00:09.999Z", 5, 1),
        progress("2026-11-25T18:00:10.000Z", 5, 2),
        progress("2026-11-25T18:00:10.000Z", 0, 3),
        progress("2026-11-25T18:00:10.001Z", 5, 4),
    ]
    began_at = "2026-11-25T18:00:10.000+00:00"
    assert [trigger["triggerExecution"] for trigger in triggers_since(found, began_at)] == [2, 4]


def test_a_p99_of_few_triggers_is_said_to_be_one() -> None:
    def run(p99_ms: float, triggers: int, slowest: int) -> dict[str, float]:
        parts = {"slowest triggerExecution": slowest, "slowest addBatch": slowest - 40, "slowest walCommit": 40}
        return {"p99_ms": p99_ms, "triggers": triggers} | parts

    (few,) = notes_of_triggers("10,000 records/s", "kafka", [run(855, 60, 400), run(1213, 61, 900)])
    assert "p99 of the rounds 855, 1,213 ms; 121 triggers" in few
    assert "the slowest 900 ms (addBatch 860, walCommit 40)" in few
    assert "fewer than 300" in few
    (many,) = notes_of_triggers("10,000 records/s", "kafka", [run(855, 150, 400), run(1213, 150, 900)])
    assert "fewer" not in many
    assert not notes_of_triggers("one batch", "kafka", [{"mb_per_s": 3}])
