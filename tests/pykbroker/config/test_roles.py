"""Roles, the quorum, and whose a listener is: what Kafka accepts and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.config.broker_config import BrokerConfig, ConfigError
from pykbroker.config.jaas import KERBEROS_MODULE, PLAIN_MODULE
from pykbroker.config.parsing import find_login
from pykbroker.config.values import NodeLogin

VOTERS = "1@one:9093,2@two:9093,3@[::1]:9093"
BOTH = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.quorum.voters": VOTERS,
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://one:9092,CONTROLLER://one:9093",
}
BROKER = {**BOTH, "node.id": "9", "process.roles": "broker", "listeners": "PLAINTEXT://nine:9092"}
CONTROLLER = {**BOTH, "process.roles": "controller", "listeners": "CONTROLLER://one:9093"}


def read(base: dict[str, str], **changes: str | None) -> BrokerConfig:
    """The settings with some changed, or left out for None; "_" stands for "."."""
    given: dict[str, Any] = {**base, **{key.replace("_", "."): text for key, text in changes.items()}}
    return BrokerConfig.from_properties({key: text for key, text in given.items() if text is not None})


def test_each_role() -> None:
    both, broker, controller = map(read, (BOTH, BROKER, CONTROLLER))
    assert (both.is_broker, both.is_controller, both.is_alone) == (True, True, False)
    assert (broker.is_broker, broker.is_controller, broker.is_alone) == (True, False, False)
    assert (controller.is_broker, controller.is_controller, controller.is_alone) == (False, True, False)
    assert both.quorum.voters == {1: ("one", 9093), 2: ("two", 9093), 3: ("::1", 9093)}
    assert [address.name for address in both.network.listeners] == ["PLAINTEXT"]
    assert [address.name for address in both.network.controller_listeners] == ["CONTROLLER"]
    assert broker.network.controller_listeners == ()
    assert controller.network.listeners == ()
    assert controller.ineffective_keys == broker.ineffective_keys == both.ineffective_keys == ()


def test_who_says_nothing_is_alone() -> None:
    alone = BrokerConfig.from_properties({})
    assert alone.is_alone
    assert alone.is_broker
    assert alone.is_controller
    assert alone.network.controller_listeners == ()
    assert read({"controller.quorum.voters": "1@here:9093"}).is_alone


def test_controllers_are_advertised_to_nodes_alone() -> None:
    config = read(BOTH, advertised_listeners="PLAINTEXT://public:9092,CONTROLLER://inside:9093")
    assert list(config.network.advertised_listeners) == ["PLAINTEXT"]
    assert config.network.advertised_controller_listeners["CONTROLLER"].host == "inside"


def test_voters_may_come_from_the_log() -> None:
    config = read(BROKER, controller_quorum_voters=None, controller_quorum_bootstrap_servers="one:9093,[::1]:9094")
    assert config.quorum.voters == {}
    assert config.quorum.bootstrap_servers == (("one", 9093), ("::1", 9094))
    assert not config.is_alone


def test_a_broker_alone_has_a_login_for_the_controllers_listener() -> None:
    config = read(
        BROKER,
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        sasl_mechanism_controller_protocol="PLAIN",
        listener_name_controller_plain_sasl_jaas_config=f"{PLAIN_MODULE} required username=nine password=secret;",
    )
    assert config.security.node_logins == {"CONTROLLER": NodeLogin("PLAIN", {"username": "nine", "password": "secret"})}
    assert config.ineffective_keys == ()


def test_a_login_by_kerberos_which_is_the_default() -> None:
    """P-323: the service name is that of the login module, of the listener, or of the node."""
    key = "sasl.kerberos.service.name"
    settings = {
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "listener_name_controller_gssapi_sasl_jaas_config": f"{KERBEROS_MODULE} required "
        "useKeyTab=true keyTab='/k' principal='kafka/h';",
    }
    options = {"useKeyTab": "true", "keyTab": "/k", "principal": "kafka/h"}
    login = NodeLogin("GSSAPI", options, {key: "own"})
    config = read(
        BROKER, **settings, sasl_kerberos_service_name="k", listener_name_controller_sasl_kerberos_service_name="own"
    )
    assert config.security.node_logins == {"CONTROLLER": login}
    config = read(BROKER, **settings, sasl_kerberos_service_name="k")
    assert config.security.node_logins["CONTROLLER"].settings == {key: "k"}


def test_an_only_voter_has_the_login_for_brokers_that_its_settings_give() -> None:
    """It replicates from the other brokers of its cluster; one that has none needs no login."""
    settings = {
        "listeners": "BROKERS://:9092,CONTROLLER://:9093",
        "controller_quorum_voters": "1@one:9093",
        "inter_broker_listener_name": "BROKERS",
        "listener_security_protocol_map": "BROKERS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl_enabled_mechanisms": "PLAIN",
        "sasl_mechanism_inter_broker_protocol": "PLAIN",
    }
    assert read(BOTH, **settings).security.node_logins == {}
    jaas = f'{PLAIN_MODULE} required username=nine password="se\\"cret";'
    config = read(BOTH, **settings, listener_name_brokers_plain_sasl_jaas_config=jaas)
    assert config.is_alone
    assert config.has_peers
    assert config.security.node_logins == {"BROKERS": NodeLogin("PLAIN", {"username": "nine", "password": 'se"cret'})}
    assert not BrokerConfig.from_properties({}).has_peers


@pytest.mark.parametrize(
    ("base", "changes", "key", "reason"),
    [
        (BOTH, {"node.id": "4"}, "controller.quorum.voters", r"must name this node \(4\)"),
        (BROKER, {"node.id": "2"}, "controller.quorum.voters", r"must not name this node \(2\)"),
        (BROKER, {"controller.quorum.voters": ""}, "controller.quorum.voters", "must name the controllers"),
        (BOTH, {"controller.quorum.voters": "1@one:9093,2@two:0"}, "controller.quorum.voters", "needs a port"),
        (BOTH, {"controller.quorum.voters": "1@0.0.0.0:1,2@two:1"}, "controller.quorum.voters", "cannot connect to it"),
        (
            BOTH,
            {"controller.quorum.voters": "1@one:99999,2@two:1"},
            "controller.quorum.voters",
            "expected id@host:port",
        ),
        (
            BROKER,
            {"controller.quorum.bootstrap.servers": "one"},
            "controller.quorum.bootstrap.servers",
            "expected host",
        ),
        (BOTH, {"listeners": "PLAINTEXT://one:9092"}, "controller.listener.names", "each must be one of listeners"),
        (CONTROLLER, {"listeners": BOTH["listeners"]}, "listeners", "must be controller listeners alone"),
        (BROKER, {"listeners": BOTH["listeners"]}, "controller.listener.names", "must not name one of this node's"),
        (
            BROKER,
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
            "controller.listener.names",
            "no entry in listener.security.protocol.map",
        ),
        (
            BROKER,
            {"inter.broker.listener.name": "OTHER"},
            "inter.broker.listener.name",
            "no entry in listener.security",
        ),
        (BOTH, {"inter.broker.listener.name": "CONTROLLER"}, "inter.broker.listener.name", "one of the advertised"),
        (BOTH, {"broker.heartbeat.interval.ms": "0"}, "broker.heartbeat.interval.ms", "at least 1"),
        (
            BROKER,
            {"replica.fetch.wait.max.ms": "900", "replica.lag.time.max.ms": "800"},
            "replica.fetch.wait.max.ms",
            "must not exceed replica.lag.time.max.ms, which is 800",
        ),
        (
            BOTH,
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"},
            "sasl.mechanism.controller.protocol",
            "listener.name.controller.gssapi.sasl.jaas.config needs useKeyTab=true",
        ),
        (
            BOTH,
            {
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
                "sasl.mechanism.controller.protocol": "OTHER",
            },
            "sasl.mechanism.controller.protocol",
            "only PLAIN, SCRAM",
        ),
        (
            BOTH,
            {
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
                "sasl.mechanism.controller.protocol": "GSSAPI",
                "listener.name.controller.gssapi.sasl.jaas.config": f"{KERBEROS_MODULE} required principal=a;",
            },
            "listener.name.controller.gssapi.sasl.jaas.config",
            "and sasl.kerberos.service.name, with which this node logs in at others",
        ),
        (
            BOTH,
            {
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
                "sasl.mechanism.controller.protocol": "PLAIN",
                "listener.name.controller.plain.sasl.jaas.config": "org.example.Login required;",
            },
            "listener.name.controller.plain.sasl.jaas.config",
            "No LoginModule found for org.example.Login",
        ),
        (
            BOTH,
            {
                "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="secret" username="alice";',
            },
            "listener.name.plaintext.plain.sasl.jaas.config",
            "must have username",
        ),
    ],
)
def test_what_cannot_be(base: dict[str, str], changes: dict[str, str], key: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        BrokerConfig.from_properties({**base, **changes})
    assert caught.value.name == key


def test_a_controller_that_is_advertised_without_a_host() -> None:
    with pytest.raises(ConfigError, match=r"advertised\.listeners"):
        read(CONTROLLER, advertised_listeners="CONTROLLER://:9093")


def test_a_login_module_that_cannot_be_read_has_no_login() -> None:
    """The reason is that of the key's own check."""
    assert find_login("CONTROLLER", "PLAIN", {"sasl.jaas.config": "no login module"}) is None
