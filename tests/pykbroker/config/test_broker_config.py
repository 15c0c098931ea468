"""BrokerConfig: server.properties keys to typed, checked settings."""

from __future__ import annotations

import pytest

from pykbroker.config.broker_config import BrokerConfig, ConfigError
from pykbroker.config.definitions import BOOLEAN, DOUBLE, INT, LIST, LONG, SHORT, STRING, format_double, parse_value
from pykbroker.config.definitions.broker import BROKER_CONFIGS, INTERNAL_BROKER_CONFIGS
from pykbroker.config.definitions.documentation import broker_documentation, topic_documentation
from pykbroker.config.definitions.group import GROUP_CONFIGS
from pykbroker.config.definitions.removed import is_removed
from pykbroker.config.definitions.topic import BROKER_SYNONYMS, TOPIC_CONFIGS


def test_defaults_are_those_that_clients_and_tools_compare_with() -> None:
    config = BrokerConfig.from_properties({})
    assert config.topics.num_partitions == 1
    assert config.topics.default_replication_factor == 1
    assert config.topics.auto_create_enable is True
    assert config.topics.delete_enable is True
    assert config.groups.initial_rebalance_delay_ms == 3000
    assert (config.groups.min_session_timeout_ms, config.groups.max_session_timeout_ms) == (6000, 1800000)
    assert (config.groups.offsets_topic_num_partitions, config.groups.offsets_topic_segment_bytes) == (50, 104857600)
    assert config.fetch.max_bytes == 57671680
    assert config.sockets.request_max_bytes == 104857600
    assert config.connections.max_idle_ms == 600000
    assert config.fetch.max_incremental_session_cache_slots == 1000
    assert config.transactions.max_timeout_ms == 900000
    assert config.transactions.producer_id_expiration_ms == 86400000
    assert config.topics.defaults["max.message.bytes"] == "1048588"
    assert config.topics.defaults["segment.bytes"] == "1073741824"
    assert config.topics.defaults["retention.ms"] == "604800000"


def test_nothing_given_makes_a_single_node_of_both_roles() -> None:
    config = BrokerConfig.from_properties({})
    assert config.node_id == 1
    assert set(config.process_roles) == {"broker", "controller"}
    assert set(config.quorum.voters) == {1}
    assert [(at.name, at.host, at.port) for at in config.network.listeners] == [("PLAINTEXT", "", 9092)]
    assert config.network.advertised_listeners == {}
    assert config.unknown_keys == config.ineffective_keys == ()


def test_every_definition_accepts_its_own_default() -> None:
    for table in (BROKER_CONFIGS, TOPIC_CONFIGS, GROUP_CONFIGS):
        for name, definition in table.items():
            if definition.default is not None:
                definition.parse(name, definition.default)


def test_every_listed_key_has_a_description() -> None:
    assert not [name for name in BROKER_CONFIGS if not broker_documentation(name)]
    assert not [name for name in TOPIC_CONFIGS if not topic_documentation(name)]


def test_a_server_properties_file_for_kraft_is_understood() -> None:
    config = BrokerConfig.from_properties(
        {
            "process.roles": "broker,controller",
            "node.id": "0",
            "controller.quorum.voters": "0@localhost:9093",
            "listeners": "PLAINTEXT://127.0.0.1:19092,SASL://:19094,CONTROLLER://127.0.0.1:9093",
            "advertised.listeners": "PLAINTEXT://example.org:19092",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": "/data/kafka",
            "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        }
    )
    assert [(at.name, at.port, at.security_protocol) for at in config.network.listeners] == [
        ("PLAINTEXT", 19092, "PLAINTEXT"),
        ("SASL", 19094, "SASL_PLAINTEXT"),
    ]
    assert [at.name for at in config.network.controller_listeners] == ["CONTROLLER"]
    assert config.network.advertised_listeners["PLAINTEXT"].host == "example.org"
    assert config.log.dirs == ("/data/kafka",)
    assert config.listener_property("SASL", "sasl.enabled.mechanisms") == "PLAIN"
    assert config.listener_property("PLAINTEXT", "sasl.enabled.mechanisms") == "GSSAPI"
    assert config.unknown_keys == ()


def test_the_quickstart_file_of_kafka_is_understood() -> None:
    """Its keys: bootstrap servers instead of voters, and the controller's address among the advertised ones."""
    config = BrokerConfig.from_properties(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "inter.broker.listener.name": "PLAINTEXT",
            "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "num.network.threads": "3",
        }
    )
    assert set(config.network.advertised_listeners) == {"PLAINTEXT"}
    assert [at.port for at in config.network.listeners] == [9092]
    assert config.unknown_keys == ()


