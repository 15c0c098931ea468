"""Identity of a data directory: directories of other nodes and clusters, and those of an old Kafka."""

from __future__ import annotations

import random

import pytest
import trio

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.logstore.errors import InconsistentDirectory
from pykbroker.logstore.log_directory import LogDirectory
from pykbroker.logstore.meta_properties import MetaProperties
from pykbroker.node.node_directory import identify
from tests.support.fake_filesystem import FakeFileSystem

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"


async def ask() -> str:
    await trio.lowlevel.checkpoint()
    raise AssertionError("no controller is asked")


async def identified(directory: LogDirectory, node_id: int, cluster_id: str | None = None) -> MetaProperties:
    config = BrokerConfig.from_properties({"node.id": str(node_id)})
    return await identify(directory, config, cluster_id, random.Random(1), ask)


async def test_a_directory_of_another_node_or_cluster_is_refused() -> None:
    directory = LogDirectory.open("/data", filesystem=FakeFileSystem())
    first = await identified(directory, 1, CLUSTER)
    assert (first.cluster_id, first.node_id) == (CLUSTER, 1)
    with pytest.raises(InconsistentDirectory, match="belongs to node 1, this is node 2"):
        await identified(directory, 2)
    with pytest.raises(InconsistentDirectory, match=f"belongs to cluster {CLUSTER}, not other"):
        await identified(directory, 1, "other")
    assert await identified(directory, 1, CLUSTER) == first
    assert await identified(directory, 1) == first


async def test_a_directory_of_an_old_kafka_gets_an_id() -> None:
    """Before metadata.version 3.7-IV2 meta.properties had no directory.id (KIP-858); it stays the same from then on."""
    directory = LogDirectory.open("/data", filesystem=FakeFileSystem())
    directory.format(MetaProperties(CLUSTER, 1, ""))
    found = await identified(directory, 1)
    assert len(found.directory_id) == 22
    assert directory.meta_properties() == found
    assert await identified(directory, 1) == found
