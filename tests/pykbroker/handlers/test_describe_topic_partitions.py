"""DescribeTopicPartitions: P-32."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.controller.metadata.image import Acl
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.handlers.describe_topic_partitions import handle_describe_topic_partitions
from pykbroker.java_order import hash_order
from pykbroker.protocol.acl_codes import ALLOW, DESCRIBE, LITERAL, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import PartitionChangeRecord
from pykbroker.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from pykbroker.requests.context import REFUSALS_MAX, RequestContext
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.support.admin import answer, apply_records, make_context, make_services
from tests.support.services import Services


def _context(properties: dict[str, str] | None = None) -> RequestContext[Services]:
    services = make_services(properties)
    command = CreateTopics([NewTopic("b", 1), NewTopic("a", 3), NewTopic("c", 2)])
    services.controller.submit_now(command)  # type: ignore[attr-defined]
    return make_context(0, services=services)


def _page(
    context: RequestContext[Services], *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[Any], tuple[str, int] | None]:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    response: DescribeTopicPartitionsResponse = answer(handle_describe_topic_partitions, context, request)
    after = response.next_cursor
    topics = [(topic.name, [at.partition_index for at in topic.partitions]) for topic in response.topics]
    return topics, None if after is None else (after.topic_name, after.partition_index)


def test_topics_come_sorted_and_no_names_are_all() -> None:
    """P-32."""
    assert _page(_context()) == ([("a", [0, 1, 2]), ("b", [0]), ("c", [0, 1])], None)
    assert _page(_context(), "c", "b") == ([("b", [0]), ("c", [0, 1])], None)


def test_a_partition_without_a_leader_has_no_error() -> None:
    """P-32: other than in a Metadata response."""
    context = _context()
    cache = context.services.metadata
    topic = cache.image.topics_by_name["b"]
    cache.image = apply_records(
        cache.image, [PartitionChangeRecord(topic_id=topic.topic_id, partition_id=0, leader=-1)]
    )
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="b")])
    (partition,) = answer(handle_describe_topic_partitions, context, request).topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.replica_nodes) == (ErrorCode.NONE, -1, [1])


def test_pages_follow_one_another() -> None:
    """P-32."""
    context = _context()
    assert _page(context, limit=2) == ([("a", [0, 1])], ("a", 2))
    assert _page(context, limit=2, cursor=("a", 2)) == ([("a", [2]), ("b", [0])], ("c", 0))
    assert _page(context, limit=2, cursor=("c", 0)) == ([("c", [0, 1])], None)
    # The last index that a cursor can name, plus the limit, is beyond an int32 in Kafka.
    assert _page(context, limit=1, cursor=("c", 2147483647)) == ([("c", [])], ("c", -2147483648))


def test_the_setting_limits_a_page_too_and_a_page_is_never_empty() -> None:
    """P-32."""
    assert _page(_context({"max.request.partition.size.limit": "1"})) == ([("a", [0])], ("a", 1))
    assert _page(_context(), limit=0) == ([("a", [0])], ("a", 1))


def test_unknown_topics_are_in_the_list() -> None:
    """P-32."""
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="nope"), TopicRequest(name="no/pe")])
    response = answer(handle_describe_topic_partitions, _context(), request)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("no/pe", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_names_are_in_the_order_of_javas_strings() -> None:
    """P-32: by UTF-16 units, of which those of U+1F600 are below U+FFEE; only names that no topic has differ."""
    names = ("a", "\uffee", "\U0001f600", "z")
    ordered = [("a", [0, 1, 2]), ("z", []), ("\U0001f600", []), ("\uffee", [])]
    context = _context()
    assert [name for name, _ in _page(context, *names)[0]] == [name for name, _ in ordered]
    assert _page(context, *names, cursor=("\U0001f600", 0))[0] == ordered[2:]
    assert _page(context, *names, cursor=("\uffee", 0))[0] == ordered[3:]
    assert _page(context, cursor=("\U0001f600", 0)) == ([], None)


@pytest.mark.parametrize("cursor", [("b", 0), ("a", -1)])
def test_a_cursor_must_fit(cursor: tuple[str, int]) -> None:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="a")], cursor=Cursor(topic_name=cursor[0], partition_index=cursor[1])
    )
    response = answer(handle_describe_topic_partitions, _context(), request)
    assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST]


def test_hidden_topics_are_in_the_order_of_kafkas_hash_sets() -> None:
    """P-32: behind the others; the refusals are kept for the audit log in the order of the request."""
    context = _context()
    acls = {bytes(16): Acl(TOPIC, "a", LITERAL, "User:ANONYMOUS", "*", DESCRIBE, ALLOW)}
    context.services = context.services.replaced(authorizer=StandardAuthorizer(lambda: acls, frozenset(), False))
    names = [f"hidden-{number * 7 % 200}" for number in range(200)]
    found = [name for name, _ in _page(context, *names, "a")[0]]
    assert found == ["a", *hash_order(names)]
    # The beginning of a HashSet of the descriptions in Java.
    assert found[1:6] == ["hidden-182", "hidden-40", "hidden-183", "hidden-184", "hidden-185"]
    assert context.refusals == [(DESCRIBE, TOPIC, name) for name in names[:REFUSALS_MAX]]
