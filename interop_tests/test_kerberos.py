"""Logins by GSSAPI with Kerberos: stock clients, the security layer, refusals as bytes, and user names by rules.

The realm is made for the tests. They are skipped where MIT's KDC or the Python package gssapi is missing; librdkafka's
wheels have no Kerberos.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka
import pytest

from interop_tests.brokers import BrokerProcess
from interop_tests.conftest import StartBroker
from interop_tests.java_tools import CONSOLE_CONSUMER, CONSOLE_PRODUCER, TOPICS, JavaTools
from interop_tests.kerberos import REALM, Realm, missing_programs
from interop_tests.test_sasl_mechanisms import METADATA_OF_NOTHING, Answer, authenticate, handshake
from interop_tests.wire import Connection, ConnectionClosed, request_header, string

gssapi = pytest.importorskip(
    "gssapi", reason="needs the package gssapi (on Debian: apt install libkrb5-dev)", exc_type=ImportError
)

pytestmark = [
    pytest.mark.own_broker,
    pytest.mark.area("authentication"),
    pytest.mark.skipif(
        bool(missing_programs()),
        reason=f"needs MIT's Kerberos (Debian: krb5-kdc krb5-admin-server krb5-user), has no {missing_programs()}",
    ),
]

GSSAPI = "GSSAPI"
PREFIX = "listener.name.sasl_plaintext"
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
SESSION_MS = 3_000_000  # longer than a ticket
SASL_HANDSHAKE, CREATE_TOPICS = 17, 19
SASL_AUTHENTICATION_FAILED = 58
REFUSED = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
OFFER = b"\x01\x01\x00\x00"
RULES = r"RULE:[2:$1-$2](bob-.*)s/-.*//,RULE:[1:$1@$0](alice@.*|dave@.*)s/@.*//"


def module(principal: str, key_table: Path) -> str:
    return f'{MODULE} required useKeyTab=true storeKey=true keyTab="{key_table}" principal="{principal}";'


class World:
    """A realm with its users, and a broker with GSSAPI."""

    def __init__(self, realm: Realm, broker: BrokerProcess, libs: Path, users: dict[str, tuple[str, Path]]) -> None:
        self.realm = realm
        self.broker = broker
        self.users = users
        self.tools = JavaTools(libs, broker.bootstrap, (f"-Djava.security.krb5.conf={realm.config}",))

    def java(self, user: str) -> str:
        """Path of a properties file for Java tools."""
        path = self.realm.folder / f"{user.replace('/', '-')}.properties"
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
            f"sasl.jaas.config={module(*self.users[user])}\n"
        )
        return str(path)

    def context(self, user: str, service: str = "kafka", *, is_mutual: bool = True) -> Any:
        """The security context of a client."""
        cache = self.realm.log_in(*self.users[user])
        credentials = gssapi.Credentials(usage="initiate", store={"ccache": f"FILE:{cache}"})
        name = gssapi.Name(f"{service}/{self.realm.host}@{REALM}", gssapi.NameType.kerberos_principal)
        flags = gssapi.RequirementFlag.mutual_authentication if is_mutual else gssapi.RequirementFlag.integrity
        return gssapi.SecurityContext(
            name=name, creds=credentials, usage="initiate", mech=gssapi.MechType.kerberos, flags=flags
        )


@pytest.fixture(scope="module")
def world(start_broker: StartBroker, tmp_path_factory: pytest.TempPathFactory, java_libs: Path) -> Iterator[World]:
    realm = Realm(tmp_path_factory.mktemp("kerberos"))
    old = {name: os.environ.get(name) for name in realm.variables}
    os.environ.update(realm.variables)  # of this process, which has clients
    try:
        service = realm.add(f"kafka/{realm.host}")
        users = {name: realm.add(name) for name in ("alice", "bob/admin", "carol", "dave", f"other/{realm.host}")}
        settings = {
            "sasl.enabled.mechanisms": GSSAPI,
            "sasl.kerberos.service.name": "kafka",
            f"{PREFIX}.gssapi.sasl.jaas.config": module(*service),
            f"{PREFIX}.gssapi.connections.max.reauth.ms": str(SESSION_MS),
            "sasl.kerberos.principal.to.local.rules": RULES,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice;User:bob",
        }
        flags = (f"-Djava.security.krb5.conf={realm.config}",)
        broker = start_broker("kerberos", settings, protocol="SASL_PLAINTEXT", jvm_flags=flags)
        yield World(realm, broker, java_libs, users)
    finally:
        realm.close()
        for name, value in old.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@pytest.mark.client("Java tools")
def test_java(world: World, name: str) -> None:
    """P-320: kafka-topics, kafka-console-producer and kafka-console-consumer log in by a key table."""
    config = world.java("alice")
    world.tools.check(TOPICS, "--command-config", config, "--create", "--topic", name)
    world.tools.check(CONSOLE_PRODUCER, "--command-config", config, "--topic", name, stdin="one\ntwo\n")
    where = ("--command-config", config, "--topic", name, "--from-beginning", "--max-messages", "2")
    assert world.tools.check(CONSOLE_CONSUMER, *where).lines == ["one", "two"]


@pytest.mark.client("Java tools")
def test_rules_make_the_user(world: World, name: str) -> None:
    """P-321: bob/admin is the super user bob; dave is a user without rights; carol has no user name."""
    world.tools.check(TOPICS, "--command-config", world.java("bob/admin"), "--create", "--topic", name)
    assert create_topic(world, "bob/admin", name + "-2") == 0
    assert create_topic(world, "dave", name + "-3") == 29  # TOPIC_AUTHORIZATION_FAILED


@pytest.mark.client("kafka-python")
def test_kafka_python(world: World, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-320: records go in and come out, by the ticket of a credential cache."""
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{world.realm.log_in(*world.users['alice'])}")
    settings = {
        "bootstrap_servers": world.broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": GSSAPI,
        "sasl_kerberos_service_name": "kafka",
        "sasl_kerberos_domain_name": world.realm.host,
    }
    producer = kafka.KafkaProducer(**settings)
    producer.send(name, b"value").get(30)
    producer.close()
    consumer = kafka.KafkaConsumer(name, **settings, auto_offset_reset="earliest", consumer_timeout_ms=30_000)
    assert next(iter(consumer)).value == b"value"
    consumer.close()


