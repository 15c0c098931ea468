"""The environment convention of Apache Kafka's container image."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.config.definitions.broker import BROKER_CONFIGS, DYNAMIC_ONLY_CONFIGS, INTERNAL_BROKER_CONFIGS
from pykbroker.config.environment import (
    cluster_id_from_environment,
    key_of_variable,
    properties_from_environment,
    variable_of_key,
)


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_NODE_ID", "node.id"),
        ("KAFKA_ADVERTISED_LISTENERS", "advertised.listeners"),
        ("KAFKA_A__B", "a_b"),
        ("KAFKA_A___B", "a-b"),
        (
            "KAFKA_LISTENER_NAME_SASL__PLAINTEXT_PLAIN_SASL_JAAS_CONFIG",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config",
        ),
    ],
)
def test_names(variable: str, key: str) -> None:
    assert key_of_variable(variable) == key


@pytest.mark.parametrize("table", [BROKER_CONFIGS, INTERNAL_BROKER_CONFIGS, DYNAMIC_ONLY_CONFIGS])
def test_every_key_of_kafka_can_be_set(table: Iterable[str]) -> None:
    """No key looks like a variable that is for somebody else."""
    for key in table:
        assert properties_from_environment({variable_of_key(key): "value"})[key] == "value"


def test_a_compose_file_of_kafka_is_understood() -> None:
    """Two listeners with names of their own beside the controller's, as in the examples of Kafka's image."""
    properties = properties_from_environment(
        {
            "KAFKA_NODE_ID": "1",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
            "KAFKA_LISTENERS": "CONTROLLER://:29093,PLAINTEXT_HOST://:9092,PLAINTEXT://:19092",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        }
    )
    config = BrokerConfig.from_properties(properties)
    assert [(at.name, at.port) for at in config.network.listeners] == [("PLAINTEXT_HOST", 9092), ("PLAINTEXT", 19092)]
    assert config.network.advertised_listeners["PLAINTEXT"].host == "broker"
    assert config.groups.initial_rebalance_delay_ms == 0
    assert config.unknown_keys == config.ineffective_keys == ()


def test_only_settings_are_taken() -> None:
    environment = {
        "KAFKA_NUM_PARTITIONS": "3",
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "KAFKA_OPTS": "-Dx",
        "KAFKA_LOG4J_LOGGERS": "a=INFO",
        "KAFKA_JMX_PORT": "9999",
        "PATH": "/bin",
        "CLUSTER_ID": "MkU3OEVBNTcwNTJENDM2Qk",
    }
    assert properties_from_environment(environment) == {"num.partitions": "3"}
    assert cluster_id_from_environment(environment) == "MkU3OEVBNTcwNTJENDM2Qk"
    assert cluster_id_from_environment({}) is None


@pytest.mark.parametrize(
    "variable",
    [
        "KAFKA_HOME",
        "KAFKA_PATH",
        "KAFKA_VERSION",
        "KAFKA_SCALA_VERSION",
        "KAFKA_MODE",
        "KAFKA_URL",
        "KAFKA_BROKERS",
        "KAFKA_BOOTSTRAP_SERVERS",
        "KAFKA_INSTALL_ROOT",
        "KAFKA_LOG4J_CMD_OPTS",
        "KAFKA_SSL_KEYSTORE_FILENAME",
        # Kubernetes, for services kafka and kafka-headless
        "KAFKA_SERVICE_HOST",
        "KAFKA_SERVICE_PORT",
        "KAFKA_SERVICE_PORT_TCP_CLIENT",
        "KAFKA_PORT",
        "KAFKA_PORT_9092_TCP",
        "KAFKA_PORT_9092_TCP_ADDR",
        "KAFKA_HEADLESS_SERVICE_HOST",
        "KAFKA_HEADLESS_PORT",
        "KAFKA_HEADLESS_PORT_9092_TCP_PROTO",
        # docker run --link kafka
        "KAFKA_NAME",
        "KAFKA_ENV_PATH",
    ],
)
def test_variables_for_somebody_else_are_left_alone(variable: str) -> None:
    assert properties_from_environment({variable: "value"}) == {}


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("KAFKA_NUM_PARTITION", "num.partition"),
        ("KAFKA_LISTENER", "listener"),
        ("KAFKA_CFG_NUM_PARTITIONS", "cfg.num.partitions"),
        ("KAFKA_LOGS_DIR", "logs.dir"),
    ],
)
def test_a_typing_error_is_still_named(variable: str, key: str) -> None:
    config = BrokerConfig.from_properties(properties_from_environment({variable: "value"}))
    assert config.unknown_keys == (key,)


def test_advertised_listeners_alone_say_where_to_listen() -> None:
    properties = properties_from_environment({"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://host:9092,INNER://other:9094"})
    assert properties["listeners"] == "PLAINTEXT://0.0.0.0:9092,INNER://0.0.0.0:9094"
