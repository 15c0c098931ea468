"""TLS with stock clients: key stores of every type, protocols and cipher suites, certificates of clients.

`open_broker` has a PEM key store and asks clients for a certificate without requiring one. `strict_broker` has a JKS
key store and a PKCS12 trust store, TLS 1.2 with two cipher suites, requires certificates, makes user names of them, and
has an authorizer.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import kafka.errors
import pytest
from aiokafka.helpers import create_ssl_context

from interop_tests.brokers import BrokerProcess
from interop_tests.certificates import KEY_PASSWORD, PASSWORD, Authority, jks, pkcs12, trust_store
from interop_tests.clients import wait_until
from interop_tests.conftest import StartBroker
from interop_tests.java_tools import ACLS, CONFIGS, CONSOLE_CONSUMER, CONSOLE_PRODUCER, TOPICS, JavaTools
from interop_tests.kcat_package import find_kcat
from interop_tests.made_once import or_skip
from interop_tests.test_aiokafka import consumer_of, producer_of

pytestmark = [pytest.mark.area("security"), pytest.mark.own_broker, pytest.mark.java]

if shutil.which("openssl") is None or shutil.which("keytool") is None:
    pytest.skip("needs the command lines of OpenSSL and of Java's keytool", allow_module_level=True)

HOSTS = "DNS:localhost,IP:127.0.0.1"
TIMEOUT_S = 30.0
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def client_pem(authority: Authority) -> Path:
    return authority.issue("alice")


@pytest.fixture(scope="module")
def open_broker(start_broker: StartBroker, authority: Authority) -> BrokerProcess:
    return start_broker(
        "tls-open",
        {
            "ssl.keystore.type": "PEM",
            "listener.name.ssl.ssl.keystore.location": str(authority.issue("broker", hosts=HOSTS, is_rsa=True)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.certificate),
            "ssl.client.auth": "requested",
        },
        protocol="SSL",
    )


@pytest.fixture(scope="module")
def strict_broker(start_broker: StartBroker, authority: Authority) -> BrokerProcess:
    return start_broker(
        "tls-strict",
        {
            "ssl.keystore.type": "JKS",
            "ssl.keystore.location": str(jks(authority.issue("strict", hosts=HOSTS, is_rsa=True))),
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": KEY_PASSWORD,
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(trust_store(authority, "PKCS12")),
            "ssl.truststore.password": PASSWORD,
            "ssl.client.auth": "required",
            "ssl.enabled.protocols": "TLSv1.2",
            "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "ssl.principal.mapping.rules": "RULE:^CN=(.*?),O=Interop$/$1/L,DEFAULT",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:admin;User:ANONYMOUS",
        },
        protocol="SSL",
    )


def java_file(folder: Path, **settings: str) -> str:
    """Path of a properties file of a Java client; names have "_" for "."."""
    path = folder / f"client-{len(list(folder.iterdir()))}.properties"
    lines = [f"{key.replace('_', '.')}={value}\n" for key, value in settings.items()]
    path.write_text("security.protocol=SSL\n" + "".join(lines))
    return str(path)


def of_confluent(broker: BrokerProcess, authority: Authority, pem: Path | None = None, **more: Any) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "ssl",
        "ssl.ca.location": str(authority.certificate),
        "log_level": 0,
        **more,
    }
    if pem is not None:
        settings |= {"ssl.certificate.location": str(pem), "ssl.key.location": str(pem)}
    return settings


def confluent_produce(settings: dict[str, Any], topic: str, values: list[bytes]) -> None:
    """Sends values; raises KafkaException for the first that fails."""
    failed: list[confluent_kafka.KafkaError] = []

    def on_delivery(error: confluent_kafka.KafkaError | None, message: Any) -> None:
        if error is not None:
            failed.append(error)

    producer = confluent_kafka.Producer({"message.timeout.ms": 10_000, **settings})
    for value in values:
        producer.produce(topic, value, on_delivery=on_delivery)
    assert producer.flush(TIMEOUT_S) == 0
    if failed:
        raise confluent_kafka.KafkaException(failed[0])


VALUES = [b"small", bytes(300_000), b"last"]


@pytest.mark.client("confluent-kafka")
def test_librdkafka(open_broker: BrokerProcess, authority: Authority, client_pem: Path, name: str) -> None:
    """Records of every size come back over TLS."""
    for pem in (None, client_pem):
        confluent_produce(of_confluent(open_broker, authority, pem), name, VALUES)
    consumer = confluent_kafka.Consumer(
        of_confluent(open_broker, authority, None, **{"group.id": name, "auto.offset.reset": "earliest"})
    )
    consumer.subscribe([name])
    found: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < 2 * len(VALUES) and time.monotonic() < deadline:
        found += [m.value() or b"" for m in consumer.consume(100, 0.2) if m.error() is None]
    consumer.close()
    assert found == 2 * VALUES


@pytest.mark.client("kafka-python")
def test_kafka_python(open_broker: BrokerProcess, authority: Authority, name: str) -> None:
    """Records of every size come back over TLS."""
    settings = {
        "bootstrap_servers": open_broker.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(authority.certificate),
    }
    producer = kafka.KafkaProducer(**settings)
    for value in VALUES:
        producer.send(name, value).get(timeout=TIMEOUT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(name, **settings, auto_offset_reset="earliest", consumer_timeout_ms=60_000)
    found = [next(consumer).value for _ in VALUES]
    consumer.close()
    assert found == VALUES


@pytest.mark.client("aiokafka")
def test_aiokafka(open_broker: BrokerProcess, authority: Authority, name: str) -> None:
    """Records of every size come back over TLS."""
    context = create_ssl_context(cafile=str(authority.certificate))
    settings: dict[str, Any] = {"security_protocol": "SSL", "ssl_context": context}

    async def scenario() -> None:
        async with producer_of(open_broker.bootstrap, **settings) as producer:
            for value in VALUES:
                await producer.send_and_wait(name, value)
        async with consumer_of(
            open_broker.bootstrap, name, auto_offset_reset="earliest", group_id=None, **settings
        ) as consumer:
            assert [(await consumer.getone()).value for _ in VALUES] == VALUES

    asyncio.run(asyncio.wait_for(scenario(), 2 * TIMEOUT_S))


@pytest.mark.client("kcat")
def test_kcat(open_broker: BrokerProcess, authority: Authority, name: str) -> None:
    """Records come back over TLS."""
    kcat = or_skip(find_kcat)
    where = ["-b", open_broker.bootstrap, "-X", "security.protocol=ssl"]
    where += ["-X", f"ssl.ca.location={authority.certificate}", "-t", name]
    done = kcat.run("-P", *where, stdin=b"one\ntwo\n")
    assert done.returncode == 0, done.stderr
    assert kcat.run("-C", "-e", "-q", *where).stdout == b"one\ntwo\n"


@pytest.mark.client("Java tools")
@pytest.mark.parametrize("kind", ["PEM", "JKS", "PKCS12"])
def test_java(
    open_broker: BrokerProcess, authority: Authority, java_libs: Path, tmp_path: Path, name: str, kind: str
) -> None:
    """Java's console producer and consumer with each type of trust store."""
    path = authority.certificate if kind == "PEM" else trust_store(authority, kind)
    password = {} if kind == "PEM" else {"ssl_truststore_password": PASSWORD}
    config = java_file(tmp_path, ssl_truststore_type=kind, ssl_truststore_location=str(path), **password)
    tools = JavaTools(java_libs, open_broker.bootstrap)
    tools.check(CONSOLE_PRODUCER, "--topic", name, "--command-config", config, stdin="one\ntwo\n")
    read = ("--topic", name, "--from-beginning", "--max-messages", "2", "--timeout-ms", "60000")
    assert tools.check(CONSOLE_CONSUMER, *read, "--command-config", config).lines == ["one", "two"]


