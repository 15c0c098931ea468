"""StreamsGroupHeartbeat and StreamsGroupDescribe on a whole broker: topics are created, users may do what they may."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pykbroker.groups.streams.configured import StatusCode
from pykbroker.groups.streams.internal_topic_creation import InternalTopicCreation
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pykbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykbroker.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from pykbroker.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from pykbroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykbroker.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from pykbroker.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from pykbroker.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.pykbroker.groups.streams.topologies import stateless, word_count
from tests.support.whole_broker import TIMEOUT_S, WholeBroker

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.heartbeat.interval.ms": "100",
    "group.streams.min.heartbeat.interval.ms": "100",
    "default.replication.factor": "1",
}
TOPIC, GROUP, CLUSTER = 2, 3, 4
READ, CREATE, DESCRIBE = 3, 5, 8
DENY, ALLOW = 2, 3


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[WholeBroker]:
    with WholeBroker(tmp_path, SETTINGS) as started:
        assert started.create_topic("in", 2) == ErrorCode.NONE
        deadline = time.monotonic() + TIMEOUT_S
        while started.client.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0].error_code:
            assert time.monotonic() < deadline
        yield started


def beat(broker: WholeBroker, topology: Topology | None = None, epoch: int = 0, group_id: str = "g") -> Any:
    request = StreamsGroupHeartbeatRequest(
        group_id=group_id,
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout_ms=60_000,
        process_id="p",
        topology=topology,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    return broker.client.call(request, 0)


def described(broker: WholeBroker, *group_ids: str) -> list[Any]:
    request = StreamsGroupDescribeRequest(group_ids=list(group_ids), include_authorized_operations=True)
    groups: list[Any] = broker.client.call(request, 0).groups
    return groups


def deny(broker: WholeBroker, resource_type: int, name: str, operation: int) -> None:
    acl(broker, resource_type, name, operation, DENY)


def acl(broker: WholeBroker, resource_type: int, name: str, operation: int, permission_type: int) -> None:
    creation = AclCreation(
        resource_type=resource_type,
        resource_name=name,
        resource_pattern_type=3,
        principal="User:ANONYMOUS",
        host="*",
        operation=operation,
        permission_type=permission_type,
    )
    results = broker.client.call(CreateAclsRequest(creations=[creation]), 3).results
    assert [result.error_code for result in results] == [ErrorCode.NONE]


def allow_again(broker: WholeBroker) -> None:
    everything = DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    broker.client.call(DeleteAclsRequest(filters=[everything]), 3)


def until_ready(broker: WholeBroker, topology: Topology, group_id: str = "g") -> Any:
    """The first answer without a status."""
    deadline = time.monotonic() + TIMEOUT_S
    while (response := beat(broker, topology, group_id=group_id)).status:
        assert time.monotonic() < deadline, response
        time.sleep(0.02)
    return response


def test_internal_topics_are_created(broker: WholeBroker) -> None:
    """P-211: with the declared configs; the member is told of them meanwhile."""
    topology = word_count("g", "in")
    first = beat(broker, topology)
    assert [status.status_code for status in first.status] == [StatusCode.MISSING_INTERNAL_TOPICS]
    ready = until_ready(broker, topology)
    assert [(ids.subtopology_id, ids.partitions) for ids in ready.active_tasks] == [("0", [0, 1]), ("1", [0, 1])]
    topics = broker.topics()
    assert (topics["g-words-repartition"], topics["g-store-changelog"]) == (2, 2)
    resource = DescribeConfigsResource(
        resource_type=TOPIC, resource_name="g-store-changelog", configuration_keys=["cleanup.policy"]
    )
    found = broker.client.call(DescribeConfigsRequest(resources=[resource]), 4).results[0].configs
    assert [config.value for config in found] == ["compact"]
    group = described(broker, "g")[0]
    assert (group.error_code, group.group_state) == (ErrorCode.NONE, "Stable")
    assert group.authorized_operations != -(2**31)


def test_a_failed_creation_is_told_with_the_next_heartbeat(broker: WholeBroker) -> None:
    """P-211: and tried again after two heartbeat intervals."""
    topology = word_count("f", "in")
    changelog = topology.subtopologies[1].state_changelog_topics[0]
    changelog.topic_configs[0].value = "never heard of"
    deadline = time.monotonic() + TIMEOUT_S
    detail = ""
    while "Creation failed" not in detail:
        assert time.monotonic() < deadline
        detail = beat(broker, topology).status[0].status_detail
    assert detail.startswith("Internal topics are missing: f-store-changelog")
    assert "; Creation failed: f-store-changelog (" in detail
    assert detail.endswith(").")


def test_users_need_their_permissions(broker: WholeBroker) -> None:
    """P-217."""
    topology = word_count("u", "in")
    for operation, resource_type, name, error in (
        (READ, GROUP, "u", ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (DESCRIBE, TOPIC, "in", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (DESCRIBE, TOPIC, "u-store-changelog", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ):
        deny(broker, resource_type, name, operation)
        assert beat(broker, topology, group_id="u").error_code == error
        allow_again(broker)
    until_ready(broker, topology, "u")
    deny(broker, GROUP, "v", DESCRIBE)
    hidden, seen = described(broker, "u", "v")
    assert (hidden.group_id, hidden.error_code) == ("v", ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert (seen.group_id, seen.error_code) == ("u", ErrorCode.NONE)
    deny(broker, TOPIC, "u-store-changelog", DESCRIBE)
    group = described(broker, "u")[0]
    assert (group.error_code, group.members, group.topology) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [], None)
    assert group.error_message == "The described group uses topics that the client is not authorized to describe."


def test_internal_topics_need_the_permission_to_create_them(
    broker: WholeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-211: none is created unless all may be."""
    begun: list[str] = []

    def note(creation: InternalTopicCreation, names: Iterable[str], now_ms: int) -> list[str]:
        begun.extend(names)
        return []

    monkeypatch.setattr(InternalTopicCreation, "begin", note)
    assert beat(broker, word_count("v", "in"), group_id="v").error_code == ErrorCode.NONE
    topology = word_count("u", "in")
    for operation in (READ, DESCRIBE):
        acl(broker, TOPIC, "u-words-repartition", operation, ALLOW)
    # An ACL of the cluster takes the rest of the cluster away from everybody, so it is the last one.
    deny(broker, CLUSTER, "kafka-cluster", CREATE)
    refused = beat(broker, topology)
    assert refused.error_code == ErrorCode.NONE
    assert refused.status[0].status_detail.endswith("; Unauthorized to CREATE on topics u-words-repartition.")
    assert set(begun) == {"v-store-changelog", "v-words-repartition"}


