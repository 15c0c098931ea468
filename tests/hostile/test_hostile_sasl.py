"""Clients that mean no good at a listener with SASL: nobody gets past the login, others are served meanwhile."""

from __future__ import annotations

import base64
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pykbroker.security.scram import ScramLogin
from tests.fuzz import sasl
from tests.fuzz.__main__ import Findings
from tests.fuzz.replay import replay
from tests.fuzz.sasl import (
    METADATA,
    USERS,
    Login,
    Refused,
    SaslFuzz,
    Step,
    authenticate,
    handshake,
    unsigned_token,
)
from tests.fuzz.target import BAD_SIGNS, Target
from tests.hostile.conftest import LONG_S, memory_comes_back

USER, PASSWORD = "fuzz-user", USERS["fuzz-user"]
MECHANISM = "SCRAM-SHA-512"

Connect = Callable[[], Login]


def running(target: Target) -> Iterator[Target]:
    """The target, which has to outlive all tests without an error of its own."""
    try:
        target.make_users(USERS)
        yield target
        lines = target.new_log_lines()
        assert target.is_alive, "\n".join(lines)
        assert not [line for line in lines if any(sign in line for sign in BAD_SIGNS)], "\n".join(lines)
        assert not [line for line in lines if any(password in line for password in USERS.values())]
        assert target.stop() == 0
    finally:
        target.stop()
        target.remove()


@pytest.fixture(scope="module")
def secured() -> Iterator[Target]:
    """A broker with every mechanism."""
    yield from running(Target(sasl=sasl.SETTINGS))


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Target, Callable[..., str]]]:
    """A broker whose OAUTHBEARER takes signed tokens alone, and a function that signs."""
    jwt = pytest.importorskip("jwt")
    rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    path.write_text(json.dumps({"keys": [{**public, "kid": "k", "use": "sig", "alg": "RS256"}]}))

    def sign(algorithm: str = "RS256", by: object = None, **claims: object) -> str:
        now = int(time.time())
        given = {"sub": USER, "iat": now, "exp": now + 300, **claims}
        return str(jwt.encode(given, by or key, algorithm=algorithm, headers={"kid": "k"}))

    url = {"listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": path.as_uri()}
    for target in running(Target(sasl={**sasl.SETTINGS, **url})):
        yield target, sign


@pytest.fixture
def connect(secured: Target) -> Iterator[Connect]:
    """Opens connections to the listener, which are closed after the test."""
    opened: list[Login] = []

    def connect() -> Login:
        opened.append(Login(secured.sasl_address, LONG_S))
        return opened[-1]

    yield connect
    for login in opened:
        login.close()


def test_hundreds_of_hostile_logins(secured: Target) -> None:
    found: list[str] = []
    fuzz = SaslFuzz(secured.sasl_address, random.Random(1), lambda kind, text, frames: found.append(text))
    fuzz.run(50)
    with memory_comes_back(secured):
        fuzz.run(400)
        assert secured.is_serving()
    assert not found


def test_messages_of_scram_in_the_wrong_order(connect: Connect) -> None:
    """The last message first, the first one twice, a good last one twice, and none but the first."""
    recorded = ScramLogin(MECHANISM, USER, PASSWORD, "nonce")
    login = connect()
    login.choose(MECHANISM)
    answer = bytes(login.token(recorded.first()).auth_bytes)
    final = recorded.final(answer)
    with pytest.raises(Refused, match="invalid credentials"):
        login.token(recorded.first())
    assert not login.is_served()
    login = connect()
    login.choose(MECHANISM)
    with pytest.raises(Refused, match="invalid credentials"):
        login.token(final)
    assert not login.is_served()
    login = connect()
    login.choose(MECHANISM)
    login.token(recorded.first())
    assert not login.is_served()


def test_a_recorded_login_is_of_no_use(connect: Connect) -> None:
    """The same messages on another connection, where the server has another nonce."""
    login = connect()
    login.scram(MECHANISM, USER, PASSWORD)
    assert login.is_served()
    replayed = connect()
    replayed.choose(MECHANISM)
    frames = [frame for frame in login.frames if frame not in (METADATA, handshake(MECHANISM))]
    assert len(frames) == 2
    replayed.exchange(frames[0])
    assert replayed.exchange(frames[1])[4:6] == b"\0\x3a"
    assert not replayed.is_served()


@pytest.mark.parametrize("size", [0, 1, 32, 63, 65, 128, 300_000])
def test_proofs_of_another_length(connect: Connect, size: int) -> None:
    login = connect()
    client = ScramLogin(MECHANISM, USER, PASSWORD, "nonce")
    login.choose(MECHANISM)
    head, _, proof = client.final(bytes(login.token(client.first()).auth_bytes)).partition(b",p=")
    longer = (base64.b64decode(proof) + bytes(size))[:size]
    with pytest.raises(Refused, match="invalid credentials"):
        login.token(head + b",p=" + base64.b64encode(longer))
    assert not login.is_served()


def test_a_login_for_somebody_else(connect: Connect) -> None:
    """Another authorization id, and a user name with characters of the grammar."""
    login = connect()
    login.choose(MECHANISM)
    with pytest.raises(Refused, match="authorization id that is different"):
        login.token(b"n,a=another,n=fuzz-user,r=nonce")
    login = connect()
    login.choose("PLAIN")
    with pytest.raises(Refused, match="authorization id that is different"):
        login.token(b"another\0fuzz-user\0" + PASSWORD.encode())
    assert not login.is_served()


