"""Metadata for all topics: how long one client waits for it, and how long everybody else meanwhile.

    python -m benchmarks.metadata                            # this broker and Apache Kafka, in turn
    python -m benchmarks.metadata --broker pykbroker --shapes 760x3

A raw socket sends a request that was encoded once and reads the whole response. "same version" asks with one version
again and again, as clients do; "versions in turn" asks with another one each time, so that a broker which keeps encoded
answers has to make each anew, as after a change of the brokers. Meanwhile a second process sends ApiVersions without
pause: its longest wait is the stall. Rounds of the brokers alternate, and the tables give the best round of each: other
load on the machine only ever adds.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import struct
import sys
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.brokers import API_VERSIONS_REQUEST, KINDS, Broker, BrokerFailedError
from benchmarks.reports import save, show

COLUMNS = (
    "partitions, broker, requests",
    "p50 ms",
    "p99 ms",
    "max ms",
    "CPU ms each",
    "stall p50 ms",
    "stall max ms",
    "KB",
)
VERSION = 12
VERSIONS_IN_TURN = (5, 6, 7, 8, 9, 10, 11, 12, 13)
FLEXIBLE_FROM = 9
TOPICS_PER_REQUEST = 250
PROBES_PER_S = 2000
CREATION_WAIT_S = 300.0
PARTITION_SIZE = 26
"""Bytes of a partition with one replica in version 12."""


def metadata_request(version: int) -> bytes:
    """Metadata for all topics (version 5 or later), with its size in front."""
    is_flexible = version >= FLEXIBLE_FROM
    head = struct.pack(">hhih5s", 3, version, 7, 5, b"bench") + (b"\x00" if is_flexible else b"")
    body = b"\x00" if is_flexible else b"\xff\xff\xff\xff"
    body += b"\x00"  # allow_auto_topic_creation
    if 8 <= version <= 10:
        body += b"\x00"  # include_cluster_authorized_operations
    if version >= 8:
        body += b"\x00"  # include_topic_authorized_operations
    if is_flexible:
        body += b"\x00"
    return struct.pack(">i", len(head) + len(body)) + head + body


def exchange(connection: socket.socket, request: bytes, room: bytearray) -> int:
    """Send a request and read its whole response; the response's bytes."""
    connection.sendall(request)
    view = memoryview(room)
    filled = 0
    while filled < 4 or filled < 4 + int.from_bytes(room[:4], "big"):
        count = connection.recv_into(view[filled:])
        if not count:
            raise BrokerFailedError("the broker closed the connection")
        filled += count
    return filled


def probe(port: int, pipe: Connection) -> None:
    """In a process of its own: ApiVersions without pause until told to stop; sends all waits in ms."""
    waits: list[float] = []
    room = bytearray(1 << 16)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        exchange(connection, API_VERSIONS_REQUEST, room)
        pipe.send(None)
        while not pipe.poll():
            began = time.perf_counter()
            exchange(connection, API_VERSIONS_REQUEST, room)
            waits.append((time.perf_counter() - began) * 1000)
            time.sleep(1 / PROBES_PER_S)
    pipe.send(waits)


def measure(broker: Broker, versions: tuple[int, ...], count: int) -> dict[str, float]:
    """One round: so many requests, one after the other, with the given versions in turn."""
    requests = [metadata_request(version) for version in versions]
    room = bytearray(1 << 24)
    here, there = multiprocessing.Pipe()
    prober = multiprocessing.get_context("spawn").Process(target=probe, args=(broker.port, there))
    prober.start()
    here.recv()
    waits: list[float] = []
    try:
        with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            cpu_s = broker.cpu_s()
            for number in range(count):
                began = time.perf_counter()
                size = exchange(connection, requests[number % len(requests)], room)
                waits.append((time.perf_counter() - began) * 1000)
                time.sleep(0.005)
            cpu_s = broker.cpu_s() - cpu_s
    finally:
        here.send(None)
        stalls = sorted(here.recv())
        prober.join()
    waits.sort()
    return {
        "p50": waits[len(waits) // 2],
        "p99": waits[min(len(waits) * 99 // 100, len(waits) - 1)],
        "max": waits[-1],
        # With what the second client's requests cost.
        "cpu": cpu_s * 1000 / count,
        "stall_p50": stalls[len(stalls) // 2],
        "stall_max": stalls[-1],
        "size_kb": size / 1000,
    }


def create_topics(broker: Broker, topics: int, partitions: int) -> None:
    """So many topics by a stock client."""
    from kafka.admin import KafkaAdminClient, NewTopic

    admin: Any = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=300_000)
    for first in range(0, topics, TOPICS_PER_REQUEST):
        numbers = range(first, min(first + TOPICS_PER_REQUEST, topics))
        admin.create_topics(
            [NewTopic(f"metadata-{n}", num_partitions=partitions, replication_factor=1) for n in numbers],
            timeout_ms=240_000,
        )
    admin.close()
    wait_for_partitions(broker, topics * partitions)


def wait_for_partitions(broker: Broker, count: int) -> None:
    """Wait until Metadata has so many: Kafka's brokers learn of topics behind their creation."""
    room = bytearray(1 << 24)
    ends = time.monotonic() + CREATION_WAIT_S
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as connection:
        while exchange(connection, metadata_request(VERSION), room) < count * PARTITION_SIZE:
            if time.monotonic() > ends:
                raise BrokerFailedError(f"{broker.name} has no {count} partitions after {CREATION_WAIT_S:.0f} s")
            time.sleep(0.5)


def measure_shape(shape: str, kinds: list[str], rounds: int, count: int) -> list[dict[str, Any]]:
    """All brokers with one number of topics; the best round of each."""
    topics, partitions = map(int, shape.split("x"))
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    with ExitStack() as stack:
        brokers = [stack.enter_context(KINDS[kind]()) for kind in kinds]
        for broker in brokers:
            create_topics(broker, topics, partitions)
            measure(broker, (VERSION,), count)
        for number in range(rounds):
            for broker in brokers:
                for name, versions in (("same version", (VERSION,)), ("versions in turn", VERSIONS_IN_TURN)):
                    result = measure(broker, versions, count)
                    found.setdefault((name, broker.name), []).append(result)
                    print(f"  {shape} round {number + 1} {broker.name} {name}: {result}", file=sys.stderr, flush=True)
    return [
        {"partitions": topics * partitions, "broker": broker, "requests": name}
        | {key: min(result[key] for result in results) for key in results[0]}
        for (name, broker), results in sorted(found.items())
    ]


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metadata", description="Metadata for all topics")
    parser.add_argument("--broker", choices=KINDS, action="append", help="both, unless named")
    parser.add_argument("--shapes", default="760x3,3334x3", help="topics x partitions, with commas between")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=200, help="in each round")
    arguments = parser.parse_args()
    results = []
    try:
        for shape in arguments.shapes.split(","):
            results += measure_shape(shape, arguments.broker or list(KINDS), arguments.rounds, arguments.requests)
    except BrokerFailedError as error:
        print(f"metadata: {error}", file=sys.stderr)
        return 2
    rows = [
        [
            f"{result['partitions']} {result['broker']}, {result['requests']}",
            *(f"{result[key]:.2f}" for key in ("p50", "p99", "max", "cpu", "stall_p50", "stall_max")),
            f"{result['size_kb']:.0f}",
        ]
        for result in results
    ]
    title = "Metadata for all topics, best round"
    show(title, COLUMNS, rows)
    print(f"written to {save('metadata', title, COLUMNS, rows, results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
