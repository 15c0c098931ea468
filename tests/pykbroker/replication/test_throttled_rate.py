"""The mean rate of a copy under a replication throttle (KIP-73, P-340): whole brokers in virtual time."""

from __future__ import annotations

import pytest
import trio

from pykbroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykbroker.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from pykbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.pykbroker.replication.test_three_brokers import TOPIC, create, produce
from tests.pykbroker.test_three_nodes import BROKER, Cluster
from tests.pykbroker.test_three_nodes import TOPIC as TOPIC_RESOURCE

BATCH_BYTES = 100_000
BATCHES = 60
POLL_S = 0.02
WARM_UP_S = 2.0
"""The first window counts as a whole one, so that its bytes pass at once."""


async def configure(cluster: Cluster, node: int, kind: int, name: str, key: str, value: str) -> None:
    change = AlterableConfig(name=key, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
    answer = await cluster.ask(node, IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message


@pytest.mark.parametrize("side", ["leader", "follower"])
@pytest.mark.parametrize("limit", [80_000, 205_000, 390_000, 2_000_000])
def test_p340_the_mean_rate_is_within_5_percent_of_the_limit(side: str, limit: int) -> None:
    """P-340: a fetch has a tenth of a second's bytes, or those of a second and more."""

    async def scenario(cluster: Cluster) -> None:
        # Node 2 follows node 1 also here, in the same session, whose requests wait.
        assert await cluster.create(1, "idle") == 0
        topic_id = await create(cluster, [1])
        for _ in range(BATCHES):
            assert (await produce(cluster, 1, topic_id, "x" * BATCH_BYTES)).error_code == 0
        node = 1 if side == "leader" else 2
        await configure(cluster, node, BROKER, str(node), f"{side}.replication.throttled.rate", str(limit))
        await configure(cluster, node, TOPIC_RESOURCE, TOPIC, f"{side}.replication.throttled.replicas", "*")
        moved = ReassignablePartition(partition_index=0, replicas=[1, 2])
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=TOPIC, partitions=[moved])])
        assert (await cluster.ask(1, request)).error_code == 0
        sizes = await growth(cluster, BATCHES * BATCH_BYTES)
        steady = [sample for sample in sizes if sample[0] >= WARM_UP_S]
        (began_s, began), (ended_s, ended) = steady[0], steady[-1]
        rate = (ended - began) / (ended_s - began_s)
        assert rate / limit == pytest.approx(1, abs=0.05)

    Cluster("three", replica_fetch_max_bytes=str(BATCH_BYTES + 20_000)).run(scenario)


async def growth(cluster: Cluster, whole: int) -> list[tuple[float, int]]:
    """Seconds since the copy's first bytes and its size, at each moment at which it has grown."""
    asked = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=TOPIC, partitions=[0])])
    found: list[tuple[float, int]] = []
    began = trio.current_time()
    with trio.fail_after(300):
        while not found or found[-1][1] < whole:
            await trio.sleep(POLL_S)
            for directory in (await cluster.ask(2, asked)).results:
                for topic in directory.topics:
                    size = topic.partitions[0].partition_size
                    if size > (found[-1][1] if found else 0):
                        began = began if found else trio.current_time()
                        found.append((trio.current_time() - began, size))
    return found
