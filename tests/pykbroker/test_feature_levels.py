"""Whole nodes in directories formatted at old levels of metadata.version, and while the level rises."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.controller.formatting import write_first_levels
from pykbroker.controller.metadata import metadata_versions
from pykbroker.controller.metadata.features import UNSTABLE_FEATURES, FeatureUpdate, UpdateFeatures
from pykbroker.controller.metadata.metadata_versions import METADATA_VERSION, METADATA_VERSION_LATEST
from pykbroker.controller.metadata.record_framing import decode_record
from pykbroker.logstore.errors import InconsistentDirectory
from pykbroker.node.broker_registration import RegistrationFailed, register_again, register_at_once
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import FeatureLevelRecord, RegisterBrokerRecord
from pykbroker.protocol.messages.describe_cluster import DescribeClusterRequest
from pykbroker.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from pykbroker.protocol.records.batch import iter_batches
from tests.controller.nodes import make_node, running
from tests.controller.world import directory_id
from tests.pykbroker.test_three_nodes import Cluster
from tests.simulation.machines import Machine
from tests.simulation.world import RuleBroken
from tests.support.fake_filesystem import FakeFileSystem

CONTROLLER_PORT = 9093
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"


def format_at(cluster: Cluster, level: int) -> None:
    """Formats all controllers' directories."""
    for node_id in cluster.shape.controllers:
        disk = cluster.world.machines[f"n{node_id}"].disk.mount(lambda slow_s: None, lambda: None)
        disk.make_directory("/data")
        write_first_levels(disk, "/data", {METADATA_VERSION: level}, 0)


def records_on(machine: Machine) -> list[Any]:
    """The metadata records in the log of a machine whose process has ended."""
    disk = machine.disk.mount(lambda slow_s: None, lambda: None)
    folder = "/data/__cluster_metadata-0"
    found: list[Any] = []
    for name, _ in sorted(disk.list(folder)):
        if name.endswith(".log"):
            content = disk.read_file(f"{folder}/{name}") or b""
            for batch in iter_batches(content.rstrip(b"\0")):
                if not batch.is_control:
                    found += [decode_record(record.value) for record in batch.records()]
    return found


async def update(cluster: Cluster, level: int) -> None:
    wanted = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=level, upgrade_type=1)
    answer = await cluster.ask(1, UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[wanted]))
    assert (answer.error_code, answer.error_message) == (0, None)


@pytest.mark.parametrize("kind", ["three", "sole", "apart"])
def test_nodes_register_at_the_oldest_level_and_again_when_it_rises(kind: str) -> None:
    """Their log directories have a place in the records from 3.7-IV2 on."""
    cluster = Cluster(kind, **{"metadata.log.max.record.bytes.between.snapshots": "20971520"})
    format_at(cluster, 7)

    async def scenario(cluster: Cluster) -> None:
        assert await cluster.create(1, "t") == 0
        for level in (15, 16, 17, 30):
            await update(cluster, level)
            await trio.sleep(1)
        assert await cluster.create(2, "later") == 0
        for machine in cluster.world.machines.values():
            machine.kill()

    cluster.run(scenario)
    records = records_on(cluster.world.machines[f"n{cluster.shape.controllers[0]}"])
    levels = [one.feature_level for one in records if isinstance(one, FeatureLevelRecord)]
    assert levels == [7, 15, 16, 17, 30]
    for broker_id in cluster.shape.brokers:
        registrations = [r for r in records if isinstance(r, RegisterBrokerRecord) and r.broker_id == broker_id]
        assert [len(one.log_dirs) for one in registrations] == [0, 1]
        assert len({(one.incarnation_id, one.broker_epoch) for one in registrations}) == 1


