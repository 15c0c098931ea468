"""Brokers with several log directories: one by itself, and three on simulated machines with a disk that fails."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from pykbroker.cli.errors import CliError
from pykbroker.cli.format.command import format_directory
from pykbroker.cli.start.node_process import raise_expected
from pykbroker.config.broker_config import BrokerConfig, ConfigError
from pykbroker.controller.metadata.brokers import RegisterBroker
from pykbroker.controller.metadata.commands import Plan, PlanContext
from pykbroker.controller.metadata.image import ClusterImage
from pykbroker.logstore.errors import InconsistentDirectory
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages import incremental_alter_configs
from pykbroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykbroker.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from pykbroker.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from pykbroker.protocol.messages.metadata import MetadataResponsePartition
from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker.protocol.records.batch import iter_batches
from pykbroker.protocol.steps import Steps
from pykbroker.protocol.uuids import uuid_from_text
from tests.pykbroker.test_three_nodes import Cluster
from tests.simulation.world import RuleBroken
from tests.support.data_path import batch
from tests.support.whole_broker import WholeBroker


def settings(folder: Path, *names: str, **more: str) -> dict[str, str]:
    properties = {"log.dirs": ",".join(str(folder / name) for name in names)}
    return properties | {key.replace("_", "."): text for key, text in more.items()}


def described(broker: WholeBroker) -> dict[str, tuple[int, list[tuple[str, int]]]]:
    """By the name of each directory: its error code and its logs."""
    response = broker.client.call(DescribeLogDirsRequest(topics=None), 4)
    return {
        Path(result.log_dir).name: (
            result.error_code,
            sorted((topic.name, log.partition_index) for topic in result.topics for log in topic.partitions),
        )
        for result in response.results
    }


def move(broker: WholeBroker, topic: str, partition: int, path: Path) -> int:
    asked = AlterReplicaLogDir(path=str(path), topics=[AlterReplicaLogDirTopic(name=topic, partitions=[partition])])
    response = broker.client.call(AlterReplicaLogDirsRequest(dirs=[asked]), 2)
    code: int = response.results[0].partitions[0].error_code
    return code


def identity(folder: Path) -> dict[str, str]:
    lines = (folder / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_logs_are_spread_and_found_again(tmp_path: Path) -> None:
    """P-275, P-277."""
    properties = settings(tmp_path, "a", "b")
    with WholeBroker(tmp_path, properties) as broker:
        assert broker.create_topic("t", 4) == 0
        assert broker.produce("t", bytes(batch(3)), 1) == 0
        assert described(broker) == {"a": (0, [("t", 0), ("t", 2)]), "b": (0, [("t", 1), ("t", 3)])}
    ids = [identity(tmp_path / name) for name in ("a", "b")]
    assert ids[0]["directory.id"] != ids[1]["directory.id"]
    assert ids[0]["cluster.id"] == ids[1]["cluster.id"]
    with WholeBroker(tmp_path, properties) as broker:
        assert described(broker) == {"a": (0, [("t", 0), ("t", 2)]), "b": (0, [("t", 1), ("t", 3)])}
        assert broker.fetch("t", 1, 0).high_watermark == 3


def test_a_second_directory_is_added(tmp_path: Path) -> None:
    """P-275, P-276: after it was formatted; an empty one may be a disk that was not mounted."""
    with WholeBroker(tmp_path, settings(tmp_path, "a")) as broker:
        assert broker.create_topic("old", 2) == 0
    with pytest.raises(InconsistentDirectory, match="is its disk mounted"):
        WholeBroker(tmp_path, settings(tmp_path, "a", "b")).start()
    properties = settings(tmp_path, "a", "b", listeners="PLAINTEXT://127.0.0.1:0")
    (tmp_path / "server.properties").write_text("".join(f"{key}={text}\n" for key, text in properties.items()))
    arguments = ["--config", str(tmp_path / "server.properties"), "--ignore-formatted"]
    formatted = CliRunner().invoke(format_directory, arguments)
    assert formatted.exit_code == 0, formatted.output
    with WholeBroker(tmp_path, settings(tmp_path, "a", "b")) as broker:
        assert broker.create_topic("new", 2) == 0
        assert described(broker)["b"] == (0, [("new", 0), ("new", 1)])
        assert broker.produce("new", bytes(batch(1)), 1) == 0


def test_a_directory_that_is_no_log_ends_the_start_in_one_line(tmp_path: Path) -> None:
    """P-480: here the one that a file system makes where it is mounted; without it the broker starts as before."""
    properties = settings(tmp_path, "a", "b")
    with WholeBroker(tmp_path, properties) as broker:
        assert broker.create_topic("t", 2) == 0
    (tmp_path / "b" / "lost+found").mkdir()
    with pytest.raises(ExceptionGroup) as refused:
        WholeBroker(tmp_path, properties).start()
    with pytest.raises(CliError, match=rf"^{tmp_path}/b/lost\+found: is no directory of a log, .*log.dirs$"):
        raise_expected(refused.value)
    (tmp_path / "b" / "lost+found").rmdir()
    with WholeBroker(tmp_path, properties) as broker:
        assert described(broker) == {"a": (0, [("t", 0)]), "b": (0, [("t", 1)])}


def test_the_metadata_may_be_apart(tmp_path: Path) -> None:
    """P-275: metadata.log.dir is none of the directories of partitions, or one of them."""
    properties = settings(tmp_path, "a", "b", metadata_log_dir=str(tmp_path / "metadata"))
    for _ in range(2):
        with WholeBroker(tmp_path, properties) as broker:
            broker.create_topic("t", 2)
            assert described(broker) == {"a": (0, [("t", 0)]), "b": (0, [("t", 1)])}
        assert (tmp_path / "metadata" / "__cluster_metadata-0").exists()
        assert (tmp_path / "metadata" / ".kafka_cleanshutdown").exists()
    second = settings(tmp_path / "other", "a", "b", metadata_log_dir=str(tmp_path / "other" / "b"))
    with WholeBroker(tmp_path, second) as broker:
        broker.create_topic("t", 2)
        assert described(broker) == {"a": (0, [("t", 0)]), "b": (0, [("t", 1)])}
    assert not (tmp_path / "other" / "a" / "__cluster_metadata-0").exists()


def test_a_directory_that_cannot_be_opened(tmp_path: Path) -> None:
    """P-276, P-277: the broker starts without it, its replicas are offline, and nothing is made anew elsewhere."""
    properties = settings(tmp_path, "a", "b")
    with WholeBroker(tmp_path, properties) as broker:
        assert broker.create_topic("t", 2) == 0
        assert broker.produce("t", bytes(batch(3)), 1) == 0
        # The metadata gets the directories of partitions a moment later; the broker's registration names them before.
        directory_id = uuid_from_text(identity(tmp_path / "b")["directory.id"])
        metadata_log = tmp_path / "a" / "__cluster_metadata-0" / f"{0:020d}.log"
        eventually(lambda: metadata_log.read_bytes().count(directory_id) > 1)
    shutil.move(tmp_path / "b", tmp_path / "kept")
    (tmp_path / "b").write_text("no directory")
    with WholeBroker(tmp_path, properties) as broker:
        assert described(broker) == {"a": (0, [("t", 0)]), "b": (ErrorCode.KAFKA_STORAGE_ERROR, [])}
        assert broker.produce("t", bytes(batch(1)), 0) == 0
        assert broker.produce("t", bytes(batch(1)), 1) == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.fetch("t", 1, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.create_topic("later", 2) == 0
        assert described(broker)["a"] == (0, [("later", 0), ("later", 1), ("t", 0)])
    (tmp_path / "b").unlink()
    shutil.move(tmp_path / "kept", tmp_path / "b")
    with WholeBroker(tmp_path, properties) as broker:
        assert broker.fetch("t", 1, 0).high_watermark == 3


def test_a_failed_directory_keeps_its_place(tmp_path: Path) -> None:
    """P-277: DescribeLogDirs has the directories in the order of log.dirs."""
    properties = settings(tmp_path, "a", "b", "c", metadata_log_dir=str(tmp_path / "m"))
    with WholeBroker(tmp_path, properties) as broker:
        assert list(described(broker)) == ["a", "b", "c"]
    shutil.move(tmp_path / "a", tmp_path / "kept")
    (tmp_path / "a").write_text("no directory")
    with WholeBroker(tmp_path, properties) as broker:
        found = described(broker)
        assert list(found) == ["a", "b", "c"]
        assert found["a"][0] == ErrorCode.KAFKA_STORAGE_ERROR


def test_directories_of_others_are_refused(tmp_path: Path) -> None:
    """P-276."""
    for name in ("a", "b"):
        with WholeBroker(tmp_path, settings(tmp_path, name)):
            pass
    with pytest.raises(InconsistentDirectory, match="belongs to node 1 of cluster"):
        WholeBroker(tmp_path, settings(tmp_path, "a", "b")).start()
    shutil.rmtree(tmp_path / "b")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with pytest.raises(InconsistentDirectory, match="has the directory"):
        WholeBroker(tmp_path, settings(tmp_path, "a", "b")).start()
    with pytest.raises(ConfigError, match="has a directory twice"):
        BrokerConfig.from_properties({"log.dirs": f"{tmp_path}/a,{tmp_path}/b/../a"})


def futures(broker: WholeBroker) -> dict[str, list[tuple[str, int, int]]]:
    """By the name of each directory with copies of moving logs: (topic, partition, lag) of each."""
    response = broker.client.call(DescribeLogDirsRequest(topics=None), 4)
    found: dict[str, list[tuple[str, int, int]]] = {}
    for result in response.results:
        for topic in result.topics:
            for log in topic.partitions:
                if log.is_future_key:
                    found.setdefault(Path(result.log_dir).name, []).append(
                        (topic.name, log.partition_index, log.offset_lag)
                    )
    return found


def has_moved(broker: WholeBroker, target: str) -> bool:
    """True if t-0 is in a directory and moves no more."""
    return described(broker)[target] == (0, [("t", 0)]) and not futures(broker)


def records_of(broker: WholeBroker, topic: str) -> list[int]:
    """Offsets of all records of partition 0."""
    offsets: list[int] = []
    while True:
        data = broker.fetch(topic, 0, offsets[-1] + 1 if offsets else 0)
        assert data.error_code == 0
        found = [record.offset for one in iter_batches(data.records or b"") for record in one.records()]
        if not found:
            return offsets
        offsets += found


def test_a_replica_moves(tmp_path: Path) -> None:
    """P-300: with all its records, there and back, also to where it is."""
    with WholeBroker(tmp_path, settings(tmp_path, "a", "b")) as broker:
        assert broker.create_topic("t", 1) == 0
        for _ in range(50):
            assert broker.produce("t", bytes(batch(10, size=1000)), 0) == 0
        for target, other in (("a", "b"), ("b", "a"), ("b", "a")):
            assert move(broker, "t", 0, tmp_path / target) == 0
            eventually(partial(has_moved, broker, target))
            assert described(broker)[other] == (0, [])
            assert records_of(broker, "t") == list(range(500))
            assert (tmp_path / target / "t-0").exists()
            assert not list((tmp_path / target).glob("*-future"))
        assert broker.produce("t", bytes(batch(10)), 0) == 0
    with WholeBroker(tmp_path, settings(tmp_path, "a", "b")) as broker:
        assert described(broker) == {"a": (0, []), "b": (0, [("t", 0)])}
        assert records_of(broker, "t") == list(range(510))


def test_wishes_are_noted(tmp_path: Path) -> None:
    """P-278."""
    with WholeBroker(tmp_path, settings(tmp_path, "a", "b")) as broker:
        assert move(broker, "t", 0, tmp_path / "b") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert broker.create_topic("t", 1) == 0
        assert described(broker)["b"] == (0, [("t", 0)])
        assert move(broker, "t", 0, tmp_path / "b") == 0
        assert move(broker, "t", 0, tmp_path / "c") == ErrorCode.LOG_DIR_NOT_FOUND


def cordon(broker: WholeBroker, value: str, node: str = "1") -> int:
    edit = incremental_alter_configs.AlterableConfig(name="cordoned.log.dirs", value=value)
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=4, resource_name=node, configs=[edit])
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
    code: int = broker.client.call(request, 1).responses[0].error_code
    return code


def cordoned(broker: WholeBroker) -> list[str]:
    """Names of the directories that DescribeLogDirs calls cordoned."""
    response = broker.client.call(DescribeLogDirsRequest(topics=None), 5)
    return [Path(result.log_dir).name for result in response.results if result.is_cordoned]


def test_a_cordoned_directory_gets_no_replicas(tmp_path: Path) -> None:
    """P-370: the setting changes while the broker runs; what is there stays, and can be moved away."""
    with WholeBroker(tmp_path, settings(tmp_path, "a", "b")) as broker:
        assert broker.create_topic("t", 2) == 0
        assert cordon(broker, str(tmp_path / "a")) == 0
        assert cordoned(broker) == ["a"]
        assert broker.create_topic("u", 3) == 0
        assert described(broker)["b"] == (0, [("t", 1), ("u", 0), ("u", 1), ("u", 2)])
        assert move(broker, "t", 1, tmp_path / "a") == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert move(broker, "t", 0, tmp_path / "b") == 0
        assert cordon(broker, str(tmp_path / "c")) == ErrorCode.INVALID_REQUEST
        assert cordon(broker, "*") == 0
        assert cordoned(broker) == ["a", "b"]
        eventually(lambda: broker.create_topic("v", 1) == ErrorCode.INVALID_REPLICATION_FACTOR)
        assert cordon(broker, "") == 0
        eventually(lambda: broker.create_topic("v", 1) == 0)


def test_a_directory_is_cordoned_from_the_start(tmp_path: Path) -> None:
    """P-370."""
    with WholeBroker(tmp_path, settings(tmp_path, "a", cordoned_log_dirs=str(tmp_path / "a"))) as broker:
        assert cordoned(broker) == ["a"]
        eventually(lambda: broker.create_topic("t", 1) == ErrorCode.INVALID_REPLICATION_FACTOR)


# Three nodes


def replicas_in(cluster: Cluster, node: int, path: str) -> set[str]:
    """Names of the logs in a directory of a machine's disk."""
    directories = cluster.world.machines[f"n{node}"].disk.directories
    return {name.rpartition("/")[2] for name in directories if name.startswith(f"{path}/t-")}


