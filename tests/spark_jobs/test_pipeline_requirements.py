"""Something that is missing is said in one line, before anything is started."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jobs
import pytest
from pipeline import requirements
from pipeline.command_line import main
from pipeline.model import MissingPartError
from pipeline.options import EVENTS_MIN
from pipeline.postgres import free_port
from pipeline.requirements import (
    require_broker_command,
    require_databases,
    require_folder,
    require_kafka,
    require_topics,
)


def message(call: pytest.ExceptionInfo[MissingPartError]) -> str:
    said = str(call.value)
    assert "\n" not in said
    return said


@pytest.mark.parametrize("command", [["/nowhere/pykbroker"], [sys.executable, "-m", "nothing_of_this_name"]])
def test_a_broker_command_that_does_not_run(command: list[str]) -> None:
    with pytest.raises(MissingPartError) as call:
        require_broker_command(command)
    said = message(call)
    assert command[-1] in said
    assert "--broker-command" in said


def test_a_broker_command_that_runs() -> None:
    require_broker_command([sys.executable])


def test_a_kafka_that_does_not_answer() -> None:
    pytest.importorskip("confluent_kafka")
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(MissingPartError) as call:
        require_kafka(address, "--second-bootstrap-servers", timeout_s=0.2)
    said = message(call)
    assert said.startswith(f"no Kafka answers at {address} within ")
    assert said.endswith("correct --second-bootstrap-servers")


def test_topics_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "require_kafka", lambda *_: {"activity-x", "sessions-x", "page-counts"})
    with pytest.raises(MissingPartError) as call:
        require_topics(jobs.load("activity"), "kafka:9092", "-x", "")
    said = message(call)
    assert "create page-counts-x (3 partitions) cleanup.policy=compact;" in said
    assert "sessions" not in said


def test_topics_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = jobs.load("activity")
    monkeypatch.setattr(requirements, "require_kafka", lambda *_: set(pipeline.topics))
    require_topics(pipeline, "kafka:9092", "", "")


def test_a_mirror_needs_the_other_kafka() -> None:
    with pytest.raises(MissingPartError, match="--second-bootstrap-servers"):
        require_topics(jobs.load("mirror"), "kafka:9092", "", "")


def test_databases_that_are_not_named() -> None:
    with pytest.raises(MissingPartError) as call:
        require_databases(jobs.load("cdc"), {"source": "host=127.0.0.1"})
    said = message(call)
    assert "the database target" in said
    example = json.loads(said[said.index("{") : said.rindex("}") + 1])
    require_databases(jobs.load("cdc"), example)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MissingPartError, match="--report-dir"):
        require_folder(tmp_path / "file" / "reports", "--report-dir")
    require_folder(tmp_path / "deep" / "reports", "--report-dir")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "NAME"),
        (["run", "logs", "--events", str(EVENTS_MIN - 1)], "--events: 99 is less than 100"),
        (["run", "logs", "--events", "many"], "--events: invalid int value: 'many'"),
        (["check", "logs", "--seeds", "0"], "--seeds: 0 is less than 1"),
        (["run", "logs", "--seconds", "nan"], "--seconds: nan is less than 0"),
        (["job", "cdc", "--bootstrap-servers", "h", "--folder", "f", "--databases", "[1]"], "no JSON object"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error
