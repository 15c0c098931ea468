"""The runner of the parts: what runs beside what, and what it says at the end."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable

import pytest
import run_tests
from run_tests import passing_on, run_all
from suite_parts import Part, parts

HEAVY, LIGHT, BACKGROUND = Part("heavy", [], is_heavy=True), Part("light", []), Part("", [], is_background=True)


class Runs:
    """Stands in the place of `run`: notes how many run at the same time.

    Args:
        codes: exit codes by description; 0 for others.
        together: as many parts that are not heavy wait for one another before they end.
    """

    def __init__(self, codes: dict[str, int] | None = None, together: int = 1) -> None:
        self.codes = codes or {}
        self.order: list[str] = []
        self.running: set[str] = set()
        self.beside: dict[str, set[str]] = {}
        self._barrier = threading.Barrier(together)
        self._lock = threading.Lock()

    def __call__(self, part: Part, write: Callable[[str], object]) -> tuple[int, str]:
        name = part.description
        with self._lock:
            self.order.append(name)
            self.running.add(name)
            self.beside[name] = set(self.running)
        write(f"line of {name}\n")
        if not part.is_heavy:
            self._barrier.wait(timeout=30)
        with self._lock:
            self.running.discard(name)
        return self.codes.get(name, 0), f"3 passed in {name}"


def chosen(**kinds: Part) -> dict[str, Part]:
    return {name: part._replace(description=name) for name, part in kinds.items()}


def test_heavy_parts_run_alone_and_others_two_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    runs = Runs(together=2)
    summaries = run_all(chosen(a=LIGHT, b=HEAVY, c=LIGHT, d=HEAVY, e=LIGHT, f=LIGHT), runs, 2)
    assert runs.order[:2] == ["b", "d"]
    assert runs.beside["b"] == {"b"}
    assert runs.beside["d"] == {"d"}
    assert max(map(len, runs.beside.values())) == 2
    assert [line.split()[:2] for line in summaries] == [["ok", name] for name in "abcdef"]
    printed = capsys.readouterr().out.splitlines()
    assert "line of b" in printed
    assert "a | line of a" in printed


def test_a_background_part_runs_beside_those_that_wait() -> None:
    runs = Runs(together=3)
    summaries = run_all(chosen(a=BACKGROUND, b=LIGHT, c=HEAVY, d=LIGHT), runs, 2)
    assert runs.order[0] == "c"
    assert runs.beside["c"] == {"c"}
    assert max(map(len, runs.beside.values())) == 3
    assert [line.split()[:2] for line in summaries] == [["ok", name] for name in "abcd"]


def test_background_parts_run_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    runs = Runs()
    run_all(chosen(a=BACKGROUND, b=BACKGROUND), runs, 2)
    assert runs.order == ["a", "b"]
    assert all(len(names) == 1 for names in runs.beside.values())
    assert "line of a" in capsys.readouterr().out.splitlines()


def test_a_background_part_has_the_lowest_priority() -> None:
    assert BACKGROUND.command[:3] == ["nice", "-n", "19"]
    assert LIGHT.command == [sys.executable, "-m", "pytest"]


def test_one_after_the_other_where_there_is_one_core(capsys: pytest.CaptureFixture[str]) -> None:
    runs = Runs()
    run_all(chosen(a=LIGHT, b=LIGHT), runs, 1)
    assert runs.order == ["a", "b"]
    assert all(len(names) == 1 for names in runs.beside.values())
    assert "line of a" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("failing", ["a", "b", "c"])
def test_a_part_that_fails_does_not_keep_others_from_running(failing: str) -> None:
    runs = Runs({failing: 1})
    summaries = run_all(chosen(a=HEAVY, b=HEAVY, c=LIGHT), runs, 2)
    assert runs.order == ["a", "b", "c"]
    assert [line.split()[:2] for line in summaries if line.startswith("FAILED")] == [["FAILED", failing]]
    assert all(line.endswith(f"3 passed in {line.split()[1]}") for line in summaries)


def test_a_part_learns_how_much_time_is_left() -> None:
    arguments: list[str] = []

    def run(part: Part, _write: Callable[[str], object]) -> tuple[int, str]:
        arguments.extend(part.arguments)
        return 0, "passed"

    run_all({"a": BACKGROUND._replace(minutes_max=3.0)}, run, 2)
    assert arguments[-2:] == ["--minutes", "3.0"]


def test_a_part_that_cannot_be_run_has_failed() -> None:
    def broken(_part: Part, _write: Callable[[str], object]) -> tuple[int, str]:
        raise OSError("no more processes")

    assert "FAILED a" in run_all({"a": LIGHT}, broken, 2)[0]


USED = " (0 s of processor time)"


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 1), (5, 0)])
def test_exit_code_and_last_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int, expected: int
) -> None:
    """Code 5 of pytest: nothing was selected, as on a machine without what the tests need."""
    monkeypatch.setattr(run_tests, "run", Runs({parts(whole=True)["hostile"].description: code}))
    assert run_tests.main(["hostile", "--whole", "java"]) == expected
    last = capsys.readouterr().out.splitlines()[-3:]
    assert last[0].startswith(("ok     hostile", "FAILED hostile"))
    assert last[1].startswith("ok     java")
    assert last[2].startswith(f"{2 - expected} of 2 parts are good, after 0 min ")


def test_unknown_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tests.main(["hostil"]) == 2
    assert "unknown part hostil; there are unit, " in capsys.readouterr().err


def test_the_last_line_of_a_part_is_its_summary() -> None:
    lines: list[str] = []
    script = "print('.....'); print('=== 5 passed in 0.1s ==='); print(); raise SystemExit(3)"
    assert passing_on([sys.executable, "-c", script], {}, lines.append) == (3, f"5 passed in 0.1s{USED}")
    assert lines == [".....\n", "=== 5 passed in 0.1s ===\n", "\n"]
    assert passing_on(["no-such-python"], {}, lines.append)[0] == 1


def test_the_summary_of_a_failed_part_names_its_tests_and_their_assertions() -> None:
    lines: list[str] = []
    printed = [
        "    assert 1 == 2",
        "E   assert 1 == 2",
        "FAILED tests/test_one.py::test_two - assert 1 == 2",
        "1 failed",
    ]
    script = f"import sys; print({chr(10).join(printed)!r}); sys.exit(int(sys.argv[1]))"
    code, summary = passing_on([sys.executable, "-c", script, "1"], {}, lines.append)
    assert (code, summary.splitlines()) == (1, [f"1 failed{USED}", f"       {printed[1]}", f"       {printed[2]}"])
    assert passing_on([sys.executable, "-c", script, "0"], {}, lines.append) == (0, f"1 failed{USED}")


def test_the_processor_time_counts_the_processes_of_the_command() -> None:
    """Those that pytest starts and waits for do most of the work of a part."""
    busy = "import time\nwhile time.process_time() < 1.0: pass\nprint('1 passed')"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}], check=True)"
    lines: list[str] = []
    _, summary = passing_on([sys.executable, "-c", script], {}, lines.append)
    assert re.fullmatch(r"1 passed \([1-9] s of processor time\)", summary)
