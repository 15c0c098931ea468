"""Requests about delegation tokens: on which connections they are allowed, and what each client sees of the tokens."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.image import Acl
from pykbroker.handlers.create_delegation_token import handle_create_delegation_token
from pykbroker.handlers.describe_delegation_token import handle_describe_delegation_token
from pykbroker.handlers.expire_delegation_token import handle_expire_delegation_token
from pykbroker.handlers.renew_delegation_token import handle_renew_delegation_token
from pykbroker.protocol.acl_codes import (
    ALLOW,
    CREATE_TOKENS,
    DELEGATION_TOKEN,
    DESCRIBE,
    DESCRIBE_TOKENS,
    LITERAL,
    USER,
)
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from pykbroker.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from pykbroker.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from pykbroker.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from pykbroker.security.connection_info import ListenerKind
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.support.admin import answer, call, make_context, make_services

SASL = {
    "listeners": "SASL_PLAINTEXT://:9092",
    "delegation.token.secret.key": "secret",
    "delegation.token.max.lifetime.ms": "1000",
    "delegation.token.expiry.time.ms": "100",
}
HANDLERS = [
    (handle_create_delegation_token, CreateDelegationTokenRequest(), 3),
    (handle_renew_delegation_token, RenewDelegationTokenRequest(), 2),
    (handle_expire_delegation_token, ExpireDelegationTokenRequest(), 2),
    (handle_describe_delegation_token, DescribeDelegationTokenRequest(), 3),
]


class Tokens:
    """A broker with a SASL listener, a clock by hand, and access control entries."""

    def __init__(self, **more: str) -> None:
        self.now = 5000
        self.acls: dict[bytes, Acl] = {}
        authorizer = StandardAuthorizer(lambda: self.acls, frozenset(), False)
        properties = {**SASL, **{key.replace("_", "."): text for key, text in more.items()}}
        self.services = make_services(properties).replaced(clock=self, authorizer=authorizer)

    def now_ms(self) -> int:
        return self.now

    def allow(self, user: str, operation: int, kind: int, name: str) -> None:
        entry = Acl(kind, name, LITERAL, user, "*", operation, ALLOW)
        self.acls = {**self.acls, bytes(15) + bytes([len(self.acls)]): entry}

    def ask(self, who: str, handler: Any, request: Any, version: int = 3, **connection: Any) -> Any:
        context = make_context(version, services=self.services, listener_name="SASL_PLAINTEXT")
        context.connection.principal = who
        for name, value in connection.items():
            setattr(context.connection, name, value)
        return answer(handler, context, request)

    def create(self, who: str = "User:alice", **more: Any) -> Any:
        return self.ask(who, handle_create_delegation_token, CreateDelegationTokenRequest(max_lifetime_ms=-1, **more))

    def seen_by(self, who: str, *owners: str) -> list[str]:
        asked = [DescribeDelegationTokenOwner(principal_type="User", principal_name=owner) for owner in owners]
        request = DescribeDelegationTokenRequest(owners=asked or None)
        return [token.token_id for token in self.ask(who, handle_describe_delegation_token, request).tokens]


class ControllerElsewhere:
    """The channel to an active controller that is another node. It answers every request with one message."""

    is_local = False

    def __init__(self, answer: Any, version: int) -> None:
        self._reply = b"\0\0\0\1\0" + encode(answer, version)
        self.frames: list[bytes] = []

    async def forward(self, connection: Any, frame: bytes) -> bytes:
        self.frames.append(frame)
        return self._reply


@pytest.mark.parametrize(("handler", "request_", "version"), HANDLERS)
def test_connections_that_may_not_ask(handler: Any, request_: Any, version: int) -> None:
    """P-250."""
    world = Tokens()
    response = world.ask("User:alice", handler, request_, version, is_token_authenticated=True)
    assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert getattr(response, "expiry_timestamp_ms", -1) == -1
    response = world.ask("User:alice", handler, request_, version, listener_name="PLAINTEXT")
    assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    response = world.ask("User:alice", handler, request_, version, listener_name="CONTROLLER", is_forwarded=True)
    assert response.error_code != ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.mark.parametrize(("handler", "request_", "version"), HANDLERS)
def test_without_a_secret_there_are_no_tokens(handler: Any, request_: Any, version: int) -> None:
    """P-250."""
    response = Tokens(delegation_token_secret_key="").ask("User:alice", handler, request_, version)
    assert response.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_a_token_from_its_creation_to_its_end() -> None:
    """P-251."""
    world = Tokens()
    created = world.create(renewers=[CreatableRenewers(principal_type="User", principal_name="bob")])
    assert (created.error_code, created.principal_name, created.token_requester_principal_name) == (0, "alice", "alice")
    assert (created.issue_timestamp_ms, created.expiry_timestamp_ms, created.max_timestamp_ms) == (5000, 5100, 6000)
    assert len(created.hmac) == 64
    world.now = 5050
    renewal = RenewDelegationTokenRequest(hmac=created.hmac, renew_period_ms=-1)
    renewed = world.ask("User:bob", handle_renew_delegation_token, renewal, 2)
    assert (renewed.error_code, renewed.expiry_timestamp_ms) == (0, 5150)
    refused = world.ask("User:eve", handle_renew_delegation_token, renewal, 2)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    asked = DescribeDelegationTokenRequest(owners=None)
    (token,) = world.ask("User:bob", handle_describe_delegation_token, asked).tokens
    assert (token.hmac, token.expiry_timestamp, token.renewers[0].principal_name) == (created.hmac, 5150, "bob")
    end = ExpireDelegationTokenRequest(hmac=created.hmac, expiry_time_period_ms=-1)
    assert world.ask("User:alice", handle_expire_delegation_token, end, 2).expiry_timestamp_ms == 5050
    assert world.seen_by("User:alice") == []


def test_renewers_are_users() -> None:
    refused = Tokens().create(renewers=[CreatableRenewers(principal_type="Group", principal_name="g")])
    assert (refused.error_code, refused.max_timestamp_ms) == (ErrorCode.INVALID_PRINCIPAL_TYPE, -1)


def test_a_token_that_cannot_be_stored_names_nobody() -> None:
    """An error of the whole request, as for an owner without a type."""
    world = Tokens()
    world.services.controller.failure = CommandRefused(ErrorCode.REQUEST_TIMED_OUT)  # type: ignore[attr-defined]
    refused = world.create()
    assert (refused.error_code, refused.principal_name, refused.expiry_timestamp_ms) == (
        ErrorCode.REQUEST_TIMED_OUT,
        "ANONYMOUS",
        -1,
    )


def test_a_controller_looks_at_renewers_last() -> None:
    """At a controller's port it is the controller that refuses them, after it has looked for the secret."""
    renewers = [CreatableRenewers(principal_type="Group", principal_name="x")]
    for secret, code in (("secret", ErrorCode.INVALID_PRINCIPAL_TYPE), ("", ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)):
        world = Tokens(delegation_token_secret_key=secret)
        request = CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1)
        kind = ListenerKind.CONTROLLER
        answered = world.ask("User:alice", handle_create_delegation_token, request, listener_kind=kind)
        assert (answered.error_code, answered.issue_timestamp_ms) == (code, 0)


