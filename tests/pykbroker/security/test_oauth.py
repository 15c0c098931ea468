"""OAUTHBEARER: messages, tokens signed by keys of a key set, unsecured ones, key sets from a file and their refresh."""

from __future__ import annotations

import itertools
import json
import os
import ssl
import sys
from base64 import b64decode, urlsafe_b64encode
from functools import cache
from http.client import BadStatusLine
from io import BytesIO
from pathlib import Path
from typing import Any

import jwt
import pytest
import trio
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from pykbroker.config.broker_config import ConfigError
from pykbroker.config.jaas import jaas_options
from pykbroker.config.values import NodeLogin
from pykbroker.errors import CloseConnection
from pykbroker.security.oauth_keys import SIZE_MAX, KeySet, KeySetSettings, fetch_document
from pykbroker.security.oauth_login import TokenSource
from pykbroker.security.oauth_tokens import (
    SignedTokenRules,
    UnsecuredTokenRules,
    key_id,
    keys_of_set,
    unsecured_token,
    validate_signed,
    validate_unsecured,
)
from pykbroker.security.oauth_validators import HANDLER_KEY, SIGNED_HANDLERS, VALIDATOR_KEY, oauth_mechanism
from pykbroker.security.oauthbearer import InvalidToken, OAuthExchange, initial_response, parse_initial_response
from pykbroker.security.sasl_mechanism import Authenticated, InvalidCredentials, LoginRefused
from tests.pykbroker.security.tls.certificates import authority
from tests.support.in_place import run_in_place

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000
CLAIMS = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 100, "iss": "https://issuer", "aud": ["kafka"]}
RULES = SignedTokenRules(["kafka", "other"], "https://issuer")


@cache
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def key_set() -> str:
    rsa_jwk = json.loads(RSAAlgorithm.to_jwk(rsa_key().public_key()))
    ec_jwk = json.loads(ECAlgorithm.to_jwk(ec_key().public_key()))
    other = {**rsa_jwk, "kid": "encryption", "use": "enc"}
    return json.dumps({"keys": [other, {**rsa_jwk, "kid": "r"}, {**ec_jwk, "kid": "e"}]})


def signed(algorithm: str = "RS256", kid: str | None = "r", **changes: Any) -> str:
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    key: Any = ec_key() if algorithm.startswith("ES") else rsa_key()
    return jwt.encode(claims, key, algorithm, headers={"kid": kid} if kid else None)


def part(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(("algorithm", "kid"), [("RS256", "r"), ("PS512", "r"), ("ES256", "e"), ("RS256", None)])
def test_a_signed_token(algorithm: str, kid: str | None) -> None:
    token = signed(algorithm, kid)
    assert validate_signed(token, keys_of_set(key_set()), RULES, NOW_MS) == ("alice", (NOW_S + 100) * 1000)
    assert key_id(token) == kid


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": None}, "claim exp"),
        ({"exp": "soon"}, "claim exp"),
        ({"iat": None}, "claim iat"),
        ({"exp": NOW_S - 30}, "expired"),
        ({"nbf": NOW_S + 31}, "not valid before"),
        ({"iat": NOW_S + 200}, "before it begins"),
        ({"aud": None}, "audience"),
        ({"aud": "else"}, "audience"),
        ({"iss": None}, "issuer"),
        ({"iss": "https://else"}, "issuer"),
        ({"sub": None}, "claim sub"),
        ({"sub": "  "}, "claim sub"),
        ({"scope": ["a", "a"]}, "duplicates"),
        ({"scope": ["a", " "]}, "claim scope"),
        ({"kid": "unknown"}, "no key"),
        ({"kid": "encryption"}, "no key"),
        ({"kid": "e"}, "no key"),
    ],
)
def test_signed_tokens_that_are_refused(changes: dict[str, Any], reason: str) -> None:
    kid = changes.pop("kid", "r")
    with pytest.raises(InvalidToken, match=reason):
        validate_signed(signed(kid=kid, **changes), keys_of_set(key_set()), RULES, NOW_MS)


def test_times_within_the_clock_skew_are_accepted() -> None:
    for token in (signed(exp=NOW_S - 29, iat=NOW_S - 60), signed(nbf=NOW_S + 30)):
        validate_signed(token, keys_of_set(key_set()), RULES, NOW_MS)


