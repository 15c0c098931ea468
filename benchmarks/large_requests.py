"""Requests that name 10,000 things: how long each takes, and the longest that another client waits meanwhile.

    python -m benchmarks.large_requests                      # this broker; --broker kafka for Apache Kafka

A raw socket sends each request, encoded beforehand, so many times; a second process sends ApiVersions without pause, as
in benchmarks.metadata. The first column of times is what decoding the request alone costs this broker, measured here:
it is done in one piece.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import struct
import sys
import time
from typing import Any

from benchmarks.brokers import KINDS, Broker, BrokerFailedError
from benchmarks.metadata import create_topics, exchange, probe
from benchmarks.reports import save, show
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pykbroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

COLUMNS = ("request", "KB", "decode ms", "p50 ms", "max ms", "stall max ms")
TOPICS = 3334
PARTITIONS = 3
TOPIC_RESOURCE = 2
TIMEOUT_MS = 60_000
COORDINATOR_WAIT_S = 10
DECODES = 7


def large_requests() -> dict[str, tuple[Message, int]]:
    """By name: the request and its version, which is one that clients use."""
    names = [f"metadata-{number}" for number in range(TOPICS)]
    numbers = range(PARTITIONS)
    group = [OffsetFetchRequestTopics(name=name, partition_indexes=list(numbers)) for name in names]
    return {
        "ListOffsets": (
            ListOffsetsRequest(
                topics=[
                    ListOffsetsTopic(
                        name=name, partitions=[ListOffsetsPartition(partition_index=n, timestamp=-1) for n in numbers]
                    )
                    for name in names
                ]
            ),
            7,
        ),
        "OffsetFetch": (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="large", topics=group)]), 8),
        "Fetch": (
            FetchRequest(
                max_wait_ms=0,
                session_epoch=-1,
                topics=[
                    FetchTopic(
                        topic=name, partitions=[FetchPartition(partition=n, partition_max_bytes=1) for n in numbers]
                    )
                    for name in names
                ],
            ),
            12,
        ),
        "DescribeConfigs": (
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=["retention.ms"]
                    )
                    for name in names
                ]
            ),
            4,
        ),
        "Metadata by name": (MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names]), 12),
        "OffsetCommit": (
            OffsetCommitRequest(
                group_id="large",
                generation_id_or_member_epoch=-1,
                topics=[
                    OffsetCommitRequestTopic(
                        name=name,
                        partitions=[
                            OffsetCommitRequestPartition(partition_index=n, committed_offset=1) for n in numbers
                        ],
                    )
                    for name in names
                ],
            ),
            8,
        ),
        "DescribeProducers": (
            DescribeProducersRequest(
                topics=[TopicRequest(name=name, partition_indexes=list(numbers)) for name in names]
            ),
            0,
        ),
        "DeleteRecords": (
            DeleteRecordsRequest(
                timeout_ms=TIMEOUT_MS,
                topics=[
                    DeleteRecordsTopic(
                        name=name, partitions=[DeleteRecordsPartition(partition_index=n, offset=0) for n in numbers]
                    )
                    for name in names
                ],
            ),
            2,
        ),
        "IncrementalAlterConfigs": (
            IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=TOPIC_RESOURCE,
                        resource_name=name,
                        configs=[AlterableConfig(name="retention.ms", config_operation=0, value="600000000")],
                    )
                    for name in names
                ]
            ),
            1,
        ),
        # 10,000 partitions are the most that one request may create. These are planned only.
        "CreateTopics": (
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(name=f"new-{name}", num_partitions=PARTITIONS, replication_factor=1)
                    for name in names[: 10_000 // (PARTITIONS + 1)]
                ],
                timeout_ms=TIMEOUT_MS,
                validate_only=True,
            ),
            7,
        ),
    }


def framed(request: Message, version: int) -> bytes:
    """The request behind its size and a flexible header, as all of these versions have it."""
    head = struct.pack(">hhih5sb", request.KEY, version, 7, 5, b"bench", 0)
    body = encode(request, version)
    return struct.pack(">i", len(head) + len(body)) + head + body


def make_coordinator(broker: Broker) -> None:
    """Have `__consumer_offsets` created, and wait until it is there."""
    frame = framed(FindCoordinatorRequest(key_type=0, coordinator_keys=["large"]), 4)
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as connection:
        exchange(connection, frame, bytearray(1 << 16))
    time.sleep(COORDINATOR_WAIT_S)


def decode_ms(request: Message, version: int) -> float:
    """Processor time of the quickest decoding."""
    data = memoryview(encode(request, version))
    times = []
    for _ in range(DECODES):
        began = time.thread_time()
        decode(type(request), version, data)
        times.append((time.thread_time() - began) * 1000)
    return min(times)


def measure(broker: Broker, frame: bytes, count: int) -> tuple[list[float], float]:
    """Milliseconds of each exchange, in order of size, and the longest wait of the other client."""
    here, there = multiprocessing.Pipe()
    prober = multiprocessing.get_context("spawn").Process(target=probe, args=(broker.port, there))
    prober.start()
    here.recv()
    room, waits = bytearray(1 << 24), []
    try:
        with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as connection:
            for _ in range(count):
                began = time.perf_counter()
                exchange(connection, frame, room)
                waits.append((time.perf_counter() - began) * 1000)
                time.sleep(0.02)
    finally:
        here.send(None)
        stalls = here.recv()
        prober.join()
    return sorted(waits), max(stalls)


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_requests", description="Requests for thousands")
    parser.add_argument("--broker", choices=KINDS, default="pykbroker")
    parser.add_argument("--requests", type=int, default=30, help="of each kind")
    parser.add_argument("--rounds", type=int, default=3, help="of which the best counts")
    arguments = parser.parse_args()
    results: list[dict[str, Any]] = []
    try:
        with KINDS[arguments.broker]() as broker:
            create_topics(broker, TOPICS, PARTITIONS)
            make_coordinator(broker)
            for name, (request, version) in large_requests().items():
                frame = framed(request, version)
                measure(broker, frame, 5)
                rounds = [measure(broker, frame, arguments.requests) for _ in range(arguments.rounds)]
                results.append(
                    {
                        "request": f"{name} v{version}",
                        "kb": len(frame) / 1000,
                        "decode": decode_ms(request, version),
                        "p50": min(waits[len(waits) // 2] for waits, _ in rounds),
                        "max": min(waits[-1] for waits, _ in rounds),
                        "stall_max": min(stall for _, stall in rounds),
                    }
                )
    except BrokerFailedError as error:
        print(f"large_requests: {error}", file=sys.stderr)
        return 2
    rows = [
        [result["request"], *(f"{result[key]:.1f}" for key in ("kb", "decode", "p50", "max", "stall_max"))]
        for result in results
    ]
    title = f"Requests for {TOPICS} topics of {PARTITIONS} partitions, {arguments.broker}, best round"
    show(title, COLUMNS, rows)
    print(f"written to {save('large_requests', title, COLUMNS, rows, results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
