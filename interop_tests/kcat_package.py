"""Finds kcat, or fetches Debian's package of it without root, into .cache beside the folder of the suite."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from interop_tests.kafka_jars import CACHE

ENVIRONMENT_VARIABLE = "INTEROP_KCAT"
NAMES = ("kcat", "kafkacat")
TIMEOUT_S = 120
# The lists of packages belong to root; a user may read them.
APT_OPTIONS = ["-y", "--no-install-recommends", "-o", "Debug::NoLocking=1"]


class KcatUnavailableError(Exception):
    """There is no kcat; the message says why."""


class Kcat:
    """A kcat that can be run.

    Args:
        program: the executable.
        libraries: folders with libraries that the system does not have.
    """

    def __init__(self, program: str, libraries: list[Path]) -> None:
        self.program = program
        self.environment = dict(os.environ)
        if libraries:
            self.environment["LD_LIBRARY_PATH"] = ":".join(str(folder) for folder in libraries)

    def run(self, *arguments: str, stdin: bytes = b"", timeout_s: float = 60) -> subprocess.CompletedProcess[bytes]:
        """Runs it to its end."""
        return subprocess.run(
            [self.program, *arguments],
            input=stdin,
            capture_output=True,
            env=self.environment,
            timeout=timeout_s,
            check=False,
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Starts it, its output to be read while it runs."""
        return subprocess.Popen(
            [self.program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )


def find_kcat() -> Kcat:
    """The kcat that the variable names, that is installed, or that apt has. Raises KcatUnavailableError."""
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    installed = named or next((path for name in NAMES if (path := shutil.which(name))), None)
    if installed:
        return Kcat(installed, [])
    folder = CACHE / "kcat"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "kcat.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _fetch(folder)
    programs = [path for name in NAMES for path in folder.glob(f"usr/bin/{name}")]
    if not programs:
        raise KcatUnavailableError(f"{folder} holds no kcat: remove it to have it fetched again")
    return Kcat(str(programs[0]), sorted({path.parent for path in folder.glob("usr/lib/**/*.so*")}))


def _fetch(folder: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise KcatUnavailableError("kcat is not installed, and there is no apt to fetch it with")
    listed = _run(["apt-get", "install", "--print-uris", *APT_OPTIONS, "kcat"], None)
    # A line is 'address' file_version_architecture.deb size checksum.
    packages = [line.split()[1].partition("_")[0] for line in listed.splitlines() if line.startswith("'")]
    if not packages:
        raise KcatUnavailableError("kcat is not installed, and apt does not say where to get it")
    work = folder.with_name("kcat.part")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    _run(["apt-get", "download", *packages], work)
    for package in work.glob("*.deb"):
        _run(["dpkg-deb", "-x", str(package), str(work)], work)
    work.rename(folder)


def _run(command: list[str], folder: Path | None) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise KcatUnavailableError(f"kcat is not installed, and {command[0]} did not end in {TIMEOUT_S} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise KcatUnavailableError(f"kcat is not installed, and {' '.join(command[:2])} failed: {last}")
    return done.stdout