def test_a_token_with_an_audience_needs_a_setting() -> None:
    """As in Kafka: who expects nobody is not meant."""
    with pytest.raises(InvalidToken, match="audience"):
        validate_signed(signed(), keys_of_set(key_set()), RULES._replace(audiences=()), NOW_MS)
    validate_signed(signed(aud=None), keys_of_set(key_set()), RULES._replace(audiences=()), NOW_MS)


def test_names_of_claims() -> None:
    token = signed(sub=None, email="a@example.com")
    rules = RULES._replace(sub_claim="email")
    assert validate_signed(token, keys_of_set(key_set()), rules, NOW_MS).user == "a@example.com"


@pytest.mark.parametrize(
    "token",
    [
        f"{part({'alg': 'none'})}.{part(CLAIMS)}.",
        f"{part({'alg': 'HS256', 'kid': 'r'})}.{part(CLAIMS)}.AAAA",
        f"{part({'alg': ['RS256']})}.{part(CLAIMS)}.AAAA",
        f"{part({'alg': 'RS1'})}.{part(CLAIMS)}.AA",
        "a.b.c",
        "",
        "...",
        f"{part([1])}.{part(CLAIMS)}.AAAA",
        f"{part({'alg': 'RS256', 'kid': 'r'})}.{part(CLAIMS)}.!",
    ],
)
def test_forged_tokens_are_refused(token: str) -> None:
    with pytest.raises(InvalidToken):
        validate_signed(token, keys_of_set(key_set()), RULES, NOW_MS)


def test_a_changed_token_is_refused() -> None:
    head, _, signature = signed().split(".")
    forged = f"{head}.{part({**CLAIMS, 'sub': 'admin'})}.{signature}"
    with pytest.raises(InvalidToken, match="not verified"):
        validate_signed(forged, keys_of_set(key_set()), RULES, NOW_MS)


def unsecured(**changes: Any) -> str:
    claims = {"sub": "alice", "exp": NOW_S + 100, **changes}
    return f"{part({'alg': 'none'})}.{part({name: value for name, value in claims.items() if value is not None})}."


def test_an_unsecured_token() -> None:
    assert validate_unsecured(unsecured(), UnsecuredTokenRules(), NOW_MS) == ("alice", (NOW_S + 100) * 1000)
    made = unsecured_token({"unsecuredLoginStringClaim_sub": "node", "unsecuredLoginLifetimeSeconds": "60"}, NOW_MS)
    assert validate_unsecured(made, UnsecuredTokenRules(), NOW_MS) == ("node", NOW_MS + 60_000)


@pytest.mark.parametrize(
    "token",
    [
        signed(),
        f"{unsecured()}AAAA",
        unsecured().rstrip("."),
        unsecured(exp=None),
        unsecured(exp=NOW_S),
        unsecured(iat=NOW_S + 1),
        unsecured(iat=NOW_S - 1, exp=NOW_S - 2),
        unsecured(sub=None),
        unsecured(sub=5),
        f"{part({'alg': 'RS256'})}.{part(CLAIMS)}.",
    ],
)
def test_unsecured_tokens_that_are_refused(token: str) -> None:
    with pytest.raises(InvalidToken):
        validate_unsecured(token, UnsecuredTokenRules(), NOW_MS)


def test_options_of_unsecured_tokens() -> None:
    rules = UnsecuredTokenRules.from_options(
        {
            "unsecuredValidatorPrincipalClaimName": "user",
            "unsecuredValidatorScopeClaimName": "roles",
            "unsecuredValidatorRequiredScope": "a b",
            "unsecuredValidatorAllowableClockSkewMs": "5000",
        }
    )
    token = unsecured(sub=None, user="bob", roles="b c a", exp=NOW_S - 4, iat=NOW_S - 9)
    assert validate_unsecured(token, rules, NOW_MS)[0] == "bob"
    with pytest.raises(InvalidToken) as caught:
        validate_unsecured(unsecured(user="bob", roles=["a"]), rules, NOW_MS)
    assert caught.value.missing_scope == "[a, b]"
    with pytest.raises(ValueError, match="negative"):
        UnsecuredTokenRules.from_options({"unsecuredValidatorAllowableClockSkewMs": "-1"})


