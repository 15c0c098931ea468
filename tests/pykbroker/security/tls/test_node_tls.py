"""The TLS of a node's listeners: settings of each, changes while it runs, and connections to other nodes."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.config.definitions import ConfigError
from pykbroker.security.tls.connecting import TlsRefused, with_tls
from pykbroker.security.tls.development import issue
from pykbroker.security.tls.jks import read_jks
from pykbroker.security.tls.listener_tls import ListenerTls
from pykbroker.security.tls.node_tls import NodeTls
from pykbroker.security.tls.settings import TlsSettings
from tests.pykbroker.security.tls.certificates import authority, file_texts, listener_tls, server, texts
from tests.pykbroker.security.tls.java_stores import JKS, JKS_KEY_PASSWORD, STORE_PASSWORD, jks_key, jks_of

LISTENERS = {
    "listeners": "SSL://localhost:0,LOGIN://localhost:0,PLAINTEXT://localhost:0",
    "listener.security.protocol.map": "SSL:SSL,LOGIN:SASL_SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "log.dirs": "/nowhere",
}


def config(**more: str) -> BrokerConfig:
    properties = {**LISTENERS, **texts(server(), authority()), **{k.replace("__", "."): v for k, v in more.items()}}
    return BrokerConfig.from_properties(properties)


def verify_mode(tls: ListenerTls | None) -> ssl.VerifyMode:
    assert tls is not None
    assert tls.server is not None
    return tls.server.verify_mode


def test_listeners_with_tls() -> None:
    node = NodeTls(config())
    assert node.of("SSL") is not None
    assert node.of("LOGIN") is not None
    assert node.of("PLAINTEXT") is None
    assert node.of("CONTROLLER") is None


def test_certificates_of_clients_with_a_login() -> None:
    """P-243: a listener with SASL_SSL asks for certificates only if its own setting says so."""
    node = NodeTls(config(ssl__client__auth="required"))
    assert verify_mode(node.of("SSL")) is ssl.CERT_REQUIRED
    assert verify_mode(node.of("LOGIN")) is ssl.CERT_NONE
    node = NodeTls(config(listener__name__login__ssl__client__auth="requested"))
    assert verify_mode(node.of("SSL")) is ssl.CERT_NONE
    assert verify_mode(node.of("LOGIN")) is ssl.CERT_OPTIONAL


def test_a_listener_without_a_key_store_is_named() -> None:
    """Apache Kafka starts, and refuses every handshake."""
    own = {f"listener.name.ssl.{key}": text for key, text in texts(server()).items() if "keystore" in key}
    half = BrokerConfig.from_properties({**LISTENERS, **own})
    with pytest.raises(ConfigError, match="listener LOGIN has TLS and needs a key store"):
        NodeTls(half)


def test_an_error_names_the_listener() -> None:
    with pytest.raises(ConfigError, match=r"\(listener LOGIN\)"):
        NodeTls(config(listener__name__login__ssl__enabled__protocols="TLSv1.9"))


def test_a_listener_that_is_added() -> None:
    """P-484: it gets the settings of the moment; one that is known keeps its own."""
    node = NodeTls(config(listeners="SSL://localhost:0"))
    known = node.of("SSL")
    assert node.of("LOGIN") is None
    node.add("LOGIN", config(listener__name__login__ssl__client__auth="required"))
    assert verify_mode(node.of("LOGIN")) is ssl.CERT_REQUIRED
    node.add("SSL", config(ssl__client__auth="required"))
    assert node.of("SSL") is known


def test_a_listener_that_is_added_with_settings_that_cannot_be_used() -> None:
    """P-484: it is not added."""
    node = NodeTls(config(listeners="SSL://localhost:0"))
    with pytest.raises(ConfigError, match=r"\(listener LOGIN\)"):
        node.add("LOGIN", config(listener__name__login__ssl__enabled__protocols="TLSv1.9"))
    assert node.of("LOGIN") is None


def with_store(issued: Any) -> BrokerConfig:
    own = {f"listener.name.ssl.{key}": text for key, text in texts(issued).items() if "keystore" in key}
    return config().with_dynamic({}, own)


def test_changes_of_settings(caplog: pytest.LogCaptureFixture) -> None:
    """P-244: checked before they are stored, with Kafka's text, and taken when they are in the metadata."""
    node = NodeTls(config())
    tls = node.of("SSL")
    assert tls is not None
    first = tls.server
    renewed = with_store(issue("broker", issuer=authority(), hosts=["localhost", "127.0.0.1"]))
    assert node.refusal_of_change(renewed) is None
    assert tls.server is first
    node.apply(renewed)
    second = tls.server
    assert second is not first
    stranger = with_store(server(name="stranger"))
    reason = node.refusal_of_change(stranger) or ""
    assert reason.startswith(
        "Invalid value org.apache.kafka.common.config.ConfigException: Validation of dynamic config update of "
        "SSLFactory failed: org.apache.kafka.common.config.ConfigException: Keystore DistinguishedName does not match"
    )
    assert reason.endswith(" for configuration Invalid dynamic configuration")
    with caplog.at_level(logging.ERROR):
        node.apply(stranger)
    assert tls.server is second
    assert "listener SSL keeps its TLS settings, as the new ones are refused" in caplog.text


