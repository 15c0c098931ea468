"""A part of pytest that is short of time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from suite_parts import CHECKOUT

TESTS = """
import time

def test_long_one():
    # The clock of this process: the minutes are over when the next test would begin.
    now = time.monotonic
    time.monotonic = lambda: now() + 3600

def test_late_one():
    raise AssertionError

def test_last_one():
    raise AssertionError
"""


def run_with(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """pytest, with the plugin, on the tests above."""
    (tmp_path / "test_late.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.tools.time_limit", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *options, f"--rootdir={tmp_path}", str(tmp_path)],
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_test_begins_after_the_minutes(tmp_path: Path) -> None:
    done = run_with(tmp_path, "--minutes", "30")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "1 passed, 0 failed, 2 not run for want of time"


@pytest.mark.parametrize("options", [(), ("--minutes", "90")])
def test_tests_that_have_the_time_run(options: tuple[str, ...], tmp_path: Path) -> None:
    """The last line is pytest's own."""
    done = run_with(tmp_path, *options)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("2 failed, 1 passed in ")
