"""Logins by SCRAM, OAUTHBEARER and delegation token: stock clients and tools, and refusals as bytes.

One broker offers all mechanisms. Users are made by kafka-configs, which logs in by PLAIN as `admin`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
import time
from base64 import b64decode, b64encode, urlsafe_b64encode
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient
from kafka.errors import KafkaError as KafkaPythonError

from interop_tests.brokers import BrokerProcess
from interop_tests.conftest import StartBroker
from interop_tests.java_tools import ACLS, CONFIGS, DELEGATION_TOKENS, TOPICS, JavaTools
from interop_tests.wire import METADATA, Connection, ConnectionClosed, request_header, string

pytestmark = [pytest.mark.own_broker, pytest.mark.area("authentication")]

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
SCRAM = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
PREFIX = "listener.name.sasl_plaintext"
MODULES = "org.apache.kafka.common.security"
SESSION_MS = 3000
SETTINGS = {
    "sasl.enabled.mechanisms": ",".join([PLAIN, *SCRAM, OAUTHBEARER]),
    f"{PREFIX}.scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
    f"{PREFIX}.scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
    f"{PREFIX}.oauthbearer.sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
    f"{PREFIX}.scram-sha-512.connections.max.reauth.ms": str(SESSION_MS),
    "delegation.token.secret.key": "a-secret-of-the-cluster",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS;User:alice",
}
SASL_HANDSHAKE, SASL_AUTHENTICATE, DESCRIBE_TOKENS = 17, 36, 41
SASL_AUTHENTICATION_FAILED = 58
METADATA_OF_NOTHING = request_header(METADATA, 4) + struct.pack(">i", 0) + b"\0"
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class Secured:
    """The broker, its users' passwords, and the settings of clients."""

    def __init__(self, broker: BrokerProcess, folder: Path, libs: Path) -> None:
        self.broker = broker
        self.folder = folder
        self.tools = JavaTools(libs, broker.bootstrap)

    def java(self, mechanism: str, options: str) -> str:
        """Path of a properties file for Java tools."""
        module = {PLAIN: "plain.Plain", OAUTHBEARER: "oauthbearer.OAuthBearer"}.get(mechanism, "scram.Scram")
        path = self.folder / f"{abs(hash((mechanism, options)))}.properties"
        handler = ""
        if mechanism == OAUTHBEARER:
            name = "OAuthBearerUnsecuredLoginCallbackHandler"
            handler = f"sasl.login.callback.handler.class={MODULES}.oauthbearer.internals.unsecured.{name}\n"
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n{handler}"
            f"sasl.jaas.config={MODULES}.{module}LoginModule required {options};\n"
        )
        return str(path)

    def admin(self) -> str:
        return self.java(PLAIN, 'username="admin" password="admin-secret"')


@pytest.fixture(scope="module")
def secured(start_broker: StartBroker, tmp_path_factory: pytest.TempPathFactory, java_libs: Path) -> Secured:
    users = {"admin": "admin-secret"}
    broker = start_broker("mechanisms", SETTINGS, users=users)
    secured = Secured(broker, tmp_path_factory.mktemp("mechanisms-clients"), java_libs)
    where = ("--command-config", secured.admin(), "--entity-type", "users")
    # One after the other: the controller refuses two changes of a user in one request.
    for scram in ("SCRAM-SHA-256=[iterations=8192,password=alice-secret]", "SCRAM-SHA-512=[password=alice-secret]"):
        secured.tools.check(CONFIGS, *where, "--entity-name", "alice", "--alter", "--add-config", scram)
    assert "SCRAM-SHA-256=iterations=8192" in secured.tools.check(CONFIGS, *where, "--describe").stdout
    return secured


def confluent(secured: Secured, mechanism: str, password: str = "alice-secret", **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": secured.broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
        **more,
    }