async def leaders(cluster: Cluster, ask: int) -> dict[int, int]:
    topic = (await cluster.topics(ask))["t"]
    return {partition.partition_index: partition.leader_id for partition in topic.partitions}


def test_a_directory_fails_under_three_nodes() -> None:
    """P-276: others lead what it had, the node goes on leading the rest, and a restart brings it back."""

    async def scenario(cluster: Cluster) -> None:
        assert await cluster.create(1, "t") == 0
        await trio.sleep(2)
        before = await leaders(cluster, 1)
        node = before[0]
        other = node % 3 + 1
        machine = cluster.world.machines[f"n{node}"]
        lost = {int(name[2:]) for name in replicas_in(cluster, node, "/more")}
        assert lost
        kept = {0, 1, 2} - lost
        machine.disk.failing_path = "/more"
        await produce_everywhere(cluster, other, before)

        async def settled() -> None:
            while True:
                now = await leaders(cluster, other)
                if all(now[number] not in (node, -1) for number in lost):
                    return
                await trio.sleep(0.1)

        with trio.fail_after(30):
            await settled()
        now = await leaders(cluster, other)
        assert {number: now[number] for number in kept} == {number: before[number] for number in kept}
        topic = (await cluster.topics(other))["t"]
        in_sync = {partition.partition_index: partition.isr_nodes for partition in topic.partitions}
        assert all(node not in in_sync[number] for number in lost)
        assert all(node in in_sync[number] for number in kept)
        machine.disk.failing_path = ""
        machine.kill()
        machine.start()
        with trio.fail_after(60):
            while True:
                topic = (await cluster.topics(other))["t"]
                if all(len(partition.isr_nodes) == 3 for partition in topic.partitions):
                    break
                await trio.sleep(0.2)

    Cluster("three", log_dirs="/data,/more").run(scenario)


