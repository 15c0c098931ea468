"""CreateTopics: P-143 to P-147. The rules themselves are tested with controller/metadata; here what a client sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pykbroker.config.descriptions import ConfigEntry, ConfigViews
from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.image import Acl
from pykbroker.handlers.create_topics import handle_create_topics
from pykbroker.protocol.acl_codes import ALLOW, CREATE, LITERAL, TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pykbroker.protocol.uuids import METADATA_TOPIC_ID, ZERO_UUID
from pykbroker.requests.context import RequestContext
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.support.admin import answer, make_context
from tests.support.services import Services

if TYPE_CHECKING:
    from collections.abc import Mapping


def _topic(
    name: str, partitions: int = 1, factor: int = 1, configs: dict[str, str | None] | None = None, **rest: Any
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        **rest,
    )


def _create(
    context: RequestContext[Services], *topics: CreatableTopic, validate_only: bool = False
) -> CreateTopicsResponse:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    response: CreateTopicsResponse = answer(handle_create_topics, context, request)
    return response


def _assigned(*assignments: tuple[int, list[int]]) -> list[CreatableReplicaAssignment]:
    return [CreatableReplicaAssignment(partition_index=number, broker_ids=ids) for number, ids in assignments]


def test_a_created_topic_is_there_with_its_own_id() -> None:
    """P-33, P-147."""
    context = make_context(7)
    first, second = _create(context, _topic("a", 3), _topic("b", -1, -1)).topics
    assert (first.error_code, first.error_message, first.num_partitions, first.replication_factor) == (0, None, 3, 1)
    assert second.num_partitions == 1
    assert len({first.topic_id, second.topic_id, ZERO_UUID, METADATA_TOPIC_ID}) == 4
    image = context.services.metadata.image
    assert image.topics_by_name["a"].topic_id == first.topic_id
    assert len(image.topics_by_name["a"].partitions) == 3


def test_the_answer_has_all_configs_from_version_5() -> None:
    """P-147, P-152: its own ones as given with source 1, others from the broker with theirs."""
    context = make_context(5, properties={"log.segment.bytes": "2097152", "log.roll.hours": "2"})
    (result,) = _create(context, _topic("a", configs={"retention.ms": "007"})).topics
    assert result.configs is not None
    shown = {config.name: (config.value, config.config_source) for config in result.configs}
    assert shown["retention.ms"] == ("007", 1)
    assert shown["segment.bytes"] == ("2097152", 4)
    assert shown["segment.ms"] == ("7200000", 4)
    assert shown["max.message.bytes"] == ("1048588", 5)
    assert len(shown) == 33
    assert not _create(make_context(4), _topic("a")).topics[0].configs


def test_topics_with_the_same_settings_are_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may create a thousand topics, each with 33 configs in the answer."""
    described: list[dict[str, str | None]] = []
    describe = ConfigViews.created_topic

    def counted(views: ConfigViews, settings: Mapping[str, str]) -> list[ConfigEntry]:
        described.append(dict(settings))
        return describe(views, settings)

    monkeypatch.setattr(ConfigViews, "created_topic", counted)
    own: dict[str, str | None] = {"retention.ms": "007"}
    results = _create(
        make_context(7), _topic("a"), _topic("b", configs=own), _topic("c"), _topic("d", configs=own)
    ).topics
    assert described == [{}, own]
    assert [
        [config.value for config in result.configs or () if config.name == "retention.ms"] for result in results
    ] == [
        ["604800000"],
        ["007"],
        ["604800000"],
        ["007"],
    ]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "ä", "x" * 250])
def test_names_that_cannot_be(name: str) -> None:
    """P-143."""
    (result,) = _create(make_context(7), _topic(name)).topics
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result.error_message


