"""Thousands of partitions: what the first append to each costs, and how long a stop takes when all were written.

    python -m benchmarks.many_partitions                     # --broker kafka for Apache Kafka, as often as wanted

A raw socket sends one small batch to each partition, `--at-once` partitions in a request, three times over: the first
time every log is empty. Then the broker is stopped by SIGTERM, and started again to see that the stop was a clean one.
Prints processor time for each partition, and seconds.
"""

from __future__ import annotations

import argparse
import socket
import struct
import sys
import time
from typing import Any

from benchmarks.brokers import KINDS, Broker, BrokerFailedError
from benchmarks.metadata import exchange, wait_for_partitions
from benchmarks.reports import save, show

COLUMNS = ("broker", "first append CPU us", "s", "second", "third", "stop s", "stop CPU s", "start after it s")
TOPICS = 10
PRODUCE_VERSION = 7
STOP_WAIT_S = 300.0


def small_batch() -> bytes:
    """One record of 100 bytes, as kafka-python batches it."""
    from kafka.record.memory_records import MemoryRecordsBuilder

    builder = MemoryRecordsBuilder(2, 0, 1 << 16)
    builder.append(timestamp=int(time.time() * 1000), key=None, value=b"x" * 100)
    builder.close()
    return bytes(builder.buffer())


def produce_request(topic: str, partitions: range, batch: bytes) -> bytes:
    """Produce with acks=1 of the same batch to some partitions, with its size in front."""
    name = topic.encode()
    head = struct.pack(">hhih5s", 0, PRODUCE_VERSION, 7, 5, b"bench")
    head += struct.pack(">hhi", -1, 1, 60_000)
    head += struct.pack(f">ih{len(name)}si", 1, len(name), name, len(partitions))
    body = b"".join(struct.pack(">ii", partition, len(batch)) + batch for partition in partitions)
    return struct.pack(">i", len(head) + len(body)) + head + body


def append_to_all(broker: Broker, each: int, at_once: int) -> tuple[float, float]:
    """One batch to every partition; processor microseconds of each, and seconds of all."""
    batch, room = small_batch(), bytearray(1 << 20)
    with socket.create_connection(("127.0.0.1", broker.port), timeout=300) as connection:
        cpu_s, began = broker.cpu_s(), time.perf_counter()
        for number in range(TOPICS):
            topic = f"many-{number}"
            for first in range(0, each, at_once):
                partitions = range(first, min(first + at_once, each))
                exchange(connection, produce_request(topic, partitions, batch), room)
                # Size, correlation id, one topic, its name, its partitions: index, error code.
                (error,) = struct.unpack_from(">h", room, 4 + 4 + 4 + 2 + len(topic) + 4 + 4)
                if error:
                    raise BrokerFailedError(f"{broker.name} answered error {error} to an append to {topic}-{first}")
        return (broker.cpu_s() - cpu_s) * 1e6 / (each * TOPICS), time.perf_counter() - began


def stop(broker: Broker) -> tuple[float, float]:
    """Seconds and processor seconds from SIGTERM until the process is gone; the latter to the last look at it."""
    process = broker._process
    assert process is not None
    before = last = broker.cpu_s()
    began = time.perf_counter()
    process.terminate()
    while process.poll() is None:
        if time.perf_counter() - began > STOP_WAIT_S:
            raise BrokerFailedError(f"{broker.name} did not stop within {STOP_WAIT_S:.0f} s")
        try:
            last = broker.cpu_s()
        except (OSError, IndexError):
            break
        time.sleep(0.005)
    process.wait()
    seconds = time.perf_counter() - began
    broker._process = None
    return seconds, last - before


def measure(broker: Broker, partitions: int, at_once: int) -> dict[str, Any]:
    """One broker from the creation of its topics to its second start."""
    from kafka.admin import KafkaAdminClient, NewTopic

    each = partitions // TOPICS
    admin: Any = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=300_000)
    for number in range(TOPICS):
        admin.create_topics([NewTopic(f"many-{number}", num_partitions=each, replication_factor=1)], timeout_ms=240_000)
    admin.close()
    wait_for_partitions(broker, each * TOPICS)
    # The folders of many new partitions are made behind the creation.
    time.sleep(10)
    appends = [append_to_all(broker, each, at_once) for _ in range(3)]
    stop_s, stop_cpu_s = stop(broker)
    broker.start()
    return {
        "broker": broker.name,
        "append_cpu_us": [cpu_us for cpu_us, _ in appends],
        "append_s": [seconds for _, seconds in appends],
        "stop_s": stop_s,
        "stop_cpu_s": stop_cpu_s,
        "start_s": broker.start_ms / 1000,
    }


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_partitions", description="Thousands of partitions")
    parser.add_argument("--broker", choices=KINDS, action="append", help="may be repeated; pykbroker unless named")
    parser.add_argument("--partitions", type=int, default=9000)
    parser.add_argument("--at-once", type=int, default=50, help="partitions in one Produce request")
    arguments = parser.parse_args()
    results = []
    try:
        for kind in arguments.broker or ["pykbroker"]:
            with KINDS[kind]() as broker:
                results.append(measure(broker, arguments.partitions, arguments.at_once))
                print(f"  {results[-1]}", file=sys.stderr, flush=True)
    except BrokerFailedError as error:
        print(f"many_partitions: {error}", file=sys.stderr)
        return 2
    rows = [
        [
            result["broker"],
            f"{result['append_cpu_us'][0]:.0f}",
            f"{result['append_s'][0]:.2f}",
            *(f"{cpu_us:.0f}" for cpu_us in result["append_cpu_us"][1:]),
            *(f"{result[key]:.2f}" for key in ("stop_s", "stop_cpu_s", "start_s")),
        ]
        for result in results
    ]
    title = f"{arguments.partitions} partitions, all written"
    show(title, COLUMNS, rows)
    print(f"written to {save('many-partitions', title, COLUMNS, rows, results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