def offered(connection: Connection, context: Any, is_mutual: bool = True) -> bytes:
    """Establishes the context; returns the unwrapped offer of security layers."""
    connection.exchange(handshake(GSSAPI))
    answer = Answer(connection.exchange(authenticate(context.step())))
    assert answer.error == 0, answer.message
    if is_mutual:
        context.step(answer.token)
        assert context.complete
        answer = Answer(connection.exchange(authenticate(b"")))
    assert answer.lifetime_ms == 0
    unwrapped = context.unwrap(answer.token)
    assert not unwrapped.encrypted
    return bytes(unwrapped.message)


def log_in(connection: Connection, context: Any, choice: bytes = OFFER) -> Answer:
    """A whole login; returns the last answer."""
    assert offered(connection, context) == OFFER
    return Answer(connection.exchange(authenticate(context.wrap(choice, False).message)))


def create_topic(world: World, user: str, topic: str) -> int:
    """The error code of CreateTopics by a user."""
    with Connection(world.broker.bootstrap) as connection:
        assert log_in(connection, world.context(user)).error == 0
        body = struct.pack(">i", 1) + string(topic) + struct.pack(">ihiiib", 1, 1, 0, 0, 20_000, 0)
        reply = connection.exchange(request_header(CREATE_TOPICS, 2) + body)
        (error,) = struct.unpack_from(">h", reply, 4 + 4 + 4 + len(string(topic)))
        return int(error)


@pytest.mark.client("raw frames")
@pytest.mark.parametrize(
    "choice", [OFFER, b"\x01\x00\x00\x00", b"\x03\x00\x10\x00", OFFER + b"alice", OFFER + b"mallory", OFFER + b"\xff"]
)
def test_choices_that_are_accepted(world: World, choice: bytes) -> None:
    """P-320: no security layer, whatever the size and the authorization id; the session's end is not the ticket's."""
    with Connection(world.broker.bootstrap) as connection:
        answer = log_in(connection, world.context("alice"), choice)
        assert (answer.error, answer.token) == (0, b"")
        assert answer.lifetime_ms == SESSION_MS
        connection.exchange(METADATA_OF_NOTHING)


@pytest.mark.client("raw frames")
@pytest.mark.parametrize("choice", [b"\x02\x01\x00\x00", b"\x04\x01\x00\x00", b"\x00\x00\x00\x00"])
def test_choices_that_are_refused(world: World, choice: bytes) -> None:
    """P-320: integrity and confidentiality are not offered."""
    with Connection(world.broker.bootstrap) as connection:
        answer = log_in(connection, world.context("alice"), choice)
        assert (answer.error, answer.message) == (SASL_AUTHENTICATION_FAILED, REFUSED)
        assert connection.is_closed_by_broker()


@pytest.mark.client("raw frames")
@pytest.mark.parametrize("choice", [b"", b"\x01", b"\x01\x00\x00"])
def test_choices_that_are_too_short(world: World, choice: bytes) -> None:
    """P-320: the connection is closed without an answer."""
    with Connection(world.broker.bootstrap) as connection, pytest.raises(ConnectionClosed):
        log_in(connection, world.context("alice"), choice)


@pytest.mark.client("raw frames")
def test_a_client_that_does_not_ask_for_the_brokers_proof(world: World) -> None:
    """P-320: the offer is the answer to its first token."""
    with Connection(world.broker.bootstrap) as connection:
        context = world.context("alice", is_mutual=False)
        assert offered(connection, context, is_mutual=False) == OFFER
        answer = Answer(connection.exchange(authenticate(context.wrap(OFFER, False).message)))
        assert answer.error == 0
        connection.exchange(METADATA_OF_NOTHING)


@pytest.mark.client("raw frames")
def test_a_choice_that_is_encrypted(world: World) -> None:
    """P-320: a client may encrypt its choice."""
    with Connection(world.broker.bootstrap) as connection:
        context = world.context("alice")
        offered(connection, context)
        assert Answer(connection.exchange(authenticate(context.wrap(OFFER, True).message))).error == 0
        connection.exchange(METADATA_OF_NOTHING)