async def partitions_of_t(cluster: Cluster, ask: int, numbers: set[int]) -> list[MetadataResponsePartition]:
    topic = (await cluster.topics(ask))["t"]
    return [partition for partition in topic.partitions if partition.partition_index in numbers]


def test_a_directory_fails_that_nobody_uses_under_three_nodes() -> None:
    """P-276: the next checkpoint meets the failure, and others lead what was there."""

    async def scenario(cluster: Cluster) -> None:
        assert await cluster.create(1, "t") == 0
        await trio.sleep(2)
        node = (await leaders(cluster, 1))[0]
        lost = {int(name[2:]) for name in replicas_in(cluster, node, "/more")}
        assert lost
        cluster.world.machines[f"n{node}"].disk.failing_path = "/more"
        with trio.fail_after(20):
            while any(node in partition.isr_nodes for partition in await partitions_of_t(cluster, node % 3 + 1, lost)):
                await trio.sleep(0.5)

    Cluster("three", log_dirs="/data,/more").run(scenario)


def test_a_stop_counts_as_clean_if_it_was_in_every_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """P-276: the controller takes a broker with an unclean directory out of the eligible replicas (KIP-966)."""
    registered: list[tuple[int, bool]] = []
    plan_in_steps = RegisterBroker.plan_in_steps

    def noted(self: RegisterBroker, image: ClusterImage, context: PlanContext) -> Steps[Plan[int]]:
        before = image.brokers.get(self.broker_id)
        registered.append((self.broker_id, before is not None and before.epoch == self.previous_epoch))
        return plan_in_steps(self, image, context)

    monkeypatch.setattr(RegisterBroker, "plan_in_steps", noted)

    async def scenario(cluster: Cluster) -> None:
        assert await cluster.create(1, "t") == 0
        machine = cluster.world.machines["n1"]
        for mark in ("", "/data/.kafka_cleanshutdown", "/more/.kafka_cleanshutdown"):
            await machine.stop()
            if mark:
                del machine.disk.files[mark]
            registered.clear()
            machine.start()
            with trio.fail_after(30):
                while not registered:
                    await trio.sleep(0.1)
            assert registered == [(1, not mark)]
            await trio.sleep(5)

    Cluster("three", log_dirs="/data,/more").run(scenario)


