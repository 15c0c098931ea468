"""Python packages that cannot be in this environment: each in a folder of its own, for processes of their own.

pip installs them into .cache, once; a process that is to have one gets its folder as PYTHONPATH.
"""

from __future__ import annotations

import sys
from pathlib import Path

from interop_tests.kafka_jars import CACHE
from interop_tests.made_once import made_once, output_of

TIMEOUT_S = 120
PIP = (sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet")


def installed(package: str, version: str, with_dependencies: bool) -> Path:
    """The folder to put on the path, made first if it is not there. Raises UnavailableError.

    Without dependencies the package takes those of this environment.
    """
    options = [] if with_dependencies else ["--no-deps"]
    requirement = f"{package}=={version}"

    def install(work: Path) -> None:
        output_of([*PIP, *options, "--target", str(work), requirement], TIMEOUT_S)

    return made_once(CACHE / f"{package}-{version}", install)
