"""The stock kafka-dump-log reads our metadata log and its checkpoints."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pykbroker.controller.metadata.acls import AclFilter, CreateAcls, DeleteAcls
from pykbroker.controller.metadata.bootstrap import Bootstrap
from pykbroker.controller.metadata.brokers import (
    FenceBroker,
    RegisterController,
    StartControlledShutdown,
    UnfenceBroker,
)
from pykbroker.controller.metadata.configs import SET, ConfigEdit, ConfigResourceEdits, IncrementalAlterConfigs
from pykbroker.controller.metadata.features import SUPPORTED_FEATURES
from pykbroker.controller.metadata.image import TOPIC_RESOURCE, Acl, Endpoint
from pykbroker.controller.metadata.producer_id_blocks import AllocateProducerIds
from pykbroker.controller.metadata.topics import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    NewTopic,
    TopicReference,
)
from pykbroker.logstore.filesystem import OsFileSystem
from pykbroker.protocol.acl_codes import ALL, ALLOW, DENY, LITERAL, PREFIXED, READ, TOPIC
from tests.controller.nodes import register_broker, running
from tests.controller.test_node import settle
from tests.support.kafka_jars import kafka_libs

pytestmark = pytest.mark.java

COMPLAINTS = re.compile(
    r"mismatch|corrupt|not found|exception|error|out of order|isvalid: false|unknown", re.IGNORECASE
)


def dump(files: list[Path]) -> str:
    """Output of `kafka-dump-log --cluster-metadata-decoder` for these files."""
    command = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_libs()}/*"]
    command += ["org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder"]
    command += ["--files", ",".join(map(str, files))]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    output = "\n".join(
        line for line in (result.stdout + result.stderr).splitlines() if "log4j" not in line and "SLF4J" not in line
    )
    assert result.returncode == 0, output
    return output


def payloads(output: str) -> list[dict[str, Any]]:
    return [json.loads(text) for text in re.findall(r"payload: (\{.*\})$", output, re.MULTILINE)]


async def test_kafka_dump_log_reads_log_and_checkpoints(tmp_path: Path) -> None:
    """Everything that commands write, in a log that was cut behind two checkpoints."""
    kafka_libs()
    async with running(OsFileSystem(), data_directory=str(tmp_path), snapshot_bytes=4000) as node:
        await node.submit(
            RegisterController(1, bytes(range(16)), [Endpoint("CONTROLLER", "h", 9093, 0)], SUPPORTED_FEATURES), 1000
        )
        epoch = await register_broker(node)
        for number in range(40):
            await node.submit(CreateTopics([NewTopic(f"t{number}", 2, configs=[("retention.ms", "5")])]), 1000)
            await settle(node)
        edits = [ConfigEdit("cleanup.policy", SET, "compact")]
        for command in (
            CreatePartitions([NewPartitions("t0", 4)]),
            IncrementalAlterConfigs([ConfigResourceEdits(TOPIC_RESOURCE, "t1", edits)]),
            AllocateProducerIds(1, epoch),
            FenceBroker(1, epoch),
            UnfenceBroker(1, epoch),
            StartControlledShutdown(1, epoch),
            CreateAcls(
                [
                    Acl(TOPIC, "t", PREFIXED, "User:a", "*", READ, ALLOW),
                    Acl(TOPIC, "u", LITERAL, "User:*", "h", ALL, DENY),
                ]
            ),
            DeleteAcls([AclFilter(resource_name="u")]),
            DeleteTopics([TopicReference("t2")]),
        ):
            await node.submit(command, 1000)
    folder = tmp_path / "__cluster_metadata-0"
    checkpoints = sorted(folder.glob("*.checkpoint"))
    assert len(checkpoints) == 2
    output = dump([*sorted(folder.glob("*.log")), *checkpoints])
    assert not COMPLAINTS.search(output), output
    assert '"lastContainedLogTimestamp":' in output
    assert output.count("SnapshotFooter") == 2
    types = {payload["type"] for payload in payloads(output)}
    assert types >= {
        "FEATURE_LEVEL_RECORD",
        "REGISTER_CONTROLLER_RECORD",
        "REGISTER_BROKER_RECORD",
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "CONFIG_RECORD",
        "REMOVE_TOPIC_RECORD",
        "PRODUCER_IDS_RECORD",
        "PARTITION_CHANGE_RECORD",
        "BROKER_REGISTRATION_CHANGE_RECORD",
        "ACCESS_CONTROL_ENTRY_RECORD",
        "REMOVE_ACCESS_CONTROL_ENTRY_RECORD",
    }


async def test_a_new_cluster_begins_as_kafkas_does(tmp_path: Path) -> None:
    """Record for record what Apache Kafka 4.3.1 writes at its first start, but for the features that are not here."""
    kafka_libs()
    async with running(OsFileSystem(), data_directory=str(tmp_path)) as node:
        await node.submit(Bootstrap(), 1000)
    output = dump([tmp_path / "__cluster_metadata-0" / "00000000000000000000.log"])
    assert (
        'LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[{"voterId":1}]}' in output
    )
    assert payloads(output) == [
        {"type": "BEGIN_TRANSACTION_RECORD", "version": 0, "data": {"name": "Bootstrap records"}},
        {"type": "FEATURE_LEVEL_RECORD", "version": 0, "data": {"name": "metadata.version", "featureLevel": 30}},
        {
            "type": "FEATURE_LEVEL_RECORD",
            "version": 0,
            "data": {"name": "eligible.leader.replicas.version", "featureLevel": 1},
        },
        {"type": "FEATURE_LEVEL_RECORD", "version": 0, "data": {"name": "group.version", "featureLevel": 1}},
        {"type": "FEATURE_LEVEL_RECORD", "version": 0, "data": {"name": "share.version", "featureLevel": 1}},
        {"type": "FEATURE_LEVEL_RECORD", "version": 0, "data": {"name": "streams.version", "featureLevel": 1}},
        {"type": "FEATURE_LEVEL_RECORD", "version": 0, "data": {"name": "transaction.version", "featureLevel": 2}},
        {
            "type": "CONFIG_RECORD",
            "version": 0,
            "data": {"resourceType": 4, "resourceName": "", "name": "min.insync.replicas", "value": "1"},
        },
        {"type": "END_TRANSACTION_RECORD", "version": 0, "data": {}},
    ]
