"""Nodes of ours and nodes of Apache Kafka in one cluster: either is a broker under the other's controller.

These talk to another process, so they run on the real clock.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from interop_tests.ports import free_port
from pykbroker.config.broker_config import BrokerConfig
from pykbroker.controller.node_client import NodeAddress, NodeClient, NodeUnreachable
from pykbroker.node.broker import run_broker
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.describe_cluster import DescribeClusterRequest
from pykbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pykbroker.protocol.messages.metadata import MetadataRequest
from tests.controller.wire_world import CLUSTER
from tests.support.apache_kafka import java
from tests.support.kafka_jars import kafka_libs

pytestmark = pytest.mark.java

CONTROLLER, BROKER = 1, 2
LIMIT_S = 120
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def settings(folder: Path, roles: str, controller: NodeAddress, port: int) -> dict[str, str]:
    """Of node 1, a controller, or node 2, a broker; both kinds of node read them."""
    is_broker = roles == "broker"
    return {
        "process.roles": roles,
        "node.id": str(BROKER if is_broker else CONTROLLER),
        "controller.quorum.voters": f"{CONTROLLER}@{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}" if is_broker else f"CONTROLLER://{controller}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(folder / roles),
        "offsets.topic.replication.factor": "1",
    }


@asynccontextmanager
async def kafka(folder: Path, properties: dict[str, str], *features: str) -> AsyncIterator[None]:
    """A Kafka process on an empty directory. It is stopped in order, for which its controller has to be there.

    `features` are levels such as ``group.version=0``, for those that are not to have their default.
    """
    path, log_path = folder / "kafka.properties", folder / "kafka.log"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    levels = [word for feature in features for word in ("-f", feature)]
    await trio.run_process(
        java("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(path), *levels), capture_stdout=True
    )
    with log_path.open("ab") as log:
        process = await trio.to_thread.run_sync(
            partial(subprocess.Popen, java("kafka.Kafka", str(path)), stdout=log, stderr=log)
        )
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(process.wait, 60)


@asynccontextmanager
async def ours(properties: dict[str, str], cluster_id: str | None) -> AsyncIterator[None]:
    """A node of ours in this process, stopped in order at the end."""
    stop, ready = trio.Event(), trio.Event()
    config = BrokerConfig.from_properties(properties)
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            await run_broker(config, cluster_id=cluster_id, on_ready=lambda address: ready.set(), stop=stop)

        nursery.start_soon(run)
        await ready.wait()
        yield
        stop.set()


async def ask(port: int, request: Any) -> Any:
    """The answer of a node, as soon as it is there."""
    while True:
        client = NodeClient(
            NodeAddress("127.0.0.1", port), trio.open_tcp_stream, client_id="test", software_version="1"
        )
        try:
            return await client.request(request, 30_000)
        except NodeUnreachable:
            await trio.sleep(0.2)
        finally:
            await client.close()


async def use(port: int) -> None:
    """Use of a broker whose controller is another process: every change goes to the controller."""
    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
    made = await ask(port, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    assert [(each.name, each.error_code) for each in made.topics] == [("t", 0)], made
    with trio.fail_after(10):
        while not (topics := (await ask(port, MetadataRequest(topics=None))).topics):
            await trio.sleep(0.1)
    assert [partition.leader_id for partition in topics[0].partitions] == [BROKER, BROKER]
    # Kafka's broker answers this until the first block of ids has come.
    with trio.fail_after(10):
        while (producer := await ask(port, InitProducerIdRequest(transactional_id=None))).error_code == LOADING:
            await trio.sleep(0.1)
    assert producer.error_code == 0
    assert producer.producer_id >= 0
    cluster = await ask(port, DescribeClusterRequest())
    assert cluster.cluster_id == CLUSTER
    assert [(broker.broker_id, broker.port) for broker in cluster.brokers] == [(BROKER, port)]


def test_a_broker_of_ours_under_kafkas_controller(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It asks the controller of which cluster it is, is let in, and is let go."""
    kafka_libs()
    with caplog.at_level("INFO"):
        trio.run(our_broker, tmp_path)
    assert "registered as broker 2" in caplog.text
    assert "the controller lets broker 2 stop" in caplog.text


async def our_broker(tmp_path: Path) -> None:
    address, port = NodeAddress("127.0.0.1", free_port()), free_port()
    theirs, own = settings(tmp_path, "controller", address, 0), settings(tmp_path, "broker", address, port)
    with trio.fail_after(LIMIT_S):
        async with kafka(tmp_path, theirs), ours(own, None):
            await use(port)


def test_a_broker_of_kafka_under_our_controller(tmp_path: Path) -> None:
    kafka_libs()
    trio.run(kafkas_broker, tmp_path)


async def kafkas_broker(tmp_path: Path) -> None:
    address, port = NodeAddress("127.0.0.1", free_port()), free_port()
    own, theirs = settings(tmp_path, "controller", address, 0), settings(tmp_path, "broker", address, port)
    with trio.fail_after(LIMIT_S):
        async with ours(own, CLUSTER), kafka(tmp_path, theirs):
            await use(port)
