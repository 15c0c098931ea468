"""Requests of a SASL login in every order: the replies and closed connections are those of Apache Kafka.

Each case is a script of frames for one connection. The last one ends it, or finds that it goes on.
"""

from __future__ import annotations

import struct
from typing import Final

import pytest

from interop_tests.brokers import BrokerProcess
from interop_tests.conftest import StartBroker
from interop_tests.wire import (
    API_VERSIONS,
    METADATA,
    Connection,
    ConnectionClosed,
    compact_string,
    request_header,
    string,
)

pytestmark = [
    pytest.mark.area("authentication"),
    pytest.mark.client("raw frames"),
    pytest.mark.own_broker,
]

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED = 33, 34, 58
CORRELATION_ID: Final = struct.pack(">i", 7)


def handshake(version: int, mechanism: str = "PLAIN") -> bytes:
    return request_header(SASL_HANDSHAKE, version) + string(mechanism)


def authenticate(token: bytes, version: int = 1) -> bytes:
    return request_header(SASL_AUTHENTICATE, version) + struct.pack(">i", len(token)) + token


RIGHT, WRONG = b"\0alice\0secret", b"\0alice\0wrong"
VERSIONS = request_header(API_VERSIONS, 0)
VERSIONS_OF_THE_FUTURE = request_header(API_VERSIONS, 99, flexible=True) + b"\1\1\0"
METADATA_OF_ONE = request_header(METADATA, 4) + struct.pack(">i", 1) + string("topic") + b"\0"
PRODUCE_ACKS_0 = request_header(0, 3) + string(None) + struct.pack(">hii", 0, 1000, 0)
PRODUCE_ACKS_1 = request_header(0, 3) + string(None) + struct.pack(">hii", 1, 1000, 0)
HEARTBEAT = request_header(12, 0) + string("group") + struct.pack(">i", 1) + string("member")
LIST_GROUPS = request_header(16, 0)
CREATE_TOPICS = (
    request_header(19, 2) + struct.pack(">i", 1) + string("topic") + struct.pack(">ihiii?", 1, 1, 0, 0, 1000, False)
)
DESCRIBE_CLUSTER = request_header(60, 0, flexible=True) + b"\0\0"
VOTE = request_header(52, 0, flexible=True) + b"\0\1\0"

# In the place of a reply: the connection is closed; some reply to the request; the empty frame after a bare token.
CLOSED: Final = b"closed"
ANY: Final = b"any"
TOKEN_TAKEN: Final = b""


def mechanisms(error: int, *names: str) -> bytes:
    return struct.pack(">hi", error, len(names)) + b"".join(map(string, names))


ILLEGAL = struct.pack(">h", ILLEGAL_SASL_STATE)
HANDSHAKE_ACCEPTED = mechanisms(0, "PLAIN")
TOKEN_ACCEPTED = struct.pack(">hhiq", 0, 0, 0, 0)


def refused(api: str) -> str:
    return f"Unexpected Kafka request of type {api} during SASL authentication."


SCRIPTS: dict[str, list[tuple[bytes, bytes]]] = {
    "a login without a question for versions": [
        (handshake(1), HANDSHAKE_ACCEPTED),
        (authenticate(RIGHT), TOKEN_ACCEPTED),
        (METADATA_OF_ONE, ANY),
    ],
    "a login of old": [
        (VERSIONS, ANY),
        (handshake(0), HANDSHAKE_ACCEPTED),
        (RIGHT, TOKEN_TAKEN),
        (METADATA_OF_ONE, ANY),
    ],
    "Metadata first": [(METADATA_OF_ONE, CLOSED)],
    "SaslAuthenticate first": [(authenticate(RIGHT), CLOSED)],
    "a token first": [(RIGHT, CLOSED)],
    "Metadata after ApiVersions": [(VERSIONS, ANY), (METADATA_OF_ONE, CLOSED)],
    "SaslAuthenticate after ApiVersions": [(VERSIONS, ANY), (authenticate(RIGHT), CLOSED)],
    "ApiVersions twice": [(VERSIONS, ANY), (VERSIONS, CLOSED)],
    "ApiVersions once more in a version that there is": [
        (VERSIONS_OF_THE_FUTURE, ANY),
        (VERSIONS, ANY),
        (handshake(1), HANDSHAKE_ACCEPTED),
    ],
    "ApiVersions once more in a version that there is not": [(VERSIONS, ANY), (VERSIONS_OF_THE_FUTURE, CLOSED)],
    "a handshake of a version that there is not": [(handshake(2), CLOSED)],
    "a mechanism that there is not": [
        (handshake(1, "OTHER"), mechanisms(UNSUPPORTED_SASL_MECHANISM, "PLAIN")),
        (handshake(1), CLOSED),
    ],
    "a mechanism that there is not, asked for in version 0": [
        (handshake(0, "OTHER"), mechanisms(UNSUPPORTED_SASL_MECHANISM, "PLAIN")),
        (handshake(0), CLOSED),
    ],
    "a token after a handshake of version 1": [(handshake(1), HANDSHAKE_ACCEPTED), (RIGHT, CLOSED)],
    "SaslAuthenticate after a handshake of version 0": [
        (handshake(0), HANDSHAKE_ACCEPTED),
        (authenticate(RIGHT), CLOSED),
    ],
    "a handshake after one of version 0": [(handshake(0), HANDSHAKE_ACCEPTED), (handshake(0), CLOSED)],
    "a wrong token after a handshake of version 0": [(handshake(0), HANDSHAKE_ACCEPTED), (WRONG, CLOSED)],
    "SaslAuthenticate of a version that there is not": [
        (handshake(1), HANDSHAKE_ACCEPTED),
        (authenticate(RIGHT, 3), CLOSED),
    ],
    "another request after a wrong password": [
        (handshake(1), HANDSHAKE_ACCEPTED),
        (
            authenticate(WRONG),
            struct.pack(">h", SASL_AUTHENTICATION_FAILED)
            + string("Authentication failed: Invalid username or password")
            + struct.pack(">iq", 0, 0),
        ),
        (authenticate(RIGHT), CLOSED),
    ],
    "a handshake after the login": [
        (handshake(1), HANDSHAKE_ACCEPTED),
        (authenticate(RIGHT), TOKEN_ACCEPTED),
        (handshake(1), mechanisms(ILLEGAL_SASL_STATE)),
        (METADATA_OF_ONE, ANY),
    ],
    "SaslAuthenticate after the login": [
        (handshake(1), HANDSHAKE_ACCEPTED),
        (authenticate(RIGHT), TOKEN_ACCEPTED),
        (
            authenticate(RIGHT),
            ILLEGAL
            + string("SaslAuthenticate request received after successful authentication")
            + struct.pack(">iq", 0, 0),
        ),
        (METADATA_OF_ONE, ANY),
    ],
}