@pytest.mark.parametrize("user", ["another", USER])
def test_another_login_of_a_connection(connect: Connect, user: str) -> None:
    """Another user cannot take over a connection, and a wrong password ends it."""
    login = connect()
    login.scram(MECHANISM, USER, PASSWORD)
    assert login.is_served()
    with pytest.raises(Refused, match="Cannot change principals" if user != USER else "re-authentication"):
        login.scram(MECHANISM, user, USERS["another"])
    assert not login.is_served()


def test_a_request_between_the_messages_of_another_login(connect: Connect) -> None:
    """An error, and the end of the connection."""
    login = connect()
    login.scram(MECHANISM, USER, PASSWORD)
    login.choose(MECHANISM)
    assert not login.is_served()
    with pytest.raises(Refused):
        login.exchange(METADATA)


def test_logins_that_stand_still(secured: Target, connect: Connect) -> None:
    """Two hundred clients in the middle of a login."""
    with memory_comes_back(secured):
        clients = [connect() for _ in range(200)]
        for number, client in enumerate(clients):
            client.send(handshake(MECHANISM))
            client.socket.sendall(authenticate(b"n,,n=fuzz-user,r=abc")[: number % 30])
        assert secured.is_serving()
        other = connect()
        other.scram(MECHANISM, USER, PASSWORD)
        assert other.is_served()
        for client in (*clients, other):
            client.close()


def test_tokens_of_half_a_megabyte(secured: Target, connect: Connect) -> None:
    """They fit into the largest frame before a login, and are refused; looking through one again for each of its bytes
    would take longer than the client waits."""
    for mechanism, token in (
        (MECHANISM, b"n,,n=" + b"a" * 500_000 + b",r=b" + b",x=y" * 1000),
        (MECHANISM, b"n,,n=a,r=" + b"," * 500_000),
        (MECHANISM, b"n,,n=" + b"=2C" * 150_000 + b"="),
        ("OAUTHBEARER", b"n,,\x01" + b"a=b\x01" * 120_000),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer " + b"a" * 500_000 + b"\x01"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer " + b"a." * 240_000 + b"\x01\x01"),
        ("PLAIN", b"\0" * 500_000),
    ):
        login = connect()
        login.choose(mechanism)
        try:
            answer = bytes(login.token(token).auth_bytes)
        except Refused:
            answer = b""
        assert answer in (b"", b'{"status":"invalid_token"}') or mechanism == MECHANISM
        assert not login.is_served()
    assert secured.is_serving()


def test_signed_tokens(signed: tuple[Target, Callable[..., str]]) -> None:
    """A right one logs in; unsigned ones, those of other algorithms and of the public key as a secret do not."""
    target, sign = signed
    good = sign()
    head, claims, signature = good.split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"none","kid":"k"}').decode().rstrip("=")
    secret = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"k"}').decode().rstrip("=")
    deep = base64.urlsafe_b64encode(b"[" * 90_000).decode().rstrip("=")
    assert is_taken(target, good)
    for token in (
        unsigned_token(USER),
        f"{none}.{claims}.",
        f"{none}.{claims}.{signature}",
        f"{secret}.{claims}.{signature}",
        sign("HS256", "x" * 64),
        f"{head}.{claims}.{signature[:-8]}",
        f"{head}.{claims}.",
        f"{head}.{claims}",
        f"{head}.!!!.{signature}",
        f"{head}.{claims[:-1]}_.{signature}",
        f"{deep}.{claims}.{signature}",
        f"{head}.{deep}.{signature}",
        sign(exp="soon"),
        sign(exp=1e300),
        sign(sub=["a"]),
        sign(padding="x" * 300_000, exp=1),
    ):
        assert not is_taken(target, token), token[:200]
    assert is_taken(target, sign(padding="x" * 300_000))


def is_taken(target: Target, token: str) -> bool:
    login = Login(target.sasl_address, LONG_S)
    try:
        return login.oauth(token) == b"" and login.is_served()
    except Refused:
        return False
    finally:
        login.close()


def test_a_finding_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--replay` logs in anew where the connection of a finding was logged in, and uses the new broker's nonces."""
    client = ScramLogin(MECHANISM, USER, PASSWORD, "nonce")
    stale = b"c=biws,r=nonceOLD,p=" + base64.b64encode(bytes(64))
    findings = Findings(tmp_path)
    findings.add_sasl("login", "a password", [f"{MECHANISM} {USER} {PASSWORD}", METADATA])
    findings.add_sasl("log", "tokens", ["token right", METADATA, "token wrong", METADATA])
    findings.add_sasl("oauth", "a token of OAUTHBEARER", ["OAUTHBEARER fuzz-user", METADATA])
    broken: list[Step] = [handshake(MECHANISM), authenticate(client.first()), authenticate(stale)]
    findings.add_sasl("answer", "a wrong proof", broken)
    shown = []
    for path in sorted(tmp_path.iterdir()):
        assert replay(path) == 0
        shown.append(capsys.readouterr().out)
    wrong, token, *whole = shown
    # A nonce of another broker would be refused as such.
    assert "Invalid client nonce" not in wrong
    assert b"Authentication failed during authentication due to invalid credentials".hex()[:40] in wrong
    assert "login token right: done" in token
    assert "login token wrong: done" not in token
    assert ["the client is served" in each for each in whole] == [True, True]