def test_the_first_message() -> None:
    message = b"n,a=alice,\x01auth=Bearer abc.def.\x01traceId=12 3\x01\x01"
    assert parse_initial_response(message) == ("abc.def.", "alice", {"traceId": "12 3"})
    assert parse_initial_response(initial_response("t", {"k": "v"})) == ("t", "", {"k": "v"})


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"\xff",
    ],
)
def test_other_first_messages_are_refused(message: bytes) -> None:
    with pytest.raises(InvalidCredentials):
        parse_initial_response(message)


def test_another_scheme_ends_the_connection() -> None:
    with pytest.raises(CloseConnection, match="scheme"):
        parse_initial_response(b"n,,\x01auth=Basic abc\x01\x01")


def exchange(rules: UnsecuredTokenRules = UnsecuredTokenRules()) -> OAuthExchange:  # noqa: B008  immutable
    return OAuthExchange(lambda token: validate_unsecured(token, rules, NOW_MS), lambda reason: None)


def test_a_refused_token_is_answered_and_then_fails_the_login() -> None:
    """RFC 7628: the client sends one byte after the server's JSON. P-254."""
    server = exchange()
    assert server.evaluate(initial_response(unsecured(exp=1))) == b'{"status":"invalid_token"}'
    assert server.result is None
    with pytest.raises(LoginRefused, match="invalid_token"):
        server.evaluate(b"\x01")
    server = exchange(UnsecuredTokenRules(required_scope=["x"]))
    answer = server.evaluate(initial_response(unsecured()))
    assert answer == b'{"status":"insufficient_scope", "scope":"[x]"}'


def test_a_client_may_try_another_token_after_a_refused_one() -> None:
    server = exchange()
    server.evaluate(initial_response(unsecured(exp=1)))
    assert server.evaluate(initial_response(unsecured(), {"a": "b"})) == b""
    assert server.result == Authenticated("alice", (NOW_S + 100) * 1000, extensions={"a": "b"})


def test_a_dummy_response_without_an_error_is_malformed() -> None:
    with pytest.raises(InvalidCredentials):
        exchange().evaluate(b"\x01")


def test_another_authorization_id() -> None:
    with pytest.raises(LoginRefused, match=r"authorization id \(bob\) .* principal name \(alice\)"):
        exchange().evaluate(initial_response(unsecured()).replace(b"n,,", b"n,a=bob,"))


class Keys:
    """A key set whose documents and time a test sets."""

    def __init__(self) -> None:
        self.documents: list[str | Exception] = []
        self.fetches = 0
        self.now_s = 0.0
        settings = KeySetSettings("https://keys", 100_000, 1_000, 4_000)
        self.keys = KeySet(settings, run_in_place, self.fetch, lambda: self.now_s)

    def fetch(self, url: str) -> str:
        self.fetches += 1
        document = self.documents.pop(0)
        if isinstance(document, Exception):
            raise document
        return document


def document(*ids: str) -> str:
    return json.dumps({"keys": [{"kid": each, "kty": "RSA"} for each in ids]})


async def test_keys_are_fetched_when_they_are_needed_and_refreshed() -> None:
    keys = Keys()
    keys.documents = [document("a"), document("a", "b"), document("c")]
    await keys.keys.prepare("a")
    await keys.keys.prepare("a")
    assert keys.fetches == 1
    keys.now_s = 1.0
    await keys.keys.prepare("b")
    assert [key["kid"] for key in keys.keys.keys] == ["a", "b"]
    await keys.keys.prepare("invented")
    assert keys.fetches == 2
    keys.now_s = 101.0
    await keys.keys.prepare("a")
    assert [key["kid"] for key in keys.keys.keys] == ["c"]


async def test_keys_are_fetched_for_each_unknown_id_and_not_too_often() -> None:
    """P-492: an id that somebody invents keeps no other one from being found."""
    keys = Keys()
    keys.documents = [document("a")] * 30
    await keys.keys.prepare("a")
    for now_s, named, fetches in (
        (0.9, "b", 1),
        (1.0, "b", 2),
        (1.5, "c", 2),
        (2.0, "c", 3),
        (3.0, "b", 3),
        (3.0, "d" * 1001, 3),
        (3.0, "d" * 1000, 4),
        (60.9, "b", 4),
        (61.0, "b", 5),
        (62.0, None, 5),
        (62.0, "c", 6),
    ):
        keys.now_s = now_s
        await keys.keys.prepare(named)
        assert keys.fetches == fetches, (now_s, named)
    for number in range(16):
        keys.now_s += 1
        await keys.keys.prepare(f"invented-{number}")
    assert keys.fetches == 22
    keys.now_s += 1
    await keys.keys.prepare("c")
    assert keys.fetches == 23, "forgotten for the sake of others"