def test_broker_id_stands_for_node_id() -> None:
    assert BrokerConfig.from_properties({"broker.id": "7"}).node_id == 7
    with pytest.raises(ConfigError, match=r"broker\.id.*differs from node\.id"):
        BrokerConfig.from_properties({"broker.id": "7", "node.id": "8"})


def test_unknown_and_ineffective_keys_are_named_not_refused() -> None:
    config = BrokerConfig.from_properties(
        {
            "num.io.threads": "4",
            "num.partitons": "3",
            "num.partitions": "3",
            "log.retention.hours": "3",
            "listeners": "S://:9092",
            "listener.security.protocol.map": "S:SASL_PLAINTEXT",
            "listener.name.s.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.s.plain.sasl.jaas.config": "x",
            "listener.name.s.ssl.secure.random.implementation": "x",
            "listener.name.t.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.s.nonsense": "x",
        }
    )
    assert config.ineffective_keys == (
        "listener.name.s.ssl.secure.random.implementation",
        "listener.name.t.sasl.enabled.mechanisms",
        "num.io.threads",
    )
    assert config.unknown_keys == ("listener.name.s.nonsense", "num.partitons")


def test_a_sasl_listener_must_be_able_to_offer_what_it_is_told_to() -> None:
    sasl = {"listeners": "SASL_PLAINTEXT://:9092"}
    BrokerConfig.from_properties(sasl)
    BrokerConfig.from_properties({**sasl, "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN"})
    with pytest.raises(ConfigError, match="only PLAIN, SCRAM"):
        BrokerConfig.from_properties({**sasl, "sasl.enabled.mechanisms": "CRAM-MD5"})


def test_no_secret_is_shown() -> None:
    """P-243."""
    secrets = {"ssl.key.password": "s3cret", "listener.name.x.ssl.keystore.key": "s3cret", "my.password": "s3cret"}
    shown = repr(BrokerConfig.from_properties({**secrets, "num.partitions": "3"}))
    assert "s3cret" not in shown
    assert "ssl.key.password=[hidden]" in shown
    assert "num.partitions=3" in shown


