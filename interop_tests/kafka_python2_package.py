"""kafka-python 2.3 beside the 3.x of this environment: in a folder of its own, for a process of its own.

Both are the package `kafka`, so that one Python can have one of them. pip installs the old one into .cache; what it
needs for compression is taken from this environment.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from interop_tests.kafka_jars import CACHE

VERSION = "2.3.3"
TIMEOUT_S = 120
FOLDER = Path(__file__).resolve().parent


class KafkaPython2UnavailableError(Exception):
    """It could not be installed; the message says why."""


def kafka_python2() -> Path:
    """The folder to put on the path, made first if it is not there. Raises KafkaPython2UnavailableError."""
    folder = CACHE / f"kafka-python-{VERSION}"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _install(folder)
    return folder


def _install(folder: Path) -> None:
    work = folder.with_name(folder.name + ".part")
    shutil.rmtree(work, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--quiet"]
    try:
        done = subprocess.run(
            [*command, "--target", str(work), f"kafka-python=={VERSION}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise KafkaPython2UnavailableError(f"pip did not end within {TIMEOUT_S} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise KafkaPython2UnavailableError(f"pip could not install kafka-python {VERSION}: {last}")
    work.rename(folder)


def run_scenario(folder: Path, scenario: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a function of kafka_python2_scenarios.py with the kafka-python of that folder, to its end."""
    return subprocess.run(
        [sys.executable, str(FOLDER / "kafka_python2_scenarios.py"), scenario, *arguments],
        env=os.environ | {"PYTHONPATH": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
