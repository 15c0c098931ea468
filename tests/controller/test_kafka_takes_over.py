"""Apache Kafka starts on a metadata directory that we wrote, changes it, and we start on what it left."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pykbroker.config import AVAILABLE_AUTHORIZER
from pykbroker.controller.metadata.acls import AclFilter, CreateAcls, DeleteAcls
from pykbroker.controller.metadata.image import Acl
from pykbroker.controller.metadata.producer_id_blocks import AllocateProducerIds
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.logstore.filesystem import OsFileSystem
from pykbroker.logstore.meta_properties import MetaProperties, write_meta_properties
from pykbroker.protocol.acl_codes import (
    ALL,
    ALLOW,
    CLUSTER,
    CLUSTER_NAME,
    CREATE_TOKENS,
    DENY,
    GROUP,
    IDEMPOTENT_WRITE,
    LITERAL,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSION_TYPES,
    PREFIXED,
    READ,
    RESOURCE_TYPES,
    TOPIC,
    TRANSACTIONAL_ID,
    TWO_PHASE_COMMIT,
    USER,
    WRITE,
)
from pykbroker.protocol.uuids import uuid_to_text
from tests.controller.nodes import register_broker, running
from tests.controller.test_node import settle
from tests.controller.world import directory_id
from tests.support.apache_kafka import apache_kafka, java
from tests.support.kafka_jars import kafka_libs

pytestmark = pytest.mark.java


OURS = [
    Acl(TOPIC, "pre", PREFIXED, "User:alice", "*", READ, ALLOW),
    Acl(GROUP, "*", LITERAL, "User:*", "10.0.0.1", ALL, DENY),
    Acl(CLUSTER, CLUSTER_NAME, LITERAL, "User:bob", "*", IDEMPOTENT_WRITE, ALLOW),
    Acl(TRANSACTIONAL_ID, "x", LITERAL, "User:bob", "*", TWO_PHASE_COMMIT, ALLOW),
]
GONE = Acl(USER, "User:bob", LITERAL, "User:carol", "*", CREATE_TOKENS, ALLOW)


def topics_tool(bootstrap: str, *arguments: str) -> str:
    return tool("TopicCommand", bootstrap, *arguments)


def tool(name: str, bootstrap: str, *arguments: str) -> str:
    command = java(f"org.apache.kafka.tools.{name}", "--bootstrap-server", bootstrap, *arguments)
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
            if number == 0:
                await node.submit(CreateAcls([*OURS, GONE]), 1000)
        await node.submit(DeleteAcls([AclFilter(*GONE)]), 1000)
        await node.submit(AllocateProducerIds(1, epoch), 1000)
        ours = node.image
    assert len(list(data.glob("__cluster_metadata-0/*.checkpoint"))) == 2

    authorizer = {"authorizer_class_name": AVAILABLE_AUTHORIZER, "super_users": "User:ANONYMOUS"}
    with apache_kafka(tmp_path, data, **authorizer) as bootstrap:
        listed = tool("AclCommand", bootstrap, "--list")
        tool("AclCommand", bootstrap, "--add", "--allow-principal", "User:dave", "--operation", "Write", "--topic", "d")
        described = topics_tool(bootstrap, "--describe")
        topics_tool(bootstrap, "--create", "--topic", "theirs", "--partitions", "3")
    for name, topic in ours.topics_by_name.items():
        assert f"Topic: {name}\tTopicId: {uuid_to_text(topic.topic_id)}\tPartitionCount: 2" in described
    assert described.count("Configs: retention.ms=600000") == 25
    for entry in OURS:
        names = f"principal={entry.principal}, host={entry.host}, operation={OPERATIONS[entry.operation]}"
        assert f"({names}, permissionType={PERMISSION_TYPES[entry.permission_type]})" in listed
        pattern = f"name={entry.resource_name}, patternType={PATTERN_TYPES[entry.pattern_type]})"
        assert f"resourceType={RESOURCE_TYPES[entry.resource_type]}, {pattern}" in listed
    assert "carol" not in listed

    async with running(filesystem, data_directory=str(data)) as node:
        assert set(node.image.topics_by_name) == {*ours.topics_by_name, "theirs"}
        assert node.image.next_producer_id >= 1000
        theirs = Acl(TOPIC, "d", LITERAL, "User:dave", "*", WRITE, ALLOW)
        assert set(node.image.acls.values()) == {*OURS, theirs}
        assert node.image.brokers[1].is_fenced  # as Kafka leaves a broker that stopped
        await register_broker(node, incarnation=7)
        partitions = node.image.topics_by_name["theirs"].partitions
        assert [partition.leader for partition in partitions.values()] == [1, 1, 1]
