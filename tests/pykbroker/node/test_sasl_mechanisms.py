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
from pykbroker.security.sasl_mechanism import Authenticated, InvalidCredentials
from pykbroker.security.scram import ScramLogin, credential_of_password
from tests.support.admin import apply_records

SCRAM = "SCRAM-SHA-256"
LISTENER = {"listeners": "S://:9092", "listener.security.protocol.map": "S:SASL_PLAINTEXT"}


class World:
    """A listener, its settings and the metadata."""

    def __init__(self, is_controller: bool = False, /, **more: str) -> None:
        self.texts = {**LISTENER, **{key.replace("_", "."): text for key, text in more.items()}}
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
    world = World(sasl_enabled_mechanisms="OTHER,SCRAM-SHA-512,PLAIN", connections_max_reauth_ms="5000")
    assert {name: each.max_reauth_ms for name, each in world.offered().items()} == {
        "SCRAM-SHA-512": 5000,
        "PLAIN": 5000,
    }
    own = {"listener.name.s.plain.connections.max.reauth.ms": "7", "listener.name.s.connections.max.reauth.ms": "8"}
    world = World(sasl_enabled_mechanisms="SCRAM-SHA-512,PLAIN", connections_max_reauth_ms="5000", **own)
    assert {name: each.max_reauth_ms for name, each in world.offered().items()} == {"SCRAM-SHA-512": 8, "PLAIN": 7}


def test_kerberos_needs_its_settings() -> None:
    """P-323: a listener with GSSAPI is not made without a login module."""
    with pytest.raises(ConfigError, match="GSSAPI needs a login module"):
        World(sasl_enabled_mechanisms="GSSAPI,PLAIN")


def test_passwords_that_change_while_the_broker_runs() -> None:
    world = World(sasl_jaas_config='M required user_a="old";')
    assert world.offered()["PLAIN"].make().evaluate(b"\0a\0old") == b""
    changed = world.offered(sasl_jaas_config='M required user_a="new";')
    assert changed["PLAIN"].make().evaluate(b"\0a\0new") == b""
    assert world.offered() is changed


def test_settings_that_cannot_be_used_leave_the_old_ones(caplog: pytest.LogCaptureFixture) -> None:
    world = World(sasl_enabled_mechanisms="PLAIN")
    old = world.offered()
    changes = {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.server.callback.handler.class": "com.example.X"}
    assert world.offered(**changes) is old
    assert "changed settings of SASL are not used" in caplog.text


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
        "listener.name.s.scram-sha-256.sasl.jaas.config": 'M required username="node" password="node-secret";',
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
