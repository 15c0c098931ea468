"""FindCoordinator: P-88, P-89."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from pykbroker.controller.metadata.image import BrokerImage, Endpoint
from pykbroker.coordination.internal_topic import InternalTopic
from pykbroker.coordination.partitioning import OFFSETS_TOPIC
from pykbroker.handlers.find_coordinator import _share_key, handle_find_coordinator
from pykbroker.protocol.codec import encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest
from tests.pykbroker.groups.rig import Rig
from tests.support.data_path import NODE_ID, replicated_topic_image, topic_image


async def find(rig: Rig, version: int, *keys: str, key_type: int = 0) -> list[Coordinator]:
    """One entry per key, whatever the version's form."""
    if version >= 4:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
    else:
        request = FindCoordinatorRequest(key=keys[0], key_type=key_type)
    response = await rig.call(handle_find_coordinator, request, version)
    encode(response, version)
    if version >= 4:
        coordinators: list[Coordinator] = response.coordinators
        return coordinators
    return [
        Coordinator(
            key=keys[0],
            node_id=response.node_id,
            host=response.host,
            port=response.port,
            error_code=response.error_code,
            error_message=response.error_message,
        )
    ]


@pytest.mark.parametrize("version", range(7))
async def test_the_leader_of_the_groups_partition_p_88(tmp_path: Path, version: int) -> None:
    """P-88: at the address that the broker has registered."""
    rig = Rig(tmp_path)
    async with rig.running():
        [found] = await find(rig, version, "g")
        assert (found.error_code, found.node_id, found.host, found.port) == (0, NODE_ID, "localhost", 9092)


async def test_several_keys(tmp_path: Path) -> None:
    """KIP-699."""
    rig = Rig(tmp_path)
    async with rig.running():
        found = await find(rig, 4, "g", "h", "")
        assert [(f.key, f.node_id) for f in found] == [("g", NODE_ID), ("h", NODE_ID), ("", NODE_ID)]


@pytest.mark.parametrize("version", [0, 3, 4, 6])
async def test_a_missing_topic_is_created_p_89(tmp_path: Path, version: int) -> None:
    """P-89: COORDINATOR_NOT_AVAILABLE without a node, and a moment later it is there."""
    rig = Rig(tmp_path, is_fresh=True)
    async with rig.running():
        for _ in range(2):
            [found] = await find(rig, version, "g")
            assert (found.error_code, found.node_id, found.host, found.port) == (
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                -1,
                "",
                -1,
            )
        await trio.sleep(0.1)
        [found] = await find(rig, version, "g")
        assert found.node_id == NODE_ID
        assert await rig.commit(7) == ErrorCode.NONE
    configs = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
    assert rig.created == [InternalTopic(OFFSETS_TOPIC, 50, 3, 1, configs)]


@pytest.mark.parametrize("key_type", range(3))
async def test_the_modules_of_shards_are_imported_before_their_topic_exists(tmp_path: Path, key_type: int) -> None:
    rig = Rig(tmp_path, is_fresh=True)
    imported: list[int] = []

    def coordinator(number: int) -> Any:
        async def import_shard() -> None:
            imported.append(number)

        runtime = SimpleNamespace(import_shard=import_shard)
        return SimpleNamespace(runtime=runtime, request_topic_creation=lambda live_broker_count: None)

    groups, transactions, share_state = map(coordinator, range(3))
    rig.services = rig.services.replaced(groups=groups, transactions=transactions, share_state=share_state)
    [found] = await find(rig, 6, "g:AAAAAAAAAAAAAAAAAAAAAA:0", key_type=key_type)
    assert (found.error_code, imported) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [key_type])


async def test_a_creation_that_fails_is_tried_again_p_89(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """P-89."""
    rig = Rig(tmp_path, is_fresh=True)
    rig.creation_error = RuntimeError("no controller")
    async with rig.running():
        await find(rig, 4, "g")
        await trio.sleep(0.1)
        assert "no controller" in caplog.text
        rig.creation_error = None
        await find(rig, 4, "g")
        await trio.sleep(0.1)
        assert (await find(rig, 4, "g"))[0].error_code == ErrorCode.NONE


async def test_a_partition_whose_leader_is_not_reachable(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        rig.change(topic_image(OFFSETS_TOPIC, 5, leader=2))
        assert (await find(rig, 4, "g"))[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("version", "key", "error"),
    [
        (5, "g:AAAAAAAAAAAAAAAAAAAAAA:0", ErrorCode.INVALID_REQUEST),
        (6, "g", ErrorCode.INVALID_REQUEST),
        (6, "g:x:0", ErrorCode.INVALID_REQUEST),
        # Java's Integer.parseInt: P-671.
        (6, "g:AAAAAAAAAAAAAAAAAAAAAA:2147483648", ErrorCode.INVALID_REQUEST),
        (6, "g:AAAAAAAAAAAAAAAAAAAAAA: 1", ErrorCode.INVALID_REQUEST),
        (6, "g:AAAAAAAAAAAAAAAAAAAAAA:1_0", ErrorCode.INVALID_REQUEST),
        (6, ":AAAAAAAAAAAAAAAAAAAAAA:0", ErrorCode.INVALID_REQUEST),
        (6, "g:AAAAAAAAAAAAAAAAAAAAAA:", ErrorCode.INVALID_REQUEST),
        (6, "g:AAAAAAAAAAAAAAAAAAAAAA:zero", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_share_groups(tmp_path: Path, version: int, key: str, error: ErrorCode) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        assert (await find(rig, version, key, key_type=2))[0].error_code == error


@pytest.mark.parametrize("partition", ["2147483647", "+1", "-1", "1::"])
def test_partitions_of_share_groups_that_java_reads(partition: str) -> None:
    """P-671: a sign is taken, and empty parts at the end of the key are dropped."""
    number = partition.strip("+:")
    assert _share_key(f"a:g:AAAAAAAAAAAAAAAAAAAAAA:{partition}") == f"a:g:AAAAAAAAAAAAAAAAAAAAAA:{number}"


async def test_an_unknown_key_type(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        for version in (1, 4):
            for key_type in (9, -1):
                unknown = (await find(rig, version, "g", key_type=key_type))[0]
                assert unknown.error_code == ErrorCode.INVALID_REQUEST
                assert unknown.error_message
            share = (await find(rig, version, "g", key_type=2))[0]
            assert (share.error_code, bool(share.error_message)) == (ErrorCode.INVALID_REQUEST, version < 4)


@pytest.mark.parametrize(
    ("leader", "is_fenced", "error"),
    [
        (2, False, ErrorCode.NONE),
        (2, True, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (-1, False, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
async def test_every_node_names_the_leader_that_lives(
    tmp_path: Path, leader: int, is_fenced: bool, error: ErrorCode
) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        rig.change(topic_image("clicks", 2), replicated_topic_image(OFFSETS_TOPIC, 5, leader=leader, leader_epoch=3))
        endpoints = (Endpoint("PLAINTEXT", "two", 9092, 0),)
        other = BrokerImage(2, 5, bytes(16), endpoints, {}, None, is_fenced, False, (bytes(16),))
        rig.services.metadata.image.brokers = {**rig.services.metadata.image.brokers, 2: other}
        [found] = await find(rig, 4, "g")
        assert found.error_code == error
        if error is ErrorCode.NONE:
            assert (found.node_id, found.host, found.port) == (2, "two", 9092)
