"""Requests to the active controller that fail on the way, and those of clients that may not send them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
import trio

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.controller.metadata.commands import NO_ERROR, ApiError, CommandRefused
from pykbroker.controller.metadata.image import BROKER_RESOURCE, ClusterImage
from pykbroker.errors import CloseConnection, CoordinatorError, KafkaError
from pykbroker.groups.streams.configured import InternalTopic
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import TEXTS
from pykbroker.requests.auto_topic_creation import create_missing_topics, create_request
from pykbroker.requests.background_tasks import BackgroundTasks
from pykbroker.requests.config_alteration import check_at_broker, check_tls
from pykbroker.requests.controller_calls import forwarded, quorum_of
from pykbroker.requests.error_responses import _items
from pykbroker.requests.share_requests import Acknowledgements
from pykbroker.requests.share_state_calls import _fields_of, _outcomes
from pykbroker.requests.streams_topics import _create
from pykbroker.share_partitions.acknowledgement import RENEW, AcknowledgedBatch
from pykbroker.share_partitions.sessions import TopicIdPartition
from pykbroker.share_state.state import Refusal
from tests.support.admin import beside_tasks

TIMED_OUT = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The active controller did not answer in time.")
OTHER_VERSION = CloseConnection("the active controller does not have this version of the request")
REFUSED = CommandRefused(ErrorCode.POLICY_VIOLATION, "no more topics")


class Channel:
    """To an active controller in another process, which fails."""

    is_local = False

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def forward(self, connection: Any, frame: bytes) -> Any:
        await trio.lowlevel.checkpoint()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Controller:
    """The active controller in this process, which refuses all."""

    async def submit(self, command: Any, timeout_ms: int) -> Any:
        await trio.lowlevel.checkpoint()
        raise REFUSED


def context(failure: Exception, **services: Any) -> Any:
    """Of a Metadata request, at a broker whose requests to the active controller fail."""
    channel = None if failure is REFUSED else Channel(failure)
    return SimpleNamespace(
        services=SimpleNamespace(
            channel=channel,
            controller=Controller(),
            background=BackgroundTasks(),
            producer_ids=SimpleNamespace(run=trio.sleep_forever),
            config=BrokerConfig.from_properties({}),
            metadata=SimpleNamespace(expected_broker_count=1),
            **services,
        ),
        connection=None,
        correlation_id=1,
        client_id="client",
        api_key=ApiKey.METADATA,
        api_version=12,
        quota=None,
    )


@pytest.mark.parametrize("failure", [TIMED_OUT, OTHER_VERSION, REFUSED])
async def test_a_topic_that_cannot_be_created_for_a_metadata_request_is_unknown(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """P-23: as in Kafka's DefaultAutoTopicCreationManager the client gets its answer, also from a broker that is newer
    than the active controller."""
    asked = context(failure)
    codes = await beside_tasks(asked.services, create_missing_topics, asked, ["t", "not/a/name", "__cluster_metadata"])
    assert codes == {
        "t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "not/a/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "__cluster_metadata": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert "topics t could not be created:" in caplog.text


@pytest.mark.parametrize(("text", "shown"), [("no more topics", "no more topics"), (None, "POLICY_VIOLATION")])
async def test_the_log_names_the_error_of_a_topic_that_the_controller_refuses(
    text: str | None, shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The response of an active controller has no text for some errors."""
    asked = context(REFUSED)

    async def submit(command: Any, timeout_ms: int) -> list[Any]:
        return [SimpleNamespace(name="t", error=ApiError(ErrorCode.POLICY_VIOLATION, text))]

    asked.services.controller.submit = submit
    await beside_tasks(asked.services, create_missing_topics, asked, ["t"])
    assert caplog.messages == [f"topic t could not be created: {shown}"]