def kafka_python(
    secured: Secured, mechanism: str, user: str = "alice", password: str = "alice-secret"
) -> dict[str, Any]:
    return {
        "bootstrap_servers": secured.broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


@pytest.mark.client("Java tools")
@pytest.mark.parametrize("mechanism", SCRAM)
def test_java_by_scram(secured: Secured, mechanism: str, name: str) -> None:
    """kafka-topics logs in by SCRAM; with a wrong password, or as nobody, it is refused with one and the same text."""
    right = secured.java(mechanism, 'username="alice" password="alice-secret"')
    secured.tools.check(TOPICS, "--command-config", right, "--create", "--topic", name)
    assert name in secured.tools.check(TOPICS, "--command-config", right, "--list").lines
    refusal = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    for options in ('username="alice" password="wrong"', 'username="nobody" password="wrong"'):
        output = secured.tools.run(TOPICS, "--command-config", secured.java(mechanism, options), "--list")
        assert refusal in output.stdout + output.stderr


@pytest.mark.client("confluent-kafka")
@pytest.mark.parametrize("mechanism", SCRAM)
def test_confluent_by_scram(secured: Secured, mechanism: str, name: str) -> None:
    """Records go in and come out; a wrong password is an authentication error."""
    producer = confluent_kafka.Producer(confluent(secured, mechanism))
    producer.produce(name, b"value")
    assert producer.flush(30) == 0
    settings = confluent(secured, mechanism, **{"group.id": name, "auto.offset.reset": "earliest"})
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([name])
    message = consumer.poll(30)
    assert message is not None
    assert message.value() == b"value"
    consumer.close()
    errors: list[Any] = []
    settings = {**confluent(secured, mechanism, "wrong"), "error_cb": errors.append}
    refused = AdminClient(settings)
    deadline = time.monotonic() + 30
    while not errors and time.monotonic() < deadline:
        refused.poll(0.1)
    assert errors[0].code() == confluent_kafka.KafkaError._AUTHENTICATION


@pytest.mark.client("kafka-python")
@pytest.mark.parametrize("mechanism", SCRAM)
def test_kafka_python_by_scram(secured: Secured, mechanism: str, name: str) -> None:
    """Records go in and come out; a wrong password and an unknown user are refused."""
    producer = kafka.KafkaProducer(**kafka_python(secured, mechanism))
    producer.send(name, b"value").get(30)
    producer.close()
    consumer = kafka.KafkaConsumer(
        name, **kafka_python(secured, mechanism), auto_offset_reset="earliest", consumer_timeout_ms=30_000
    )
    assert next(iter(consumer)).value == b"value"
    consumer.close()
    for user, password in (("alice", "wrong"), ("nobody", "alice-secret")):
        with pytest.raises(KafkaPythonError):
            kafka.KafkaConsumer(**kafka_python(secured, mechanism, user, password), api_version_auto_timeout_ms=5000)


@pytest.mark.client("aiokafka")
@pytest.mark.parametrize("mechanism", SCRAM)
def test_aiokafka_by_scram(secured: Secured, mechanism: str, name: str) -> None:
    """A record goes in; a wrong password is refused."""
    import asyncio

    async def send(password: str) -> None:
        settings = kafka_python(secured, mechanism, password=password)
        producer = aiokafka.AIOKafkaProducer(**settings)
        try:
            await producer.start()
            await producer.send_and_wait(name, b"value")
        finally:
            await producer.stop()

    asyncio.run(send("alice-secret"))
    with pytest.raises(aiokafka.errors.KafkaError):
        asyncio.run(send("wrong"))


def unsecured_token(user: str, lifetime_s: int = 3600) -> str:
    claims = {"sub": user, "iat": int(time.time()), "exp": int(time.time()) + lifetime_s}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join(urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


@pytest.mark.client("confluent-kafka")
def test_confluent_by_oauthbearer(secured: Secured, name: str) -> None:
    """A token of the unsecured kind, made by a callback."""
    settings = {
        "bootstrap.servers": secured.broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": OAUTHBEARER,
        "oauth_cb": lambda config: (unsecured_token("alice"), time.time() + 3600),
    }
    producer = confluent_kafka.Producer(settings)
    producer.produce(name, b"value")
    assert producer.flush(30) == 0


@pytest.mark.client("Java tools")
def test_java_by_oauthbearer(secured: Secured, name: str) -> None:
    """kafka-topics with the unsecured login of Kafka's own client."""
    options = 'unsecuredLoginStringClaim_sub="alice"'
    config = secured.java(OAUTHBEARER, options)
    secured.tools.check(TOPICS, "--command-config", config, "--create", "--topic", name)


@pytest.mark.client("Java tools")
def test_delegation_tokens(secured: Secured, name: str) -> None:
    """kafka-delegation-tokens creates, describes, renews and expires; a client logs in by the token meanwhile."""
    config = ("--command-config", secured.java("SCRAM-SHA-256", 'username="alice" password="alice-secret"'))
    created = secured.tools.check(
        DELEGATION_TOKENS, *config, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:renewer"
    )
    row = next(line for line in created.lines if "User:alice" in line).split()
    token_id, token_hmac, owner = row[:3]
    assert owner == "User:alice"
    assert "User:renewer" in created.stdout
    by_token = secured.java("SCRAM-SHA-256", f'username="{token_id}" password="{token_hmac}" tokenauth="true"')
    secured.tools.check(TOPICS, "--command-config", by_token, "--create", "--topic", name)
    refused = secured.tools.run(DELEGATION_TOKENS, "--command-config", by_token, "--describe")
    assert "Delegation Token requests are not allowed" in refused.stdout + refused.stderr
    described = secured.tools.check(DELEGATION_TOKENS, *config, "--describe", "--owner-principal", "User:alice")
    assert token_id in described.stdout
    secured.tools.check(DELEGATION_TOKENS, *config, "--renew", "--renew-time-period", "-1", "--hmac", token_hmac)
    secured.tools.check(DELEGATION_TOKENS, *config, "--expire", "--expiry-time-period", "-1", "--hmac", token_hmac)
    described = secured.tools.check(DELEGATION_TOKENS, *config, "--describe", "--owner-principal", "User:alice")
    assert token_id not in described.stdout
    gone = secured.tools.run(TOPICS, "--command-config", by_token, "--list")
    assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in gone.stdout + gone.stderr


@pytest.mark.client("Java tools")
def test_tokens_for_others_need_a_right(secured: Secured) -> None:
    """--owner-principal needs CreateTokens on the user."""
    where = ("--command-config", secured.admin(), "--entity-type", "users", "--entity-name", "bob")
    secured.tools.check(CONFIGS, *where, "--alter", "--add-config", "SCRAM-SHA-256=[password=bob-secret]")
    config = ("--command-config", secured.java("SCRAM-SHA-256", 'username="bob" password="bob-secret"'))
    create = ("--create", "--max-life-time-period", "-1", "--owner-principal", "User:carol")
    refused = secured.tools.run(DELEGATION_TOKENS, *config, *create)
    assert "Delegation Token authorization failed" in refused.stdout + refused.stderr
    grant = ("--add", "--allow-principal", "User:bob", "--operation", "CreateTokens", "--user-principal", "User:carol")
    secured.tools.check(ACLS, "--command-config", secured.admin(), *grant)
    deadline = time.monotonic() + 20
    while "Created" not in (output := secured.tools.run(DELEGATION_TOKENS, *config, *create)).stdout:
        assert time.monotonic() < deadline, output
    described = secured.tools.check(DELEGATION_TOKENS, *config, "--describe", "--owner-principal", "User:carol")
    assert "User:carol" in described.stdout


def handshake(mechanism: str) -> bytes:
    return request_header(SASL_HANDSHAKE, 1) + string(mechanism)


def authenticate(token: bytes) -> bytes:
    return request_header(SASL_AUTHENTICATE, 1) + struct.pack(">i", len(token)) + token


class Answer:
    """A SaslAuthenticate response of version 1."""

    def __init__(self, reply: bytes) -> None:
        _, self.error, size = struct.unpack_from(">ihh", reply)
        position = 8 + max(size, 0)
        self.message = None if size < 0 else reply[8:position].decode()
        (length,) = struct.unpack_from(">i", reply, position)
        self.token = reply[position + 4 : position + 4 + length]
        (self.lifetime_ms,) = struct.unpack_from(">q", reply, position + 4 + length)


def log_in(connection: Connection, mechanism: str, user: str, password: str) -> Answer:
    """A whole SCRAM login; returns the last answer."""
    connection.exchange(handshake(mechanism))
    bare = f"n={user},r=abcdef"
    first = Answer(connection.exchange(authenticate(f"n,,{bare}".encode())))
    if first.error:
        return first
    parts = dict(part.split("=", 1) for part in first.token.decode().split(","))
    name = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password.encode(), b64decode(parts["s"]), int(parts["i"]))
    client_key = hmac.digest(salted, b"Client Key", name)
    final = f"c=biws,r={parts['r']}"
    signed = f"{bare},{first.token.decode()},{final}".encode()
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    return Answer(connection.exchange(authenticate(f"{final},p={b64encode(proof).decode()}".encode())))


@pytest.mark.client("raw frames")
@pytest.mark.parametrize("mechanism", SCRAM)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "alice-secret"), ("=", "x"), ("", "x")])
def test_refused_logins(secured: Secured, mechanism: str, user: str, password: str) -> None:
    """P-256: error code and text of a refused login, and the end of the connection."""
    with Connection(secured.broker.bootstrap) as connection:
        answer = log_in(connection, mechanism, user, password)
        text = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
        assert (answer.error, answer.message, answer.token) == (SASL_AUTHENTICATION_FAILED, text, b"")
        with pytest.raises(ConnectionClosed):
            connection.exchange(METADATA_OF_NOTHING)