async def directory_of(cluster: Cluster, node: int, path: str) -> dict[int, bool]:
    """Replicas of t in a directory of a node by partition; True for a copy that moves there."""
    described = await cluster.ask(node, DescribeLogDirsRequest(topics=None))
    return {
        replica.partition_index: replica.is_future_key
        for result in described.results
        if result.log_dir == path
        for topic in result.topics
        if topic.name == "t"
        for replica in topic.partitions
    }


def test_replicas_move_under_three_nodes() -> None:
    """P-300, P-302, P-303: leaders and followers move, over a kill -9 as well; the failure of the directory where a
    replica was before concerns it no more, so the controller knows the new one."""

    async def scenario(cluster: Cluster) -> None:
        assert await cluster.create(1, "t") == 0
        await trio.sleep(2)
        before = await leaders(cluster, 1)
        await produce_everywhere(cluster, 1, before)
        for node in (1, 2, 3):
            places = [*(await directory_of(cluster, node, "/data"))]
            wish = AlterReplicaLogDir(path="/more", topics=[AlterReplicaLogDirTopic(name="t", partitions=places)])
            answer = await cluster.ask(node, AlterReplicaLogDirsRequest(dirs=[wish]))
            assert {result.error_code for result in answer.results[0].partitions} == {0}
        cluster.world.machines["n3"].kill()
        cluster.world.machines["n3"].start()
        await cluster.until(lambda: cluster.world.machines["n3"].is_ready)
        for node in (1, 2, 3):
            with trio.fail_after(30):
                while await directory_of(cluster, node, "/more") != {0: False, 1: False, 2: False}:
                    await trio.sleep(0.1)
            assert await directory_of(cluster, node, "/data") == {}
        # All are in /more now, so a failure there takes everything from the node.
        leading = set((await leaders(cluster, 1)).values())
        other = next(node for node in (2, 3) if node in leading)
        cluster.world.machines[f"n{other}"].disk.failing_path = "/more"
        await produce_everywhere(cluster, 1, await leaders(cluster, 1))
        with trio.fail_after(30):
            while other in (await leaders(cluster, 1)).values():
                await trio.sleep(0.1)

    Cluster("three", log_dirs="/data,/more").run(scenario)


