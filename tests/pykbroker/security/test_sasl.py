"""SASL of one connection with a clock by hand: re-authentication (KIP-368, P-17), and the end of sessions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from pykbroker.errors import CloseConnection, KafkaError
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.security.plain import PlainExchange
from pykbroker.security.sasl import SaslSession, State
from pykbroker.security.sasl_mechanism import Authenticated, LoginRefused, Mechanism

ALICE, BOB = b"\0alice\0secret", b"\0bob\0secret"


class TokenExchange:
    """A mechanism whose credential ends at a time of day."""

    def __init__(self, ends_ms: int) -> None:
        self._ends_ms = ends_ms
        self.result: Authenticated | None = None

    def evaluate(self, token: bytes) -> bytes:
        self.result = Authenticated("alice", self._ends_ms)
        return b"done"


class Session:
    """A session with a principal, at a time that the test sets."""

    def __init__(self, max_reauth_ms: int = 0, token_ends_ms: int = 10_000) -> None:
        plain = Mechanism(lambda: PlainExchange({"alice": "secret", "bob": "secret"}), max_reauth_ms)
        token = Mechanism(lambda: TokenExchange(token_ends_ms), max_reauth_ms)
        self.now_s = 100.0
        self.now_ms = 4_000
        self.principal = "User:ANONYMOUS"
        self.sasl = SaslSession({"PLAIN": plain, "TOKEN": token}, 1000, lambda: self.now_s)

    def handshake(self, mechanism: str = "PLAIN") -> None:
        self.sasl.check_allowed(ApiKey.SASL_HANDSHAKE)
        self.sasl.choose(mechanism, 1)

    def log_in(self, token: bytes = ALICE, mechanism: str = "PLAIN") -> int:
        self.handshake(mechanism)
        self.sasl.check_allowed(ApiKey.SASL_AUTHENTICATE)
        self.sasl.authenticate(token)
        assert self.sasl.result is not None
        principal = f"User:{self.sasl.result.user}"
        lifetime_ms = self.sasl.complete(self.principal, principal, self.now_ms)
        self.principal = principal
        return lifetime_ms


def test_a_session_without_an_end() -> None:
    session = Session()
    assert session.log_in() == 0
    session.now_s += 1e9
    session.sasl.check_allowed(ApiKey.METADATA)
    session.sasl.check_allowed(ApiKey.SASL_HANDSHAKE)
    assert session.sasl.state is State.COMPLETE


def test_a_session_is_over_at_the_first_request_after_its_end() -> None:
    session = Session(max_reauth_ms=5_000)
    assert session.log_in() == 5_000
    session.now_s += 5
    session.sasl.check_allowed(ApiKey.METADATA)
    session.now_s += 0.001
    with pytest.raises(CloseConnection, match="session is over"):
        session.sasl.check_allowed(ApiKey.METADATA)


def test_a_login_once_more_prolongs_the_session_even_after_its_end() -> None:
    session = Session(max_reauth_ms=5_000)
    session.log_in()
    session.now_s += 9
    assert session.log_in() == 5_000
    session.now_s += 5
    session.sasl.check_allowed(ApiKey.METADATA)
    assert session.sasl.frame_size_max(5000) == 5000


def test_frames_are_small_while_a_client_logs_in_again() -> None:
    session = Session(max_reauth_ms=5_000)
    session.log_in()
    session.handshake()
    assert session.sasl.frame_size_max(5000) == 1000


def test_a_login_within_a_second_of_the_last_is_an_ordinary_handshake() -> None:
    """It is answered ILLEGAL_SASL_STATE by the handler."""
    session = Session(max_reauth_ms=60_000)
    session.log_in()
    session.log_in()
    session.now_s += 0.9
    session.sasl.check_allowed(ApiKey.SASL_HANDSHAKE)
    assert session.sasl.state is State.COMPLETE
    session.now_s += 0.1
    session.log_in()


def test_another_principal_is_refused() -> None:
    session = Session(max_reauth_ms=5_000)
    session.log_in()
    with pytest.raises(KafkaError, match=r"Cannot change principals during re-authentication from User\.alice: User"):
        session.log_in(BOB)
    assert session.sasl.state is State.FAILED


def test_a_wrong_password_while_a_client_logs_in_again() -> None:
    session = Session(max_reauth_ms=5_000)
    session.log_in()
    session.handshake()
    with pytest.raises(KafkaError, match="Invalid username or password"):
        session.sasl.authenticate(b"\0alice\0wrong")
    with pytest.raises(CloseConnection):
        session.sasl.check_allowed(ApiKey.METADATA)


def test_another_mechanism_is_accepted_and_refused_at_the_next_request() -> None:
    session = Session(max_reauth_ms=5_000)
    session.log_in()
    session.handshake("TOKEN")
    with pytest.raises(CloseConnection, match="'TOKEN' requested by client is not supported for re-authentication"):
        session.sasl.check_allowed(ApiKey.SASL_AUTHENTICATE)


def test_an_unknown_mechanism_closes_a_connection_that_is_logged_in() -> None:
    session = Session(max_reauth_ms=5_000)
    session.log_in()
    with pytest.raises(CloseConnection, match="Unsupported SASL mechanism OTHER"):
        session.handshake("OTHER")


@pytest.mark.parametrize(
    ("max_reauth_ms", "ends_ms", "lifetime_ms"),
    [(0, 10_000, 6_000), (5_000, 10_000, 5_000), (50_000, 10_000, 6_000), (0, 3_000, 0)],
)
def test_a_session_ends_with_its_credential(max_reauth_ms: int, ends_ms: int, lifetime_ms: int) -> None:
    session = Session(max_reauth_ms, ends_ms)
    assert session.log_in(b"x", "TOKEN") == lifetime_ms
    session.now_s += lifetime_ms / 1000
    session.sasl.check_allowed(ApiKey.METADATA)
    session.now_s += 0.001
    with pytest.raises(CloseConnection):
        session.sasl.check_allowed(ApiKey.METADATA)


def listed(names: Iterable[str]) -> list[str]:
    offered: dict[str, Any] = dict.fromkeys(names)
    return SaslSession(offered, 1000, lambda: 0.0).mechanisms


def test_mechanisms_are_listed_in_the_order_of_a_java_hash_set() -> None:
    """P-253."""
    assert listed(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"]) == JAVA_ORDER


JAVA_ORDER = ["PLAIN", "SCRAM-SHA-512", "GSSAPI", "SCRAM-SHA-256", "OAUTHBEARER"]


def test_a_plain_login_for_another_user() -> None:
    """P-18: the password is right, and yet nobody may act for another one. Kafka's text."""
    words = "Client requested an authorization id that is different from username"
    with pytest.raises(LoginRefused, match=words):
        PlainExchange({"alice": "secret"}).evaluate(b"bob" + ALICE)
    exchange = PlainExchange({"alice": "secret"})
    exchange.evaluate(b"alice" + ALICE)
    assert exchange.result == Authenticated("alice")


def test_many_mechanisms_are_in_the_order_of_a_larger_hash_set() -> None:
    """A HashSet that is made of twelve names or more has 32 buckets."""
    assert listed("PABCDEFGHIJKL") == list("ABCDEFGHIJKLP")
    assert listed("PABCDEFGHIJ") == list("PABCDEFGHIJ")