@pytest.mark.client("raw frames")
@pytest.mark.parametrize("token", [b"", b"\0", b"x" * 5000, b"\x60\x03\x06\x01\x00"])
def test_first_tokens_that_are_none(world: World, token: bytes) -> None:
    """P-322: error code and text of a refused login, and the end of the connection."""
    with Connection(world.broker.bootstrap) as connection:
        connection.exchange(handshake(GSSAPI))
        answer = Answer(connection.exchange(authenticate(token)))
        assert (answer.error, answer.message, answer.token) == (SASL_AUTHENTICATION_FAILED, REFUSED, b"")
        assert connection.is_closed_by_broker()


@pytest.mark.client("raw frames")
def test_a_ticket_for_another_service(world: World) -> None:
    """P-322: refused with the same text."""
    with Connection(world.broker.bootstrap) as connection:
        connection.exchange(handshake(GSSAPI))
        answer = Answer(connection.exchange(authenticate(world.context("alice", "other").step())))
        assert (answer.error, answer.message) == (SASL_AUTHENTICATION_FAILED, REFUSED)


@pytest.mark.client("raw frames")
@pytest.mark.parametrize("where", ["before the offer", "in place of the choice", "damaged choice"])
def test_tokens_out_of_order(world: World, where: str) -> None:
    """P-322: data where an empty token belongs, a choice that is not wrapped, and one with a wrong checksum."""
    with Connection(world.broker.bootstrap) as connection:
        context = world.context("alice")
        if where == "before the offer":
            connection.exchange(handshake(GSSAPI))
            connection.exchange(authenticate(context.step()))
            answer = Answer(connection.exchange(authenticate(b"early")))
        else:
            offered(connection, context)
            token = bytearray(context.wrap(OFFER, False).message)
            token[-1] ^= 1
            answer = Answer(connection.exchange(authenticate(OFFER if where.startswith("in") else bytes(token))))
        assert (answer.error, answer.message) == (SASL_AUTHENTICATION_FAILED, REFUSED)


@pytest.mark.client("raw frames")
def test_a_replayed_token(world: World) -> None:
    """P-322: refused with the same text."""
    context = world.context("alice")
    token = context.step()
    with Connection(world.broker.bootstrap) as connection:
        connection.exchange(handshake(GSSAPI))
        assert Answer(connection.exchange(authenticate(token))).error == 0
    with Connection(world.broker.bootstrap) as connection:
        connection.exchange(handshake(GSSAPI))
        answer = Answer(connection.exchange(authenticate(token)))
        assert (answer.error, answer.message) == (SASL_AUTHENTICATION_FAILED, REFUSED)


@pytest.mark.client("raw frames")
def test_a_client_without_a_user_name(world: World) -> None:
    """P-321: its login succeeds, and its first request ends the connection."""
    with Connection(world.broker.bootstrap) as connection:
        answer = log_in(connection, world.context("carol"))
        assert (answer.error, answer.lifetime_ms) == (0, SESSION_MS)
        with pytest.raises(ConnectionClosed):
            connection.exchange(METADATA_OF_NOTHING)


@pytest.mark.client("raw frames")
def test_another_login_of_a_connection(world: World) -> None:
    """P-17, P-321: the same user prolongs the session; another one is refused, one without a name is cut off."""
    with Connection(world.broker.bootstrap) as connection:
        assert log_in(connection, world.context("alice")).error == 0
        connection.exchange(METADATA_OF_NOTHING)
        assert log_in(connection, world.context("alice")).lifetime_ms == SESSION_MS
        connection.exchange(METADATA_OF_NOTHING)
    with Connection(world.broker.bootstrap) as connection:
        assert log_in(connection, world.context("alice")).error == 0
        answer = log_in(connection, world.context("dave"))
        text = "Cannot change principals during re-authentication from User.alice: User.dave"
        assert (answer.error, answer.message) == (SASL_AUTHENTICATION_FAILED, text)
    with Connection(world.broker.bootstrap) as connection:
        assert log_in(connection, world.context("alice")).error == 0
        with pytest.raises(ConnectionClosed):
            log_in(connection, world.context("carol"))


@pytest.mark.client("raw frames")
def test_tokens_without_headers(world: World) -> None:
    """P-14: after a handshake of version 0 tokens are bare frames; a refused one ends the connection."""
    with Connection(world.broker.bootstrap) as connection:
        connection.exchange(request_header(SASL_HANDSHAKE, 0) + string(GSSAPI))
        context = world.context("alice")
        context.step(connection.exchange(context.step()))
        assert context.unwrap(connection.exchange(b"")).message == OFFER
        connection.send(context.wrap(OFFER, False).message)
        connection.exchange(METADATA_OF_NOTHING)
    with Connection(world.broker.bootstrap) as connection:
        connection.exchange(request_header(SASL_HANDSHAKE, 0) + string(GSSAPI))
        connection.send(b"nonsense")
        assert connection.is_closed_by_broker()