async def produce_everywhere(cluster: Cluster, ask: int, leaders_before: dict[int, int]) -> None:
    """One record for each partition, at the leader that it had; errors are for the caller to look at later."""
    topic_id = (await cluster.topics(ask))["t"].topic_id
    for number, leader in leaders_before.items():
        records = PartitionProduceData(index=number, records=bytes(batch(1)))
        data = TopicProduceData(topic_id=topic_id, partition_data=[records])
        await cluster.ask(leader, ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data]))


def test_a_node_ends_when_its_metadata_directory_fails() -> None:
    """P-276: others lead then."""

    async def scenario(cluster: Cluster) -> None:
        assert await cluster.create(1, "t") == 0
        await trio.sleep(2)
        cluster.world.machines["n1"].disk.failing_path = "/data"
        assert await cluster.create(2, "later") == 0
        await trio.sleep(20)

    with pytest.raises(RuleBroken, match="n1 ended by itself: StorageError"):
        Cluster("three", log_dirs="/data,/more").run(scenario)


def test_a_node_ends_that_cannot_tell_of_a_failed_directory() -> None:
    """P-276: without a controller its replicas there would keep their leaderships."""

    async def scenario(cluster: Cluster) -> None:
        assert await cluster.create(1, "t") == 0
        await trio.sleep(2)
        before = await leaders(cluster, 1)
        number, node = next(
            (number, node) for number, node in before.items() if f"t-{number}" in replicas_in(cluster, node, "/more")
        )
        for other in {1, 2, 3} - {node}:
            cluster.world.machines[f"n{other}"].kill()
        machine = cluster.world.machines[f"n{node}"]
        machine.disk.failing_path = "/more"
        await produce_everywhere(cluster, node, {number: node})
        await trio.sleep(8)
        assert machine.is_ready
        await trio.sleep(5)

    with pytest.raises(RuleBroken, match="ended by itself: StorageError: /more: has failed, and the controller"):
        Cluster("three", log_dirs="/data,/more", log_dir_failure_timeout_ms="10000").run(scenario)