def test_the_authorizer_and_its_settings() -> None:
    """Its keys are nobody's when there is no authorizer."""
    name = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    given = {"super.users": " User:admin ;User:o:o;", "allow.everyone.if.no.acl.found": "True"}
    config = BrokerConfig.from_properties({"authorizer.class.name": name, **given})
    assert config.security.super_users == {"User:admin", "User:o:o"}
    assert config.security.allow_everyone_if_no_acl_found
    assert config.unknown_keys == config.ineffective_keys == ()
    assert BrokerConfig.from_properties(given).unknown_keys == tuple(sorted(given))
    assert not BrokerConfig.from_properties({"authorizer.class.name": name}).security.allow_everyone_if_no_acl_found
    with pytest.raises(
        ConfigError, match=r"authorizer.class.name.*only org.apache.*StandardAuthorizer and classes in Python"
    ):
        BrokerConfig.from_properties({"authorizer.class.name": "com.example.Authorizer"})
    with pytest.raises(ConfigError, match=r"super.users.*User:alice"):
        BrokerConfig.from_properties({"authorizer.class.name": name, "super.users": "admin"})
    users = ";".join(f"user-{number}" for number in range(30, 0, -1))
    with pytest.raises(ConfigError, match=r"user-1 for configuration super.users"):
        BrokerConfig.from_properties({"authorizer.class.name": name, "super.users": users})


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("num.partitions", "0", "Value must be at least 1"),
        ("num.partitions", "three", "Not a number of type INT"),
        ("num.partitions", "3000000000", "Not a number of type INT"),
        ("auto.create.topics.enable", "yes", "either true or false"),
        ("compression.type", "brotli", "String must be one of: uncompressed, zstd"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "no more than 1"),
        ("compression.gzip.level", "0", "between 1 and 9 or equal to -1"),
        ("num.io.threads", "0", "at least 1"),
        ("log.retention.ms", "0", "must be -1"),
        ("listeners", "9092", "expected NAME://host:port"),
        ("listeners", "A://:" + "9" * 5000, "expected NAME://host:port"),
        ("listeners", "A://:\N{ARABIC-INDIC DIGIT ONE}", "expected NAME://host:port"),
        ("listeners", f"A://:{2**31}", "the port is no 32-bit number"),
        ("controller.quorum.voters", f"{2**31}@a:9093", "expected id@host:port"),
        ("controller.quorum.voters", "1@a:" + "9" * 5000, "expected id@host:port"),
        ("controller.quorum.bootstrap.servers", "a:" + "9" * 5000, "expected host:port"),
        ("max.connections.per.ip.overrides", "localhost:" + "9" * 5000, "not of the form host:count"),
        ("listeners", "NOPE://:9092", "no entry in listener.security.protocol.map"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092", "clients cannot connect to it"),
        ("controller.quorum.voters", "2@a:9093,3@b:9093", "must name this node (1)"),
    ],
)
def test_a_bad_value_is_refused_with_key_value_and_what_is_allowed(key: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_properties({key: text})
    assert key in str(caught.value)
    assert reason in str(caught.value)


def test_settings_are_frozen() -> None:
    config = BrokerConfig.from_properties({})
    with pytest.raises(AttributeError, match="frozen"):
        config.node_id = 3
    with pytest.raises(AttributeError, match="frozen"):
        config.topics.num_partitions = 3
    with pytest.raises(AttributeError, match="frozen"):
        del config.quorum
    with pytest.raises(TypeError):
        config.topics.defaults["retention.ms"] = "1"  # type: ignore[index]
    with pytest.raises(TypeError):
        config.quorum.voters[2] = ("two", 9093)  # type: ignore[index]


def test_topic_defaults_take_the_finest_unit_that_is_set() -> None:
    """P-152: log.retention.ms before minutes before hours."""
    given = {"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}
    assert BrokerConfig.from_properties(given).topics.defaults["retention.ms"] == "3"
    del given["log.retention.ms"]
    assert BrokerConfig.from_properties(given).topics.defaults["retention.ms"] == "120000"
    del given["log.retention.minutes"]
    assert BrokerConfig.from_properties(given).topics.defaults["retention.ms"] == "3600000"
    assert BrokerConfig.from_properties({"log.retention.hours": "-1"}).topics.defaults["retention.ms"] == "-1"


def test_dynamic_settings_lie_over_the_given_ones() -> None:
    config = BrokerConfig.from_properties({"message.max.bytes": "1000"})
    changed = config.with_dynamic({"message.max.bytes": "2000", "max.connections": "5"}, {"message.max.bytes": "3000"})
    assert changed.topics.defaults["max.message.bytes"] == "3000"
    assert changed.connections.max_total == 5
    assert config.with_dynamic({}, {}) is config


def test_every_synonym_is_a_key() -> None:
    assert set(BROKER_SYNONYMS) <= set(TOPIC_CONFIGS)
    assert {name for synonyms in BROKER_SYNONYMS.values() for name in synonyms} <= set(BROKER_CONFIGS)


@pytest.mark.parametrize(
    ("text", "config_type", "value"),
    [
        (" TRUE ", BOOLEAN, True),
        ("+7", INT, 7),
        ("-32768", SHORT, -32768),
        ("9223372036854775807", LONG, 2**63 - 1),
        ("1e3", DOUBLE, 1000.0),
        ("", LIST, []),
        ("a , b,a", LIST, ["a", "b"]),
        (" x ", STRING, "x"),
    ],
)
def test_values_are_read_as_java_reads_them(text: str, config_type: int, value: object) -> None:
    assert parse_value("k", text, config_type) == value


@pytest.mark.parametrize("text", ["1_000", "1.0", "--1", "+-1", "++1", "9" * 5000, "", "0x10", "32768"])
def test_not_every_python_number_is_one(text: str) -> None:
    with pytest.raises(ConfigError, match="Not a number of type SHORT"):
        parse_value("k", text, SHORT)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (0.0001, "1.0E-4"),
        (-123456789.125, "-1.23456789125E8"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (0.0, "0.0"),
        (float("inf"), "Infinity"),
    ],
)
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert format_double(value) == text


def test_removed_keys_are_none_of_those_that_there_are() -> None:
    tables = (BROKER_CONFIGS, INTERNAL_BROKER_CONFIGS)
    assert [key for table in tables for key in table if is_removed(key)] == []
