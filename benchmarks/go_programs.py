"""The Go programs of this folder: a load by franz-go clients, and kfake, its fake of Kafka, as a broker."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from benchmarks.brokers import Broker, BrokerFailedError

FOLDER = Path(__file__).resolve().parent
BUILD_TIMEOUT_S = 600.0


def has_go() -> bool:
    """True where Go is installed."""
    return shutil.which("go") is not None


def build(name: str, folder: Path) -> Path:
    """Builds benchmarks/NAME into a folder; the program's path.

    Raises:
        BrokerFailedError: it does not compile, or its modules cannot be fetched.
    """
    program = folder / name
    command = ["go", "build", "-o", str(program), "."]
    built = subprocess.run(
        command, cwd=FOLDER / name, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )
    if built.returncode != 0:
        raise BrokerFailedError(f"benchmarks/{name} could not be built:\n{built.stderr}")
    return program


class Kfake(Broker):
    """kfake as a process of its own."""

    name = "kfake"
    program: Path | None = None
    """Set by whoever has built it."""

    def command(self) -> list[str]:
        """`kfake serve PORT`."""
        assert self.program is not None
        return [str(self.program), "serve", str(self.port)]