async def test_a_metadata_request_does_not_wait_for_a_controller_that_is_away() -> None:
    """P-23: its client is answered after a second, and the topic is created when there is a controller."""
    asked = context(REFUSED)
    created: list[str] = []

    async def submit(command: Any, timeout_ms: int) -> list[Any]:
        await trio.sleep(20)
        created.append(command.topics[0].name)
        return []

    asked.services.controller.submit = submit

    async def ask() -> None:
        before = trio.current_time()
        codes = await create_missing_topics(asked, ["late"])
        assert codes == {"late": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert trio.current_time() - before == pytest.approx(1.0)
        assert not created
        await trio.sleep(20)
        assert created == ["late"]

    await beside_tasks(asked.services, ask)


async def test_unexpected_errors_behind_a_request_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    asked = context(REFUSED)

    async def submit(command: Any, timeout_ms: int) -> list[Any]:
        raise ValueError("a defect")

    asked.services.controller.submit = submit
    codes = await beside_tasks(asked.services, create_missing_topics, asked, ["t"])
    assert codes == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert "a background task of a request failed with an unexpected error" in caplog.text
    assert "ValueError: a defect" in caplog.text


@pytest.mark.parametrize(
    ("failure", "text"),
    [(TIMED_OUT, str(TIMED_OUT)), (OTHER_VERSION, str(OTHER_VERSION)), (REFUSED, "no more topics")],
)
async def test_internal_topics_that_cannot_be_created_are_named_with_the_reason(
    failure: Exception, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-1071: members of the group get it in the detail of their status."""
    ended: list[tuple[list[str], dict[str, str], int, int]] = []
    creation = SimpleNamespace(end=lambda *arguments: ended.append(arguments))
    groups = SimpleNamespace(streams=SimpleNamespace(creation=creation))
    clock = SimpleNamespace(now_ms=lambda: 77)
    asked = context(failure, groups=groups, clock=clock)
    await _create(asked, [InternalTopic("store-changelog", 2, 1, {})], 5000)
    assert ended == [(["store-changelog"], {"store-changelog": text}, 77, 5000)]
    assert f"internal topic store-changelog of a Streams group could not be created: {text}" in caplog.text


async def test_a_controller_that_is_here_by_now_gets_no_forwarded_request() -> None:
    asked = context(TIMED_OUT)
    asked.services.channel.answer = None
    assert await forwarded(asked, create_request([], 1000)) is None


def test_a_node_that_is_alone_has_no_quorum() -> None:
    alone: Any = SimpleNamespace(services=SimpleNamespace(peers=None))
    with pytest.raises(CloseConnection, match="takes no part in a quorum"):
        quorum_of(alone)


def test_what_is_neither_a_message_nor_a_list_has_no_elements() -> None:
    """An error response repeats the elements of the first array of a request."""
    assert _items(5, 0) == ()
    assert _items([1, 2], 0) == [1, 2]


# Certificates


class Tls:
    """Refuses one key store."""

    def refusal_of_change(self, config: BrokerConfig) -> str | None:
        given = config.listener_property("X", "ssl.keystore.location")
        return "the key store cannot be read" if given == "/bad" else None


def tls_services(tls: Any) -> Any:
    return SimpleNamespace(
        tls=tls,
        node_id=1,
        config=BrokerConfig.from_properties(
            {"listeners": "X://:9092", "listener.security.protocol.map": "X:PLAINTEXT"}
        ),
        metadata=SimpleNamespace(image=ClusterImage()),
    )


@pytest.mark.parametrize("name", ["1", ""])
def test_a_key_store_that_cannot_be_used_is_refused(name: str) -> None:
    """P-245: before it is written, for this broker as for all."""
    key = "listener.name.x.ssl.keystore.location"
    assert check_tls(tls_services(None), {key: "/bad"}, name) == NO_ERROR
    assert check_tls(tls_services(Tls()), {key: "/good"}, name) == NO_ERROR
    error = check_tls(tls_services(Tls()), {key: "/bad"}, name)
    assert error == (ErrorCode.INVALID_REQUEST, "the key store cannot be read")


@pytest.mark.parametrize(("location", "is_refused"), [("/bad", True), ("/good", False)])
def test_settings_of_tls_are_checked_after_the_others(location: str, is_refused: bool) -> None:
    asked: Any = SimpleNamespace(services=tls_services(Tls()))
    resource: Any = SimpleNamespace(resource_type=BROKER_RESOURCE, resource_name="1")
    error = check_at_broker(asked, resource, lambda: {"listener.name.x.ssl.keystore.location": location})
    assert (error is not None) is is_refused


# The state of share partitions


async def test_share_state_is_for_brokers_alone() -> None:
    partition = SimpleNamespace(partition=3)
    topics: Any = [SimpleNamespace(topic_id=b"t" * 16, partitions=[partition])]
    request: Any = SimpleNamespace(group_id="group", topics=topics)
    asked: Any = SimpleNamespace(authorize_cluster=lambda operation: False)

    async def call(*_: Any) -> Any:
        raise AssertionError("not asked")

    failed = Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert await _outcomes(asked, request, call, False) == [(b"t" * 16, [(3, failed)])]
    text = TEXTS[ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert _fields_of(failed, None) == {"error_code": failed.code, "error_message": text}


async def test_texts_of_outcomes_without_a_state() -> None:
    topics: Any = [SimpleNamespace(topic_id=b"t" * 16, partitions=[SimpleNamespace(partition=3)])]
    request: Any = SimpleNamespace(group_id="group", topics=topics)
    services = SimpleNamespace(share_state=None)
    api_key = ApiKey.READ_SHARE_GROUP_STATE
    asked: Any = SimpleNamespace(authorize_cluster=lambda operation: True, services=services, api_key=api_key)

    async def call(*_: Any) -> Any:
        raise CoordinatorError(ErrorCode.NOT_COORDINATOR)

    ((_, [(_, outcome)]),) = await _outcomes(asked, request, call, False)
    fields = _fields_of(outcome, None)
    assert fields["error_code"] is ErrorCode.NOT_COORDINATOR
    assert fields["error_message"] == f"Unable to read share group state: {TEXTS[ErrorCode.NOT_COORDINATOR]}"
    assert _fields_of(None, None) == {"error_code": ErrorCode.NONE, "error_message": None}


# Share requests


def acknowledgements(*, is_renew: bool, partitions: tuple[int, ...] = (0,)) -> Acknowledgements:
    """Of a request whose version knows RENEW, about a topic with these partitions."""
    found = Acknowledgements.__new__(Acknowledgements)
    topic = SimpleNamespace(partitions=dict.fromkeys(partitions))
    metadata = SimpleNamespace(topic=lambda name: topic if name == "t" else None)
    found._context = cast("Any", SimpleNamespace(services=SimpleNamespace(metadata=metadata)))
    found._is_renew = is_renew
    found._highest_type = RENEW
    return found


@pytest.mark.parametrize(
    ("batches", "is_renew", "is_well_formed"),
    [
        ([(0, 4, [1])], False, True),
        ([(0, 1, [1, 2]), (2, 2, [1])], False, True),
        # Offsets that go backwards, in a batch and from one to the next; no type.
        ([(4, 0, [1])], False, False),
        ([(3, 4, [1]), (0, 1, [1])], False, False),
        ([(0, 4, [])], False, False),
        # Neither one type nor one for each offset.
        ([(0, 4, [1, 1])], False, False),
        # Types that do not exist, and RENEW in a request that is not one of renewals.
        ([(0, 0, [-1])], False, False),
        ([(0, 0, [RENEW + 1])], True, False),
        ([(0, 0, [RENEW])], False, False),
        ([(0, 0, [RENEW])], True, True),
    ],
)
def test_batches_of_acknowledgements(batches: Any, is_renew: bool, is_well_formed: bool) -> None:
    """KIP-932, as in Kafka's KafkaApis.validateAcknowledgementBatches."""
    acknowledged = [AcknowledgedBatch(*batch) for batch in batches]
    place = TopicIdPartition(bytes(16), 0)
    error = acknowledgements(is_renew=is_renew)._error_of("t", place, acknowledged, frozenset())
    assert error is (ErrorCode.NONE if is_well_formed else ErrorCode.INVALID_REQUEST)


def test_acknowledgements_of_what_the_client_may_not_read_or_does_not_exist() -> None:
    tested = acknowledgements(is_renew=False)
    batch = [AcknowledgedBatch(0, 0, [1])]
    cases: list[tuple[str, int, frozenset[str], ErrorCode]] = [
        ("t", 0, frozenset(("t",)), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("t", 5, frozenset(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("gone", 0, frozenset(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    for name, number, refused, error in cases:
        assert tested._error_of(name, TopicIdPartition(bytes(16), number), batch, refused) is error


async def test_acknowledgements_of_a_topic_id_that_no_topic_has() -> None:
    tested = acknowledgements(is_renew=False)
    tested._known, tested._outcomes = {}, {}
    tested._context = cast(
        "Any",
        SimpleNamespace(
            services=SimpleNamespace(metadata=SimpleNamespace(topic_by_id=lambda topic_id: None)),
            refused_in_turns=AsyncMock(return_value=()),
        ),
    )
    asked = SimpleNamespace(partition_index=3, acknowledgement_batches=[])
    await tested.begin([SimpleNamespace(topic_id=b"x" * 16, partitions=[asked])])
    assert tested._known[TopicIdPartition(b"x" * 16, 3)].error is ErrorCode.UNKNOWN_TOPIC_ID