def test_a_new_replica_goes_where_it_was_asked_for() -> None:
    """P-278: kafka-reassign-partitions names the directory before the replica comes, and the other one has fewer."""

    async def scenario(cluster: Cluster) -> None:
        topic = CreatableTopic(
            name="t",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1])],
        )
        answer = await cluster.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert answer.topics[0].error_code == 0
        await trio.sleep(1)
        wish = AlterReplicaLogDir(path="/more", topics=[AlterReplicaLogDirTopic(name="t", partitions=[0])])
        noted = await cluster.ask(2, AlterReplicaLogDirsRequest(dirs=[wish]))
        assert noted.results[0].partitions[0].error_code == ErrorCode.REPLICA_NOT_AVAILABLE
        goal = ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[2])])
        answer = await cluster.ask(1, AlterPartitionReassignmentsRequest(topics=[goal], timeout_ms=10_000))
        assert answer.error_code == 0
        with trio.fail_after(30):
            while "t-0" not in replicas_in(cluster, 2, "/more"):
                await trio.sleep(0.1)
        assert replicas_in(cluster, 2, "/data") == set()

    Cluster("three", log_dirs="/data,/more").run(scenario)


def test_a_node_with_cordoned_directories_gets_no_replicas_under_three_nodes() -> None:
    """P-370: its next heartbeat tells the controller, also that a directory is open again."""

    async def cordon_on(cluster: Cluster, value: str) -> None:
        edit = incremental_alter_configs.AlterableConfig(name="cordoned.log.dirs", value=value)
        resource = incremental_alter_configs.AlterConfigsResource(resource_type=4, resource_name="3", configs=[edit])
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
        assert (await cluster.ask(3, request)).responses[0].error_code == 0
        await trio.sleep(5)

    async def created(cluster: Cluster, name: str, replicas: int) -> int:
        topic = CreatableTopic(name=name, num_partitions=6, replication_factor=replicas)
        answer = await cluster.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        code: int = answer.topics[0].error_code
        return code

    async def scenario(cluster: Cluster) -> None:
        await cordon_on(cluster, "*")
        assert await created(cluster, "u", 3) == ErrorCode.INVALID_REPLICATION_FACTOR
        assert await created(cluster, "t", 2) == 0
        with trio.fail_after(30):
            while len(replicas_in(cluster, 1, "/data") | replicas_in(cluster, 1, "/more")) < 6:
                await trio.sleep(0.1)
        assert not replicas_in(cluster, 3, "/data") | replicas_in(cluster, 3, "/more")
        await cordon_on(cluster, "/data")
        assert await created(cluster, "t-more", 3) == 0
        with trio.fail_after(30):
            while len(replicas_in(cluster, 3, "/more")) < 6:
                await trio.sleep(0.1)
        assert not replicas_in(cluster, 3, "/data")

    Cluster("three", log_dirs="/data,/more").run(scenario)
