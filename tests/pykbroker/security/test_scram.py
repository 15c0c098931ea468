"""SCRAM on both sides: the examples of RFC 5802's successor RFC 7677, refusals, and what an unknown user gets."""

from __future__ import annotations

import re
from base64 import b64decode

import pytest

from pykbroker.security.sasl_mechanism import Authenticated, InvalidCredentials, LoginRefused
from pykbroker.security.scram import (
    HASHES,
    ScramCredential,
    ScramCredentials,
    ScramExchange,
    ScramLogin,
    TokenCredential,
    credential_of_password,
    decoy_credential,
)

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = f"n,,n=user,r={CLIENT_NONCE}".encode()
SERVER_FIRST = f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
FINAL = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def credentials(
    mechanism: str = "SCRAM-SHA-256", *, iterations: int = 4096, tokens: dict[str, TokenCredential] | None = None
) -> ScramCredentials:
    name = HASHES[mechanism]
    users = {
        "user": credential_of_password(name, "pencil", SALT, iterations),
        "a,b=c": credential_of_password(name, "pencil", SALT),
    }
    return ScramCredentials(users.get, (tokens or {}).get, lambda user: decoy_credential(name, b"secret", user))


def exchange(mechanism: str = "SCRAM-SHA-256", iterations: int = 4096) -> ScramExchange:
    return ScramExchange(mechanism, credentials(mechanism, iterations=iterations), SERVER_NONCE)


def test_the_server_of_the_example_in_rfc_7677() -> None:
    server = exchange()
    assert server.evaluate(FIRST) == SERVER_FIRST
    assert server.result is None
    assert server.evaluate(FINAL) == SERVER_FINAL
    assert server.result is not None
    assert server.result.user == "user"
    assert server.result.credential_ends_ms is None


def test_the_client_of_the_example_in_rfc_7677() -> None:
    client = ScramLogin("SCRAM-SHA-256", "user", "pencil", CLIENT_NONCE)
    assert client.first() == FIRST
    assert client.final(SERVER_FIRST) == FINAL
    client.check(SERVER_FINAL)
    with pytest.raises(InvalidCredentials, match="signature"):
        client.check(b"v=AAAAAAAA")
    with pytest.raises(InvalidCredentials, match="error"):
        client.check(b"e=other-error")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (SERVER_FIRST.replace(b"4096", b"4095"), "Requested iterations 4095 is less than the minimum 4096"),
        (SERVER_FIRST.replace(b"4096", b"0"), "Requested iterations 0 is less"),
        (SERVER_FIRST.replace(b"4096", b"1000001"), "Requested iterations 1000001 is more than the maximum"),
        (SERVER_FIRST.replace(b"4096", b"9" * 5000), "is more than the maximum"),
        (b"x", "malformed"),
    ],
)
def test_a_client_refuses_a_server_that_breaks_the_rules(answer: bytes, reason: str) -> None:
    with pytest.raises(InvalidCredentials, match=reason):
        ScramLogin("SCRAM-SHA-256", "user", "pencil", CLIENT_NONCE).final(answer)


@pytest.mark.parametrize("mechanism", list(HASHES))
def test_names_with_the_characters_of_the_grammar(mechanism: str) -> None:
    server, client = exchange(mechanism), ScramLogin(mechanism, "a,b=c", "pencil", "nonce")
    assert client.first() == b"n,,n=a=2Cb=3Dc,r=nonce"
    client.check(server.evaluate(client.final(server.evaluate(client.first()))))
    assert server.result is not None
    assert server.result.user == "a,b=c"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=a b",
        b"n,,n=user,r=",
        b"n,,r=abc,n=user",
        b"\xff\xfe",
        "n,,n=\u00fcser,r=abc".encode(),
        b"n,,n=user,r=abc,1=2",
    ],
)
def test_other_first_messages_are_refused_without_a_word(message: bytes) -> None:
    with pytest.raises(InvalidCredentials, match="format"):
        exchange().evaluate(message)