def test_topologies_with_forbidden_names(broker: WholeBroker) -> None:
    """P-211."""
    for name, text in (
        (
            "__transaction_state",
            "Use of Kafka internal topics __transaction_state in a Kafka Streams topology is prohibited.",
        ),
        ("a b", "Topic names a b are not valid topic names."),
    ):
        topology = Topology(
            subtopologies=[
                Subtopology(subtopology_id="0", source_topics=["in"], state_changelog_topics=[TopicInfo(name=name)])
            ]
        )
        refused = beat(broker, topology)
        assert (refused.error_code, refused.error_message) == (ErrorCode.STREAMS_INVALID_TOPOLOGY, text)


def test_a_cluster_without_streams_groups(broker: WholeBroker) -> None:
    """P-219: streams.version 0."""
    update = FeatureUpdateKey(feature="streams.version", max_version_level=0, upgrade_type=2)
    broker.client.call(UpdateFeaturesRequest(feature_updates=[update], timeout_ms=20_000), 2)
    assert beat(broker, stateless("in")).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [group.error_code for group in described(broker, "g")] == [ErrorCode.UNSUPPORTED_VERSION]


def test_a_broker_may_serve_classic_groups_alone(tmp_path: Path) -> None:
    """P-219: `group.coordinator.rebalance.protocols` is asked beside the feature."""
    settings = {**SETTINGS, "group.coordinator.rebalance.protocols": "classic"}
    with WholeBroker(tmp_path, settings) as broker:
        broker.create_topic("in", 2)
        assert beat(broker, stateless("in")).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert described(broker, "g")[0].error_code == ErrorCode.UNSUPPORTED_VERSION
        consumer = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=["in"])
        assert broker.client.call(consumer, 1).error_code == ErrorCode.UNSUPPORTED_VERSION
        described_consumer = broker.client.call(ConsumerGroupDescribeRequest(group_ids=["g"]), 1)
        assert described_consumer.groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION
