"""Python packages that cannot be in this environment: each in a folder of its own, for processes of their own.

pip installs them into .cache, once; a process that is to have one gets its folder as PYTHONPATH.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

from interop_tests.kafka_jars import CACHE

TIMEOUT_S = 120


class PackageUnavailableError(Exception):
    """It could not be installed; the message says why."""


def installed(package: str, version: str, with_dependencies: bool) -> Path:
    """The folder to put on the path, made first if it is not there. Raises PackageUnavailableError.

    Without dependencies the package takes those of this environment.
    """
    folder = CACHE / f"{package}-{version}"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _install(folder, f"{package}=={version}", [] if with_dependencies else ["--no-deps"])
    return folder


def _install(folder: Path, requirement: str, options: list[str]) -> None:
    work = folder.with_name(folder.name + ".part")
    shutil.rmtree(work, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", *options]
    try:
        done = subprocess.run(
            [*command, "--target", str(work), requirement],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PackageUnavailableError(f"pip did not end within {TIMEOUT_S} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise PackageUnavailableError(f"pip could not install {requirement}: {last}")
    work.rename(folder)
