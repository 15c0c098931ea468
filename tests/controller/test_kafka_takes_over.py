"""Apache Kafka starts on a metadata directory that we wrote, changes it, and we start on what it left."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from pykbroker.config.validation.security import AVAILABLE_AUTHORIZER
from pykbroker.controller.metadata.acls import AclFilter, CreateAcls, DeleteAcls
from pykbroker.controller.metadata.client_quotas import AlterClientQuotas, QuotaAlteration
from pykbroker.controller.metadata.image import Acl, quota_key
from pykbroker.controller.metadata.producer_id_blocks import AllocateProducerIds
from pykbroker.controller.metadata.reassignments import AlterPartitionReassignments, Reassignment
from pykbroker.controller.metadata.scram import AlterUserScramCredentials, Deletion, Upsertion
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.controller.node import ControllerNode
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


CONFIGS = "kafka.admin.ConfigCommand"
ANNA, ANYBODY = (("user", "anna"),), (("user", None),)


def topics_tool(bootstrap: str, *arguments: str) -> str:
    return tool("TopicCommand", bootstrap, *arguments)


def tool(name: str, bootstrap: str, *arguments: str) -> str:
    main_class = name if "." in name else f"org.apache.kafka.tools.{name}"
    command = java(main_class, "--bootstrap-server", bootstrap, *arguments)
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


async def set_limits_and_passwords(node: ControllerNode) -> None:
    """Quotas, credentials, and what was deleted of both; and a reassignment, which has no effect on one node."""
    limits = [
        QuotaAlteration(ANNA, [("producer_byte_rate", 5.0)]),
        QuotaAlteration(ANYBODY, [("request_percentage", 50)]),
    ]
    await node.submit(
        AlterClientQuotas([*limits, QuotaAlteration((("user", "bert"),), [("request_percentage", 1)])]), 1000
    )
    await node.submit(AlterClientQuotas([QuotaAlteration((("user", "bert"),), [("request_percentage", None)])]), 1000)
    # Of different mechanisms: Kafka 4.3.1 may lose all credentials of the one from which it replays a removal
    # (ScramDelta.apply drops the table that it goes on filling).
    passwords = [Upsertion(user, mechanism, 4096, b"salt", b"salted") for user, mechanism in (("anna", 1), ("bert", 2))]
    await node.submit(AlterUserScramCredentials([], passwords), 1000)
    await node.submit(AlterUserScramCredentials([Deletion("bert", 2)], []), 1000)
    await node.submit(AlterPartitionReassignments([("ours-0", [Reassignment(0, [1])])]), 1000)


async def test_there_and_back(tmp_path: Path) -> None:
    """Design.md 1.2, for the metadata: a log behind two checkpoints goes to Kafka and comes back (P-200)."""
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
        await set_limits_and_passwords(node)
        ours = node.image
    assert len(list(data.glob("__cluster_metadata-0/*.checkpoint"))) == 2

    authorizer: dict[str, Any] = {"authorizer_class_name": AVAILABLE_AUTHORIZER, "super_users": "User:ANONYMOUS"}
    with apache_kafka(tmp_path, data, **authorizer) as bootstrap:
        listed = tool("AclCommand", bootstrap, "--list")
        tool("AclCommand", bootstrap, "--add", "--allow-principal", "User:dave", "--operation", "Write", "--topic", "d")
        described = topics_tool(bootstrap, "--describe")
        users = tool(CONFIGS, bootstrap, "--entity-type", "users", "--describe")
        anna = ("--entity-type", "users", "--entity-name", "anna")
        users += tool(CONFIGS, bootstrap, *anna, "--describe")
        tool(CONFIGS, bootstrap, *anna, "--alter", "--add-config", "consumer_byte_rate=7")
        tool(CONFIGS, bootstrap, *anna, "--alter", "--add-config", "SCRAM-SHA-512=[iterations=5000,password=x]")
        topics_tool(bootstrap, "--create", "--topic", "theirs", "--partitions", "3")
    for name, topic in ours.topics_by_name.items():
        assert f"Topic: {name}\tTopicId: {uuid_to_text(topic.topic_id)}\tPartitionCount: 2" in described
    assert described.count("retention.ms=600000") == 25
    for entry in OURS:
        names = f"principal={entry.principal}, host={entry.host}, operation={OPERATIONS[entry.operation]}"
        assert f"({names}, permissionType={PERMISSION_TYPES[entry.permission_type]})" in listed
        pattern = f"name={entry.resource_name}, patternType={PATTERN_TYPES[entry.pattern_type]})"
        assert f"resourceType={RESOURCE_TYPES[entry.resource_type]}, {pattern}" in listed
    assert "carol" not in listed
    assert "Quota configs for user-principal 'anna' are producer_byte_rate=5.0" in users
    assert "Quota configs for the default user-principal are request_percentage=50.0" in users
    assert "SCRAM credential configs for user-principal 'anna' are SCRAM-SHA-256=iterations=4096" in users
    assert "bert" not in users

    async with running(filesystem, data_directory=str(data)) as node:
        assert set(node.image.topics_by_name) == {*ours.topics_by_name, "theirs"}
        assert node.image.next_producer_id >= 1000
        theirs = Acl(TOPIC, "d", LITERAL, "User:dave", "*", WRITE, ALLOW)
        assert set(node.image.acls.values()) == {*OURS, theirs}
        assert node.image.kept_records[quota_key(ANNA, "producer_byte_rate")].value == 5
        assert node.image.kept_records[quota_key(ANNA, "consumer_byte_rate")].value == 7
        await node.submit(AlterUserScramCredentials([Deletion("anna", 2)], []), 1000)  # there is one from Kafka
        assert node.image.brokers[1].is_fenced  # as Kafka leaves a broker that stopped
        partitions = node.image.topics_by_name["theirs"].partitions
        for partition in partitions.values():
            assert (partition.leader, partition.isr, partition.last_known_elr) == (-1, (), (1,))
            assert partition.eligible_leader_replicas == (1,)
        await register_broker(node, incarnation=7, is_clean_restart=True)
        partitions = node.image.topics_by_name["theirs"].partitions
        assert [partition.leader for partition in partitions.values()] == [1, 1, 1]
        assert not any(partition.eligible_leader_replicas for partition in partitions.values())
