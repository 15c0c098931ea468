"""GSSAPI with a stand-in for the security context: the order of tokens, the security layer, refusals, and settings.

Real tickets are in interop_tests/test_kerberos.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

import pytest
import trio

from pykbroker.config.broker_config import ConfigError
from pykbroker.config.jaas import login_module
from pykbroker.config.values import NodeLogin
from pykbroker.errors import CloseConnection, KafkaError
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.security.kerberos import OFFER, ContextFailed, KerberosExchange
from pykbroker.security.kerberos_client import KerberosLogins
from pykbroker.security.kerberos_mechanism import (
    JAAS_KEY,
    RULES_KEY,
    SERVICE_KEY,
    Kerberos,
    kerberos_mechanism,
    machine_kerberos,
)
from pykbroker.security.kerberos_names import UserNames
from pykbroker.security.sasl import SaslSession, State
from pykbroker.security.sasl_mechanism import Authenticated, InvalidCredentials, Mechanism

Result = TypeVar("Result")

REALM = "EXAMPLE.COM"
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
JAAS = f'{MODULE} useKeyTab=true storeKey=true keyTab="/keys" principal="kafka/host@{REALM}";'


class StandIn:
    """A security context whose tokens are words: a client sends `last` for the last one, `silent` for one to which
    there is no answer; wrapped messages are in brackets."""

    def __init__(self, client: str = f"alice@{REALM}") -> None:
        self.client = client
        self.is_established = False

    def accept(self, token: bytes) -> bytes | None:
        if token not in (b"first", b"last", b"silent"):
            raise ContextFailed("no such token")
        self.is_established = token != b"first"
        return None if token == b"silent" else b"answer to " + token

    def wrap(self, message: bytes) -> bytes:
        return b"[" + message + b"]"

    def unwrap(self, token: bytes) -> bytes:
        if token[:1] + token[-1:] != b"[]":
            raise ContextFailed("not wrapped")
        return token[1:-1]


def exchange(client: str = f"alice@{REALM}", rules: tuple[str, ...] = ("DEFAULT",)) -> KerberosExchange:
    return KerberosExchange(StandIn(client), UserNames(rules, REALM))


def test_a_login() -> None:
    """P-320: tokens of the context, an empty one, the offer, and the choice."""
    login = exchange()
    assert login.evaluate(b"first") == b"answer to first"
    assert login.evaluate(b"last") == b"answer to last"
    assert login.evaluate(b"") == b"[\x01\x01\x00\x00]"
    assert login.result is None
    assert login.evaluate(b"[" + OFFER + b"]") == b""
    assert login.result == Authenticated("alice", authorization_id=f"alice@{REALM}")


def test_a_login_without_the_servers_proof() -> None:
    """P-320: the offer is the answer to the token that completes the context."""
    login = exchange()
    assert login.evaluate(b"silent") == b"[" + OFFER + b"]"
    assert login.evaluate(b"[\x03\xff\xff\xffbob]") == b""
    assert login.result is not None
    assert login.result.user == "alice"


@pytest.mark.parametrize(
    "tokens",
    [
        [b""],
        [b"nonsense"],
        [b"first", b""],
        [b"last", b"early"],
        [b"silent", OFFER],
        [b"silent", b"[\x02\x01\x00\x00]"],
        [b"silent", b"[\x00\x01\x00\x00]"],
    ],
)
def test_refused_tokens(tokens: list[bytes]) -> None:
    """P-322."""
    login = exchange()
    for token in tokens[:-1]:
        login.evaluate(token)
    with pytest.raises(InvalidCredentials):
        login.evaluate(tokens[-1])
    assert login.result is None


@pytest.mark.parametrize("choice", [b"[]", b"[\x01]", b"[\x01\x01\x00]"])
def test_a_choice_that_is_too_short(choice: bytes) -> None:
    """P-320."""
    login = exchange()
    login.evaluate(b"silent")
    with pytest.raises(CloseConnection):
        login.evaluate(choice)


def test_a_client_without_a_user_name() -> None:
    """P-321."""
    login = exchange("alice@OTHER")
    login.evaluate(b"silent")
    login.evaluate(b"[" + OFFER + b"]")
    assert login.result is not None
    assert (login.result.user, login.result.authorization_id) == ("alice@OTHER", "alice@OTHER")
    assert "No rules apply to alice@OTHER" in login.result.refusal


def open_stand_in(client: str) -> Callable[[], Kerberos]:
    return lambda: Kerberos(lambda principal, key_table: lambda: StandIn(client), REALM)


class Session:
    """A session of a listener with GSSAPI, whose tokens are evaluated in a real thread."""

    def __init__(self, client: str = f"alice@{REALM}") -> None:
        self.client = client
        self.threads = 0
        made = kerberos_mechanism(
            login_module(JAAS),
            {SERVICE_KEY: "kafka", RULES_KEY: "DEFAULT"}.get,
            self._run_in_thread,
            lambda: Kerberos(lambda principal, key_table: lambda: StandIn(self.client), REALM),
        )
        self.sasl = SaslSession({"GSSAPI": Mechanism(made.make, 5000, made.prepare)}, 1000, lambda: 1.0)

    async def _run_in_thread(self, work: Callable[[], Result]) -> Result:
        self.threads += 1
        return await trio.to_thread.run_sync(work)

    async def answer(self, token: bytes) -> bytes:
        await self.sasl.prepare(token)
        return self.sasl.authenticate(token)

    async def log_in(self, old_principal: str = "User:ANONYMOUS") -> int:
        self.sasl.check_allowed(ApiKey.SASL_HANDSHAKE)
        self.sasl.choose("GSSAPI", 1)
        await self.answer(b"silent")
        await self.answer(b"[" + OFFER + b"]")
        result = self.sasl.result
        assert result is not None
        return self.sasl.complete(old_principal, f"User:{result.user}", 0, result.refusal)


async def test_a_session() -> None:
    """P-320: each token is evaluated in a thread; the session lasts as long as the listener says."""
    session = Session()
    assert await session.log_in() == 5000
    assert session.threads == 2
    session.sasl.check_allowed(ApiKey.METADATA)
    assert await session.log_in("User:alice") == 5000


async def test_a_refused_login_of_a_session() -> None:
    """P-322: an error code and a text without the reason."""
    session = Session()
    session.sasl.choose("GSSAPI", 1)
    with pytest.raises(KafkaError, match="invalid credentials with SASL mechanism GSSAPI"):
        await session.answer(b"nonsense")
    assert session.sasl.state is State.FAILED


async def test_a_session_without_a_user_name() -> None:
    """P-321: the login succeeds, and the next request ends the connection; a second login ends it at once."""
    session = Session("alice@OTHER")
    assert await session.log_in() == 5000
    assert session.sasl.is_over
    with pytest.raises(CloseConnection, match="No rules apply"):
        session.sasl.check_allowed(ApiKey.METADATA)
    session = Session()
    await session.log_in()
    session.client = "alice@OTHER"
    with pytest.raises(CloseConnection, match="No rules apply"):
        await session.log_in("User:alice")


class ClientStandIn:
    """The client's side of `StandIn`."""

    def __init__(self, *, has_proof: bool = True) -> None:
        self.is_established = False
        self._steps = [b"first", b"last", b""] if has_proof else [b"first", b"silent"]
        self._stand_in = StandIn()

    def step(self, token: bytes) -> bytes:
        expected = {b"first": b"", b"last": b"answer to first", b"": b"answer to last", b"silent": b"answer to first"}
        following = self._steps.pop(0)
        if token != expected[following]:
            raise ContextFailed("another server")
        self.is_established = not self._steps
        return following

    def wrap(self, message: bytes) -> bytes:
        return self._stand_in.wrap(message)

    def unwrap(self, token: bytes) -> bytes:
        return self._stand_in.unwrap(token)


