"""Progress of queries: from Spark's JSON to the lines of the log and to the history of a run."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pipeline.command_line import first_kills, settings_of
from pipeline.history import History
from pipeline.model import Pipeline
from pipeline.options import parser
from pipeline.outcome import Outcome
from pipeline.plots import rates
from pipeline.progress import Batch, batch_of, parse_line
from pipeline.records import Difference, Record, Results, Topic
from pipeline.report import html, query_lines, repeat_command
from pipeline.settings import RunResult, RunSettings
from pipeline.streams import Streams


def progress(**changes: Any) -> dict[str, Any]:
    return {
        "name": "counts",
        "batchId": 4,
        "numInputRows": 30,
        "durationMs": {"triggerExecution": 1200, "addBatch": 900},
        "eventTime": {"max": "2026-01-05T12:20:00.000Z", "watermark": "2026-01-05T12:08:00.000Z"},
        "sources": [{"endOffset": {"in": {"0": 10, "1": 20}}}],
        "stateOperators": [{"numRowsTotal": 5}, {"numRowsTotal": 7}],
    } | changes


def test_a_batch_survives_its_line() -> None:
    batch = batch_of(progress(), 100.0)
    assert batch == Batch("counts", 4, 100.0, 30, {"in": 30}, 1200, 720.0, 12)
    assert parse_line(batch.to_line()) == batch
    assert parse_line("running stream") is None


def test_offsets_of_spark_4_are_text_and_the_slower_of_two_sources_counts() -> None:
    sources = [
        {"endOffset": json.dumps({"in": {"0": 7}})},
        {"endOffset": json.dumps({"in": {"0": 4}, "more": {"0": 1}})},
    ]
    assert batch_of(progress(sources=sources), 0).read_to == {"in": 4, "more": 1}


@pytest.mark.parametrize("event_time", [None, {}, {"watermark": "1970-01-01T00:00:00.000Z"}])
def test_without_a_watermark_there_is_no_delay(event_time: dict[str, str] | None) -> None:
    assert batch_of(progress(eventTime=event_time), 0).watermark_delay_s is None


def history() -> History:
    seen = History(began_at=90.0)
    seen.add_sample({"in": 50})
    seen.add_batch(batch_of(progress(), 100.0))
    seen.add_sample({"in": 100})
    seen.add_batch(batch_of(progress(batchId=5, sources=[{"endOffset": {"in": {"0": 100}}}]), 101.0))
    # A trigger that runs again after a kill reads less far than the one before it had.
    seen.add_batch(batch_of(progress(batchId=5, sources=[{"endOffset": {"in": {"0": 80}}}]), 102.0))
    seen.add_sample({"in": 100})
    seen.note("kill", "node 2 of 3 (away for 3 s)")
    return seen


def test_lag_counts_from_the_first_record_and_never_grows_by_a_repeated_trigger() -> None:
    seen = history()
    assert [seen.lag(sample, "counts") for sample in seen.samples] == [50, 70, 0]
    assert [moment.name for moment in seen.kills] == ["node 2 of 3"]


def test_queries_in_sum() -> None:
    (line,) = query_lines(history())
    assert (line.batches, line.rows, line.longest_ms, line.largest_lag, line.state_rows) == (3, 90, 1200, 70, 12)


def test_a_run_that_sends_no_records_has_no_lag() -> None:
    seen = History(began_at=90.0)
    seen.add_batch(batch_of(progress(), 100.0))
    seen.add_sample({})
    assert not seen.is_fed
    assert [line.largest_lag for line in query_lines(seen)] == [None]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--seed", "5"],
        ["--seed", "5", "--chaos", "--nodes", "3", "--seconds", "7.5", "--events", "400"],
        ["--chaos", "--chaos-seed", "9"],
    ],
)
def test_the_command_that_repeats_a_run(arguments: list[str], tmp_path: Path) -> None:
    def settings(words: list[str]) -> RunSettings:
        options = parser().parse_args([*words, "--work-dir", str(tmp_path)])
        return settings_of(options, first_kills(options) if options.chaos else None)

    first = settings(["run", "logs", *arguments])
    again = settings(shlex.split(repeat_command("logs", first).removeprefix("python -m spark_jobs ")))
    assert replace(again, folder=first.folder) == first


def test_rates_are_over_a_window() -> None:
    assert rates([(0.0, 0), (1.0, 10), (2.0, 20), (4.0, 20), (6.0, 20)]) == [(1.0, 10), (2.0, 10), (4.0, 0), (6.0, 0)]


class Sums(Pipeline):
    """A pipeline that is only looked at."""

    name = "sums"
    summary = "sums of <numbers>"
    guarantee = "by keys"
    topics = {"in": Topic()}  # noqa: RUF012

    def make_input(self, seed: int, size: int) -> dict[str, list[Record]]:
        raise NotImplementedError

    def expected(self, records: Any) -> Results:
        raise NotImplementedError

    def start(self, streams: Streams, stage: str) -> None:
        raise NotImplementedError

    def results(self, outcome: Outcome) -> Results:
        raise NotImplementedError


@pytest.mark.parametrize("is_right", [True, False])
def test_the_page_has_verdict_tables_kills_and_what_is_wrong(tmp_path: Path, is_right: bool) -> None:
    pytest.importorskip("jinja2")
    expected = {"sums": {"a": 1, "b": 2}}
    wrong = [] if is_right else [Difference("sums", "b", 2, None)]
    settings = RunSettings(tmp_path, ["pykbroker"], tmp_path, nodes=3, chaos=5)
    result = RunResult("sums", settings, 10, {"sums": {"a": 1}}, expected, history(), 12.0, wrong)
    page = html(Sums(), result, "sums.png")
    assert "sums of &lt;numbers&gt;" in page
    assert "node 2 of 3" in page
    assert 'src="sums.png"' in page
    assert ("all 2 results are as computed" in page) == is_right
    assert ("1 of 2 results are WRONG" in page) != is_right
    assert ("What is wrong" in page) != is_right
    assert "matplotlib" in html(Sums(), result, None)