def test_names_that_collide() -> None:
    """P-143: metrics cannot tell "." from "_"."""
    context = make_context(7)
    _create(context, _topic("a.b"))
    assert _create(context, _topic("a_b")).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(
    ("partitions", "factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 2, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_counts_that_cannot_be(partitions: int, factor: int, code: ErrorCode) -> None:
    """P-144."""
    assert _create(make_context(7), _topic("a", partitions, factor)).topics[0].error_code == code


def test_an_existing_topic() -> None:
    """P-144."""
    context = make_context(7)
    _create(context, _topic("a"))
    assert _create(context, _topic("a")).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (_topic("a", 1, -1, assignments=_assigned((0, [1]))), ErrorCode.INVALID_REQUEST),
        (_topic("a", -1, 1, assignments=_assigned((0, [1]))), ErrorCode.INVALID_REQUEST),
        (_topic("a", -1, -1, assignments=_assigned((1, [1]))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (_topic("a", -1, -1, assignments=_assigned((0, [1, 1]))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (_topic("a", -1, -1, assignments=_assigned((0, [9]))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (_topic("a", -1, -1, assignments=_assigned((1, [1]), (0, [1]))), ErrorCode.NONE),
    ],
)
def test_manual_assignments(topic: CreatableTopic, code: ErrorCode) -> None:
    """P-145."""
    assert _create(make_context(7), topic).topics[0].error_code == code


def test_one_bad_topic_does_not_hinder_the_others() -> None:
    """P-146."""
    context = make_context(7)
    response = _create(
        context,
        _topic("twice"),
        _topic("good"),
        _topic("twice"),
        _topic("unknown-config", configs={"retention.sm": "1"}),
        _topic("bad-config", configs={"retention.ms": "soon"}),
        _topic("null-config", configs={"retention.ms": None}),
        _topic("__cluster_metadata"),
    )
    codes = {result.name: result.error_code for result in response.topics}
    assert codes == {
        "twice": ErrorCode.INVALID_REQUEST,
        "good": ErrorCode.NONE,
        "unknown-config": ErrorCode.INVALID_CONFIG,
        "bad-config": ErrorCode.INVALID_CONFIG,
        "null-config": ErrorCode.INVALID_CONFIG,
        "__cluster_metadata": ErrorCode.INVALID_REQUEST,
    }
    assert set(context.services.metadata.image.topics_by_name) == {"good"}
    messages = {result.name: result.error_message for result in response.topics}
    assert messages["unknown-config"] == "Unknown topic config name: retention.sm"
    assert messages["bad-config"] == "Invalid value soon for configuration retention.ms: Not a number of type LONG"


def test_validate_only_checks_all_and_writes_nothing() -> None:
    """P-146."""
    context = make_context(7)
    good, bad = _create(context, _topic("a"), _topic("b", 0), validate_only=True).topics
    assert (good.error_code, bad.error_code) == (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS)
    assert good.num_partitions == 1
    assert not context.services.metadata.image.topics_by_name


def test_nothing_is_throttled() -> None:
    """P-159: without a quota of controller changes there is neither its error nor a time to wait."""
    response = _create(make_context(6), _topic("a"))
    assert (response.throttle_time_ms, response.topics[0].error_code) == (0, ErrorCode.NONE)


def test_a_refused_request_is_told_for_every_topic() -> None:
    context = make_context(7)
    context.services.controller.failure = CommandRefused(ErrorCode.REQUEST_TIMED_OUT, "too late")  # type: ignore[attr-defined]
    results = _create(context, _topic("a"), _topic("b")).topics
    assert [(result.name, result.error_code) for result in results] == [
        ("a", ErrorCode.REQUEST_TIMED_OUT),
        ("b", ErrorCode.REQUEST_TIMED_OUT),
    ]


def test_refused_names_come_last_in_the_order_of_hash_sets() -> None:
    """P-146: in the order of a HashSet of all names, and those that came twice before them in that of their own."""
    context = make_context(7)
    acls = {bytes(16): Acl(TOPIC, "z", LITERAL, context.connection.principal, "*", CREATE, ALLOW)}
    context.services = context.services.replaced(authorizer=StandardAuthorizer(lambda: acls, frozenset(), False))
    refused = [f"t{number}" for number in range(20)]
    names = [*refused, "y", "__cluster_metadata", "x", "z", "x", "y"]
    results = _create(context, *map(_topic, names)).topics
    # Java's: new HashSet<>(), then add() for each name.
    numbers = (10, 12, 11, 14, 13, 16, 15, 18, 17, 0, 1, 19, 2, 3)
    in_order = [*refused[4:10], "__cluster_metadata", *(f"t{number}" for number in numbers)]
    assert [result.name for result in results] == ["z", "x", "y", *in_order]
    assert [result.error_code for result in results] == [
        ErrorCode.NONE,
        *[ErrorCode.INVALID_REQUEST] * 2,
        *(
            ErrorCode.INVALID_REQUEST if name == "__cluster_metadata" else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            for name in in_order
        ),
    ]
