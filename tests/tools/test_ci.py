"""`.ci/run`: what it runs, and that it fails when one of them fails."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from suite_parts import CHECKOUT

CI = CHECKOUT / ".ci" / "run"
FAKE_MAKE = '#!/bin/sh\necho "made $*"\n[ "$1" != "$FAILING" ]\n'


def ran(tmp_path: Path, failing: str) -> tuple[int, list[str]]:
    """Exit code and lines of .ci/run with a `make` that only prints, and fails for one target."""
    fake = tmp_path / "make"
    fake.write_text(FAKE_MAKE)
    fake.chmod(0o755)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "FAILING": failing}
    done = subprocess.run([str(CI)], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    return done.returncode, done.stdout.splitlines()


def test_it_runs_the_checks_and_everything_once(tmp_path: Path) -> None:
    assert ran(tmp_path, "nothing") == (0, ["made lint", "made test-all"])


@pytest.mark.parametrize("failing", ["lint", "test-all"])
def test_it_fails_when_either_fails(tmp_path: Path, failing: str) -> None:
    code, lines = ran(tmp_path, failing)
    assert code != 0
    assert lines[:2] == ["made lint", "made test-all"]
    assert ("FAILED make lint" in lines[-1]) == (failing == "lint")


def test_the_targets_are_in_the_makefile() -> None:
    wanted = set(re.findall(r"^make ([a-z-]+)", CI.read_text(), re.MULTILINE))
    targets = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    assert wanted
    assert wanted <= targets