NOT_LOADED = "org.apache.kafka.common.KafkaException: Failed to load SSL keystore {} of type {}"
NOT_VALID = "org.apache.kafka.common.errors.InvalidConfigurationException: {}"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"keystore.location": "/no/such/file"}, NOT_LOADED.format("/no/such/file", "JKS")),
        ({"keystore.location": ""}, NOT_LOADED.format("", "JKS")),
        ({"truststore.location": " "}, NOT_LOADED.format("", "JKS")),
        ({"keystore.password": "wrong"}, NOT_LOADED.format("{store}", "JKS")),
        ({"key.password": "wrong"}, None),
        ({"keystore.type": "XYZ"}, NOT_LOADED.format("{store}", "XYZ")),
        ({"keystore.type": ""}, NOT_LOADED.format("{store}", "")),
        (
            {"keystore.type": "PEM"},
            NOT_VALID.format(
                "SSL key store password cannot be specified with PEM format, only key password may be specified"
            ),
        ),
        (
            {"truststore.certificates": "x"},
            NOT_VALID.format("SSL trust store certs can be specified only for PEM, but trust store type is JKS."),
        ),
        (
            {"truststore.location": "/no/file", "truststore.password": "x"},
            NOT_LOADED.format("/no/file", "JKS"),
        ),
    ],
)
def test_stores_that_cannot_be_used_in_kafkas_words(
    tmp_path: Path, changes: dict[str, str], reason: str | None
) -> None:
    """P-244: texts of responses have neither the cause nor the listener, as Kafka's."""
    store = tmp_path / "store"
    store.write_bytes(JKS)
    first = {
        "listeners": "SSL://localhost:0",
        "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
        "log.dirs": "/nowhere",
        "ssl.keystore.type": "JKS",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": JKS_KEY_PASSWORD,
    }
    static = BrokerConfig.from_properties(first)
    own = {f"listener.name.ssl.ssl.{key}": text for key, text in changes.items()}
    text = NodeTls(static).refusal_of_change(static.with_dynamic({}, own))
    start = "Invalid value org.apache.kafka.common.config.ConfigException: Validation of dynamic config update of "
    assert text is not None
    if reason is not None:
        end = " for configuration Invalid dynamic configuration"
        assert text == f"{start}SSLFactory failed: {reason.replace('{store}', str(store))}{end}"


async def handshake(of_client: ListenerTls, of_server: ListenerTls, host: str) -> None:
    """Connects by `with_tls`, sends a byte there and back."""
    ours, theirs = trio.testing.memory_stream_pair()

    async def open_stream(host: str, port: int) -> trio.abc.Stream:
        return ours

    async def serve() -> None:
        assert of_server.server is not None
        stream = trio.SSLStream(theirs, of_server.server, server_side=True)
        try:
            await stream.send_all(await stream.receive_some(10))
        except trio.BrokenResourceError:
            await trio.aclose_forcefully(theirs)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        try:
            stream = await with_tls(open_stream, of_client)(host, 9093)
            await stream.send_all(b"x")
            assert await stream.receive_some(10) == b"x"
        finally:
            nursery.cancel_scope.cancel()


async def test_a_connection_to_another_node() -> None:
    tls = listener_tls(texts(server(), authority()))
    await handshake(tls, tls, "localhost")
    await handshake(tls, tls, "127.0.0.1")


@pytest.mark.parametrize(
    ("host", "trusted", "words"),
    [
        ("other.example", authority(), "Hostname mismatch, certificate is not valid for 'other.example'"),
        ("localhost", issue("another CA", is_authority=True), "unable to get local issuer certificate"),
    ],
)
async def test_another_node_that_is_not_trusted(host: str, trusted: Any, words: str) -> None:
    """The error is an OSError with the reason, as other failures to connect."""
    refused: list[BaseException] = []
    try:
        await handshake(listener_tls(texts(server(), trusted)), listener_tls(texts(server())), host)
    except* TlsRefused as group:
        refused += group.exceptions
    assert f"the TLS handshake with {host}:9093 failed: " in str(refused[0])
    assert words in str(refused[0])


def test_a_key_store_that_cannot_be_read_names_the_listener() -> None:
    with pytest.raises(ConfigError, match=r"No matching PRIVATE KEY entries in PEM file.*\(listener LOGIN\)"):
        NodeTls(config(listener__name__login__ssl__keystore__key="nothing"))


IMPOSSIBLE = [
    ("enabled.protocols", "TLSv1.9"),
    ("cipher.suites", "TLS_NOTHING"),
    ("provider", "SunJSSE"),
    ("principal.mapping.rules", "RULE:x"),
    ("endpoint.identification.algorithm", "ldaps"),
]


