"""Clients that mean no good, against a broker process: others are served meanwhile, and nothing stays behind.

No test depends on the speed of the machine: others are served while hostile clients are there, and before the answer to
a long request that came first (`is_overtaken`).
"""

from __future__ import annotations

import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from pykbroker.protocol.codec import encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages.api_versions import ApiVersionsRequest
from pykbroker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.delete_topics import DeleteTopicsRequest
from pykbroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.record import Record
from tests.fuzz.batches import bomb
from tests.fuzz.client import RESET, FuzzClient
from tests.fuzz.frames import GARBAGE, MutatedRealFrames
from tests.fuzz.target import Target
from tests.fuzz.world import PARTITIONS, TOPICS, World
from tests.hostile.conftest import LONG_S, Opener, memory_comes_back, wait_until_memory_is_returned
from tests.support.wire_client import WireClient

MEGABYTE = 1 << 20

NAMED = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def framed(request: ProduceRequest | FetchRequest | MetadataRequest | ApiVersionsRequest, version: int) -> bytes:
    header = request.KEY.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\0\7hostile"
    frame = header + (b"\0" if version in request.FLEXIBLE_VERSIONS else b"") + encode(request, version)
    return len(frame).to_bytes(4, "big") + frame


def produce(records: bytes, topics: Sequence[str] = TOPICS[:1], partitions: int = 1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records) for index in range(partitions)]
    named = [TopicProduceData(name=topic, partition_data=data) for topic in topics]
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=named)


def others_are_served(target: Target) -> bool:
    """True if a few new clients get their answers, one after the other."""
    return all(target.is_serving() for _ in range(5))


def is_overtaken(target: Target, requests: Sequence[tuple[WireClient, Message, int]]) -> bool:
    """True if a new client that comes behind these requests is answered before all of them.

    The broker stands still until all are sent: the order of the answers is then that of its work alone.
    """
    frames = [(wire, wire.frame(request, version)) for wire, request, version in requests]
    for wire, frame in frames:
        wire.send_bytes(frame[:-1])
    with target.stopped():
        for wire, frame in frames:
            wire.send_bytes(frame[-1:])
        other = target.new_client(LONG_S)
    with other:
        clients: list[Any] = [other, *(wire for wire, _ in frames)]
        answered, _, _ = select.select(clients, [], [], LONG_S)
        return other in answered


def test_claims_cost_nothing(target: Target, connect: Opener) -> None:
    """A hundred connections that announce a hundred megabytes each."""
    with memory_comes_back(target):
        before = target.rss_bytes()
        claims = [connect() for _ in range(100)]
        for number, claim in enumerate(claims):
            claim.sendall((100 * MEGABYTE).to_bytes(4, "big") + bytes(number * 20))
        assert others_are_served(target)
        assert target.rss_bytes() - before < 10 * MEGABYTE
        for claim in claims:
            claim.close()


def test_slow_readers(target: Target, connect: Opener) -> None:
    """They ask for everything, again and again, and read nothing: what was asked for waits in the kernel or nowhere."""
    wire = WireClient(target.address)
    records = build_batch([Record(0, int(time.time() * 1000), None, bytes(900_000), [])])
    for _ in range(30):
        assert wire.call(produce(records), 9).responses[0].partition_responses[0].error_code == ErrorCode.NONE
    wire.close()
    topics = [FetchTopic(topic="fuzz-0", partitions=[FetchPartition(partition=0, partition_max_bytes=50 * MEGABYTE)])]
    fetch = framed(FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=50 * MEGABYTE, topics=topics), 11)
    with memory_comes_back(target):
        before = target.rss_bytes()
        readers = [connect() for _ in range(40)]
        for reader in readers:
            reader.sendall(fetch * 100)
        assert others_are_served(target)
        assert target.rss_bytes() - before < 20 * MEGABYTE
        for reader in readers:
            reader.close()


