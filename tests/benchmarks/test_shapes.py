"""The table of shapes, what the load is told, and the figures that come out."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from benchmarks import shapes
from benchmarks.__main__ import Plan, plan_of, without_go
from benchmarks.brokers import BrokerFailedError
from benchmarks.load_shapes import Run, arguments_of, runs_of, table_rows
from benchmarks.reports import figure, table
from benchmarks.summaries import medians, missing

BULK = shapes.Shape("many", "kind", ("bulk",), size=1000, records=50, quick_records=5)


def test_names_are_different_and_so_are_the_topics_that_are_written() -> None:
    written = [shapes.topic_of(shape) for shape in shapes.SHAPES if not shape.reads]
    assert len(set(written)) == len(written)
    names = [shape.name for shape in shapes.SHAPES]
    assert len(set(names)) == len(names)


def test_what_is_read_was_written_before_in_the_same_size() -> None:
    before: dict[str, shapes.Shape] = {}
    for shape in shapes.SHAPES:
        if shape.reads:
            writer = before[shape.reads]
            assert (writer.records, writer.quick_records, writer.size) == (
                shape.records,
                shape.quick_records,
                shape.size,
            )
        before[shape.name] = shape


def test_the_load_is_told_records_or_a_time() -> None:
    assert arguments_of(BULK, 3, quick=True) == ["bulk", "-topic", "many", "-size", "1000", "-records", "5"]
    timed = shapes.Shape("16 clients", "small", ("produce",))
    assert arguments_of(timed, 3, quick=False)[-2:] == ["-duration", "3s"]


def test_figures_of_a_run() -> None:
    found: dict[str, float] = {
        "sent": 50,
        "records": 40,
        "seconds": 2,
        "p50_us": 1000,
        "p99_us": 2000,
        "p999_us": 3000,
        "max_us": 4000,
    }
    (run,) = runs_of(BULK, "pykbroker", found, cpu_s=0.1)
    assert (run.per_s, run.cpu_us, run.cpu_s_per_gb) == (20, 2000, 2000)
    assert (run.p50_ms, run.max_ms) == (1, 4)


def test_a_shape_without_latencies_has_none() -> None:
    found: dict[str, float] = {"sent": 50, "records": 50, "seconds": 1, "max_us": 0}
    assert runs_of(BULK, "pykbroker", found, cpu_s=0.1)[0].p50_ms is None


def test_transactions_have_the_latencies_of_the_commit_and_of_the_whole() -> None:
    latencies = {"p50_us": 1000, "p99_us": 2000, "p999_us": 3000, "max_us": 4000}
    whole = {name: value + 500 for name, value in latencies.items()}
    found = {"sent": 50, "records": 40, "seconds": 2, **latencies, "whole": whole}
    commit, all_of_it = runs_of(shapes.transactions(16), "kafka", found, cpu_s=0.1)
    assert (commit.case, commit.per_s, commit.p50_ms) == ("transactions, 16 clients", 20, 1)
    assert (all_of_it.case, all_of_it.per_s, all_of_it.cpu_us) == ("transactions, 16 clients, whole", None, None)
    assert (all_of_it.p50_ms, all_of_it.max_ms) == (1.5, 4.5)


def test_a_broker_that_cannot_do_it_is_missing_and_not_zero() -> None:
    runs = [Run("a", "pykbroker", "record", per_s=10.0), Run("a", "kfake", "record", missing="refused")]
    assert [row[:3] for row in table_rows(runs)] == [["a", "pykbroker", "10.0"], ["a", "kfake", "-"]]
    assert missing([asdict(run) for run in runs]) == ["a on kfake: refused"]


def test_the_median_of_the_rounds_with_the_brokers_of_a_case_together() -> None:
    runs = [Run(case, name, "record", per_s=rate) for name in "xy" for case in "ab" for rate in (1.0, 9.0, 2.0)]
    assert medians([asdict(run) for run in runs])["a", "y"] == {"per_s": 2.0}
    assert [row[:3] for row in table_rows(runs)] == [
        ["a", "x", "2.00"],
        ["a", "y", "2.00"],
        ["b", "x", "2.00"],
        ["b", "y", "2.00"],
    ]


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.1234, "0.123"), (9.876, "9.88"), (12.34, "12.3"), (12345.6, "12,346")]
)
def test_a_figure_has_three_digits_that_count(value: float | None, text: str) -> None:
    assert figure(value) == text


def test_a_table_in_markdown() -> None:
    assert table(("a", "b"), [["1", "2"]]) == ["| a | b |", "| --- | --- |", "| 1 | 2 |"]


def test_the_command_line() -> None:
    plan = plan_of(["--quick", "--peer", "kfake", "--only", "latency", "--only", "codecs"])
    assert plan == Plan(["pykbroker", "kfake"], ["latency"], ["codecs"], rounds=1, seconds=2, quick=True)
    assert plan_of(["--broker", "kafka"]).brokers == ["kafka"]


def test_without_go_the_tools_are_left(capsys: pytest.CaptureFixture[str]) -> None:
    assert without_go(plan_of([])).loads == []
    assert "Go is not installed" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--peer", "kfake"], ["--only", "small"]])
def test_what_needs_go_says_so(arguments: list[str]) -> None:
    with pytest.raises(BrokerFailedError, match="Go"):
        without_go(plan_of(arguments))