def s_client(broker: BrokerProcess, authority: Authority, *options: str) -> str:
    """Output of OpenSSL's client for one connection."""
    trust = ("-CAfile", str(authority.certificate), "-verify_return_error")
    done = subprocess.run(
        ["openssl", "s_client", "-connect", broker.bootstrap, *trust, *options],
        input="",
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    return done.stdout + done.stderr


@pytest.mark.client("openssl")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("-tls1_3",), "TLSv1.3, Cipher is TLS_AES_256_GCM_SHA384"),
        (("-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"), "TLSv1.3, Cipher is TLS_AES_128_GCM_SHA256"),
        (("-tls1_2",), "TLSv1.2, Cipher is ECDHE-RSA-AES256-GCM-SHA384"),
        (("-tls1_2", "-cipher", "ECDHE-RSA-CHACHA20-POLY1305"), "Cipher is ECDHE-RSA-CHACHA20-POLY1305"),
        (("-tls1_1", "-cipher", "ALL:@SECLEVEL=0"), "alert protocol version"),
        (("-tls1", "-cipher", "ALL:@SECLEVEL=0"), "alert protocol version"),
        (("-tls1_2", "-cipher", "NULL-SHA256:@SECLEVEL=0"), "alert handshake failure"),
        (("-tls1_2", "-cipher", "ADH-AES256-GCM-SHA384:@SECLEVEL=0"), "alert handshake failure"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_protocols_and_cipher_suites(
    open_broker: BrokerProcess, authority: Authority, options: tuple[str, ...], expected: str
) -> None:
    """P-240: TLS 1.2 and 1.3 with the usual suites, nothing older and nothing without encryption or identity."""
    text = s_client(open_broker, authority, *options)
    assert expected in text
    if "alert" not in expected:
        assert "Verify return code: 0 (ok)" in text


@pytest.mark.client("openssl")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("-tls1_2",), "Cipher is ECDHE-RSA-AES256-GCM-SHA384"),
        (("-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"), "Cipher is ECDHE-RSA-AES128-GCM-SHA256"),
        (("-tls1_2", "-cipher", "ECDHE-RSA-CHACHA20-POLY1305"), "alert handshake failure"),
        (("-tls1_3",), "alert protocol version"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_restricted_protocols_and_cipher_suites(
    strict_broker: BrokerProcess, authority: Authority, client_pem: Path, options: tuple[str, ...], expected: str
) -> None:
    """P-240: `ssl.enabled.protocols` and `ssl.cipher.suites` by Java's names."""
    own = ("-cert", str(client_pem), "-key", str(client_pem))
    assert expected in s_client(strict_broker, authority, *own, *options)


@pytest.mark.client("openssl")
def test_renegotiation_is_refused(open_broker: BrokerProcess, authority: Authority, target: str) -> None:
    """P-246: a client of TLS 1.2 cannot make the broker repeat its handshake."""
    if target == "kafka":
        pytest.skip("Java's answer to a renegotiation is its own")
    trust = ("-CAfile", str(authority.certificate))
    with subprocess.Popen(
        ["openssl", "s_client", "-connect", open_broker.bootstrap, "-tls1_2", *trust],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert any(b"Verify return code" in line for line in process.stdout), "a handshake"
        process.stdin.write(b"R\n")
        text, _ = process.communicate(timeout=TIMEOUT_S)
    assert b"RENEGOTIATING" in text
    assert b"no renegotiation" in text.lower()


def refused(settings: dict[str, Any]) -> str:
    """Text of the error with which librdkafka gives up a broker, in lower case.

    A broker's refusal is a TLS alert. librdkafka says "SSL handshake failed: " before OpenSSL's text if the alert comes
    within a call of its handshake, and OpenSSL's text alone if the alert was there before the call.
    """
    errors: list[str] = []
    producer = confluent_kafka.Producer({**settings, "error_cb": lambda error: errors.append(str(error))})
    wait_until(lambda: producer.poll(0.1) is not None and bool(errors), "an error", timeout_s=TIMEOUT_S)
    return " ".join(errors).lower()


@pytest.mark.client("confluent-kafka")
def test_clients_that_are_refused(
    strict_broker: BrokerProcess, authority: Authority, client_pem: Path, tmp_path: Path, name: str, target: str
) -> None:
    """P-245: no certificate, one of an unknown authority, one in place of the broker's that the client expects."""
    other = Authority(tmp_path / "other", "other")
    confluent_produce(of_confluent(strict_broker, authority, authority.issue("Admin")), name, [b"x"])
    assert re.search(r"alert|handshake failed", refused(of_confluent(strict_broker, authority)))
    assert re.search(r"alert|handshake failed", refused(of_confluent(strict_broker, authority, other.issue("mallory"))))
    assert "certificate verify failed" in refused(of_confluent(strict_broker, other, client_pem))
    if target == "pykbroker":
        assert "the client has no certificate, and ssl.client.auth=required asks for one" in strict_broker.log_text()
        assert "the client's certificate is not trusted (ssl.truststore)" in strict_broker.log_text()


@pytest.mark.client("kafka-python")
def test_principals_have_acls(
    strict_broker: BrokerProcess, authority: Authority, java_libs: Path, client_pem: Path, tmp_path: Path, name: str
) -> None:
    """P-242: the user is what the rules make of the certificate's subject, and ACLs are for that user."""
    admin = java_file(
        tmp_path,
        ssl_truststore_type="JKS",
        ssl_truststore_location=str(trust_store(authority, "JKS")),
        ssl_truststore_password=PASSWORD,
        ssl_keystore_type="PKCS12",
        ssl_keystore_location=str(pkcs12(authority.issue("ADMIN"))),
        ssl_keystore_password=PASSWORD,
    )
    tools = JavaTools(java_libs, strict_broker.bootstrap)
    tools.check(TOPICS, "--create", "--topic", name, "--command-config", admin)
    of_alice = {
        "bootstrap_servers": strict_broker.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(authority.certificate),
        "ssl_certfile": str(client_pem),
        "ssl_keyfile": str(client_pem),
    }
    producer = kafka.KafkaProducer(**of_alice, enable_idempotence=False, max_block_ms=10_000)
    with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
        producer.send(name, b"before").get(timeout=TIMEOUT_S)
    grant = ("--add", "--allow-principal", "User:alice", "--operation", "Write", "--topic", name)
    tools.check(ACLS, *grant, "--command-config", admin)

    def is_allowed() -> bool:
        try:
            producer.send(name, b"after").get(timeout=TIMEOUT_S)
        except kafka.errors.TopicAuthorizationFailedError:
            return False
        return True

    wait_until(is_allowed, "the ACL to take effect")
    producer.close()


@pytest.mark.client("Java tools")
def test_certificates_are_replaced(
    start_broker: StartBroker, authority: Authority, java_libs: Path, tmp_path: Path
) -> None:
    """P-244: `kafka-configs` with the same path has the file read again; another name is refused."""
    path = authority.issue("renewed", hosts=HOSTS)
    broker = start_broker(
        "tls-renewed",
        {"listener.name.ssl.ssl.keystore.type": "PEM", "listener.name.ssl.ssl.keystore.location": str(path)},
        protocol="SSL",
    )
    config = java_file(tmp_path, ssl_truststore_type="PEM", ssl_truststore_location=str(authority.certificate))
    tools = JavaTools(java_libs, broker.bootstrap)

    def alter(location: Path) -> Any:
        change = f"listener.name.ssl.ssl.keystore.location={location}"
        where = ("--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", change)
        return tools.run(CONFIGS, *where, "--command-config", config)

    def serial() -> str:
        text = s_client(broker, authority)
        return subprocess.run(
            ["openssl", "x509", "-noout", "-serial"], input=text, capture_output=True, text=True, check=True
        ).stdout

    first = serial()
    assert alter(path).returncode == 0
    authority.issue("renewed", hosts=HOSTS)
    assert alter(path).returncode == 0
    wait_until(lambda: serial() != first, "the new certificate")
    second = serial()
    done = alter(authority.issue("stranger", hosts=HOSTS))
    assert done.returncode != 0
    assert "Keystore DistinguishedName does not match" in done.stdout + done.stderr
    done = alter(tmp_path / "none.pem")
    assert done.returncode != 0
    assert "Validation of dynamic config update of SSLFactory failed" in done.stdout + done.stderr
    assert serial() == second


@pytest.mark.client("Java tools")
def test_no_secret_is_described(
    strict_broker: BrokerProcess, authority: Authority, java_libs: Path, tmp_path: Path
) -> None:
    """P-243: passwords and keys are null in DescribeConfigs, and not in the log."""
    admin = java_file(
        tmp_path,
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(authority.certificate),
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(authority.issue("admin")),
    )
    tools = JavaTools(java_libs, strict_broker.bootstrap)
    where = ("--describe", "--all", "--entity-type", "brokers", "--entity-name", "1")
    text = tools.check(CONFIGS, *where, "--command-config", admin).stdout
    assert "ssl.key.password=null sensitive=true" in text
    for secret in (KEY_PASSWORD, PASSWORD):
        assert secret not in text
        assert secret not in strict_broker.log_text()


@pytest.mark.client("wire")
@pytest.mark.parametrize("first", [b"\0\0\0\x10\0\x12\0\0", b"GET / HTTP/1.1\r\n\r\n"], ids=["kafka", "http"])
def test_plain_bytes_on_a_port_with_tls(open_broker: BrokerProcess, first: bytes, target: str) -> None:
    """P-245, P-614: the connection is closed after an alert, and nothing in plain is answered."""
    with socket.create_connection(open_broker.address, timeout=TIMEOUT_S) as connection:
        connection.sendall(first.ljust(40, b"\0"))
        received = b""
        try:
            while part := connection.recv(1000):
                received += part
        except ConnectionResetError:
            pass
    assert received == b"\x15\3\3\0\2\2\x50"
    if target == "pykbroker":
        assert "its first bytes are not TLS" in open_broker.log_text()


@pytest.mark.client("Java tools")
@pytest.mark.parametrize(("rsa_bits", "digest"), [(2048, "sha1"), (1024, "sha256")])
def test_weak_key_stores(
    start_broker: StartBroker, authority: Authority, java_libs: Path, tmp_path: Path, rsa_bits: int, digest: str
) -> None:
    """P-686: Java takes them on both sides. Clients on OpenSSL refuse them by themselves."""
    name = f"weak-{digest}"
    key = authority.issue(name, hosts=HOSTS, is_rsa=True, rsa_bits=rsa_bits, digest=digest)
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key)}
    broker = start_broker(f"tls-{name}", settings, protocol="SSL")
    admin = java_file(tmp_path, ssl_truststore_type="PEM", ssl_truststore_location=str(authority.certificate))
    tools = JavaTools(java_libs, broker.bootstrap)
    tools.check(TOPICS, "--create", "--topic", name, "--command-config", admin)
    assert tools.check(TOPICS, "--list", "--command-config", admin).lines == [name]


@pytest.mark.client("confluent-kafka")
def test_sasl_ssl(start_broker: StartBroker, authority: Authority, unique: Callable[[str], str]) -> None:
    """A login inside of TLS. P-243: the listener has no certificates of clients unless its own prefix asks for them."""
    broker = start_broker(
        "tls-sasl",
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.issue("sasl", hosts=HOSTS)),
            "ssl.client.auth": "required",
        },
        users={"alice": "open sesame"},
        protocol="SASL_SSL",
    )
    login = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "open sesame",
    }
    confluent_produce(of_confluent(broker, authority, None, **login), unique("sasl-ssl"), VALUES)
    assert "authentication failed" in refused(
        of_confluent(broker, authority, None, **{**login, "sasl.password": "wrong"})
    )