def test_a_client_that_is_stopped(target: Target) -> None:
    """Half open: no answer is read and no end is sent; others are served, and after its end all is as before."""
    program = (
        "import socket, sys, os, signal\n"
        "connections = [socket.create_connection(('127.0.0.1', int(sys.argv[1]))) for _ in range(20)]\n"
        "data = bytes.fromhex(sys.argv[2])\n"
        "for connection in connections:\n"
        "    connection.sendall(data * 500 + data[:-2])\n"
        "print('stopped', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    request = framed(MetadataRequest(topics=None), 1).hex()
    with memory_comes_back(target):
        child = subprocess.Popen(
            [sys.executable, "-c", program, str(target.address[1]), request], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "stopped\n"
        assert others_are_served(target)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()


def test_requests_without_reading_replies(target: Target, connect: Opener) -> None:
    """Thousands of requests at once: they wait in the sockets, one at a time is served on each connection."""
    request = framed(NAMED, 3) * 1000
    with memory_comes_back(target):
        before = target.rss_bytes()
        senders = [connect() for _ in range(30)]
        for sender in senders:
            sender.setblocking(False)
        sent = 0
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            for sender in senders:
                try:
                    sent += sender.send(request)
                except BlockingIOError:
                    continue
            assert target.is_serving()
        assert sent > 2000 * len(framed(NAMED, 3))
        assert target.rss_bytes() - before < 20 * MEGABYTE
        for sender in senders:
            sender.close()


def test_a_byte_now_and_then(target: Target, connect: Opener) -> None:
    frame = framed(NAMED, 3)
    slow = [connect() for _ in range(50)]
    for number in range(len(frame)):
        for client in slow:
            client.sendall(frame[number : number + 1])
        if number % 8 == 0:
            assert target.is_serving()
    for client in slow:
        assert client.recv(4096)


def test_decompression_bombs(target: Target) -> None:
    """Refused at a limit, whatever the topic does with records: stores, compacts, stamps or compresses them anew."""
    wire = WireClient(target.address)
    with memory_comes_back(target):
        for topic in TOPICS:
            for codec in (1, 2, 3, 4):
                (response,) = wire.call(produce(bomb(codec), (topic,)), 9).responses
                assert response.partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE
                assert target.is_serving()
    wire.close()


def test_many_bombs_in_one_request_let_others_in(target: Target) -> None:
    """Each just below the limit and thus stored: a second of work in a few kilobytes."""
    records = build_batch([Record(0, int(time.time() * 1000), b"k", bytes(100 * MEGABYTE), [])], codec=4)
    assert len(records) < 10_000
    wire = WireClient(target.address)
    small = build_batch([Record(0, int(time.time() * 1000), b"k", b"v", [])])
    # The files of all partitions are open then, and stay so.
    assert len(wire.call(produce(small, TOPICS, PARTITIONS), 9).responses) == len(TOPICS)
    wire.close()
    with memory_comes_back(target):
        attackers = [WireClient(target.address, timeout_s=LONG_S) for _ in range(3)]
        assert is_overtaken(target, [(attacker, produce(records, TOPICS, PARTITIONS), 9) for attacker in attackers])
        for attacker in attackers:
            assert len(attacker.receive().responses) == len(TOPICS)
            attacker.close()


def test_a_port_scan(target: Target) -> None:
    """Connect and close, connect and reset, garbage: descriptors come back, and the log is not flooded."""
    lines_before = len(target.new_log_lines())
    with memory_comes_back(target):
        for number in range(1500):
            scan = socket.create_connection(target.address, timeout=LONG_S)
            if number % 3:
                scan.sendall(GARBAGE[number % len(GARBAGE)])
            if number % 3 == 2:
                scan.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            scan.close()
            if number % 300 == 0:
                assert target.is_serving()
    assert len(target.new_log_lines()) - lines_before < 200


def test_more_connections_than_the_process_may_have_files() -> None:
    """Further clients wait in the backlog; topics are made, written and read all the same."""
    small = Target(descriptors_max=256)
    world = World()
    try:
        wire = WireClient(small.address)
        small.prepare(world)
        flood = [socket.create_connection(small.address, timeout=LONG_S) for _ in range(400)]
        deadline = time.monotonic() + LONG_S
        while small.descriptor_count() <= 100:
            assert time.monotonic() < deadline, "the broker accepts no connections"
            time.sleep(0.02)
        # It would go on accepting if it had no limit.
        time.sleep(0.5)
        assert small.descriptor_count() < 220
        records = build_batch([Record(0, int(time.time() * 1000), b"k", b"v", [])])
        for topic in TOPICS:
            (response,) = wire.call(produce(records, (topic,)), 9).responses
            assert response.partition_responses[0].error_code == ErrorCode.NONE
        new = CreateTopicsRequest(
            topics=[CreatableTopic(name="under-siege", num_partitions=50, replication_factor=1)], timeout_ms=10_000
        )
        assert wire.call(new, 7).topics[0].error_code == ErrorCode.NONE
        for client in flood:
            client.close()
        small.prepare(world)
        wire.close()
        assert not [line for line in small.new_log_lines() if "ERROR" in line]
        assert small.stop() == 0
    finally:
        small.stop()
        small.remove()


MANY_ELEMENTS = 49_000


def large_requests() -> list[tuple[str, Message, int]]:
    """Requests with nearly as many elements as one may have, each of another kind."""
    names = [f"large-{number}" for number in range(MANY_ELEMENTS)]
    numbers = range(MANY_ELEMENTS)
    fetched = [FetchPartition(partition=number, partition_max_bytes=100) for number in numbers]
    searched = [ListOffsetsPartition(partition_index=number) for number in numbers]
    committed = [OffsetCommitRequestPartition(partition_index=n, committed_offset=1) for n in numbers]
    refused = [CreatableTopic(name=f"a/{number}", num_partitions=1, replication_factor=1) for number in numbers]
    unknown = [DescribeConfigsResource(resource_type=2, resource_name=name) for name in names]
    return [
        (
            "Metadata",
            MetadataRequest(topics=[MetadataRequestTopic(name=n) for n in names], allow_auto_topic_creation=False),
            9,
        ),
        ("Fetch", FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic="large", partitions=fetched)]), 11),
        ("ListOffsets", ListOffsetsRequest(topics=[ListOffsetsTopic(name="large", partitions=searched)]), 5),
        ("DescribeConfigs", DescribeConfigsRequest(resources=unknown), 2),
        ("DescribeGroups", DescribeGroupsRequest(groups=names), 4),
        ("CreateTopics", CreateTopicsRequest(topics=refused, timeout_ms=30_000), 5),
        (
            "OffsetCommit",
            OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="large", partitions=committed)]),
            7,
        ),
        ("DeleteTopics", DeleteTopicsRequest(topic_names=names, timeout_ms=30_000), 5),
    ]


