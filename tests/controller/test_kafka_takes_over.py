"""Apache Kafka starts on a metadata directory that we wrote, changes it, and we start on what it left."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from pykbroker.controller.metadata.producer_id_blocks import AllocateProducerIds
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.logstore.filesystem import OsFileSystem
from pykbroker.logstore.meta_properties import MetaProperties, write_meta_properties
from pykbroker.protocol.uuids import uuid_to_text
from tests.controller.nodes import register_broker, running
from tests.controller.test_node import settle
from tests.controller.world import directory_id
from tests.support.kafka_jars import kafka_libs

pytestmark = pytest.mark.java

START_SECONDS_MAX = 90


def java(*arguments: str) -> list[str]:
    return ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_libs()}/*", *arguments]


def free_port() -> int:
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@contextmanager
def apache_kafka(folder: Path, data: Path) -> Iterator[str]:
    """A Kafka node with id 1 on a data directory, stopped in order at the end; its bootstrap address."""
    port, controller_port = free_port(), free_port()
    properties = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": data,
        "offsets.topic.replication.factor": 1,
    }
    settings = folder / "server.properties"
    settings.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    with (folder / "kafka.log").open("w") as log:
        process = subprocess.Popen(java("kafka.Kafka", str(settings)), stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + START_SECONDS_MAX
            while process.poll() is None and time.monotonic() < deadline:
                with closing(socket.socket()) as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            else:
                pytest.fail((folder / "kafka.log").read_text()[-4000:])
            yield f"127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def topics_tool(bootstrap: str, *arguments: str) -> str:
    command = java("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", bootstrap, *arguments)
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


async def test_there_and_back(tmp_path: Path) -> None:
    """Design.md 1.2, for the metadata: a log behind two checkpoints goes to Kafka and comes back."""
    kafka_libs()
    data = tmp_path / "data"
    data.mkdir()
    filesystem = OsFileSystem()
    identity = MetaProperties("MkU3OEVBNTcwNTJENDM2Qk", 1, uuid_to_text(directory_id(1)))
    write_meta_properties(filesystem, str(data), identity)
    async with running(filesystem, data_directory=str(data), snapshot_bytes=2500) as node:
        epoch = await register_broker(node)
        for number in range(25):
            new = NewTopic(f"ours-{number}", 2, configs=[("retention.ms", "600000")])
            await node.submit(CreateTopics([new]), 1000)
            await settle(node)
        await node.submit(AllocateProducerIds(1, epoch), 1000)
        ours = node.image
    assert len(list(data.glob("__cluster_metadata-0/*.checkpoint"))) == 2

    with apache_kafka(tmp_path, data) as bootstrap:
        described = topics_tool(bootstrap, "--describe")
        topics_tool(bootstrap, "--create", "--topic", "theirs", "--partitions", "3")
    for name, topic in ours.topics_by_name.items():
        assert f"Topic: {name}\tTopicId: {uuid_to_text(topic.topic_id)}\tPartitionCount: 2" in described
    assert described.count("Configs: retention.ms=600000") == 25

    async with running(filesystem, data_directory=str(data)) as node:
        assert set(node.image.topics_by_name) == {*ours.topics_by_name, "theirs"}
        assert node.image.next_producer_id >= 1000
        assert node.image.brokers[1].is_fenced  # as Kafka leaves a broker that stopped
        await register_broker(node, incarnation=7)
        partitions = node.image.topics_by_name["theirs"].partitions
        assert [partition.leader for partition in partitions.values()] == [1, 1, 1]
