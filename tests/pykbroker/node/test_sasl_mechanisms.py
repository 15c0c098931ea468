"""Mechanisms of a listener: what the settings offer, credentials in the metadata, and changes while the broker runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pykbroker.config.broker_config import BrokerConfig, ConfigError
from pykbroker.controller.metadata.delegation_tokens import token_hmac
from pykbroker.controller.metadata.image import EMPTY_IMAGE, ClusterImage
from pykbroker.node.host import Host
from pykbroker.node.sasl_mechanisms import ListenerMechanisms
from pykbroker.protocol.log_messages.metadata_records import DelegationTokenRecord, UserScramCredentialRecord
from pykbroker.security.sasl_mechanism import Authenticated, InvalidCredentials, LoginRefused
from pykbroker.security.scram import ScramLogin, credential_of_password
from tests.support.admin import apply_records

SCRAM = "SCRAM-SHA-256"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
LISTENER = {"listeners": "S://:9092", "listener.security.protocol.map": "S:SASL_PLAINTEXT"}
PLAIN_USERS = {"listener.name.s.plain.sasl.jaas.config": f'{PLAIN_MODULE} user_a="a-secret";'}


class World:
    """A listener, its settings and the metadata.

    has_module: the listener has a login module for mechanisms without one of their own.
    """

    def __init__(self, is_controller: bool = False, has_module: bool = True, /, **more: str) -> None:
        modules = {"listener.name.s.sasl.jaas.config": f"{SCRAM_MODULE};"} if has_module else {}
        self.texts = {**LISTENER, **modules, **{key.replace("_", "."): text for key, text in more.items()}}
        self.image: ClusterImage = EMPTY_IMAGE
        image: Callable[[], ClusterImage] = lambda: self.image  # noqa: E731
        config = BrokerConfig.from_properties(self.texts)
        self.mechanisms = ListenerMechanisms(config, "S", image, Host.real(), is_controller=is_controller)

    def offered(self, **changes: str) -> dict[str, Any]:
        self.texts |= {key.replace("_", "."): text for key, text in changes.items()}
        return self.mechanisms.under(BrokerConfig.from_properties(self.texts))

    def log_in(self, login: ScramLogin) -> Authenticated | None:
        exchange = self.offered()[SCRAM].make()
        login.check(exchange.evaluate(login.final(exchange.evaluate(login.first()))))
        found: Authenticated | None = exchange.result
        return found


def test_what_a_listener_offers() -> None:
    assert list(World().offered()) == ["PLAIN"]
    other = {"listener.name.s.other.sasl.jaas.config": f"{SCRAM_MODULE};"}
    world = World(sasl_enabled_mechanisms="OTHER,SCRAM-SHA-512,PLAIN", connections_max_reauth_ms="5000", **other)
    assert {name: each.max_reauth_ms for name, each in world.offered().items()} == {
        "SCRAM-SHA-512": 5000,
        "PLAIN": 5000,
    }
    own = {"listener.name.s.plain.connections.max.reauth.ms": "7", "listener.name.s.connections.max.reauth.ms": "8"}
    world = World(sasl_enabled_mechanisms="SCRAM-SHA-512,PLAIN", connections_max_reauth_ms="5000", **own)
    assert {name: each.max_reauth_ms for name, each in world.offered().items()} == {"SCRAM-SHA-512": 8, "PLAIN": 7}


def test_kerberos_needs_its_settings() -> None:
    """P-323: a listener with GSSAPI is not made without a login module."""
    with pytest.raises(ConfigError, match="GSSAPI needs the login module com"):
        World(sasl_enabled_mechanisms="GSSAPI,PLAIN")


@pytest.mark.parametrize("mechanism", ["PLAIN", SCRAM, "OAUTHBEARER", "GSSAPI", "OTHER"])
def test_each_mechanism_needs_a_login_module(mechanism: str) -> None:
    """P-310: also those that read nothing of it; the text is Kafka's, and the key is the one to set."""
    text = rf"Could not find a 'KafkaServer' or 's.KafkaServer' entry in the JAAS configuration.*{mechanism}"
    users = {} if mechanism == "PLAIN" else PLAIN_USERS
    with pytest.raises(ConfigError, match=text) as refused:
        World(False, False, sasl_enabled_mechanisms=f"PLAIN,{mechanism}", **users)
    assert refused.value.name == f"listener.name.s.{mechanism.lower()}.sasl.jaas.config"


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("listener.name.s.plain.sasl.jaas.config", "", "Login module not specified in JAAS config"),
        ("sasl.jaas.config", f"{PLAIN_MODULE} user_a=1;", "Value not specified for key 'user_a' in JAAS config"),
        (
            "listener.name.s.plain.sasl.jaas.config",
            f"{PLAIN_MODULE}; {SCRAM_MODULE};",
            "JAAS config property contains 2 login modules, should be 1 module",
        ),
        ("listener.name.s.plain.sasl.jaas.config", "PlainLoginModule required;", "No LoginModule found for Plain"),
    ],
)
def test_a_login_module_that_cannot_be_used(key: str, text: str, reason: str) -> None:
    """P-310."""
    with pytest.raises(ConfigError, match=reason) as refused:
        World(False, False, **{key: text})
    assert refused.value.name == key