def test_tokens_for_others() -> None:
    """KIP-373: CREATE_TOKENS on the user, who is named with the type of the principal."""
    world = Tokens()
    other = {"owner_principal_type": "User", "owner_principal_name": "bob"}
    refused = world.create(**other)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (refused.principal_name, refused.token_requester_principal_name) == ("bob", "alice")
    world.allow("User:alice", CREATE_TOKENS, USER, "User:bob")
    created = world.create(**other)
    assert created.error_code == 0
    for who in ("User:alice", "User:bob"):
        assert world.seen_by(who) == [created.token_id]
    assert world.create(owner_principal_type="User", owner_principal_name="alice").error_code == 0


def test_an_owner_without_a_type_is_an_unknown_error() -> None:
    """As a Kafka that fails before it knows who asks."""
    refused = Tokens().create(owner_principal_name="bob", owner_principal_type=None)
    assert (refused.error_code, refused.expiry_timestamp_ms) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
    assert (refused.principal_name, refused.token_requester_principal_name) == ("ANONYMOUS", "ANONYMOUS")


def test_tokens_that_a_client_sees() -> None:
    world = Tokens()
    first, second = world.create("User:alice").token_id, world.create("User:bob").token_id
    assert world.seen_by("User:alice") == [first]
    assert world.seen_by("User:carol") == []
    world.allow("User:carol", DESCRIBE, DELEGATION_TOKEN, first)
    assert world.seen_by("User:carol") == [first]
    world.allow("User:carol", DESCRIBE_TOKENS, USER, "User:bob")
    assert world.seen_by("User:carol") == [first, second]
    assert world.seen_by("User:carol", "bob") == [second]
    nobody = DescribeDelegationTokenRequest(owners=[])
    assert world.ask("User:alice", handle_describe_delegation_token, nobody).tokens == []