@pytest.mark.client("raw frames")
def test_mechanisms_in_the_order_of_apache_kafka(secured: Secured) -> None:
    """The list of a handshake is in the order of a Java HashSet."""
    with Connection(secured.broker.bootstrap) as connection:
        reply = connection.exchange(handshake("OTHER"))
    names = b"".join(map(string, ["PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER"]))
    assert reply[4:] == struct.pack(">hi", 33, 4) + names


@pytest.mark.client("raw frames")
def test_a_session_ends_and_is_prolonged(secured: Secured) -> None:
    """KIP-368: the lifetime in the response, a login in between, another user, and the end."""
    mechanism = "SCRAM-SHA-512"
    with Connection(secured.broker.bootstrap) as connection:
        answer = log_in(connection, mechanism, "alice", "alice-secret")
        assert (answer.error, answer.lifetime_ms) == (0, SESSION_MS)
        connection.exchange(METADATA_OF_NOTHING)
        assert log_in(connection, mechanism, "alice", "alice-secret").lifetime_ms == SESSION_MS
        connection.exchange(METADATA_OF_NOTHING)
        # A second handshake within a second is an ordinary request.
        assert connection.exchange(handshake(mechanism))[4:] == struct.pack(">hi", 34, 0)
        time.sleep(SESSION_MS / 1000 + 0.2)
        with pytest.raises(ConnectionClosed):
            connection.exchange(METADATA_OF_NOTHING)