class NodeLogins(KerberosLogins):
    """Logins of a node as alice, in a real thread."""

    def __init__(self, client: ClientStandIn) -> None:
        self.asked: list[tuple[str, str]] = []

        def new_context(service: str, host: str) -> ClientStandIn:
            self.asked.append((service, host))
            return client

        login = NodeLogin("GSSAPI", {"principal": f"alice@{REALM}"}, {SERVICE_KEY: "kafka"})
        super().__init__(login, trio.to_thread.run_sync, new_context)


@pytest.mark.parametrize("has_proof", [True, False])
async def test_a_node_logs_in(has_proof: bool) -> None:
    """P-320: both sides of a login."""
    server, logins = exchange(), NodeLogins(ClientStandIn(has_proof=has_proof))
    login = await logins.new("broker.example")
    answer = b""
    while not login.is_done:
        answer = server.evaluate(await logins.evaluate(login, answer))
    assert server.result == Authenticated("alice", authorization_id=f"alice@{REALM}")
    assert logins.asked == [("kafka", "broker.example")]


@pytest.mark.parametrize("offer", [b"[]", b"[\x01\x00]", b"[\x06\x01\x00\x00]", b"not wrapped"])
async def test_offers_that_a_node_refuses(offer: bytes) -> None:
    """P-320: a node logs in without a security layer or not at all."""
    logins = NodeLogins(ClientStandIn(has_proof=False))
    login = await logins.new("broker.example")
    assert await logins.evaluate(login, b"") == b"first"
    assert await logins.evaluate(login, b"answer to first") == b"silent"
    with pytest.raises(ContextFailed):
        await logins.evaluate(login, offer)


