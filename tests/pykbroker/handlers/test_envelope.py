"""Envelope: a forwarded request is served as the client's own; what is wrong with the Envelope is said of it alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio

from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.image import Acl
from pykbroker.errors import CloseConnection, KafkaError
from pykbroker.handlers.envelope import handle_envelope
from pykbroker.protocol.acl_codes import ALLOW, CREATE, LITERAL, TOPIC
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pykbroker.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from pykbroker.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from pykbroker.protocol.messages.metadata import MetadataRequest
from pykbroker.requests.context import RequestContext
from pykbroker.requests.invocation import handlers_of
from pykbroker.security.connection_info import ListenerKind
from pykbroker.security.principal_data import address_to_bytes, principal_to_bytes
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.support.admin import call, make_context, make_services
from tests.support.services import Services

CREATE_T = CreateTopicsRequest(
    topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)], timeout_ms=1000
)


def framed(request: Any, version: int) -> bytes:
    header: bytes = request.KEY.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\x2a\0\4test"
    return header + (b"\0" if version in request.FLEXIBLE_VERSIONS else b"") + encode(request, version)


def envelope(frame: bytes, principal: bytes | None = None, address: bytes = bytes((127, 0, 0, 1))) -> EnvelopeRequest:
    return EnvelopeRequest(
        request_data=frame,
        request_principal=principal_to_bytes("User:alice") if principal is None else principal,
        client_host_address=address,
    )


def at_controller(services: Services | None = None) -> RequestContext[Services]:
    context = make_context(services=services, api_key=ApiKey.ENVELOPE, listener_name="CONTROLLER")
    context.connection.listener_kind = ListenerKind.CONTROLLER
    return context


def test_the_answer_comes_back_with_the_clients_header() -> None:
    context = at_controller()
    response = call(handle_envelope, context, envelope(framed(CREATE_T, 7)))
    assert isinstance(response, EnvelopeResponse)
    assert response.error_code == ErrorCode.NONE
    data = bytes(response.response_data or b"")
    assert data[:5] == b"\0\0\0\x2a\0"
    created = decode(CreateTopicsResponse, 7, data[5:])
    assert [(topic.name, topic.error_code) for topic in created.topics] == [("t", 0)]
    assert "t" in context.services.metadata.image.topics_by_name


async def test_a_large_request_is_decoded_and_its_response_encoded_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are in the Envelope as bytes, of which the codec of other requests knows nothing."""
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    count = 1000
    turns: dict[bool, int] = {False: 0, True: 0}
    is_handled = False

    async def handle(context: Any, request: CreateTopicsRequest) -> CreateTopicsResponse:
        nonlocal is_handled
        is_handled = True
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=topic.name) for topic in request.topics])

    async def other() -> None:
        while True:
            turns[is_handled] += 1
            await trio.lowlevel.checkpoint()

    monkeypatch.setitem(handlers_of[ListenerKind.CONTROLLER], ApiKey.CREATE_TOPICS, (CreateTopicsRequest, handle))
    request = CreateTopicsRequest(topics=[CreatableTopic(name=f"t{n}") for n in range(count)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        response = await handle_envelope(at_controller(), envelope(framed(request, 7)))
        nursery.cancel_scope.cancel()
    assert len(decode(CreateTopicsResponse, 7, bytes(response.response_data or b"")[5:]).topics) == count
    assert min(turns.values()) > 10


def with_acls(acls: Sequence[Acl]) -> Services:
    services = make_services()
    by_id = {bytes(15) + bytes([number]): acl for number, acl in enumerate(acls)}
    return services.replaced(authorizer=StandardAuthorizer(lambda: by_id, frozenset({"User:ANONYMOUS"}), False))


@pytest.mark.parametrize(
    ("principal", "address", "expected"),
    [
        ("User:alice", "10.1.2.3", ErrorCode.NONE),
        ("User:bob", "10.1.2.3", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("User:alice", "10.1.2.4", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("User:alice", "::ffff:10.1.2.3", ErrorCode.NONE),
    ],
)
def test_it_is_judged_by_the_clients_name_and_address(principal: str, address: str, expected: ErrorCode) -> None:
    """The broker that forwards may do everything; its client may not."""
    services = with_acls([Acl(TOPIC, "t", LITERAL, "User:alice", "10.1.2.3", CREATE, ALLOW)])
    request = envelope(framed(CREATE_T, 7), principal_to_bytes(principal), address_to_bytes(address))
    response = call(handle_envelope, at_controller(services), request)
    (topic,) = decode(CreateTopicsResponse, 7, bytes(response.response_data)[5:]).topics
    assert topic.error_code == expected


def test_who_is_no_node_of_the_cluster_may_not_forward() -> None:
    context = at_controller(with_acls([]))
    context.connection.principal = "User:mallory"
    with pytest.raises(KafkaError) as failure:
        call(handle_envelope, context, envelope(framed(CREATE_T, 7)))
    assert failure.value.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (envelope(framed(CREATE_T, 7), b""), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (envelope(framed(CREATE_T, 7), b"\0\1\5User\2a\0\0"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (envelope(framed(CREATE_T, 7), b"\0\0\5Us"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (envelope(framed(CREATE_T, 7), address=b"abc"), ErrorCode.INVALID_REQUEST),
        (envelope(framed(MetadataRequest(), 9)), ErrorCode.INVALID_REQUEST),
        (envelope(framed(envelope(b""), 0)), ErrorCode.INVALID_REQUEST),
        (envelope(b"\0\x13\0\7"), ErrorCode.UNSUPPORTED_VERSION),
        (envelope(b"\3\xe7" + framed(CREATE_T, 7)[2:]), ErrorCode.UNSUPPORTED_VERSION),
        (envelope(framed(CREATE_T, 7)[:2] + b"\0\x63" + framed(CREATE_T, 7)[4:]), ErrorCode.UNSUPPORTED_VERSION),
        (envelope(framed(CREATE_T, 7)[:-3]), ErrorCode.UNSUPPORTED_VERSION),
    ],
    ids=[
        "no principal",
        "principal of another version",
        "principal cut off",
        "address",
        "an API that is not forwarded",
        "an Envelope in an Envelope",
        "no header",
        "unknown API",
        "unknown version",
        "request cut off",
    ],
)
def test_errors_of_the_envelope(request_: EnvelopeRequest, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as failure:
        call(handle_envelope, at_controller(), request_)
    assert failure.value.error_code == code


def test_an_answer_that_this_is_not_the_controller_is_for_the_broker() -> None:
    context = at_controller()
    controller: Any = context.services.controller
    controller.failure = CommandRefused(ErrorCode.NOT_CONTROLLER, "not me")
    response = call(handle_envelope, context, envelope(framed(CREATE_T, 7)))
    assert (response.error_code, response.response_data) == (ErrorCode.NOT_CONTROLLER, None)


def test_a_quorum_that_others_lead_is_described_by_the_leader() -> None:
    context = at_controller()
    controller: Any = context.services.controller
    controller.is_leader = False
    topic = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
    response = call(handle_envelope, context, envelope(framed(DescribeQuorumRequest(topics=[topic]), 2)))
    assert response.error_code == ErrorCode.NOT_CONTROLLER


def test_a_defect_behind_an_envelope_is_answered_to_the_client() -> None:
    """With the response of its API, in its header; the broker that forwards goes on."""
    context = at_controller()
    controller: Any = context.services.controller
    controller.failure = RuntimeError("a defect")
    response = call(handle_envelope, context, envelope(framed(CREATE_T, 7)))
    assert response.error_code == ErrorCode.NONE
    (topic,) = decode(CreateTopicsResponse, 7, bytes(response.response_data)[5:]).topics
    assert (topic.name, topic.error_code) == ("t", ErrorCode.UNKNOWN_SERVER_ERROR)


def test_a_request_that_ends_connections_ends_that_of_the_broker() -> None:
    context = at_controller()
    controller: Any = context.services.controller
    controller.failure = CloseConnection("malformed")
    with pytest.raises(CloseConnection, match="malformed"):
        call(handle_envelope, context, envelope(framed(CREATE_T, 7)))