async def test_an_unknown_id_that_was_found_and_is_gone_is_looked_for_again() -> None:
    """P-492."""
    keys = Keys()
    keys.documents = [document("a"), document("b"), document("a"), document("b")]
    await keys.keys.prepare("a")
    for now_s, named, found in ((1.0, "b", "b"), (2.0, "a", "a"), (3.0, "b", "b")):
        keys.now_s = now_s
        await keys.keys.prepare(named)
        assert [key["kid"] for key in keys.keys.keys] == [found]


async def test_a_file_of_keys_is_read_when_it_has_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """P-492: a key that was removed is not trusted by the next login, and without a file no key is."""
    path = tmp_path / "the keys.json"
    times = itertools.count(1)

    def write(text: str) -> None:
        path.write_text(text)
        at_ns = next(times) * 1_000_000
        os.utime(path, ns=(at_ns, at_ns))

    settings = KeySetSettings(path.as_uri(), 3_600_000, 1_000, 4_000)
    reads: list[str] = []

    def fetch(url: str) -> str:
        reads.append(url)
        return fetch_document(url)

    keys = KeySet(settings, run_in_place, fetch, lambda: 0.0)

    async def ids() -> list[str]:
        await keys.prepare("unknown")
        return [key["kid"] for key in keys.keys]

    assert await ids() == []
    write(document("a", "b"))
    assert await ids() == ["a", "b"]
    reads.clear()
    assert await ids() == ["a", "b"]
    assert reads == []
    write(document("b"))
    assert await ids() == ["b"]
    write("half of")
    assert await ids() == []
    write(document("c"))
    assert await ids() == ["c"]
    path.unlink()
    assert await ids() == []
    assert caplog.text.count("cannot be read") == 3


async def test_old_keys_stay_while_the_server_is_away() -> None:
    keys = Keys()
    keys.documents = [document("a"), OSError("away"), "not json", document("b")]
    await keys.keys.prepare("a")
    keys.now_s = 100.0
    await keys.keys.prepare("a")
    await keys.keys.prepare("a")
    assert keys.fetches == 2
    keys.now_s = 101.0
    await keys.keys.prepare("a")
    keys.now_s = 102.9
    await keys.keys.prepare("a")
    assert (keys.fetches, keys.keys.keys[0]["kid"]) == (3, "a")
    keys.now_s = 103.0
    await keys.keys.prepare("a")
    assert keys.keys.keys[0]["kid"] == "b"


async def test_a_login_waits_for_the_keys_that_another_login_fetches() -> None:
    """Else the second of two clients that connect at once would be refused."""
    keys = Keys()
    keys.documents = [document("a")]

    async def slowly(work: Any) -> Any:
        await trio.sleep(3)
        return work()

    keys.keys._run_in_thread = slowly
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keys.keys.prepare, "a")
        await trio.sleep(1)
        await keys.keys.prepare("a")
        assert [key["kid"] for key in keys.keys.keys] == ["a"]
    assert keys.fetches == 1


def test_a_server_that_speaks_something_else_than_http(monkeypatch: pytest.MonkeyPatch) -> None:
    def urlopen(*_: Any, **__: Any) -> Any:
        raise BadStatusLine("SSH-2.0")

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    with pytest.raises(OSError, match="SSH"):
        fetch_document("http://localhost/keys")


@pytest.mark.parametrize("lifetime", ["null", '"soon"', "[]"])
async def test_a_token_without_a_lifetime_is_used_once(monkeypatch: pytest.MonkeyPatch, lifetime: str) -> None:
    asked = 0

    def urlopen(*_: Any, **__: Any) -> Any:
        nonlocal asked
        asked += 1
        return BytesIO(f'{{"access_token": "t", "expires_in": {lifetime}}}'.encode())

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    login = NodeLogin("OAUTHBEARER", {}, {"sasl.oauthbearer.token.endpoint.url": "http://localhost/token"})
    source = TokenSource(login, lambda: NOW_MS, run_in_place)
    for _ in range(2):
        assert await source.first_message() == initial_response("t")
    assert asked == 2