AFTER_A_HANDSHAKE: dict[str, tuple[bytes, bytes]] = {
    "Metadata": (
        METADATA_OF_ONE,
        struct.pack(">ii", 0, 0) + string(None) + struct.pack(">ii", -1, 1) + ILLEGAL + string("topic") + bytes(5),
    ),
    "a handshake": (handshake(1), mechanisms(ILLEGAL_SASL_STATE)),
    "a handshake of version 0": (handshake(0), mechanisms(ILLEGAL_SASL_STATE)),
    "ApiVersions": (VERSIONS, ILLEGAL + struct.pack(">i", 0)),
    "Heartbeat": (HEARTBEAT, ILLEGAL),
    "ListGroups": (LIST_GROUPS, ILLEGAL + struct.pack(">i", 0)),
    "CreateTopics": (
        CREATE_TOPICS,
        struct.pack(">ii", 0, 1) + string("topic") + ILLEGAL + string(refused("CREATE_TOPICS")),
    ),
    "Produce": (PRODUCE_ACKS_1, struct.pack(">ii", 0, 0)),
    "Produce that waits for no answer": (PRODUCE_ACKS_0, CLOSED),
    "ApiVersions of a version that there is not": (VERSIONS_OF_THE_FUTURE, ILLEGAL + struct.pack(">i", 0)),
    "Metadata of a version that there is not": (request_header(METADATA, 99) + bytes(8), CLOSED),
    "Metadata that ends early": (METADATA_OF_ONE[:-3], CLOSED),
    "an API that there is not": (request_header(9999, 0) + bytes(8), CLOSED),
    "an API of controllers": (VOTE, b"\0" + ILLEGAL + b"\1\0"),
    "DescribeCluster": (
        DESCRIBE_CLUSTER,
        b"\0"
        + bytes(4)
        + ILLEGAL
        + compact_string(refused("DESCRIBE_CLUSTER"))
        + b"\1"
        + struct.pack(">i", -1)
        + b"\1"
        + struct.pack(">i", -(1 << 31))
        + b"\0",
    ),
}


@pytest.fixture(scope="module")
def sasl_broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker("sasl-order", users={"alice": "secret"})


def play(broker: BrokerProcess, script: list[tuple[bytes, bytes]]) -> None:
    with Connection(broker.bootstrap) as connection:
        for number, (request, expected) in enumerate(script):
            try:
                reply = connection.exchange(request)
            except ConnectionClosed:
                reply = CLOSED
            if expected is ANY:
                assert reply.startswith(CORRELATION_ID), number
            elif expected in (CLOSED, TOKEN_TAKEN):
                assert reply == expected, number
            else:
                assert reply == CORRELATION_ID + expected, number


@pytest.mark.parametrize("script", [pytest.param(script, id=what) for what, script in SCRIPTS.items()])
def test_order(script: list[tuple[bytes, bytes]], sasl_broker: BrokerProcess) -> None:
    """A login in some order of requests gets Kafka's replies, and the connection ends where Kafka's does."""
    play(sasl_broker, script)


@pytest.mark.parametrize(
    ("request_", "reply"), [pytest.param(*case, id=what) for what, case in AFTER_A_HANDSHAKE.items()]
)
def test_another_request_after_a_handshake_of_version_1(
    request_: bytes, reply: bytes, sasl_broker: BrokerProcess
) -> None:
    """A request in the place of SaslAuthenticate is answered ILLEGAL_SASL_STATE, then the connection is closed."""
    script = [(handshake(1), HANDSHAKE_ACCEPTED), (request_, reply)]
    play(sasl_broker, script if reply is CLOSED else [*script, (authenticate(RIGHT), CLOSED)])
