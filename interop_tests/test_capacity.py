"""A thousand connections and a thousand partitions; bytes to consumers by sendfile."""

from __future__ import annotations

import re
import resource
import shutil
import struct
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import confluent_kafka
import pytest

from interop_tests.clients import (
    Message,
    confluent_consume,
    create_topic,
    kafka_python_consume,
    kafka_python_produce,
    keep_failure,
)
from interop_tests.conftest import StartBroker
from interop_tests.wire import METADATA, Connection, request_header

pytestmark = [pytest.mark.area("capacity"), pytest.mark.client("kafka-python 3")]

COUNT = 1000
IDLE_S = 5.0


class _Tables(Protocol):
    texts: list[str]


@pytest.mark.own_broker
def test_a_thousand_connections_and_partitions(start_broker: StartBroker, summary_tables: _Tables, target: str) -> None:
    """No error while they are made and used; then idle CPU and memory are measured and reported, not judged."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * COUNT:
        pytest.skip(f"this process may open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * COUNT), hard))
    broker = start_broker("capacity")
    started = time.monotonic()
    topic = create_topic(broker.bootstrap, "thousand", COUNT)
    created_s = time.monotonic() - started
    failures: list[object] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for partition in range(COUNT):
        value = b"%d" % partition
        producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: keep_failure(failures, error))
    assert producer.flush(60) == 0
    assert not failures, failures[:3]
    found = confluent_consume(broker.bootstrap, [topic], COUNT)
    assert sorted(int(m.value or b"") for m in found) == list(range(COUNT))
    assert all(int(m.value or b"") == m.partition and m.offset == 0 for m in found)
    del producer

    ask = request_header(METADATA, 4) + struct.pack(">i", 0) + b"\0"
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(broker.bootstrap)) for _ in range(COUNT)]
        for connection in connections:
            connection.send(ask)
        for connection in connections:
            assert connection.receive()[:4] == struct.pack(">i", 7)
        time.sleep(1)  # let what the burst left behind be done
        cpu_before, measured_from = broker.cpu_seconds(), time.monotonic()
        time.sleep(IDLE_S)
        idle_percent = 100 * (broker.cpu_seconds() - cpu_before) / (time.monotonic() - measured_from)
        rss_mb = broker.rss_bytes() / 1e6
        for connection in connections:
            assert connection.exchange(ask)[:4] == struct.pack(">i", 7)
    summary_tables.texts.append(
        f"{COUNT} connections and {COUNT} partitions on {target}: topic made in {created_s:.2f} s, "
        f"idle {idle_percent:.1f} % of a core, {rss_mb:.0f} MB resident"
    )


@pytest.mark.own_broker
def test_fetched_bytes_leave_by_sendfile(start_broker: StartBroker, tmp_path: Path, target: str) -> None:
    """strace sees sendfile calls that carry at least the bytes that were consumed."""
    if target != "pykbroker":
        pytest.skip("about how pykbroker sends")
    if shutil.which("strace") is None:
        pytest.skip("strace is not on PATH")
    trace = tmp_path / "strace.txt"
    if subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("strace may not trace here")
    # -D: the tracer is the one in the background, so that the process we signal is the broker.
    broker = start_broker("sendfile", wrapper=("strace", "-D", "-f", "-e", "trace=sendfile", "-o", str(trace)))
    topic = create_topic(broker.bootstrap, "sendfile")
    messages = [Message(None, b"%d" % number + b"x" * 1000) for number in range(2000)]
    kafka_python_produce(broker.bootstrap, topic, messages)
    assert len(kafka_python_consume(broker.bootstrap, [topic], len(messages))) == len(messages)
    assert len(confluent_consume(broker.bootstrap, [topic], len(messages))) == len(messages)
    broker.stop()
    sent = [int(count) for count in re.findall(r"sendfile\(.*\) = (\d+)", trace.read_text())]
    assert sum(sent) >= 2 * sum(len(m.value or b"") for m in messages), f"{len(sent)} calls of sendfile"
