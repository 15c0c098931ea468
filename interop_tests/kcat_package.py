"""Finds kcat, or fetches Debian's package of it without root, into .cache beside the folder of the suite."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from interop_tests.kafka_jars import CACHE
from interop_tests.made_once import UnavailableError, made_once, output_of

ENVIRONMENT_VARIABLE = "INTEROP_KCAT"
NAMES = ("kcat", "kafkacat")
TIMEOUT_S = 120
# The lists of packages belong to root; a user may read them.
APT_OPTIONS = ["-y", "--no-install-recommends", "-o", "Debug::NoLocking=1"]


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
    """The kcat that the variable names, that is installed, or that apt has. Raises UnavailableError."""
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    installed = named or next((path for name in NAMES if (path := shutil.which(name))), None)
    if installed:
        return Kcat(installed, [])
    folder = made_once(CACHE / "kcat", _fetch)
    programs = [path for name in NAMES for path in folder.glob(f"usr/bin/{name}")]
    if not programs:
        raise UnavailableError(f"{folder} holds no kcat: remove it to have it fetched again")
    return Kcat(str(programs[0]), sorted({path.parent for path in folder.glob("usr/lib/**/*.so*")}))


def _fetch(work: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise UnavailableError("kcat is not installed, and there is no apt to fetch it with")
    listed = output_of(["apt-get", "install", "--print-uris", *APT_OPTIONS, "kcat"], TIMEOUT_S)
    # A line is 'address' file_version_architecture.deb size checksum.
    packages = [line.split()[1].partition("_")[0] for line in listed.splitlines() if line.startswith("'")]
    if not packages:
        raise UnavailableError("kcat is not installed, and apt does not say where to get it")
    work.mkdir()
    output_of(["apt-get", "download", *packages], TIMEOUT_S, work)
    for package in work.glob("*.deb"):
        output_of(["dpkg-deb", "-x", str(package), str(work)], TIMEOUT_S, work)