def test_only_the_module_of_plain_has_users() -> None:
    """P-310: PlainServerCallbackHandler looks for no other; a key without a mechanism's name serves all."""
    users = 'user_a="a-secret";'
    world = World(False, False, sasl_jaas_config=f"{PLAIN_MODULE} {users}", sasl_enabled_mechanisms=f"PLAIN,{SCRAM}")
    assert list(world.offered()) == ["PLAIN", SCRAM]
    assert world.offered()["PLAIN"].make().evaluate(b"\0a\0a-secret") == b""
    world = World(False, False, **{"listener.name.s.plain.sasl.jaas.config": f"{SCRAM_MODULE} {users}"})
    with pytest.raises(LoginRefused):
        world.offered()["PLAIN"].make().evaluate(b"\0a\0a-secret")


def test_passwords_that_change_while_the_broker_runs() -> None:
    world = World(False, False, sasl_jaas_config=f'{PLAIN_MODULE} user_a="old";')
    assert world.offered()["PLAIN"].make().evaluate(b"\0a\0old") == b""
    changed = world.offered(sasl_jaas_config=f'{PLAIN_MODULE} user_a="new";')
    assert changed["PLAIN"].make().evaluate(b"\0a\0new") == b""
    assert world.offered() is changed


def test_settings_that_cannot_be_used_leave_the_old_ones(caplog: pytest.LogCaptureFixture) -> None:
    world = World(sasl_enabled_mechanisms="PLAIN")
    old = world.offered()
    changes = {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.server.callback.handler.class": "com.example.X"}
    assert world.offered(**changes) is old
    assert "changed SASL settings are not used" in caplog.text


def test_credentials_are_those_of_the_newest_metadata() -> None:
    world = World(sasl_enabled_mechanisms=SCRAM)
    with pytest.raises(InvalidCredentials):
        world.log_in(ScramLogin(SCRAM, "alice", "secret", "n"))
    credential = credential_of_password("sha256", "secret", b"salt")
    record = UserScramCredentialRecord(name="alice", mechanism=1, **credential._asdict())
    world.image = apply_records(world.image, [record])
    assert world.log_in(ScramLogin(SCRAM, "alice", "secret", "n")) == Authenticated("alice")


def test_a_controller_accepts_the_login_of_its_own_node_until_the_metadata_has_one() -> None:
    """Nodes of a quorum that starts have no metadata, and need one another to get it."""
    more = {
        "process.roles": "controller",
        "controller.listener.names": "S",
        "controller.quorum.bootstrap.servers": "other:9093",
        "sasl.mechanism.controller.protocol": SCRAM,
        "listener.name.s.scram-sha-256.sasl.jaas.config": f'{PLAIN_MODULE} username="node" password="node-secret";',
        "sasl.enabled.mechanisms": SCRAM,
    }
    world = World(True, **more)
    assert world.log_in(ScramLogin(SCRAM, "node", "node-secret", "n")) == Authenticated("node")
    with pytest.raises(InvalidCredentials):
        world.log_in(ScramLogin(SCRAM, "node", "wrong", "n"))
    credential = credential_of_password("sha256", "changed", b"salt")
    record = UserScramCredentialRecord(name="node", mechanism=1, **credential._asdict())
    world.image = apply_records(world.image, [record])
    with pytest.raises(InvalidCredentials):
        world.log_in(ScramLogin(SCRAM, "node", "node-secret", "n"))


def test_a_login_by_token_ends_with_it() -> None:
    """P-252."""
    from base64 import b64encode

    world = World(sasl_enabled_mechanisms=SCRAM, delegation_token_secret_key="key")
    token = DelegationTokenRecord(owner="User:alice", requester="User:bob", expiration_timestamp=123, token_id="t1")
    world.image = apply_records(world.image, [token])
    password = b64encode(token_hmac("key", "t1")).decode()
    for _ in range(2):
        found = world.log_in(ScramLogin(SCRAM, "t1", password, "n", is_token=True))
        assert found == Authenticated("alice", 123, True)
    with pytest.raises(InvalidCredentials):
        world.log_in(ScramLogin(SCRAM, "t1", password, "n"))