async def test_an_oauth_server_that_speaks_something_else_than_http(monkeypatch: pytest.MonkeyPatch) -> None:
    def urlopen(*_: Any, **__: Any) -> Any:
        raise BadStatusLine("SSH-2.0")

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    login = NodeLogin("OAUTHBEARER", {}, {"sasl.oauthbearer.token.endpoint.url": "http://localhost/token"})
    with pytest.raises(OSError, match="SSH"):
        await TokenSource(login, lambda: NOW_MS, run_in_place).first_message()


async def test_a_listener_with_a_key_set_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(key_set())
    texts = {
        "listener.name.sasl.oauthbearer.sasl.server.callback.handler.class": SIGNED_HANDLERS[0],
        "listener.name.sasl.oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.jwks.endpoint.url": file.as_uri(),
    }
    mechanism = oauth_mechanism(texts, "SASL", lambda: NOW_MS, run_in_place)
    assert mechanism.prepare is not None
    message = initial_response(signed())
    await mechanism.prepare(b"malformed")
    server = mechanism.make()
    assert server.evaluate(message) == b'{"status":"invalid_token"}'
    await mechanism.prepare(message)
    assert server.evaluate(message) == b""
    assert server.result is not None
    assert server.result.user == "alice"


def test_a_listener_without_a_key_set_is_unsecured_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """P-255."""
    mechanism = oauth_mechanism({}, "SASL", lambda: NOW_MS, run_in_place)
    assert "any client can log in as any user" in caplog.text
    assert mechanism.make().evaluate(initial_response(unsecured())) == b""


@pytest.mark.parametrize(
    ("handler", "key"), [(SIGNED_HANDLERS[0], "sasl.oauthbearer.jwks.endpoint.url"), ("com.example.X", HANDLER_KEY)]
)
def test_settings_that_cannot_be(handler: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        oauth_mechanism({HANDLER_KEY: handler}, "SASL", lambda: NOW_MS, run_in_place)
    assert caught.value.name == key


def trusting(certificates: str) -> str:
    text = certificates.replace("\n", "\\n")
    return f'x required ssl.truststore.type="PEM" ssl.truststore.certificates="{text}";'


async def test_a_key_set_behind_an_authority_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """P-373: the `ssl.*` options of the login module are for the server of the keys, and of tokens."""
    contexts: list[ssl.SSLContext] = []

    def urlopen(*_: Any, context: ssl.SSLContext, **__: Any) -> Any:
        contexts.append(context)
        return BytesIO(b'{"keys": [], "access_token": "t"}')

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    jaas = trusting(authority().certificate_pem)
    texts = {"sasl.oauthbearer.jwks.endpoint.url": "https://keys", "sasl.jaas.config": jaas}
    mechanism = oauth_mechanism(texts, "SASL", lambda: NOW_MS, run_in_place)
    assert mechanism.prepare is not None
    await mechanism.prepare(initial_response(signed()))
    login = NodeLogin("OAUTHBEARER", jaas_options(jaas), {"sasl.oauthbearer.token.endpoint.url": "https://tokens"})
    await TokenSource(login, lambda: NOW_MS, run_in_place).first_message()
    assert [context.cert_store_stats()["x509_ca"] for context in contexts] == [1, 1]
    assert all(context.check_hostname for context in contexts)


async def test_a_client_id_in_a_header_may_be_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """P-373."""
    headers: list[str] = []

    def urlopen(request: Any, *_: Any, **__: Any) -> Any:
        headers.append(request.get_header("Authorization"))
        return BytesIO(b'{"access_token": "t"}')

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    for encoded in ("false", "true"):
        settings = {
            "sasl.oauthbearer.token.endpoint.url": "http://tokens",
            "sasl.oauthbearer.header.urlencode": encoded,
            "sasl.oauthbearer.client.credentials.client.id": "a:b c",
            "sasl.oauthbearer.client.credentials.client.secret": "*~",
        }
        await TokenSource(NodeLogin("OAUTHBEARER", {}, settings), lambda: NOW_MS, run_in_place).first_message()
    assert [b64decode(header.removeprefix("Basic ")) for header in headers] == [b"a:b c:*~", b"a%3Ab+c:*%7E"]


@pytest.mark.parametrize("name", ["com.example.X", "org.apache.kafka.common.security.oauthbearer.ClientJwtValidator"])
def test_a_validator_that_does_not_exist_here_is_refused(name: str) -> None:
    """P-373: Kafka would load it, and tokens would be checked by its rules."""
    texts = {"sasl.oauthbearer.jwks.endpoint.url": "https://keys", VALIDATOR_KEY: name}
    with pytest.raises(ConfigError) as caught:
        oauth_mechanism(texts, "SASL", lambda: NOW_MS, run_in_place)
    assert caught.value.name == VALIDATOR_KEY


@pytest.mark.parametrize("url", ["ftp://host/keys", "/etc/passwd", "data:,{}"])
def test_other_urls_are_not_read(url: str) -> None:
    with pytest.raises(ValueError, match="only http, https and file URLs"):
        fetch_document(url)


def test_a_document_that_is_too_large(tmp_path: Path) -> None:
    """An OAuth server must not fill the broker's memory."""
    with open(tmp_path / "keys", "wb") as file:
        file.truncate(SIZE_MAX + 1)
    with pytest.raises(ValueError, match=f"more than {SIZE_MAX} bytes"):
        fetch_document((tmp_path / "keys").as_uri())


@pytest.mark.parametrize("text", ["[]", '{"keys": 1}', '{"keys": ["k"]}'])
def test_documents_that_are_no_key_sets(text: str) -> None:
    with pytest.raises(ValueError, match="no list of keys"):
        keys_of_set(text)


@pytest.mark.parametrize(
    ("url", "answer", "words"),
    [
        ("http://tokens", "{}", "without an access_token"),
        ("http://tokens", '{"access_token": 1}', "without an access_token"),
        ("http://tokens", "[]", "has not answered with an object"),
        ("http://tokens", "[" * 100_000, "something else than JSON"),
        ("ftp://tokens", "{}", "must be an http, https or file URL"),
    ],
)
async def test_tokens_that_a_node_does_not_get(
    monkeypatch: pytest.MonkeyPatch, url: str, answer: str, words: str
) -> None:
    """The error is an OSError, after which the node connects again."""
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: BytesIO(answer.encode()))
    login = NodeLogin("OAUTHBEARER", {}, {"sasl.oauthbearer.token.endpoint.url": url})
    with pytest.raises(OSError, match=words):
        await TokenSource(login, lambda: NOW_MS, run_in_place).first_message()


