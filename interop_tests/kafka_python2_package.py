"""kafka-python 2.3 beside the 3.x of this environment: in a folder of its own, for a process of its own.

Both are the package `kafka`, so that one Python can have one of them. What the old one needs for compression is taken
from this environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from interop_tests.python_packages import installed

VERSION = "2.3.3"
TIMEOUT_S = 120
FOLDER = Path(__file__).resolve().parent


def kafka_python2() -> Path:
    """The folder to put on the path, made first if it is not there. Raises UnavailableError."""
    return installed("kafka-python", VERSION, with_dependencies=False)


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