def test_requests_with_very_many_elements(target: Target) -> None:
    """Each leaves less than 5 MB behind, the first of its kind too: code that is loaded for it is a part of that."""
    for name, request, version in large_requests():
        before = target.rss_bytes()
        wire = WireClient(target.address, timeout_s=LONG_S)
        assert is_overtaken(target, [(wire, request, version)]), name
        wire.receive()
        wire.close()
        assert others_are_served(target)
        left = settled_bytes(target, before) - before
        assert left < 5 * MEGABYTE, f"{name}: {left / 1e6:.1f} MB"


def settled_bytes(target: Target, before: int) -> int:
    """Memory some time after a burst, at least the two looks at it that the broker takes."""
    time.sleep(1)
    deadline = time.monotonic() + LONG_S
    while (now := target.rss_bytes()) - before >= 5 * MEGABYTE and time.monotonic() < deadline:
        time.sleep(0.5)
    return now


PARTITIONS_MANY = 2000


def test_thousands_of_partitions_in_one_request() -> None:
    """Others are served while they are made and deleted; their memory goes back, from the first time on."""
    wide = Target()
    try:
        before = wide.rss_bytes()
        for _ in range(3):
            served: list[bool] = []
            is_done = threading.Event()

            def watch(served: list[bool] = served, is_done: threading.Event = is_done) -> None:
                while True:
                    served.append(wide.is_serving())
                    if is_done.wait(0.02):
                        return

            others = threading.Thread(target=watch)
            others.start()
            try:
                make_and_delete_many(wide)
            finally:
                is_done.set()
                others.join()
            assert all(served)
            left = settled_bytes(wide, before) - before
            assert left < 5 * MEGABYTE, f"{left / 1e6:.1f} MB"
        assert not [line for line in wide.new_log_lines() if "ERROR" in line]
        assert wide.stop() == 0
    finally:
        wide.stop()
        wide.remove()


