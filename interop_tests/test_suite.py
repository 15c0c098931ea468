"""The suite itself: every test says what it is about, and the report of a run says what it found."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from interop_tests.conftest import REPORT
from interop_tests.report import FORMAT, as_markdown, compare, main

pytestmark = [pytest.mark.area("suite"), pytest.mark.client("none")]

FOLDER = Path(__file__).resolve().parent
A_RUN = '''
"""A file of tests for the report."""
import pytest

pytestmark = [pytest.mark.area("groups"), pytest.mark.client("kcat")]

def test_good():
    """Holds (P-11)."""

def test_bad():
    """Does not hold."""
    assert 1 == 2

def test_not_here():
    """Cannot be tried."""
    pytest.skip("no kcat")

@pytest.mark.area("offsets")
def test_broken_at_its_end(broken):
    """Passes, and cannot clean up."""

@pytest.fixture
def broken():
    yield
    raise RuntimeError("cannot clean up")
'''


def test_every_test_says_area_client_and_behaviour(pytestconfig: pytest.Config) -> None:
    """Each test that was collected has an area, a client and a docstring, for the report to be understood."""
    declared = pytestconfig.stash[REPORT].declarations
    assert {name.partition("[")[0] for name, declaration in declared.items() if not all(declaration)} == set()


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The report of a run of A_RUN, made in a copy of this folder."""
    folder = tmp_path_factory.mktemp("suite") / "interop_tests"
    folder.mkdir()
    for path in FOLDER.glob("*.py"):
        if not path.name.startswith("test_"):
            shutil.copy(path, folder)
    (folder / "test_a_run.py").write_text(A_RUN)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "interop_tests", "--bootstrap", "localhost:1", "-q"],
        cwd=folder.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Interop report, 1 passed, 2 failed, 1 skipped: " in done.stdout, done.stdout
    written = folder.parent / "reports" / "interop" / "external" / "report.json"
    assert as_markdown(json.loads(written.read_text())) == written.with_suffix(".md").read_text()
    found: dict[str, object] = json.loads(written.read_text())
    return found


def test_report_of_a_run(run_of: dict[str, object]) -> None:
    """A report counts by area and client, says what each failing test stands for, and why others were skipped."""
    assert run_of["format"] == FORMAT
    assert run_of["totals"] == {"passed": 1, "skipped": 1, "failed": 2}
    text = as_markdown(run_of)
    assert "- groups, kcat: Does not hold.\n  `test_a_run.py::test_bad`: assert 1 == 2" in text
    assert "- offsets, kcat: Passes, and cannot clean up.\n" in text
    assert "- 1: no kcat" in text
    rows = [[cell.strip() for cell in line.split("|")[1:-2]] for line in text.splitlines() if line.startswith("| ")]
    assert rows[1:] == [["groups", "kcat", "1", "1", "1"], ["offsets", "kcat", "", "1", ""]]
    tests = {test["id"]: test for test in run_of["tests"]}  # type: ignore[attr-defined]
    assert tests["test_a_run.py::test_good"]["cites"] == ["P-11"]


def test_two_reports_side_by_side(
    run_of: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The comparison counts what the reference passes and the other does not, and its exit code says whether any."""
    better = json.loads(json.dumps(run_of)) | {"target": "kafka"}
    for test in better["tests"]:
        test["outcome"] = {"failed": "passed"}.get(test["outcome"], test["outcome"])
    better["totals"] = {"passed": 3, "skipped": 1, "failed": 0}
    text, is_as_good = compare(run_of, better)
    assert not is_as_good
    assert "external fails 2 of what kafka passes." in text
    assert "| groups  | kcat   | 1/2 (1)  | 2/2 (1) |" in text
    assert "## kafka passes, external fails\n\n- groups, kcat: Does not hold. `test_a_run.py::test_bad`\n" in text
    text, is_as_good = compare(better, run_of)
    assert is_as_good
    assert "## kafka passes, external fails" in text
    (tmp_path / "a.json").write_text(json.dumps(run_of))
    (tmp_path / "b.json").write_text(json.dumps(better))
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 1
    assert main(["compare", str(tmp_path / "b.json"), str(tmp_path / "a.json")]) == 0
    assert main(["show", str(tmp_path / "a.json")]) == 0
    assert "# Interop report: external" in capsys.readouterr().out