@pytest.mark.parametrize(
    "message",
    [
        FINAL[:-4],
        FINAL.replace(b"p=dH", b"p=dA"),
        FINAL.replace(b"c=biws", b"c=eSws"),
        FINAL.replace(b"k0,", b"k1,"),
        re.sub(b"p=.*", b"p=", FINAL),
        b"x",
        b"",
    ],
)
def test_other_final_messages_are_refused(message: bytes) -> None:
    server = exchange()
    server.evaluate(FIRST)
    with pytest.raises(InvalidCredentials):
        server.evaluate(message)
    assert server.result is None


def test_authorization_id_and_extensions() -> None:
    assert exchange().evaluate(FIRST.replace(b"n,,", b"n,a=user,")).startswith(b"r=")
    assert exchange().evaluate(b"n,,m=ext,n=user,r=abc,foo=bar").startswith(b"r=abc")
    with pytest.raises(LoginRefused, match="authorization id that is different from username"):
        exchange().evaluate(FIRST.replace(b"n,,", b"n,a=other,"))


def test_too_few_iterations_are_refused() -> None:
    """P-18: also of a credential that was stored with fewer."""
    with pytest.raises(InvalidCredentials, match="4095 is less than the minimum 4096"):
        exchange(iterations=4095).evaluate(FIRST)


def test_an_unknown_user_is_refused_as_a_wrong_password_is() -> None:
    """P-18: with a salt that stays the same, at the second token, with the same text."""
    reasons, answers = set(), []
    for user in ("nobody", "nobody", "somebody", "user"):
        server, client = exchange(), ScramLogin("SCRAM-SHA-256", user, "wrong", "abc")
        answers.append(server.evaluate(client.first()))
        with pytest.raises(InvalidCredentials) as caught:
            server.evaluate(client.final(answers[-1]))
        reasons.add(str(caught.value))
    assert len(reasons) == 1
    assert answers[0] == answers[1] != answers[2]
    assert all(re.fullmatch(rb"r=abc.*,s=[A-Za-z0-9+/=]+,i=4096", answer) for answer in answers)


def test_a_decoy_has_no_password() -> None:
    """The server key is not derived from it, and the proof is refused even if the stored key was guessed."""
    known = ScramCredentials(lambda user: None, lambda token: None, lambda user: credential("pencil"))
    server, client = ScramExchange("SCRAM-SHA-256", known, "s"), ScramLogin("SCRAM-SHA-256", "x", "pencil", "c")
    with pytest.raises(InvalidCredentials):
        server.evaluate(client.final(server.evaluate(client.first())))


def credential(password: str) -> ScramCredential:
    return credential_of_password("sha256", password, SALT)


def test_a_login_by_delegation_token() -> None:
    """P-252."""
    tokens = {"token-1": TokenCredential("alice", 12345, credential("hmac"))}
    known = credentials(tokens=tokens)
    server = ScramExchange("SCRAM-SHA-256", known, SERVER_NONCE)
    client = ScramLogin("SCRAM-SHA-256", "token-1", "hmac", "abc", is_token=True)
    assert client.first() == b"n,,n=token-1,r=abc,tokenauth=true"
    client.check(server.evaluate(client.final(server.evaluate(client.first()))))
    assert server.result == Authenticated("alice", 12345, True)
    for login in (
        ScramLogin("SCRAM-SHA-256", "token-1", "hmac", "abc"),
        ScramLogin("SCRAM-SHA-256", "token-2", "hmac", "abc", is_token=True),
        ScramLogin("SCRAM-SHA-256", "user", "pencil", "abc", is_token=True),
    ):
        server = ScramExchange("SCRAM-SHA-256", known, SERVER_NONCE)
        with pytest.raises(InvalidCredentials):
            server.evaluate(login.final(server.evaluate(login.first())))
