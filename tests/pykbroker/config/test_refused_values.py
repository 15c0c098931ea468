"""Refused values, each with its reason: of server.properties, of topics and groups, and while a broker runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykbroker.config.broker_config import BrokerConfig, ConfigError
from pykbroker.config.config_providers import replace_variables
from pykbroker.config.controller_rules import ServerConfigRules
from pykbroker.config.definitions import CLASS, LONG, NonEmpty, parse_value
from pykbroker.config.descriptions import ConfigViews
from pykbroker.config.dynamic_changes import check_settings, within_bounds
from pykbroker.controller.metadata.image import ClusterImage
from pykbroker.logstore.log_config import LogConfig
from pykbroker.protocol.error_codes import ErrorCode

TOPIC, CLIENT_METRICS, GROUP = 2, 16, 32
DIRECTORY = {
    "config.providers": "d",
    "config.providers.d.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
}
CONTROLLER_AND_BROKER = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@a:9093,2@b:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://a:9092,CONTROLLER://a:9093",
}


@pytest.mark.parametrize(
    ("settings", "key", "reason"),
    [
        ({"log.cleanup.policy": "delete,,compact"}, "log.cleanup.policy", "Values must not be empty."),
        (
            {"group.coordinator.rebalance.protocols": ""},
            "group.coordinator.rebalance.protocols",
            "must not be empty. Valid values include: [consumer, classic, share, streams]",
        ),
        (
            {"offsets.topic.compression.codec": "5"},
            "offsets.topic.compression.codec",
            "must be the number of a compression codec, from 0 to 4",
        ),
        (
            {"replica.selector.class": "org.example.Selector"},
            "replica.selector.class",
            "only org.apache.kafka.common.replica.RackAwareReplicaSelector is available",
        ),
        # P-485
        *(
            ({key: "com.acme.Limits"}, key, "classes in Java cannot be loaded here, so nothing would be limited")
            for key in (
                "alter.config.policy.class.name",
                "client.quota.callback.class",
                "create.topic.policy.class.name",
            )
        ),
        ({**CONTROLLER_AND_BROKER, "broker.session.timeout.ms": "0"}, "broker.session.timeout.ms", "at least 1"),
        (
            {
                **CONTROLLER_AND_BROKER,
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
                "sasl.mechanism.controller.protocol": "OAUTHBEARER",
            },
            "listener.name.controller.oauthbearer.sasl.jaas.config",
            "needs sasl.oauthbearer.token.endpoint.url",
        ),
    ],
)
def test_settings_with_which_no_broker_starts(settings: dict[str, str], key: str, reason: str) -> None:
    with pytest.raises(ConfigError) as raised:
        BrokerConfig.from_properties(settings)
    assert key in str(raised.value)
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "configs", "text"),
    [
        (
            TOPIC,
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            GROUP,
            {"consumer.session.timeout.ms": "45000", "consumer.heartbeat.interval.ms": "45000"},
            "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms",
        ),
    ],
)
def test_settings_of_topics_and_groups_that_contradict_one_another(
    kind: int, configs: dict[str, str], text: str
) -> None:
    """The texts are those of Kafka's LogConfig and GroupConfig."""
    config = BrokerConfig.from_properties({"group.consumer.max.heartbeat.interval.ms": "60000"})
    error = ServerConfigRules(config).validate(kind, "name", configs)
    assert error == (ErrorCode.INVALID_CONFIG, text)


def check(config: BrokerConfig, **settings: str) -> tuple[ErrorCode, str]:
    error = check_settings(
        {key.replace("_", "."): value for key, value in settings.items()}, "", config, ClusterImage()
    )
    return ErrorCode(error.code), error.message or ""


@pytest.mark.parametrize(
    ("kind", "configs", "text"),
    [
        (
            TOPIC,
            {"min.insync.replicas": "0", "cleanup.policy": "x"},
            "Invalid value x for configuration cleanup.policy",
        ),
        (TOPIC, {"retention.ms": "x", "nonsense": "1", "b": "1"}, "Unknown topic config name: b"),
        (
            GROUP,
            {"share.heartbeat.interval.ms": "x", "consumer.session.timeout.ms": "0"},
            "consumer.session.timeout.ms",
        ),
        (GROUP, {"nonsense": "1", "b": "1", "share.session.timeout.ms": "x"}, "Unknown group config name: b"),
        (CLIENT_METRICS, {"interval.ms": "1", "nonsense": "1", "b": "1"}, "Unknown client metrics configuration: b"),
    ],
)
def test_the_first_of_several_errors_is_kafkas(kind: int, configs: dict[str, str], text: str) -> None:
    """P-696: not that of the first key of the request."""
    rules = ServerConfigRules(BrokerConfig.from_properties({}))
    for given in (configs, dict(reversed(configs.items()))):
        assert text in (rules.validate(kind, "x", given).message or "")


