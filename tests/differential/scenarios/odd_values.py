"""Texts and numbers at the edges of what Java reads: keys of coordinators, values of settings, filters."""

from __future__ import annotations

from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.describe_cluster import DescribeClusterRequest
from pykbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker.protocol.messages.list_transactions import ListTransactionsRequest
from tests.differential.world import World

TOPIC, CLIENT_METRICS, SHARE = 2, 16, 2
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
VALUES = (
    (
        "flush.messages",
        ("\t5\n", "5\x1f", "\u00a05", "5\u2003", "+5", "\u0665", "5_0", "0x5", "", "9223372036854775808"),
    ),
    ("min.cleanable.dirty.ratio", ("0.5d", "0.5F", ".5", "1e-1", "NaN", "Infinity", "\uff15")),
    ("cleanup.policy", ("compact\u00a0", "compact\n,\tdelete", "compact,", ",", "[compact]")),
    ("preallocate", ("TRUE ", "\u00a0true", "yes")),
)


def odd_values(world: World) -> None:
    """P-671."""
    topic = CreatableTopic(name="~t0", num_partitions=1, replication_factor=1)
    world.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    for key, values in VALUES:
        for value in values:
            alter(world, TOPIC, "~t0", key, value)
    for value in ("", "a,", ",", " a , b ", "*"):
        alter(world, CLIENT_METRICS, "~m", "metrics", value)
    for value in ("client_id=x", " client_id = x ", "client_id=(", "client_id==", "client_id", ",", "x=y"):
        alter(world, CLIENT_METRICS, "~m", "match", value)
    for partition in ("2147483647", "2147483648", "-1", "+1", " 1", "1_0", "1::", "", "x"):
        keys = [f"~g:{TOPIC_ID}:{partition}", f"a:~g:{TOPIC_ID}:{partition}", f":{TOPIC_ID}:{partition}"]
        world.call(FindCoordinatorRequest(coordinator_keys=keys, key_type=SHARE), 6)
    for endpoint_type in (0, 1, 2, 3, -1, 127):
        world.call(DescribeClusterRequest(endpoint_type=endpoint_type), 1)
    for pattern in ("", "(", "[", "*", "\\", "(?i)D.*", "a{99999}", "x{0,1001}", "(?<x>d).*"):
        world.call(ListTransactionsRequest(transactional_id_pattern=pattern, state_filters=["Empty", "none"]), 2)


def alter(world: World, kind: int, resource: str, key: str, value: str) -> None:
    """Sets one value of a resource."""
    configs = [AlterableConfig(name=key, value=value)]
    resources = [AlterConfigsResource(resource_type=kind, resource_name=resource, configs=configs)]
    world.call(IncrementalAlterConfigsRequest(resources=resources), 1)
