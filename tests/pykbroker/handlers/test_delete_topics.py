"""DeleteTopics: P-148, and P-33 for what follows it."""

from __future__ import annotations

import pytest

from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.image import Acl
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.handlers.delete_topics import handle_delete_topics
from pykbroker.protocol.acl_codes import ALLOW, DELETE, LITERAL, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker.requests.context import RequestContext
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.support.admin import call, make_context, make_services
from tests.support.services import Services


def _context(version: int, properties: dict[str, str] | None = None) -> RequestContext[Services]:
    services = make_services(properties)
    services.controller.submit_now(CreateTopics([NewTopic("a"), NewTopic("b")]))  # type: ignore[attr-defined]
    return make_context(version, services=services)


def test_by_name_and_by_id() -> None:
    """P-148."""
    context = _context(6)
    image = context.services.metadata.image
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(name="a"),
            DeleteTopicState(topic_id=image.topics_by_name["b"].topic_id),
            DeleteTopicState(name="nope"),
            DeleteTopicState(topic_id=b"x" * 16),
            DeleteTopicState(name="both", topic_id=b"y" * 16),
        ],
        timeout_ms=1000,
    )
    results = call(handle_delete_topics, context, request).responses
    assert {(result.name, result.error_code) for result in results} == {
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.NONE),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ("both", ErrorCode.INVALID_REQUEST),
    }
    assert not context.services.metadata.image.topics_by_name


def test_each_of_those_that_name_nothing_or_too_much_is_answered() -> None:
    """P-148: what is named twice is answered once, what is not named as it should be as often as it comes."""
    both = DeleteTopicState(name="b", topic_id=b"y" * 16)
    topics = [
        DeleteTopicState(),
        DeleteTopicState(),
        DeleteTopicState(name="a"),
        DeleteTopicState(name="a"),
        both,
        both,
    ]
    results = call(handle_delete_topics, _context(6), DeleteTopicsRequest(topics=topics, timeout_ms=1000)).responses
    assert sorted(str(result.name) for result in results) == ["None", "None", "a", "b", "b"]
    assert {result.error_code for result in results} == {ErrorCode.INVALID_REQUEST}


def test_an_id_beside_a_name_that_comes_twice_is_deleted() -> None:
    """P-148: the name alone is refused; the id had no result, and its topic stayed."""
    context = _context(6)
    topic_id = context.services.metadata.image.topics_by_name["a"].topic_id
    topics = [DeleteTopicState(name="a"), DeleteTopicState(name="a"), DeleteTopicState(topic_id=topic_id)]
    results = call(handle_delete_topics, context, DeleteTopicsRequest(topics=topics, timeout_ms=1000)).responses
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert "a" not in context.services.metadata.image.topics_by_name


def test_a_deletion_that_fails_as_a_whole_has_a_result_for_each_topic() -> None:
    """P-148: also for those that the client may not delete."""
    context = _context(6)
    acls = {bytes(16): Acl(TOPIC, "a", LITERAL, context.connection.principal, "*", DELETE, ALLOW)}
    context.services = context.services.replaced(authorizer=StandardAuthorizer(lambda: acls, frozenset(), False))
    failure = CommandRefused(ErrorCode.REQUEST_TIMED_OUT, "The request timed out.")
    context.services.controller.failure = failure  # type: ignore[attr-defined]
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="a"), DeleteTopicState(name="b")], timeout_ms=1000)
    results = call(handle_delete_topics, context, request).responses
    assert [(result.name, result.error_code, result.error_message) for result in results] == [
        ("a", ErrorCode.REQUEST_TIMED_OUT, None),
        ("b", ErrorCode.REQUEST_TIMED_OUT, None),
    ]


def test_a_topic_made_again_has_another_id() -> None:
    """P-33."""
    context = _context(5)
    before = context.services.metadata.image.topics_by_name["a"].topic_id
    call(handle_delete_topics, context, DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000))
    context.services.controller.submit_now(CreateTopics([NewTopic("a")]))  # type: ignore[attr-defined]
    assert context.services.metadata.image.topics_by_name["a"].topic_id != before


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_deletion_can_be_disabled(version: int, code: ErrorCode) -> None:
    """P-148."""
    context = _context(version, {"delete.topic.enable": "false"})
    results = call(handle_delete_topics, context, DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000)).responses
    assert [(result.name, result.error_code) for result in results] == [("a", code)]
    assert "a" in context.services.metadata.image.topics_by_name
