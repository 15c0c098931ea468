"""CreatePartitions: P-149."""

from __future__ import annotations

import pytest

from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.image import Acl
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.handlers.create_partitions import handle_create_partitions
from pykbroker.java_order import hash_order
from pykbroker.protocol.acl_codes import ALLOW, ALTER, LITERAL, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.support.admin import answer, make_context, make_services


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("a", 3, None, ErrorCode.NONE),
        ("a", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("a", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("a", 3, [[1]], ErrorCode.NONE),
        ("a", 3, [[1], [1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("nope", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_partitions_only_grow(name: str, count: int, assignments: list[list[int]] | None, code: ErrorCode) -> None:
    """P-149."""
    services = make_services()
    services.controller.submit_now(CreateTopics([NewTopic("a", 2)]))  # type: ignore[attr-defined]
    topic = CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None
        if assignments is None
        else [CreatePartitionsAssignment(broker_ids=broker_ids) for broker_ids in assignments],
    )
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=1000)
    (result,) = answer(handle_create_partitions, make_context(3, services=services), request).results
    assert (result.name, result.error_code) == (name, code)
    assert len(services.metadata.image.topics_by_name["a"].partitions) == (3 if code == ErrorCode.NONE else 2)


def test_a_topic_named_twice_is_told_so_whoever_asks() -> None:
    """P-149: nobody may do anything here, and yet the duplicate is the answer."""
    services = make_services()
    services = services.replaced(authorizer=StandardAuthorizer(dict, frozenset(), False))
    twice = [CreatePartitionsTopic(name="a", count=3), CreatePartitionsTopic(name="a", count=4)]
    request = CreatePartitionsRequest(topics=[*twice, CreatePartitionsTopic(name="b", count=3)], timeout_ms=1000)
    results = answer(handle_create_partitions, make_context(3, services=services), request).results
    assert {result.name: result.error_code for result in results} == {
        "a": ErrorCode.INVALID_REQUEST,
        "b": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }


def test_topics_are_in_the_order_of_kafkas_hash_sets() -> None:
    """P-149: topics that are named twice, topics that the client may not alter, and the others."""
    services = make_services()
    names = [f"topic-{number * 7 % 60}" for number in range(60)]
    services.controller.submit_now(CreateTopics([NewTopic(name, 1) for name in names]))  # type: ignore[attr-defined]
    allowed = {name for name in names if name.endswith(("0", "3", "4"))}
    acls = {
        number.to_bytes(16, "big"): Acl(TOPIC, name, LITERAL, "User:ANONYMOUS", "*", ALTER, ALLOW)
        for number, name in enumerate(sorted(allowed), 1)
    }
    services = services.replaced(authorizer=StandardAuthorizer(lambda: acls, frozenset(), False))
    twice = [name for name in reversed(names) if name.endswith(("3", "8"))]
    topics = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in (*names, *twice)]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=1000)
    results = answer(handle_create_partitions, make_context(3, services=services), request).results
    ordered = [name for name in hash_order(names) if name not in twice]
    assert [(result.name, result.error_code, result.error_message) for result in results] == [
        *((name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for name in hash_order(twice)),
        *((name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None) for name in ordered if name not in allowed),
        *((name, ErrorCode.NONE, None) for name in ordered if name in allowed),
    ]
    # The beginning of a HashSet of these names in Java.
    assert hash_order(names)[:6] == ["topic-6", "topic-7", "topic-8", "topic-9", "topic-50", "topic-0"]


def test_partitions_that_could_not_be_stored() -> None:
    """The error of the whole request is that of each topic."""
    context = make_context(3)
    context.services.controller.failure = CommandRefused(ErrorCode.REQUEST_TIMED_OUT, "too late")  # type: ignore[attr-defined]
    topics = [CreatePartitionsTopic(name=name, count=3) for name in ("a", "b")]
    results = answer(handle_create_partitions, context, CreatePartitionsRequest(topics=topics, timeout_ms=1000)).results
    assert [(result.name, result.error_code, result.error_message) for result in results] == [
        (name, ErrorCode.REQUEST_TIMED_OUT, "too late") for name in ("a", "b")
    ]