def test_a_node_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """P-323."""
    monkeypatch.setitem(sys.modules, "gssapi", None)
    monkeypatch.delitem(sys.modules, "pykbroker.security.kerberos_context", raising=False)
    login = NodeLogin("GSSAPI", {"principal": "a"}, {SERVICE_KEY: "kafka"})
    with pytest.raises(ConfigError, match=r"pip install 'pykbroker\[gssapi\]'"):
        KerberosLogins(login, trio.to_thread.run_sync)


@pytest.mark.parametrize(
    ("jaas", "service", "rules", "key", "reason"),
    [
        ('Other required username="a";', "kafka", "DEFAULT", JAAS_KEY, "needs the login module com.sun"),
        (JAAS.replace("useKeyTab=true", ""), "kafka", "DEFAULT", JAAS_KEY, "needs useKeyTab=true"),
        (JAAS.replace("storeKey=true", "storeKey=false"), "kafka", "DEFAULT", JAAS_KEY, "needs storeKey=true"),
        (JAAS.replace("principal", "other"), "kafka", "DEFAULT", JAAS_KEY, "needs principal="),
        (JAAS, None, "DEFAULT", SERVICE_KEY, "No serviceName defined in either JAAS or Kafka config"),
        (JAAS.replace(";", ' serviceName="x";'), "kafka", "DEFAULT", SERVICE_KEY, "Conflicting serviceName values"),
        (JAAS, "kafka", "nonsense", RULES_KEY, "Invalid rule: nonsense"),
    ],
)
def test_settings_that_cannot_be_used(jaas: str, service: str | None, rules: str, key: str, reason: str) -> None:
    """P-323."""
    settings = {SERVICE_KEY: service, RULES_KEY: rules}
    with pytest.raises(ConfigError, match=reason) as error:
        kerberos_mechanism(login_module(jaas), settings.get, Session()._run_in_thread, open_stand_in("alice"))
    assert error.value.name == key


def test_a_service_name_of_the_login_module() -> None:
    """P-323."""
    opened: list[tuple[str, str]] = []

    def open_key_table(principal: str, key_table: str) -> Callable[[], StandIn]:
        opened.append((principal, key_table))
        return StandIn

    jaas = JAAS.replace(";", ' serviceName="kafka";')
    settings: dict[str, str | None] = {RULES_KEY: "DEFAULT"}
    kerberos_mechanism(
        login_module(jaas), settings.get, Session()._run_in_thread, lambda: Kerberos(open_key_table, REALM)
    )
    assert opened == [(f"kafka/host@{REALM}", "/keys")]


def test_a_machine_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """P-323: the error says what to install."""
    monkeypatch.setitem(sys.modules, "gssapi", None)
    monkeypatch.delitem(sys.modules, "pykbroker.security.kerberos_context", raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'pykbroker\[gssapi\]'.*libkrb5-dev"):
        machine_kerberos()


def test_a_key_table_that_is_not_there() -> None:
    """P-323."""
    pytest.importorskip(
        "gssapi", reason="needs the package gssapi (on Debian: apt install libkrb5-dev)", exc_type=ImportError
    )
    jaas = JAAS.replace("/keys", "/nowhere/keys")
    with pytest.raises(ConfigError, match=r"no key of kafka/host@EXAMPLE\.COM in /nowhere/keys"):
        kerberos_mechanism(
            login_module(jaas), {SERVICE_KEY: "kafka", RULES_KEY: "DEFAULT"}.get, Session()._run_in_thread
        )
