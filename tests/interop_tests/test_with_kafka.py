"""A command on a Kafka that is started for it; the Kafka is a stand-in here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from interop_tests import with_kafka
from interop_tests.kafka_jars import JarsUnavailableError

SHOW = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(' '.join(sys.argv[2:])); sys.exit(3)"


class StandIn:
    """Notes what is done to it."""

    done: list[str]
    fails = False

    def __init__(self, folder: Path, log_path: Path, overrides: dict[str, str], tools: Any) -> None:
        self.bootstrap = "127.0.0.1:9"

    def start(self) -> None:
        StandIn.done.append("start")
        if StandIn.fails:
            raise RuntimeError("no Kafka today")

    def kill(self) -> None:
        StandIn.done.append("kill")


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    StandIn.done, StandIn.fails = [], False
    monkeypatch.setattr(with_kafka, "ApacheKafkaProcess", StandIn)
    monkeypatch.setattr(with_kafka, "JavaTools", lambda libs: libs)
    monkeypatch.setattr(with_kafka, "kafka_jars", Path)


def test_a_command_gets_the_address_and_its_exit_code_counts(tmp_path: Path) -> None:
    shown = tmp_path / "arguments"
    assert with_kafka.main([sys.executable, "-c", SHOW, str(shown), "check", "all"]) == 3
    assert shown.read_text() == "check all --bootstrap-servers 127.0.0.1:9"
    assert StandIn.done == ["start", "kill"]


def test_a_kafka_that_does_not_start_is_ended(tmp_path: Path) -> None:
    StandIn.fails = True
    with pytest.raises(RuntimeError, match="no Kafka today"):
        with_kafka.main([sys.executable, "-c", SHOW, str(tmp_path / "arguments")])
    assert StandIn.done == ["start", "kill"]
    assert not (tmp_path / "arguments").exists()


def test_without_jars_nothing_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing() -> Path:
        raise JarsUnavailableError("no jars")

    monkeypatch.setattr(with_kafka, "kafka_jars", missing)
    assert with_kafka.main(["never"]) == 2
    assert "no jars" in capsys.readouterr().err
    assert StandIn.done == []


def test_a_command_is_told_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    class Command:
        def __init__(self, command: list[str]) -> None:
            told.extend(command)

        def wait(self) -> int:
            told.append("wait")
            if "terminate" not in told:
                raise SystemExit(143)
            return 0

        def terminate(self) -> None:
            told.append("terminate")

    monkeypatch.setattr(subprocess, "Popen", Command)
    with pytest.raises(SystemExit):
        with_kafka.main(["command"])
    assert told[-3:] == ["wait", "terminate", "wait"]
    assert StandIn.done == ["start", "kill"]
