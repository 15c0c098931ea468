"""The last line of the unit tests on several Pythons."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import unit_all
from suite_parts import CHECKOUT, UNIT_TESTS

# Code of the product imports neither a client library nor Spark; these folders do.
IMPORTS_CLIENTS = re.compile(
    r"^\s*(from|import) (benchmarks|confluent_kafka|interop_tests|pyspark|spark_jobs)\b", re.MULTILINE
)


def test_sum_of_the_rows() -> None:
    rows = [
        "ok     CPython 3.12.8    80 s  200 passed, 3 skipped in 79.10s (0:01:19)",
        "FAILED CPython 3.13.1    81 s  2 failed, 197 passed, 4 skipped, 1 error in 80.00s",
    ]
    assert unit_all.total(rows) == "397 passed, 3 failed, 7 skipped"
    assert (
        unit_all.total(["FAILED CPython 3.13.1     1 s  the environment could not be made: pip"])
        == "0 passed, 1 failed"
    )


def test_no_other_python_is_no_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    here = unit_all.Interpreter((*sys.version_info[:2], 0), sys.executable)
    monkeypatch.setattr(unit_all, "interpreters", lambda: [here])
    assert unit_all.main(["--others"]) == 0
    assert "nothing to run" in capsys.readouterr().out


def test_others_are_those_of_other_versions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[list[str]] = []

    def passing_on(command: list[str], _environment: object, _write: object) -> tuple[int, str]:
        ran.append(command)
        return 0, "7 passed in 1.0s"

    here = sys.version_info[:2]
    found = [unit_all.Interpreter((3, 99, 0), "python3.99"), unit_all.Interpreter((*here, 0), "python")]
    monkeypatch.setattr(unit_all, "interpreters", lambda: found)
    monkeypatch.setattr(unit_all, "environment_for", lambda interpreter: interpreter.path)
    monkeypatch.setattr(unit_all, "passing_on", passing_on)
    assert unit_all.main(["--others"]) == 0
    assert [(command[0], "tests" in command) for command in ran] == [("python3.99", True)]
    assert capsys.readouterr().out.splitlines()[-1] == "7 passed, 0 failed on CPython 3.99"


@pytest.mark.parametrize(
    ("minutes", "versions", "last"),
    [
        ("9.0", ["3.13", "3.12"], "4 passed, 0 failed on CPython 3.13, 3.12; 3.11 not run for want of time"),
        ("0.0", ["3.13"], "2 passed, 0 failed on CPython 3.13; 3.12, 3.11 not run for want of time"),
        ("15.1", ["3.13", "3.12", "3.11"], "6 passed, 0 failed on CPython 3.13, 3.12, 3.11"),
    ],
)
def test_a_slow_machine_runs_the_newest_pythons(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], minutes: str, versions: list[str], last: str
) -> None:
    """Each version takes five minutes."""
    now = 100.0
    ran: list[list[str]] = []

    def passing_on(command: list[str], _environment: object, _write: object) -> tuple[int, str]:
        nonlocal now
        now += 300.0
        ran.append(command)
        return 0, "2 passed in 1.0s"

    found = [unit_all.Interpreter((3, minor, 0), f"3.{minor}") for minor in (11, 12, 13)]
    monkeypatch.setattr(unit_all, "interpreters", lambda: found)
    monkeypatch.setattr(unit_all, "environment_for", lambda interpreter: interpreter.path)
    monkeypatch.setattr(unit_all, "passing_on", passing_on)
    monkeypatch.setattr(unit_all, "time", SimpleNamespace(monotonic=lambda: now))
    assert unit_all.main(["--minutes", minutes, "tests/x", "-m", "not java"]) == 0
    assert [command[0] for command in ran] == versions
    assert ran[0][-3:] == ["tests/x", "-m", "not java"]
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_the_other_pythons_can_collect_tests_that_use_client_libraries() -> None:
    """Each begins with `pytest.importorskip`: what NOT_FOR_UNIT_TESTS names is not in those environments."""
    files = [
        str(path.relative_to(CHECKOUT))
        for path in sorted((CHECKOUT / "tests").rglob("*.py"))
        if IMPORTS_CLIENTS.search(path.read_text())
    ]
    assert "tests/benchmarks/test_quotas.py" in files
    options = [argument for argument in UNIT_TESTS if argument != "tests"]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "tests.tools.without_large_packages"]
    done = subprocess.run(
        [*command, *options, *files],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": "tools"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
