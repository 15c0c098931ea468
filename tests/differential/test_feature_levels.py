"""Feature levels from the oldest release on: the same refusals of changes, and the same APIs at each level."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from interop_tests.brokers import ApacheKafkaProcess, PykbrokerProcess
from interop_tests.java_tools import JavaTools
from pykbroker.protocol.messages.api_versions import ApiVersionsRequest
from pykbroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pykbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykbroker.protocol.messages.end_txn import EndTxnRequest
from pykbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pykbroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from pykbroker.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from pykbroker.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.differential.brokers import SETTINGS, pair_of
from tests.differential.generator import Generator
from tests.differential.runner import Pair
from tests.differential.script import Ref
from tests.differential.world import World
from tests.support.kafka_jars import kafka_libs

pytestmark = pytest.mark.java

OLDEST = ("--release-version", "3.3-IV3")
UPGRADE, SAFE, UNSAFE = 1, 2, 3
HIGHEST = {
    "metadata.version": 31,
    "kraft.version": 2,
    "transaction.version": 3,
    "group.version": 2,
    "eligible.leader.replicas.version": 2,
    "share.version": 2,
    "streams.version": 2,
    "no.such.version": 1,
}
"""One more than each feature has; of metadata.version the one that is not stable yet."""
STEPS = (
    *((("metadata.version", level, UPGRADE), "") for level in (8, 14, 17, 22, 25)),
    (("group.version", 1, UPGRADE), "groups"),
    (("transaction.version", 1, UPGRADE), "transactions"),
    (("transaction.version", 2, UPGRADE), "transactions"),
    (("transaction.version", 1, SAFE), ""),
    (("eligible.leader.replicas.version", 1, UPGRADE), ""),
    (("eligible.leader.replicas.version", 0, SAFE), ""),
    *((("metadata.version", level, UPGRADE), "") for level in (26, 30)),
    (("share.version", 1, UPGRADE), ""),
    (("streams.version", 1, UPGRADE), "everything"),
    (("group.version", 0, SAFE), ""),
    (("share.version", 0, SAFE), ""),
    (("streams.version", 0, UNSAFE), ""),
    (("metadata.version", 29, SAFE), ""),
    (("metadata.version", 29, UNSAFE), ""),
)
"""Changes one after the other, and the theme of the script that is run at each level."""


@pytest.fixture
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both brokers at the levels of the oldest release."""
    folder = tmp_path_factory.mktemp("oldest")
    tools = JavaTools(kafka_libs())
    kafka = ApacheKafkaProcess(folder / "kafka", folder / "kafka.log", SETTINGS, tools, format_options=OLDEST)
    ours = PykbrokerProcess(folder / "pykbroker", folder / "pykbroker.log", SETTINGS, options=OLDEST)
    try:
        kafka.start()
        ours.start()
        with pair_of(kafka, ours) as both:
            yield both
    finally:
        kafka.stop()
        ours.stop()


def change(world: World, feature: str, level: int, kind: int, *, validate_only: bool = False) -> None:
    update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
    request = UpdateFeaturesRequest(feature_updates=[update], timeout_ms=60_000, validate_only=validate_only)
    world.call(request, 1)


def look(world: World) -> None:
    """Asks for the features, APIs and group protocols of a level, and for the changes that would be refused."""
    for version in (0, 3, 4):
        world.call(ApiVersionsRequest(client_software_name="a", client_software_version="1"), version)
    world.call(ConsumerGroupHeartbeatRequest(group_id="~c", member_id="a", topic_partitions=[]), 1)
    world.call(ConsumerGroupDescribeRequest(group_ids=["~c"]), 1)
    world.call(ShareGroupHeartbeatRequest(group_id="~s", member_id="a", subscribed_topic_names=[]), 1)
    world.call(StreamsGroupDescribeRequest(group_ids=["~t"]), 0)
    for feature, highest in HIGHEST.items():
        for kind in (UPGRADE, SAFE, UNSAFE):
            for level in range(-1, highest + 1):
                change(world, feature, level, kind, validate_only=True)


def new_client(world: World) -> None:
    """EndTxn of a client of version 2."""
    world.call(InitProducerIdRequest(transactional_id="~x", transaction_timeout_ms=60_000), 4)
    producer: Any = {"producer_id": Ref("producer_id", "~x"), "producer_epoch": Ref("producer_epoch", "~x")}
    world.call(EndTxnRequest(transactional_id="~x", committed=False, **producer), 5)


def test_each_level_is_kafkas(oldest: Pair) -> None:
    """P-433 at the lowest level."""
    found = oldest.play(look) + oldest.play(new_client) + oldest.run(Generator(1, "groups").script(40))
    assert not found, f"at {OLDEST}: {found[0]}"
    for (feature, level, kind), theme in STEPS:

        def step(world: World, update: tuple[str, int, int] = (feature, level, kind)) -> None:
            change(world, *update)
            look(world)

        found = oldest.play(step)
        if theme:
            script = Generator(1, theme).script(40)
            # A difference that is a matter of time does not come twice.
            found = found or (oldest.run(script) and oldest.run(script))
        assert not found, f"{feature} {level} ({kind}): {found[0]}"
