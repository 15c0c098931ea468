"""Metadata: P-22 to P-30."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.controller.metadata.image import Acl
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.handlers.metadata import handle_metadata
from pykbroker.protocol.acl_codes import ALLOW, CLUSTER, CREATE, DENY, DESCRIBE, LITERAL, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import FenceBrokerRecord, PartitionChangeRecord
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pykbroker.requests.context import RequestContext
from pykbroker.security.authorization import EVERY_OPERATION
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.support.admin import answer, apply_records, make_context, make_services
from tests.support.services import Services

NOT_ASKED = -(2**31)


def _context(version: int, *topics: str, **options: Any) -> RequestContext[Services]:
    services = make_services(options.pop("properties", None), options.pop("broker_ids", (1,)))
    services.controller.submit_now(CreateTopics([NewTopic(name, 2) for name in topics]))  # type: ignore[attr-defined]
    return make_context(version, services=services, **options)


def _ask(context: RequestContext[Services], *names: str | None, **options: Any) -> MetadataResponse:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **options)
    response: MetadataResponse = answer(handle_metadata, context, request)
    return response


def test_an_empty_list_is_all_topics_in_version_0_and_none_later() -> None:
    """P-22."""
    assert [topic.name for topic in _ask(_context(0, "a", "b")).topics] == ["a", "b"]
    later = _ask(_context(1, "a", "b"))
    assert later.topics == []
    assert [broker.node_id for broker in later.brokers] == [1]


def test_null_is_all_topics_internal_ones_too_and_creates_nothing() -> None:
    """P-22, P-24."""
    context = _context(1, "a", "__consumer_offsets")
    response = answer(handle_metadata, context, MetadataRequest(topics=None))
    assert {topic.name: topic.is_internal for topic in response.topics} == {"a": False, "__consumer_offsets": True}


def test_auto_creation_first_answers_unknown_and_then_the_topic() -> None:
    """P-23."""
    context = _context(12, properties={"num.partitions": "3"})
    first = _ask(context, "new").topics[0]
    assert (first.error_code, first.name, first.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "new", [])
    second = _ask(context, "new").topics[0]
    assert second.error_code == ErrorCode.NONE
    assert len(second.partitions) == 3


@pytest.mark.parametrize(
    ("version", "flag", "setting", "is_created"),
    [(4, True, "true", True), (4, False, "true", False), (4, True, "false", False), (1, True, "true", True)],
)
def test_auto_creation_needs_flag_and_setting(version: int, flag: bool, setting: str, is_created: bool) -> None:
    """P-23: below version 4 the flag counts as true, which is its default in the message."""
    context = _context(version, properties={"auto.create.topics.enable": setting})
    response = _ask(context, "new", allow_auto_topic_creation=flag)
    assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ("new" in context.services.metadata.image.topics_by_name) is is_created


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "x" * 250])
@pytest.mark.parametrize("flag", [True, False])
def test_an_invalid_name_is_told_in_place(name: str, flag: bool) -> None:
    """P-23, P-143."""
    topics = _ask(_context(9), name, "fine", allow_auto_topic_creation=flag).topics
    assert [topic.error_code for topic in topics] == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_an_internal_topic_is_created_with_its_own_settings() -> None:
    """P-23: a client that asks for the offsets topic gets the one that the coordinator would make."""
    context = _context(9, properties={"offsets.topic.num.partitions": "7"})
    _ask(context, "__consumer_offsets")
    image = context.services.metadata.image
    assert len(image.topics_by_name["__consumer_offsets"].partitions) == 7
    assert image.topic_config("__consumer_offsets")["cleanup.policy"] == "compact"


def test_the_topic_of_share_groups_is_created_from_its_own_keys() -> None:
    """P-23: as that of offsets, and not with num.partitions."""
    context = _context(9, properties={"share.coordinator.state.topic.num.partitions": "7"})
    _ask(context, "__share_group_state")
    image = context.services.metadata.image
    assert len(image.topics_by_name["__share_group_state"].partitions) == 7
    assert image.topic_config("__share_group_state")["retention.ms"] == "-1"


def test_the_controller_is_a_live_broker_or_none() -> None:
    """P-25."""
    context = _context(1, broker_ids=(1, 2))
    cache = context.services.metadata
    cache.image = apply_records(cache.image, [FenceBrokerRecord(id=1, epoch=cache.image.brokers[1].epoch)])
    assert {_ask(context).controller_id for _ in range(20)} == {2}
    cache.image = apply_records(cache.image, [FenceBrokerRecord(id=2, epoch=cache.image.brokers[2].epoch)])
    assert _ask(context).controller_id == -1
    assert _ask(context).brokers == []


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LEADER_NOT_AVAILABLE)]
)
def test_without_a_leader_the_replicas_are_still_told(version: int, code: ErrorCode) -> None:
    """P-26."""
    context = _context(version, "a")
    cache = context.services.metadata
    topic = cache.image.topics_by_name["a"]
    cache.image = apply_records(
        cache.image, [PartitionChangeRecord(topic_id=topic.topic_id, partition_id=0, leader=-1)]
    )
    partition = _ask(context, "a").topics[0].partitions[0]
    assert (partition.error_code, partition.leader_id, partition.replica_nodes) == (code, -1, [1])


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)])
def test_a_leader_without_the_clients_listener(version: int, code: ErrorCode) -> None:
    """P-26, P-27: and the broker is not listed."""
    properties = {
        "listeners": "PLAINTEXT://:9092,INNER://:9094",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
        "advertised.listeners": "INNER://inner:9094",
    }
    response = _ask(_context(version, "a", properties=properties), "a")
    partition = response.topics[0].partitions[0]
    assert (partition.error_code, partition.leader_id, partition.isr_nodes) == (code, -1, [1])
    assert partition.offline_replicas == [1]
    assert response.brokers == []
    old = _ask(_context(0, "a", properties=properties), "a").topics[0].partitions[0]
    assert (old.replica_nodes, old.isr_nodes) == ([], [])


def test_version_0_leaves_out_dead_replicas() -> None:
    """P-26."""
    context = _context(0, broker_ids=(1, 2))
    command = CreateTopics([NewTopic("r", assignments=[(0, [1, 2])])])
    context.services.controller.submit_now(command)  # type: ignore[attr-defined]
    cache = context.services.metadata
    cache.image = apply_records(cache.image, [FenceBrokerRecord(id=2, epoch=cache.image.brokers[2].epoch)])
    partition = _ask(context, "r").topics[0].partitions[0]
    assert (partition.error_code, partition.replica_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, [1])
    context.api_version = 5
    partition = _ask(context, "r").topics[0].partitions[0]
    assert (partition.error_code, partition.replica_nodes, partition.offline_replicas) == (0, [1, 2], [2])


def test_leader_epochs_are_told() -> None:
    """P-28."""
    assert _ask(_context(9, "a"), "a").topics[0].partitions[0].leader_epoch == 0


def test_topics_can_be_asked_for_by_id() -> None:
    """P-29: an unknown id comes back with a null name; with id and name the id counts."""
    context = _context(12, "a", "b")
    topic_id = context.services.metadata.image.topics_by_name["a"].topic_id
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="b", topic_id=topic_id), MetadataRequestTopic(name=None, topic_id=b"u" * 16)]
    )
    topics = answer(handle_metadata, context, request).topics
    assert [(topic.name, topic.error_code) for topic in topics] == [(None, ErrorCode.UNKNOWN_TOPIC_ID), ("a", 0)]


def test_topics_come_in_kafkas_order() -> None:
    """P-653."""
    context = _context(12, "a", "b", "hidden")
    acls = {
        bytes(16): Acl(TOPIC, "*", LITERAL, "User:ANONYMOUS", "*", DESCRIBE, ALLOW),
        bytes(15) + b"1": Acl(TOPIC, "hidden", LITERAL, "User:ANONYMOUS", "*", DESCRIBE, DENY),
        bytes(15) + b"2": Acl(TOPIC, "new", LITERAL, "User:ANONYMOUS", "*", CREATE, ALLOW),
    }
    context.services = context.services.replaced(authorizer=StandardAuthorizer(lambda: acls, frozenset(), False))
    request = MetadataRequest(topics=[MetadataRequestTopic(name=n) for n in ("hidden", "kept", "b", "bad name", "a")])
    hidden, kept = (ErrorCode.TOPIC_AUTHORIZATION_FAILED,) * 2
    unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION
    found = {topic.name: topic.error_code for topic in answer(handle_metadata, context, request).topics}
    assert [*found.items()] == [("b", 0), ("a", 0), ("kept", kept), ("bad name", kept), ("hidden", hidden)]
    request.allow_auto_topic_creation = False
    found = {topic.name: topic.error_code for topic in answer(handle_metadata, context, request).topics}
    assert [*found.items()] == [("b", 0), ("a", 0), ("kept", unknown), ("bad name", invalid), ("hidden", hidden)]
    by_name = context.services.metadata.image.topics_by_name
    ids = [by_name["hidden"].topic_id, by_name["a"].topic_id, b"u" * 16]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids])
    codes = [(topic.name, topic.error_code) for topic in answer(handle_metadata, context, request).topics]
    assert codes == [(None, ErrorCode.UNKNOWN_TOPIC_ID), ("a", 0), (None, hidden)]


@pytest.mark.parametrize("topic", [{"name": None}, {"name": "a", "topic_id": b"i" * 16}])
def test_ids_and_null_names_need_version_12(topic: dict[str, Any]) -> None:
    """P-29."""
    request = MetadataRequest(topics=[MetadataRequestTopic(**topic)])
    response = answer(handle_metadata, _context(11, "a"), request)
    assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST]


def test_authorized_operations_are_told_when_asked_for() -> None:
    """P-30."""
    context = _context(8, "a")
    silent = _ask(context, "a")
    assert silent.cluster_authorized_operations == silent.topics[0].topic_authorized_operations == NOT_ASKED
    full = _ask(context, "a", include_cluster_authorized_operations=True, include_topic_authorized_operations=True)
    assert full.cluster_authorized_operations == EVERY_OPERATION[CLUSTER]
    assert full.topics[0].topic_authorized_operations == EVERY_OPERATION[TOPIC]


def test_a_name_asked_for_twice_is_answered_once() -> None:
    assert [topic.name for topic in _ask(_context(9, "a"), "a", "a").topics] == ["a"]
