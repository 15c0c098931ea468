"""Inputs and expected results of the pipelines, without Kafka and Spark."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jobs
import pytest
from activity import BEGIN, Event
from jobs import mirror
from jobs.activity import GAP, sessions_of
from jobs.enrichment import enriched
from jobs.features import features_of
from jobs.metrics import discrete_percentile, rollup_of
from jobs.mirror import OffsetRun, runs_of, translate
from pipeline.model import MissingPartError, Pipeline, require_modules
from pipeline.parquet import listed_files


@pytest.fixture(params=jobs.NAMES)
def pipeline(request: pytest.FixtureRequest) -> Pipeline:
    return jobs.load(request.param)


def test_the_same_seed_gives_the_same_input_and_results(pipeline: Pipeline) -> None:
    one, again, other = (pipeline.make_input(seed, 1000) for seed in (3, 3, 4))
    assert one == again
    assert one != other


def test_input_goes_to_topics_and_stages_that_are_declared(pipeline: Pipeline) -> None:
    made = pipeline.make_input(7, 1000)
    assert made.keys() <= pipeline.stages.keys()
    topics = {record.topic for records in made.values() for record in records}
    assert (topics <= pipeline.topics.keys()) == pipeline.is_fed


def test_expected_results_have_rows_of_different_kinds(pipeline: Pipeline) -> None:
    records = [record for records in pipeline.make_input(7, pipeline.size).values() for record in records]
    expected = pipeline.expected(records)
    assert all(expected.values()), {name: len(table) for name, table in expected.items()}


def test_names_are_those_of_the_modules(pipeline: Pipeline) -> None:
    assert type(pipeline).__module__ == f"jobs.{pipeline.name}"
    assert pipeline.summary
    assert pipeline.guarantee


def test_a_pipeline_has_a_stage_with_streams(pipeline: Pipeline) -> None:
    # The kills of a run come in it.
    assert not all(stage.is_batch for stage in pipeline.stages.values())


def test_a_module_that_is_missing_is_named_as_pip_knows_it() -> None:
    require_modules({"json": "json"})
    with pytest.raises(MissingPartError, match=r"pip install 'no-such-module\[all\]'"):
        require_modules({"json": "json", "no_such_module": "no-such-module[all]"})


def test_an_unknown_pipeline() -> None:
    with pytest.raises(KeyError):
        jobs.load("unknown")


def event(seconds: float, user: str = "u", event_id: str | None = None) -> Event:
    ts = BEGIN + timedelta(seconds=seconds)
    return Event(event_id or f"{user}{seconds}", "page_view", user, "/", ts, ts)


def test_sessions_end_after_a_gap_and_only_when_the_watermark_has_passed() -> None:
    gap = GAP.total_seconds()
    far = 10_000
    events = [event(0), event(gap), event(2 * gap + 1), event(2 * gap + 1, event_id=f"u{2 * gap + 1}"), event(far, "v")]
    sessions = dict(sessions_of(events))
    assert [row["events"] for row in sessions.values()] == [2, 1]
    assert list(sessions) == ["u 2026-01-05T12:00:00.000Z", "u 2026-01-05T12:10:01.000Z"]
    assert dict(sessions_of(events[:-1])) == {}


def test_percentiles_are_values_of_the_window() -> None:
    assert [discrete_percentile([1, 2, 3, 4], share) for share in (0.5, 0.51, 0.95)] == [2, 3, 4]
    assert discrete_percentile([7], 0.5) == 7
    assert rollup_of([3, 1, 2]) == {"count": 3, "least": 1, "sum": 6, "p50": 2, "p95": 3, "greatest": 3}


def test_files_that_the_log_of_the_sink_does_not_list_do_not_count(tmp_path: Path) -> None:
    assert listed_files(tmp_path) == []
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    (log / "0").write_text('v1\n{"path":"file:///data/a%20b.parquet","action":"add"}')
    (log / "2.compact").write_text('v1\n{"path":"file:///data/0.parquet"}\n{"path":"file:///data/2.parquet"}')
    (log / "3").write_text('v1\n{"path":"file:///data/3.parquet"}')
    (log / ".3.crc").write_text("")
    assert [path.name for path in listed_files(tmp_path)] == ["0.parquet", "2.parquet", "3.parquet"]
    (log / "2.compact").unlink()
    assert [path.name for path in listed_files(tmp_path)] == ["a b.parquet", "3.parquet"]


def test_offsets_are_translated_by_runs() -> None:
    runs = runs_of([("t", 0, 0, 0), ("t", 0, 1, 1), ("t", 0, 2, 3), ("t", 0, 5, 4), ("t", 1, 0, 9)])
    assert runs == [
        OffsetRun("t", 0, 0, 0, 2),
        OffsetRun("t", 0, 2, 3, 1),
        OffsetRun("t", 0, 5, 4, 1),
        OffsetRun("t", 1, 0, 9, 1),
    ]
    assert [translate(offset, runs[:3]) for offset in (0, 1, 2, 3, 5, 6, 9)] == [0, 1, 3, 4, 4, 5, 5]
    assert translate(7, []) == 0


def test_groups_of_a_node_that_does_not_answer_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = pytest.importorskip("confluent_kafka")
    away = kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TRANSPORT))
    answers = [(["a"], [away]), (["a", "b"], [])]

    class Admin:
        def list_consumer_groups(self, request_timeout: float) -> Any:
            groups, errors = answers.pop(0)
            listed = SimpleNamespace(valid=[SimpleNamespace(group_id=group) for group in groups], errors=errors)
            return SimpleNamespace(result=lambda: listed)

    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    assert mirror.again_while_away(lambda: mirror.all_groups(Admin())) == ["a", "b"]
    assert len(pauses) == 1


def test_a_purchase_gets_the_newest_version_that_is_not_younger() -> None:
    versions = [(100, 1, "basic"), (200, 2, "gold")]
    found = [enriched("c", (time, "p", 5), versions)["tier"] for time in (99, 100, 199, 200, 300)]
    assert found == ["unknown", "basic", "basic", "gold", "gold"]


def test_features_of_a_line() -> None:
    start = 1_000_000
    found = features_of([(start + 60_000 * minute, 100 + 10 * minute) for minute in range(5)], start)
    assert (found["mean"], found["slope"], found["jump"]) == (120.0, 10.0, 10.0)
    assert found["deviation"] == round(200**0.5, 6)
    assert 0 < found["score"] < 1
    assert features_of([(start, 7)], start)["slope"] == 0.0
