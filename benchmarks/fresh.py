"""A fresh broker for one test: forked from a prepared process, with an interpreter of its own, and kfake.

Measured from the call to the first answered ApiVersions; of that, the broker's own processor time, which says more on a
busy machine. kfake is the fake of franz-go, in Go: a library that runs inside the test's own process, so its start is a
function call; as a program of its own it is shown, too. It is built from benchmarks/kfake, where Go is installed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.brokers import API_VERSIONS_REQUEST, BrokerFailedError, answers, median, process_cpu_s
from benchmarks.go_programs import build, has_go
from pykbroker.testing.local_broker import LocalBroker

COLUMNS = ("a broker for one test", "median", "fastest", "of that CPU", "first", "close")


class Fresh:
    """Milliseconds of each start, and of each end where it was measured. The first start is told apart."""

    def __init__(
        self, start_ms: list[float], cpu_ms: list[float] | None = None, close_ms: list[float] | None = None
    ) -> None:
        self.first_ms, *self.start_ms = start_ms
        self.cpu_ms = (cpu_ms or [])[1:]
        self.close_ms = (close_ms or [])[1:]

    def row(self, name: str) -> list[str]:
        """As a line of the table."""
        cpu, close = (f"{median(times):.1f} ms" if times else "-" for times in (self.cpu_ms, self.close_ms))
        start, fastest, first = (f"{ms:.1f} ms" for ms in (median(self.start_ms), min(self.start_ms), self.first_ms))
        return [name, start, fastest, cpu, first, close]


def measure_local_broker(runs: int, *, prepared: bool) -> Fresh:
    """`LocalBroker().start()` and `close()`, so many times after a first one."""
    starts, cpu, closes = [], [], []
    for _ in range(runs + 1):
        broker = LocalBroker(prepared=prepared)
        try:
            began = time.perf_counter()
            broker.start()
            if not answers(broker.port):
                raise BrokerFailedError(f"LocalBroker does not answer:\n{broker.log}")
            starts.append((time.perf_counter() - began) * 1000)
            cpu.append(process_cpu_s(broker.pid or 0) * 1000)
            began = time.perf_counter()
        finally:
            broker.close()
        closes.append((time.perf_counter() - began) * 1000)
    return Fresh(starts, cpu, closes)


def measure_kfake(runs: int) -> dict[str, Fresh]:
    """kfake in a process that runs already, and as a process; empty, with a word, where it cannot be built."""
    if not has_go():
        print("  kfake: left out, as Go is not installed", file=sys.stderr, flush=True)
        return {}
    with tempfile.TemporaryDirectory(prefix="bench-kfake-") as folder:
        try:
            program = str(build("kfake", Path(folder)))
        except BrokerFailedError as error:
            print(f"  kfake: left out: {error}", file=sys.stderr, flush=True)
            return {}
        command = [program, str(runs + 1), API_VERSIONS_REQUEST.hex()]
        printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        inside = [float(line) for line in printed.split()]
        processes = [_kfake_process(program) for _ in range(runs + 1)]
    return {
        "kfake, a call in the test's own process (Go)": Fresh(inside),
        "kfake, a process": Fresh(processes),
    }


def _kfake_process(program: str) -> float:
    began = time.perf_counter()
    with subprocess.Popen([program, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        if not answers(port):
            raise BrokerFailedError("kfake does not answer")
        took_ms = (time.perf_counter() - began) * 1000
        process.stdin.close()
    return took_ms


def measure(runs: int) -> dict[str, Fresh]:
    """All of them, by name."""
    return {
        "pykbroker, forked from a prepared process": measure_local_broker(runs, prepared=True),
        "pykbroker, an interpreter of its own": measure_local_broker(max(runs // 4, 3), prepared=False),
        **measure_kfake(runs),
    }