def test_an_audience_of_another_type() -> None:
    head, _, _ = signed().split(".")
    unsigned = f"{head}.{part({**CLAIMS, 'aud': 5})}"
    signature = RSAAlgorithm(RSAAlgorithm.SHA256).sign(unsigned.encode(), rsa_key())
    token = f"{unsigned}.{urlsafe_b64encode(signature).decode().rstrip('=')}"
    with pytest.raises(InvalidToken, match="the claim aud is neither a text nor a list"):
        validate_signed(token, keys_of_set(key_set()), RULES, NOW_MS)


def test_the_key_of_a_token_that_cannot_be_read() -> None:
    assert key_id("!.b.c") is None


def test_an_unsecured_token_that_ends_before_it_begins() -> None:
    """Within the clock skew it has not expired."""
    rules = UnsecuredTokenRules(clock_skew_ms=10_000)
    with pytest.raises(InvalidToken, match="expires before it was issued"):
        validate_unsecured(unsecured(iat=NOW_S - 1, exp=NOW_S - 2), rules, NOW_MS)


def test_claims_that_are_numbers_and_lists() -> None:
    """OAuthBearerUnsecuredLoginCallbackHandler: the first character of a list separates its members."""
    options = {
        "unsecuredLoginStringClaim_sub": "node",
        "unsecuredLoginNumberClaim_level": "2.5",
        "unsecuredLoginListClaim_scope": "|a|b||",
        "unsecuredLoginListClaim_none": "",
    }
    claims = json.loads(b64decode(unsecured_token(options, NOW_MS).split(".")[1] + "==", b"-_"))
    assert (claims["level"], claims["scope"], claims["none"]) == (2.5, ["a", "b"], [])


def test_signed_tokens_without_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The start says what to install, not the first login."""
    monkeypatch.setitem(sys.modules, "jwt", None)
    texts = {HANDLER_KEY: SIGNED_HANDLERS[0], "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "jwks").as_uri()}
    texts["sasl.oauthbearer.expected.audience"] = "kafka"
    with pytest.raises(ConfigError, match=r"pip install pykbroker\[oauth\]"):
        oauth_mechanism(texts, "SASL", lambda: NOW_MS, run_in_place)