async def test_a_broker_alone_registers_again_when_the_level_rises() -> None:
    config: Any = SimpleNamespace(node_id=1, broker=SimpleNamespace(rack=None, unstable_feature_versions_enable=False))
    directory: Any = SimpleNamespace(path="/data")
    host: Any = SimpleNamespace(random=SimpleNamespace(randbytes=lambda count: b"r" * count))
    async with running(FakeFileSystem(), bootstrap_levels={METADATA_VERSION: 16}) as node:
        registration = await register_at_once(
            node, config, [], directory, [directory_id(1)], host, is_clean_restart=True
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(register_again, node, registration)
            await trio.testing.wait_all_tasks_blocked()
            assert node.image.brokers[1].log_dirs == ()
            await node.submit(UpdateFeatures([FeatureUpdate(METADATA_VERSION, 17)]), 1000)
        assert node.image.brokers[1].log_dirs == (directory_id(1),)
        assert not node.image.brokers[1].is_fenced


def test_controllers_are_not_described_below_the_level_of_their_registrations() -> None:
    """KIP-919; a broker in an empty directory, which asks them for the cluster's id, gets that all the same."""
    cluster = Cluster("apart")
    format_at(cluster, 14)

    async def scenario(cluster: Cluster) -> None:
        asked = DescribeClusterRequest(endpoint_type=2)
        refused = await cluster.ask(101, asked, port=CONTROLLER_PORT)
        assert (refused.error_code, refused.error_message, refused.brokers) == (
            ErrorCode.UNSUPPORTED_VERSION,
            "Direct-to-controller communication is not supported with the current MetadataVersion.",
            [],
        )
        await update(cluster, 15)
        await trio.sleep(5)
        described = await cluster.ask(101, asked, port=CONTROLLER_PORT)
        assert sorted(node.broker_id for node in described.brokers) == [101, 102, 103]

    cluster.run(scenario)


async def test_a_snapshot_of_an_old_level_is_read_again() -> None:
    disk = FakeFileSystem()
    options: dict[str, Any] = {"bootstrap_levels": {METADATA_VERSION: 7}, "snapshot_bytes": 1}
    config: Any = SimpleNamespace(node_id=1, broker=SimpleNamespace(rack=None, unstable_feature_versions_enable=False))
    directory: Any = SimpleNamespace(path="/data")
    host: Any = SimpleNamespace(random=SimpleNamespace(randbytes=lambda count: b"r" * count))
    async with running(disk, **options) as node:
        await register_at_once(node, config, [], directory, [directory_id(1)], host, is_clean_restart=True)
        await trio.sleep(1)
        before = node.image
    assert any(name.endswith(".checkpoint") for name, _ in disk.list("/data/__cluster_metadata-0"))
    async with running(disk, is_clean=True, **options) as node:
        assert node.image.metadata_version == 7
        assert node.image.brokers == before.brokers


@pytest.mark.parametrize("level", [6, 31])
def test_a_directory_formatted_at_an_unknown_level_is_refused_by_name(level: int) -> None:
    cluster = Cluster("one")
    format_at(cluster, level)

    async def scenario(cluster: Cluster) -> None:
        pytest.fail("it started")

    name = {6: "6", 31: r"31 \(4.4-IV0\)"}[level]
    reason = f"formatted for other software: metadata.version {name} is not supported, only 7 "
    with pytest.raises(RuleBroken, match=reason) as broken:
        cluster.run(scenario)
    assert InconsistentDirectory.__name__ in str(broken.value)


@pytest.mark.parametrize(
    ("kind", "error"), [("one", InconsistentDirectory), ("sole", InconsistentDirectory), ("three", RegistrationFailed)]
)
def test_a_broker_without_a_feature_of_its_cluster_names_it(kind: str, error: type[Exception]) -> None:
    """As in a directory in which Apache Kafka has run; at once where no other node can help."""
    cluster = Cluster(kind)

    async def play() -> None:
        levels = {METADATA_VERSION: METADATA_VERSION_LATEST, "some.version": 1}
        for machine in cluster.world.machines.values():
            disk = machine.disk.mount(lambda slow_s: None, lambda: None)
            async with running(disk, bootstrap_levels=levels):
                await trio.sleep(0.1)
        for machine in cluster.world.machines.values():
            machine.start()
        await trio.sleep(1 if error is InconsistentDirectory else 61)

    reason = rf"{error.__name__}: .* does not support finalized version 1 of some.version"
    with pytest.raises(RuleBroken, match=reason):
        cluster.world.run(play)


async def test_a_log_of_an_unstable_level_needs_the_setting() -> None:
    disk = FakeFileSystem()
    options: dict[str, Any] = {"supported_features": UNSTABLE_FEATURES, "bootstrap_levels": {METADATA_VERSION: 31}}
    async with running(disk, **options) as node:
        assert node.image.metadata_version == 31
    reason = r"cannot be read: metadata.version 31 \(4.4-IV0\) is not supported, only 7 .* by newer software"
    with pytest.raises(InconsistentDirectory, match=reason):
        make_node(disk).open()
    async with running(disk, **options) as node:
        assert node.image.metadata_version == 31


async def test_a_log_of_an_unknown_level_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FakeFileSystem()
    with monkeypatch.context() as newer_software:
        newer_software.setattr(metadata_versions, "METADATA_VERSION_UNSTABLE", 32)
        options: dict[str, Any] = {"supported_features": {METADATA_VERSION: (7, 32)}}
        async with running(disk, bootstrap_levels={METADATA_VERSION: 32}, **options):
            await trio.sleep(0.1)
    reason = r"cannot be read: metadata.version 32 is not supported, only 7 .* by newer software"
    with pytest.raises(InconsistentDirectory, match=reason):
        make_node(disk, supported_features={METADATA_VERSION: (7, 32)}).open()
