"""python -m benchmarks.restart: how long a broker with a large log takes to answer after kill -9 and a clean stop.

A partition is filled with batches of one size, 16 KB as producers under load make them and 1 KB as those do that send
each record by itself. Then the process is killed, started, stopped in order and started again; each start is measured
from fork to the first answered ApiVersions. After a kill the checkpoint of recovery points is removed, so that every
time all of the log has to be recovered, as if nothing of it had been flushed yet. The files stay in the page cache, as
after a crash of the process alone, and have been written back: what is measured is the broker, not a disk that still
has a gigabyte to write before it can sync anything. RATIO says how often the slowest kind of start fits into 2 s.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from benchmarks.brokers import KINDS, Broker, BrokerFailedError, median
from benchmarks.reports import save, show

if TYPE_CHECKING:
    from collections.abc import Callable

GOAL_S = 2.0
GB = 1 << 30
TOPIC = "restart"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
COLUMNS = ("broker", "batch", "log", "after kill -9", "of that CPU", "after a clean stop", "of that CPU")


@dataclass
class Measured:
    """All starts with one size of batches."""

    batch_size: int
    log_size: int = 0
    killed_s: list[float] = field(default_factory=list)
    killed_cpu_s: list[float] = field(default_factory=list)
    stopped_s: list[float] = field(default_factory=list)
    stopped_cpu_s: list[float] = field(default_factory=list)

    @property
    def slower_s(self) -> float:
        """The median start after the worse end of the two."""
        return max(median(self.killed_s), median(self.stopped_s))

    def row(self, name: str) -> list[str]:
        """As a line of the table."""
        return [
            name,
            f"{self.batch_size / 1024:.0f} KB",
            f"{self.log_size / GB:.2f} GB",
            f"{median(self.killed_s):.2f} s",
            f"{median(self.killed_cpu_s):.2f} s",
            f"{median(self.stopped_s):.2f} s",
            f"{median(self.stopped_cpu_s):.2f} s",
        ]


def request(api_key: int, version: int, body: bytes) -> bytes:
    """A frame with a header of version 1 and no client id."""
    frame = struct.pack(">hhih", api_key, version, 1, -1) + body
    return struct.pack(">i", len(frame)) + frame


def text(value: str) -> bytes:
    """A string of the protocol."""
    return struct.pack(">h", len(value)) + value.encode()


def read_reply(connection: socket.socket) -> bytes:
    """The next frame without its size."""
    with memoryview(bytearray(4)) as size:
        receive(connection, size)
        reply = memoryview(bytearray(struct.unpack(">i", size)[0]))
    receive(connection, reply)
    return bytes(reply)


def receive(connection: socket.socket, buffer: memoryview) -> None:
    """Fill the buffer."""
    while buffer:
        count = connection.recv_into(buffer)
        if not count:
            raise BrokerFailedError("the broker closed the connection")
        buffer = buffer[count:]


def create_topic(connection: socket.socket) -> None:
    """One partition, segments of 1 GiB."""
    topic = text(TOPIC) + struct.pack(">ihii", 1, 1, 0, 0)
    connection.sendall(request(19, 2, struct.pack(">i", 1) + topic + struct.pack(">ib", 30_000, 0)))
    reply = read_reply(connection)
    # correlation id, throttle time, one topic: name, error code
    (error_code,) = struct.unpack_from(">h", reply, 4 + 4 + 4 + 2 + len(TOPIC))
    if error_code:
        raise BrokerFailedError(f"the topic could not be created: error {error_code}")


def batch_of(size: int) -> bytes:
    """A batch of one record that is about so large, made by kafka-python, without compression."""
    from kafka.record.memory_records import MemoryRecordsBuilder

    builder = MemoryRecordsBuilder(2, 0, 1 << 21)
    builder.append(int(time.time() * 1000), None, os.urandom(size - 80), [])
    builder.close()
    return bytes(builder.buffer())


def fill(broker: Broker, batch: bytes, size: int) -> int:
    """Produce batches until the log is so large; returns its size. Some requests are on their way at any time."""
    body = struct.pack(">hhii", -1, -1, 30_000, 1) + text(TOPIC) + struct.pack(">iii", 1, 0, len(batch)) + batch
    produce = request(0, 3, body)
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as connection:
        create_topic(connection)
        count, answered, window = -(-size // len(batch)), 0, max(1, (1 << 18) // len(batch))
        for number in range(count):
            connection.sendall(produce)
            if number - answered >= window:
                check_produced(read_reply(connection))
                answered += 1
        for _ in range(count - answered):
            check_produced(read_reply(connection))
    return count * len(batch)


def check_produced(reply: bytes) -> None:
    """Raise unless the one partition of a Produce response was written."""
    # correlation id, one topic: name, one partition: index, error code
    (error_code,) = struct.unpack_from(">h", reply, 4 + 4 + 2 + len(TOPIC) + 4 + 4)
    if error_code:
        raise BrokerFailedError(f"a batch was refused: error {error_code}")


def measure(kind: str, batch_size: int, size: int, rounds: int) -> Measured:
    """Fill one log; kill, start, stop and start its broker in turn."""
    measured = Measured(batch_size)
    with KINDS[kind]() as broker:
        measured.log_size = fill(broker, batch_of(batch_size), size)
        os.sync()
        steps: tuple[tuple[Callable[[], None], list[float], list[float]], ...] = (
            (broker.kill, measured.killed_s, measured.killed_cpu_s),
            (broker.stop, measured.stopped_s, measured.stopped_cpu_s),
        )
        for number in range(rounds):
            for end, wall_s, cpu_s in steps:
                end()
                if end == broker.kill:
                    (broker.folder / "data" / RECOVERY_POINTS).unlink(missing_ok=True)
                broker.start()
                wall_s.append(broker.start_ms / 1000)
                cpu_s.append(broker.start_cpu_ms / 1000)
            line = f"after kill -9 {measured.killed_s[-1]:.2f} s, after a stop {measured.stopped_s[-1]:.2f} s"
            print(f"  {kind}, {batch_size} B, {number + 1} of {rounds}: {line}", file=sys.stderr, flush=True)
    return measured


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.restart", description="Start with a large log")
    parser.add_argument("--gb", type=float, default=1.0, help="size of the log (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="kills and stops (default %(default)s)")
    parser.add_argument("--kafka", action="store_true", help="measure Apache Kafka too (needs Java)")
    arguments = parser.parse_args()
    rows: list[list[str]] = []
    results: dict[str, list[Measured]] = {}
    try:
        for kind in ("pykbroker", "kafka") if arguments.kafka else ("pykbroker",):
            for batch_size in (16 << 10, 1 << 10):
                one = measure(kind, batch_size, int(arguments.gb * GB), arguments.rounds)
                results.setdefault(kind, []).append(one)
                rows.append(one.row(kind))
    except (BrokerFailedError, OSError) as error:
        print(f"restart: {error}", file=sys.stderr)
        return 2
    title = "Process start to first answered ApiVersions with a large log (median)"
    show(title, COLUMNS, rows)
    data = {kind: [asdict(one) for one in found] for kind, found in results.items()}
    path = save("restart", title, COLUMNS, rows, data)
    slowest = max(one.slower_s for one in results["pykbroker"])
    verdict = "met" if slowest <= GOAL_S else "MISSED"
    print(f"RATIO  {GOAL_S / slowest:.1f}: the slowest kind takes {slowest:.2f} s, goal {GOAL_S:.0f} s: {verdict}")
    print(f"written to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