@pytest.mark.parametrize("version", [1, 2])
def test_older_versions_have_no_requester(version: int) -> None:
    world = Tokens()
    request = CreateDelegationTokenRequest(max_lifetime_ms=-1)
    assert world.ask("User:alice", handle_create_delegation_token, request, version).error_code == 0
    asked = DescribeDelegationTokenRequest(owners=None)
    assert len(world.ask("User:alice", handle_describe_delegation_token, asked, version).tokens) == 1


def test_a_broker_that_is_not_the_controller_hands_on_the_controllers_answer() -> None:
    """KIP-900: the token is made where its record is written."""
    made = CreateDelegationTokenResponse(principal_type="User", principal_name="alice", token_id="id", hmac=b"h")
    world = Tokens()
    channel = ControllerElsewhere(made, 3)
    world.services = world.services.replaced(channel=channel)
    context = make_context(
        3, services=world.services, listener_name="SASL_PLAINTEXT", api_key=ApiKey.CREATE_DELEGATION_TOKEN
    )
    context.connection.principal = "User:alice"

    async def create() -> Any:
        return await handle_create_delegation_token(context, CreateDelegationTokenRequest(max_lifetime_ms=-1))

    created = trio.run(create)
    assert (created.token_id, created.hmac, created.principal_name) == ("id", b"h", "alice")
    assert [frame[:4] for frame in channel.frames] == [bytes([0, ApiKey.CREATE_DELEGATION_TOKEN, 0, 3])]
    assert world.seen_by("User:alice") == []


@pytest.mark.parametrize(
    ("handler", "request_", "made"),
    [
        (
            handle_renew_delegation_token,
            RenewDelegationTokenRequest(hmac=b"h"),
            RenewDelegationTokenResponse(expiry_timestamp_ms=5150),
        ),
        (
            handle_expire_delegation_token,
            ExpireDelegationTokenRequest(hmac=b"h"),
            ExpireDelegationTokenResponse(expiry_timestamp_ms=5050),
        ),
    ],
)
def test_changes_of_tokens_at_a_broker_that_is_not_the_controller(handler: Any, request_: Any, made: Any) -> None:
    """They are the controller's, as the answer is."""
    world = Tokens()
    channel = ControllerElsewhere(made, 2)
    world.services = world.services.replaced(channel=channel)
    context = make_context(
        2, services=world.services, listener_name="SASL_PLAINTEXT", api_key=ApiKey(type(request_).KEY)
    )
    assert call(handler, context, request_) == made
    assert [frame[:4] for frame in channel.frames] == [bytes([0, type(request_).KEY, 0, 2])]


@pytest.mark.parametrize(
    ("handler", "request_"),
    [
        (handle_renew_delegation_token, RenewDelegationTokenRequest(hmac=b"h")),
        (handle_expire_delegation_token, ExpireDelegationTokenRequest(hmac=b"h")),
    ],
)
def test_changes_of_tokens_that_cannot_be_stored(handler: Any, request_: Any) -> None:
    world = Tokens()
    world.services.controller.failure = CommandRefused(ErrorCode.REQUEST_TIMED_OUT)  # type: ignore[attr-defined]
    refused = world.ask("User:alice", handler, request_, 2)
    assert (refused.error_code, refused.expiry_timestamp_ms) == (ErrorCode.REQUEST_TIMED_OUT, 0)
