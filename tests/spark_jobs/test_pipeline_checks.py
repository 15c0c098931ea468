"""A check goes through all pipelines seed by seed, runs several at once, and is continued from a file of outcomes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jobs
import pytest
from pipeline import checks, command_line
from pipeline.history import History
from pipeline.records import differences
from pipeline.settings import RunResult, RunSettings

SPARK_JOBS = Path(__file__).resolve().parents[2] / "spark_jobs"
ROWS = {"counts": {"a": 1}}


class Attempts:
    """Runs that pass, but for those that a test wants otherwise.

    Attributes:
        made: pipeline and seed of the kills of each run, in order.
        wrong: the results of the runs that are not right; None for one that fails.
    """

    def __init__(self) -> None:
        self.made: list[checks.Plan] = []
        self.wrong: dict[checks.Plan, Any] = {}

    def __call__(self, pipeline: Any, settings: RunSettings, _: Any) -> RunResult | None:
        settings.folder.rmdir()
        plan = (pipeline.name, settings.chaos)
        self.made.append(plan)
        got = self.wrong.get(plan, ROWS)
        if got is None:
            return None
        return RunResult(pipeline.name, settings, 10, got, ROWS, History(), 61.2, differences(got, ROWS))


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Attempts:
    attempts = Attempts()
    monkeypatch.setattr(command_line, "attempt", attempts)
    monkeypatch.setattr(command_line, "write_report", lambda *_: None)
    monkeypatch.setattr(command_line, "make_archive", lambda _: None)
    for name in ("require_modules", "require_java", "require_parts_of_runs"):
        monkeypatch.setattr(command_line, name, lambda *_: None)
    return attempts


def check(folder: Path, *arguments: str) -> int:
    file = folder / "outcomes.jsonl"
    return command_line.main(
        ["check", "logs", "orders", "--chaos", "--chaos-seed", "1", "--results", str(file), *arguments]
    )


def test_all_pipelines_have_one_seed_before_the_next_one_begins(attempts: Attempts, tmp_path: Path) -> None:
    assert check(tmp_path, "--seeds", "2") == 0
    assert attempts.made == [(name, seed) for seed in (None, 1, 2) for name in ("logs", "orders")]


def test_a_check_is_continued_with_what_has_not_passed(
    attempts: Attempts, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attempts.wrong = {("logs", 1): {"counts": {"a": 2}}, ("orders", 2): None}
    assert check(tmp_path, "--seeds", "2") == 1
    said = capsys.readouterr().out
    assert "4 passed, 2 failed" in said
    assert "logs         2       1     0     61 s" in said
    attempts.made, attempts.wrong = [], {}
    # A line that a crash has cut off is no outcome.
    with (tmp_path / "outcomes.jsonl").open("a") as file:
        file.write('{"pipeline": "orders", "kil\n')
    assert check(tmp_path, "--seeds", "3") == 0
    assert attempts.made == [("logs", 1), ("orders", 2), ("logs", 3), ("orders", 3)]
    assert "8 passed, 0 failed" in capsys.readouterr().out


def test_other_input_is_another_run(attempts: Attempts, tmp_path: Path) -> None:
    check(tmp_path)
    attempts.made = []
    check(tmp_path, "--seed", "8")
    assert len(attempts.made) == 4
    attempts.made = []
    check(tmp_path, "--bootstrap-servers", "localhost:9092")
    assert len(attempts.made) == 4


def test_results_are_compared_with_an_undisturbed_run_of_an_earlier_check(attempts: Attempts, tmp_path: Path) -> None:
    check(tmp_path)
    file = tmp_path / "outcomes.jsonl"
    lines = file.read_text().splitlines()
    (digest,) = {one.digest for one in checks.read_outcomes(file).values()}
    file.write_text("\n".join(line.replace(str(digest), "other") for line in lines[:2]) + "\n")
    assert check(tmp_path) == 1


def test_what_there_is_no_time_for_is_not_passed(
    attempts: Attempts, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(tmp_path, "--minutes", "0") == 1
    assert not attempts.made
    assert "0 passed, 0 failed, 4 not begun" in capsys.readouterr().out


class Interrupted:
    """A run that is ended from outside."""

    def __init__(self, *_: Any) -> None: ...

    def execute(self) -> RunResult:
        raise SystemExit(143)


def test_a_run_that_is_ended_from_outside_leaves_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    monkeypatch.setattr(command_line, "Run", Interrupted)
    folder = tmp_path / "run"
    folder.mkdir()
    screen: Any = None
    with pytest.raises(SystemExit):
        command_line.attempt(jobs.load("logs"), RunSettings(folder, [], tmp_path), screen)
    assert not folder.exists()


def doubled(number: int) -> tuple[int, int]:
    """A task of another process."""
    return 2 * number, os.getpid()


def test_tasks_at_once_are_in_processes_of_their_own() -> None:
    done: list[tuple[int, int]] = []
    checks.carry_out(doubled, range(5), 2, done.append)
    assert sorted(number for number, _ in done) == [0, 2, 4, 6, 8]
    assert os.getpid() not in {process for _, process in done}


LONG = """
import sys, time
from pathlib import Path
sys.path.insert(0, {spark_jobs!r})
from pipeline import checks

def run(folder):
    try:
        # Inside: the signal may come as soon as the directory is seen.
        folder.mkdir()
        time.sleep(600)
    finally:
        folder.rmdir()

if __name__ == "__main__":
    import signal
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # A shell starts what it runs in the background with SIGINT ignored, and these tests with it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    checks.carry_out(run, [Path(name) for name in sys.argv[1:]], 2, print)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_tasks_at_once_end_what_they_have_started_when_the_check_is_ended(
    number: signal.Signals, tmp_path: Path
) -> None:
    program = tmp_path / "long.py"
    program.write_text(LONG.format(spark_jobs=str(SPARK_JOBS)))
    folders = [tmp_path / "one", tmp_path / "two"]
    process = subprocess.Popen([sys.executable, program, *folders], stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while not all(folder.exists() for folder in folders):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal sends it
        else:
            process.send_signal(number)
        assert process.wait(60) != 0
        assert not any(folder.exists() for folder in folders)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
