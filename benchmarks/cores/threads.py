"""Produce requests through the broker's dispatch, in one thread and in two, each with partitions of its own.

    python3.13t -m benchmarks.cores.threads

No sockets and no waits: the processor time of a request by this interpreter, and what a second thread adds. Needs the
package's dependencies, no installed pykbroker.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cores.produce_path import data_path, produce_frame
from pykbroker.network.dispatch import dispatch
from pykbroker.security.connection_info import ConnectionInfo

if TYPE_CHECKING:
    from tests.support.data_path import DataPath

SIZE = 100
WARM_UP = 2000


def serve(path: DataPath, requests: int) -> None:
    """Serves so many requests; none of them has to wait."""
    info = ConnectionInfo("PLAINTEXT", ("127.0.0.1", 50000), ("localhost", 9092), None)
    frame = produce_frame(0, SIZE)
    for _ in range(requests):
        # The frame is written into, as a connection's buffer is: the batch gets its offset there.
        request = dispatch(path.services, info, memoryview(bytearray(frame)))
        try:
            request.send(None)
        except StopIteration:
            continue
        raise AssertionError("the request waits")


def requests_per_s(folder: Path, count: int, requests: int) -> float:
    """Requests of so many threads together.

    Each thread makes its own partitions: without the global lock an object costs more in a thread that did not make it.
    """
    barrier = threading.Barrier(count)
    rates: list[float] = []

    def run(own: Path) -> None:
        path = data_path(own, 1)
        serve(path, WARM_UP)
        barrier.wait()
        began = time.perf_counter()
        serve(path, requests)
        rates.append(requests / (time.perf_counter() - began))
        path.close()

    threads = [threading.Thread(target=run, args=(folder / str(number),)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(rates)


def main() -> int:
    """Measure by turns, print the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cores.threads", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each (default %(default)s)")
    parser.add_argument("--requests", type=int, default=20_000, help="of each thread (default %(default)s)")
    parser.add_argument("--no-gc", action="store_true", help="switch the garbage collector off")
    arguments = parser.parse_args()
    if arguments.no_gc:
        gc.disable()
    disk = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="bench-threads-", dir=disk) as folder:
        path = data_path(Path(folder, "main"), 1)
        serve(path, WARM_UP)
        began = time.perf_counter()
        # Before the first other thread: CPython 3.13 treats some objects differently from then on.
        serve(path, arguments.requests)
        main_us = (time.perf_counter() - began) * 1e6 / arguments.requests
        path.close()
        found: dict[int, list[float]] = {1: [], 2: []}
        for number in range(arguments.rounds):
            for count, rates in found.items():
                rates.append(requests_per_s(Path(folder, f"{number}-{count}"), count, arguments.requests))
    # Asked at the end: an imported extension can switch the lock on again.
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    one, two = (statistics.median(rates) for rates in found.values())
    print(f"{sys.version}; global lock: {'yes' if has_lock else 'no'}")
    print(f"main thread  {main_us:6.1f} us for each request")
    print(f"one thread   {1e6 / one:6.1f} us for each request, {one:,.0f}/s")
    print(f"two threads  {two:,.0f}/s together, {two / one:.2f} times one")
    return 0


if __name__ == "__main__":
    sys.exit(main())