@pytest.mark.client("raw frames")
def test_a_client_that_logs_in_again_otherwise(secured: Secured) -> None:
    """A wrong password, another mechanism, and an unknown one, on a connection that is logged in."""
    mechanism = "SCRAM-SHA-512"
    with Connection(secured.broker.bootstrap) as connection:
        log_in(connection, mechanism, "alice", "alice-secret")
        answer = log_in(connection, mechanism, "alice", "wrong")
        assert answer.message is not None
        assert answer.message.startswith("Authentication failed during re-authentication due to invalid credentials")
    with Connection(secured.broker.bootstrap) as connection:
        log_in(connection, mechanism, "alice", "alice-secret")
        assert connection.exchange(handshake("PLAIN"))[4:6] == b"\0\0"
        with pytest.raises(ConnectionClosed):
            connection.exchange(authenticate(b"\0admin\0admin-secret"))
    with Connection(secured.broker.bootstrap) as connection:
        log_in(connection, mechanism, "alice", "alice-secret")
        with pytest.raises(ConnectionClosed):
            connection.exchange(handshake("OTHER"))


@pytest.mark.client("raw frames")
@pytest.mark.parametrize("message", [b"", b"n,,\x01\x01", b"y,,\x01auth=Bearer abc\x01\x01", b"\x01"])
def test_malformed_oauthbearer(secured: Secured, message: bytes) -> None:
    """A text that says the mechanism and nothing else."""
    with Connection(secured.broker.bootstrap) as connection:
        connection.exchange(handshake(OAUTHBEARER))
        answer = Answer(connection.exchange(authenticate(message)))
        text = "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"
        assert (answer.error, answer.message) == (SASL_AUTHENTICATION_FAILED, text)


@pytest.mark.client("raw frames")
def test_another_scheme_of_oauthbearer(secured: Secured) -> None:
    """It has no answer."""
    with Connection(secured.broker.bootstrap) as connection:
        connection.exchange(handshake(OAUTHBEARER))
        with pytest.raises(ConnectionClosed):
            connection.exchange(authenticate(b"n,,\x01auth=Basic abc\x01\x01"))


@pytest.mark.client("raw frames")
def test_a_refused_token(secured: Secured) -> None:
    """The server's JSON is no error yet; the client's byte after it is answered with the failure."""
    with Connection(secured.broker.bootstrap) as connection:
        connection.exchange(handshake(OAUTHBEARER))
        message = f"n,,\x01auth=Bearer {unsecured_token('alice', -100)}\x01\x01".encode()
        answer = Answer(connection.exchange(authenticate(message)))
        assert (answer.error, answer.token) == (0, b'{"status":"invalid_token"}')
        answer = Answer(connection.exchange(authenticate(b"\x01")))
        assert (answer.error, answer.message) == (SASL_AUTHENTICATION_FAILED, '{"status":"invalid_token"}')


@pytest.mark.client("raw frames")
def test_a_token_is_a_session(secured: Secured) -> None:
    """The session of an OAUTHBEARER login ends with its token."""
    with Connection(secured.broker.bootstrap) as connection:
        connection.exchange(handshake(OAUTHBEARER))
        message = f"n,,\x01auth=Bearer {unsecured_token('alice', 100)}\x01\x01".encode()
        answer = Answer(connection.exchange(authenticate(message)))
        assert answer.error == 0
        assert 90_000 < answer.lifetime_ms <= 100_000