def test_threads_and_retention_change_within_bounds() -> None:
    """P-324: at most by half or double, and local.retention within retention."""
    config = BrokerConfig.from_properties({"num.io.threads": "8", "log.retention.ms": "1000"})
    code, text = check(config, num_io_threads="3")
    assert code is ErrorCode.INVALID_REQUEST
    assert "num.io.threads=3, value should be at least half the current value 8" in text
    code, text = check(config, log_local_retention_ms="2000")
    assert code is ErrorCode.INVALID_REQUEST
    assert "log.local.retention.ms" in text


def test_intervals_out_of_bounds_are_logged_in_order(caplog: pytest.LogCaptureFixture) -> None:
    keys = [f"group.{kind}.assignment.interval.ms" for kind in ("streams", "share", "consumer")]
    config = BrokerConfig.from_properties({})
    found = within_bounds(dict.fromkeys(keys, "2000000000"), config)
    assert [record.message.split()[0] for record in caplog.records] == sorted(keys)
    assert "2000000000" not in found.values()


@pytest.mark.parametrize(("content", "reason"), [(b"\xff\xfe", "it is not UTF-8 text"), (None, "Permission denied")])
def test_a_secret_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, reason: str
) -> None:
    """P-259: the reason has nothing of the content."""
    (tmp_path / "token").write_bytes(content or b"secret")
    if content is None:

        def refuse(*_: object, **__: object) -> object:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(ConfigError) as raised:
        replace_variables({**DIRECTORY, "key": f"${{d:{tmp_path}:token}}"}, {})
    assert f"Could not read file {tmp_path}/token" in str(raised.value)
    assert reason in str(raised.value)


def test_a_pattern_of_allowed_names_that_is_no_pattern() -> None:
    properties = {
        "config.providers": "e",
        "config.providers.e.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "config.providers.e.param.allowlist.pattern": "(",
        "key": "${e:NAME}",
    }
    with pytest.raises(ConfigError, match=r"allowlist.pattern \( is not a regular expression"):
        replace_variables(properties, {"NAME": "n"})


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        (TOPIC, "cleanup.policy", "compact,"),
        (CLIENT_METRICS, "metrics", ","),
        (CLIENT_METRICS, "metrics", "a,"),
        (CLIENT_METRICS, "match", ","),
    ],
)
def test_lists_with_empty_entries_are_refused_with_kafkas_text(kind: int, name: str, text: str) -> None:
    error = ServerConfigRules(BrokerConfig.from_properties({})).validate(kind, "r", {name: text})
    assert error == (ErrorCode.INVALID_CONFIG, f"Configuration '{name}' values must not be empty.")


def test_every_number_that_is_taken_for_a_topic_can_be_used() -> None:
    """A number that the controller takes and the log cannot read ends the broker, at every start."""
    rules = ServerConfigRules(BrokerConfig.from_properties({}))
    for text in ("0.5", ".5", "5.e-1", "0.5d", "0.5F", " 0.5\t", "1_0", "0x1p-1", "NaN", "inf", "\u0665", "\x000.5"):
        for name in ("min.cleanable.dirty.ratio", "flush.messages", "segment.jitter.ms", "preallocate"):
            if not rules.validate(TOPIC, "t", {name: text}).is_failure:
                LogConfig.from_properties({name: text})


def test_only_the_keys_of_groups_and_client_metrics_that_were_asked_for_are_described() -> None:
    config = BrokerConfig.from_properties({})
    views = ConfigViews(config, config, ClusterImage(), 1)
    (entry,) = views.group({"consumer.session.timeout.ms": "50000"}, ["consumer.session.timeout.ms"])
    assert (entry.name, entry.value) == ("consumer.session.timeout.ms", "50000")
    (entry,) = views.client_metrics({}, ["interval.ms"])
    assert entry.name == "interval.ms"
    assert len(views.group({})) > 1
    assert len(views.client_metrics({})) > 1


def test_settings_of_an_unknown_kind_of_resource_have_no_default() -> None:
    rules = ServerConfigRules(BrokerConfig.from_properties({}))
    assert rules.is_list(99, "any") is False


@pytest.mark.parametrize("text", ["\t5\n", " 5\x1f"])
def test_values_are_trimmed_as_java_trims_them(text: str) -> None:
    """P-671."""
    assert parse_value("flush.messages", text, LONG) == 5
    assert BrokerConfig.from_properties({"num.partitions": text}).topics.num_partitions == 5


@pytest.mark.parametrize("text", ["\u00a05", "5\u2003", "\x005"])
def test_spaces_that_java_does_not_trim_are_refused(text: str) -> None:
    """P-671; control characters, which Java trims, are refused here."""
    with pytest.raises(ConfigError, match="Not a number of type LONG"):
        parse_value("flush.messages", text, LONG)
    with pytest.raises(ConfigError, match="Not a number of type INT"):
        BrokerConfig.from_properties({"num.partitions": text})


def test_an_empty_class_and_an_empty_text_are_refused() -> None:
    """The texts are those of Kafka's ConfigDef."""
    with pytest.raises(ConfigError, match="Class could not be found"):
        parse_value("authorizer.class.name", " ", CLASS)
    with pytest.raises(ConfigError, match="String must be non-empty"):
        NonEmpty().check("key", "")
