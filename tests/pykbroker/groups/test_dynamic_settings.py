"""Settings of the broker that groups follow while it runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker.protocol.messages.metadata import MetadataRequest
from tests.pykbroker.groups.rig import Rig
from tests.support.whole_broker import WholeBroker

BROKER_RESOURCE = 4
KINDS = ("consumer", "share", "streams")


def settings(interval_ms: int) -> dict[str, str]:
    return {f"group.{kind}.assignment.interval.ms": str(interval_ms) for kind in KINDS}


async def test_p432_groups_follow_the_assignment_intervals(tmp_path: Path) -> None:
    """P-432: those of all kinds, in shards that are loaded and in later ones."""
    rig = Rig(tmp_path, settings(0))
    async with rig.running():
        await rig.commit(1)
        (place, *_) = rig.groups.runtime.shards.values()
        rig.groups.follow_config(BrokerConfig.from_properties({**rig.services.config.static_properties, **settings(7)}))
        for shard in (place, rig.groups._make_shard(1)):
            intervals = [groups.settings_of("g").assignment_interval_ms for groups in shard.modern_groups]
            assert intervals == [7, 7, 7]


@pytest.mark.parametrize("is_of_one_broker", [False, True])
def test_p432_a_change_counts_for_the_next_heartbeat(tmp_path: Path, is_of_one_broker: bool) -> None:
    """P-432: a member that joins has to wait as long as the interval is long, and not afterwards."""
    with WholeBroker(tmp_path, settings(0)) as broker:
        broker.create_topic("t", 2)

        def beat(member_id: str, epoch: int) -> Any:
            request = ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id=member_id,
                member_epoch=epoch,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=["t"],
                topic_partitions=[],
            )
            return broker.client.call(request, 1)

        def change(interval_ms: int) -> None:
            config = AlterableConfig(name="group.consumer.assignment.interval.ms", value=str(interval_ms))
            resource = AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name=name, configs=[config])
            answer = broker.client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
            assert answer.responses[0].error_code == ErrorCode.NONE

        node_id = broker.client.call(MetadataRequest(topics=[]), 12).brokers[0].node_id
        name = str(node_id) if is_of_one_broker else ""
        broker.client.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        deadline = time.monotonic() + 60
        while (first := beat("a", 0)).error_code != ErrorCode.NONE and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(first.assignment.topic_partitions) == 1
        change(15_000)
        joined = beat("b", 0)
        assert (joined.member_epoch, joined.assignment.topic_partitions) == (first.member_epoch, [])
        change(0)
        assert beat("b", joined.member_epoch).member_epoch == first.member_epoch + 1
