"""Three nodes of either broker, for the benchmarks: equal settings, the same folders, started from scratch."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.brokers import (
    CHECKOUT,
    BrokerFailedError,
    Memory,
    environment_of_an_installed_copy,
    kafka_libs,
    process_cpu_s,
)
from interop_tests.cluster import Cluster
from interop_tests.java_tools import JavaTools
from pykbroker.testing.cluster_layout import LOCAL_CLUSTER_DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CASES = ("pykbroker, --nodes", "pykbroker", "kafka")
"""Ours with what `--nodes` sets, and both with equal settings."""


@contextmanager
def started(case: str) -> Iterator[Cluster]:
    """Three nodes on an empty folder; killed at the end. `Cluster.start` was called, and all replicas are in sync."""
    with tempfile.TemporaryDirectory(prefix="bench-cluster-") as folder:
        os.environ.setdefault("PYKBROKER_PYTHON", sys.executable)
        tools = JavaTools(kafka_libs()) if case == "kafka" else None
        overrides = LOCAL_CLUSTER_DEFAULTS if "--nodes" in case else {}
        cluster = Cluster(Path(folder), tools, overrides)
        try:
            cluster.start()
            yield cluster
        except (AssertionError, RuntimeError) as error:
            raise BrokerFailedError(f"{case}: {error}") from error
        finally:
            cluster.close()


class LocalNodes:
    """`pykbroker start --nodes` by its command line; one node is a plain `pykbroker start`.

    Attributes:
        ready_s: from the start of the process until all nodes answer.
    """

    def __init__(self, folder: Path, count: int = 3) -> None:
        address = folder / "address"
        command = [sys.executable, "-m", "pykbroker", "start", "--port", "0"]
        command += ["--nodes", str(count)] if count > 1 else []
        command += ["--port-file", str(address), "--data-dir", str(folder / "data")]
        self._log = folder / "log"
        with self._log.open("wb") as log:
            began = time.perf_counter()
            self._process = subprocess.Popen(
                command,
                cwd=CHECKOUT,
                env=environment_of_an_installed_copy(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        while not address.exists():
            if self._process.poll() is not None or time.perf_counter() - began > 60:
                raise BrokerFailedError(f"start --nodes {count} did not get ready:\n{self._log.read_text()[-2000:]}")
            time.sleep(0.002)
        self.ready_s = time.perf_counter() - began
        self.bootstrap = address.read_text().strip()

    @property
    def pids(self) -> list[int]:
        """The supervisor and the nodes."""
        pid = self._process.pid
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]

    def stop(self) -> None:
        """SIGTERM, and wait."""
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def memory_of(pids: Sequence[int]) -> Memory:
    """Resident memory of processes together. PSS counts a page that several share once."""
    rss = pss = 0.0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
            name, value = line.split(":")
            rss += int(value.split()[0]) / 1024 if name == "Rss" else 0
            pss += int(value.split()[0]) / 1024 if name == "Pss" else 0
    return Memory(rss, pss)


def cpu_s_of(pids: Sequence[int]) -> float:
    """Processor seconds that processes have used together."""
    return sum(map(process_cpu_s, pids))