@pytest.mark.parametrize(("key", "text"), IMPOSSIBLE)
def test_settings_beside_the_stores_that_cannot_be_used(key: str, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """P-244: Kafka looks at no other settings of an open listener than those of its stores."""
    node = NodeTls(config())
    tls = node.of("SSL")
    assert tls is not None
    first = tls.server
    own = {f"listener.name.ssl.ssl.{key}": text}
    changed = config().with_dynamic({}, own)
    assert node.refusal_of_change(changed) is None
    caplog.set_level(logging.ERROR)
    node.apply(changed)
    assert tls.server is first
    assert "listener SSL keeps its TLS settings, as the new ones are refused" in caplog.text
    # A certificate that is replaced is used nevertheless, and the error is not logged again.
    caplog.clear()
    renewed = texts(issue("broker", issuer=authority(), hosts=["localhost", "127.0.0.1"]))
    stores = {f"listener.name.ssl.{name}": value for name, value in renewed.items() if "keystore" in name}
    changed = config().with_dynamic({}, {**own, **stores})
    assert node.refusal_of_change(changed) is None
    node.apply(changed)
    assert tls.server is not first
    assert not caplog.text
    # Without the setting that cannot be used.
    second = tls.server
    node.apply(config().with_dynamic({}, stores))
    assert tls.server is second


def test_settings_beside_the_stores_are_used(caplog: pytest.LogCaptureFixture) -> None:
    node = NodeTls(config())
    node.apply(config().with_dynamic({}, {"listener.name.ssl.ssl.client.auth": "required"}))
    assert verify_mode(node.of("SSL")) is ssl.CERT_REQUIRED


def test_a_change_of_names_is_allowed_by_the_settings_of_the_start_alone() -> None:
    """P-244: `ssl.allow.dn.changes` is no setting that Kafka changes while the listener is open."""
    stranger = texts(server(name="stranger"))
    stores = {f"listener.name.ssl.{name}": value for name, value in stranger.items() if "keystore" in name}
    node = NodeTls(config())
    own = {**stores, "listener.name.ssl.ssl.allow.dn.changes": "true"}
    assert "DistinguishedName does not match" in (node.refusal_of_change(config().with_dynamic({}, own)) or "")
    node = NodeTls(config(ssl__allow__dn__changes="true"))
    assert node.refusal_of_change(config(ssl__allow__dn__changes="true").with_dynamic({}, stores)) is None


def test_other_settings_change_while_a_store_cannot_be_read(tmp_path: Path) -> None:
    """P-244: stores are read only when their own settings change; Kafka's listeners are left alone too."""
    store = tmp_path / "store"
    store.write_bytes(JKS)
    static = BrokerConfig.from_properties(
        {
            "listeners": "SSL://localhost:0",
            "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
            "log.dirs": "/nowhere",
            "ssl.keystore.type": "JKS",
            "ssl.keystore.location": str(store),
            "ssl.keystore.password": STORE_PASSWORD,
            "ssl.key.password": JKS_KEY_PASSWORD,
        }
    )
    node = NodeTls(static)
    tls = node.of("SSL")
    assert tls is not None
    first = tls.server
    store.unlink()
    changed = static.with_dynamic({}, {"log.cleaner.threads": "2"})
    assert node.refusal_of_change(changed) is None
    node.apply(changed)
    assert tls.server is first


def test_files_that_have_changed_are_read_again(tmp_path: Path) -> None:
    """P-244: a certificate that was renewed in its file is used without a restart."""
    properties = {**LISTENERS, **file_texts(tmp_path, server(), authority())}
    settings = BrokerConfig.from_properties(properties)
    node = NodeTls(settings)
    tls = node.of("SSL")
    assert tls is not None
    first = tls.server
    node.apply(settings)
    assert tls.server is first
    (tmp_path / "key.pem").write_text(issue("broker", issuer=authority(), hosts=["localhost", "127.0.0.1"]).pem + "\n")
    node.apply(settings)
    assert tls.server is not first


def test_a_key_store_with_another_number_of_keys(tmp_path: Path) -> None:
    """P-244: Kafka's text."""
    (key,) = read_jks(JKS, STORE_PASSWORD).keys
    entry = jks_key(key.protected_key, *key.certificates)
    stores = []
    for count in (1, 2):
        (tmp_path / f"{count}.jks").write_bytes(jks_of(*[entry] * count))
        stores.append(
            {
                "ssl.keystore.location": str(tmp_path / f"{count}.jks"),
                "ssl.keystore.password": STORE_PASSWORD,
                "ssl.key.password": JKS_KEY_PASSWORD,
            }
        )
    with pytest.raises(ConfigError, match="existing store contains 1 entries, new store contains 2 entries"):
        listener_tls(stores[0]).check(TlsSettings.read(stores[1].get))


async def test_a_connection_that_is_given_up_is_closed() -> None:
    """As by a timeout in the middle of the handshake: the socket would leak otherwise."""
    ours, _theirs = trio.testing.memory_stream_pair()

    async def open_stream(host: str, port: int) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        return ours

    with trio.move_on_after(1) as scope:
        await with_tls(open_stream, listener_tls(texts(server(), authority())))("localhost", 9093)
    assert scope.cancelled_caught
    with pytest.raises(trio.ClosedResourceError):
        await ours.send_all(b"x")