def make_and_delete_many(target: Target) -> None:
    wire = WireClient(target.address, timeout_s=LONG_S)
    new = CreatableTopic(name="many", num_partitions=PARTITIONS_MANY // 2, replication_factor=1)
    assert is_overtaken(target, [(wire, CreateTopicsRequest(topics=[new], timeout_ms=30_000), 7)])
    assert wire.receive().topics[0].error_code == ErrorCode.NONE
    # It can be written to when the answer has come, also where no folder was made yet.
    data = [
        PartitionProduceData(
            index=PARTITIONS_MANY // 2 - 1, records=build_batch([Record(0, int(time.time() * 1000), b"k", b"v", [])])
        )
    ]
    written = ProduceRequest(acks=-1, timeout_ms=9000, topic_data=[TopicProduceData(name="many", partition_data=data)])
    assert wire.call(written, 9).responses[0].partition_responses[0].error_code == ErrorCode.NONE
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="many", count=PARTITIONS_MANY, assignments=None)], timeout_ms=30_000
    )
    assert is_overtaken(target, [(wire, more, 3)])
    assert wire.receive().results[0].error_code == ErrorCode.NONE
    data_folder = target.folder / "data"
    deadline = time.monotonic() + 2 * LONG_S
    while len(list(data_folder.glob("many-*/partition.metadata"))) < PARTITIONS_MANY:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert wire.call(DeleteTopicsRequest(topic_names=["many"], timeout_ms=30_000), 5).responses[0].error_code == 0
    while list(data_folder.glob("many-*")):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    wire.close()


def make_large_topics(target: Target) -> None:
    """Three of nearly as many partitions as one request may make."""
    wire = WireClient(target.address, timeout_s=LONG_S)
    for number in range(3):
        new = CreatableTopic(name=f"large-{number}", num_partitions=9_900, replication_factor=1)
        created = wire.call(CreateTopicsRequest(topics=[new], timeout_ms=60_000), 7)
        assert created.topics[0].error_code == ErrorCode.NONE
    wire.close()


def test_a_hundred_thousand_mutated_frames(target: Target) -> None:
    """Of real clients, about things that exist, nearly all with something wrong in them."""
    world = World()
    generator = random.Random(20_261_121)
    found: list[str] = []
    client = FuzzClient(
        target.address,
        MutatedRealFrames(world, generator),
        world,
        generator,
        100,
        lambda kind, text, frames: found.append(f"{kind}: {text} {[frame.hex() for frame in frames]}"),
    )

    def send(frames: int) -> None:
        goal = client.frames_sent + frames
        while client.frames_sent < goal:
            target.prepare(world)
            client.run(1.0, min(20_000, goal - client.frames_sent))
        client.close()
        while target.clean_up():
            time.sleep(10)

    # The first ones have everything loaded and compiled. By chance they make topics of ten thousands of partitions, or
    # the later ones do: what such topics leave behind once, 5 MB, must be there before.
    make_large_topics(target)
    send(100_000)
    wait_until_memory_is_returned(target)
    with memory_comes_back(target, Target.used_bytes):
        send(80_000)
    target.prepare(world)
    assert not found
    assert client.answers > 5000
