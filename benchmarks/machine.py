"""The machine of a measurement and the versions on it, for reports: nothing that names a host, a user or a folder."""

from __future__ import annotations

import os
import platform
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from interop_tests.kafka_jars import KAFKA_VERSION
from pykbroker.cli.compilation import is_compiled
from pykbroker.version import __version__

KFAKE_MODULES = Path(__file__).resolve().parent / "kfake" / "go.mod"


def description() -> dict[str, Any]:
    """The machine and the time of the measurement."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "pykbroker": f"{__version__}, {'compiled' if is_compiled() else 'interpreted'}",
        "python": platform.python_version(),
        "kafka": KAFKA_VERSION,
        "kfake": kfake_version(KFAKE_MODULES.read_text()),
        "system": platform.platform(),
        "processor": processor(Path("/proc/cpuinfo").read_text()),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "file_system": file_system(Path("/proc/mounts").read_text(), Path(tempfile.gettempdir()).resolve()),
        "load_average": round(os.getloadavg()[0], 1),
    }


def processor(cpuinfo: str) -> str:
    """Its model, by /proc/cpuinfo; the architecture where that names none, as on most ARM machines."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def file_system(mounts: str, path: Path) -> str:
    """The type of the file system that has a path, by /proc/mounts: the data folders are temporary ones there."""
    found = Path("/"), "unknown"
    for line in mounts.splitlines():
        _, place, kind, *_ = line.split()
        # Of two with one place the later one is on top.
        if path.is_relative_to(place) and len(Path(place).parts) >= len(found[0].parts):
            found = Path(place), kind
    return found[1]


def kfake_version(modules: str) -> str:
    """The version that a go.mod asks for."""
    for line in modules.splitlines():
        if "franz-go/pkg/kfake v" in line:
            return line.rpartition(" ")[2]
    return "unknown"
