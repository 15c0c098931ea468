"""DescribeConfigs: P-151, P-152."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pykbroker.config.definitions import INT, LONG
from pykbroker.config.definitions.broker import BROKER_CONFIGS
from pykbroker.controller.metadata.image import Acl
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.handlers.describe_configs import handle_describe_configs
from pykbroker.protocol import acl_codes
from pykbroker.protocol.acl_codes import ALLOW, DESCRIBE_CONFIGS, LITERAL
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import ConfigRecord
from pykbroker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.support.admin import answer, apply_records, make_context, make_services
from tests.support.services import Services

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def _services(properties: dict[str, str] | None = None, *configs: tuple[int, str, str, str]) -> Services:
    services = make_services(properties)
    services.controller.submit_now(CreateTopics([NewTopic("t")]))  # type: ignore[attr-defined]
    cache = services.metadata
    cache.image = apply_records(
        cache.image, [ConfigRecord(resource_type=t, resource_name=r, name=n, value=v) for t, r, n, v in configs]
    )
    return services


def _describe(
    services: Services, kind: int, name: str, keys: list[str] | None = None, **options: Any
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], **{"include_synonyms": True, **options})
    result: DescribeConfigsResult = answer(
        handle_describe_configs, make_context(4, services=services), request
    ).results[0]
    return result


def _synonyms(result: DescribeConfigsResult, name: str) -> list[tuple[str, str | None, int]]:
    (config,) = (config for config in result.configs if config.name == name)
    return [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms]


def test_a_topic_has_all_configs_with_their_sources() -> None:
    """P-152: source 1 only when set on the topic, else that of the broker key, else 5."""
    services = _services({"log.segment.bytes": "2097152"}, (TOPIC, "t", "retention.ms", "7"))
    result = _describe(services, TOPIC, "t")
    assert len(result.configs) == 33
    shown = {config.name: (config.value, config.config_source) for config in result.configs}
    assert shown["retention.ms"] == ("7", 1)
    assert shown["segment.bytes"] == ("2097152", 4)
    assert shown["cleanup.policy"] == ("delete", 5)
    assert not any(config.read_only or config.is_sensitive for config in result.configs)


def test_synonyms_come_in_order_of_precedence() -> None:
    """P-152."""
    services = _services(
        {"log.retention.ms": "4"},
        (TOPIC, "t", "retention.ms", "1"),
        (BROKER, "1", "log.retention.ms", "2"),
        (BROKER, "", "log.retention.ms", "3"),
    )
    assert _synonyms(_describe(services, TOPIC, "t"), "retention.ms") == [
        ("retention.ms", "1", 1),
        ("log.retention.ms", "2", 2),
        ("log.retention.ms", "3", 3),
        ("log.retention.ms", "4", 4),
        ("log.retention.hours", "168", 5),
    ]


def test_another_unit_gives_the_value_but_is_no_synonym_of_its_own() -> None:
    """P-152: Kafka drops what stands before the first mention of the key itself."""
    services = _services({"log.retention.hours": "2"})
    result = _describe(services, TOPIC, "t")
    assert _synonyms(result, "retention.ms") == []
    shown = {config.name: (config.value, config.config_source) for config in result.configs}
    assert shown["retention.ms"] == ("7200000", 5)


def test_a_setting_of_a_topic_that_is_not_known_any_more() -> None:
    """P-151: of a directory that an older Kafka has written; its value is treated as secret."""
    services = _services(None, (TOPIC, "t", "message.format.version", "2.8"))
    (config,) = _describe(services, TOPIC, "t", ["message.format.version"], include_documentation=True).configs
    assert (config.value, config.config_source, config.is_sensitive, config.config_type) == (None, 1, True, 0)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms] == [(config.name, None, 1)]
    assert config.documentation is None


def test_keys_filter_and_none_are_all() -> None:
    """P-151."""
    services = _services()
    assert [config.name for config in _describe(services, TOPIC, "t", ["segment.ms"]).configs] == ["segment.ms"]
    assert len(_describe(services, TOPIC, "t", []).configs) == 33
    assert _describe(services, TOPIC, "t", ["no.such.key"]).configs == []


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "no/pe", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (3, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_this_broker_does_not_answer_for(kind: int, name: str, code: ErrorCode) -> None:
    """P-151."""
    result = _describe(_services(), kind, name)
    assert (result.error_code, result.resource_type, result.resource_name, result.configs) == (code, kind, name, [])


@pytest.mark.parametrize("kind", [BROKER, BROKER_LOGGER])
@pytest.mark.parametrize("name", ["1_0", " 1", "\u00b2", "9" * 5000])
def test_a_name_that_java_does_not_read_as_an_integer(kind: int, name: str) -> None:
    """P-151."""
    result = _describe(_services(), kind, name)
    assert (result.error_code, result.configs) == (ErrorCode.INVALID_REQUEST, [])
    assert result.error_message == f"Broker id must be an integer, but it is: {name}"
    assert _describe(_services(), kind, "+1").error_code == ErrorCode.NONE


def test_resources_that_the_client_may_not_see_come_last() -> None:
    """P-151."""
    acls = {bytes(16): Acl(acl_codes.TOPIC, "t", LITERAL, "User:ANONYMOUS", "*", DESCRIBE_CONFIGS, ALLOW)}
    services = _services().replaced(authorizer=StandardAuthorizer(lambda: acls, frozenset(), False))
    resources = [DescribeConfigsResource(resource_type=kind, resource_name=name) for kind, name in ORDER]
    request = DescribeConfigsRequest(resources=resources)
    response = answer(handle_describe_configs, make_context(4, services=services), request)
    assert [(result.resource_name, result.error_code) for result in response.results] == [
        ("t", ErrorCode.NONE),
        ("t", ErrorCode.NONE),
        ("1", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ("other", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("g", ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ]


ORDER = [(BROKER, "1"), (TOPIC, "t"), (TOPIC, "other"), (GROUP, "g"), (TOPIC, "t")]


def test_a_broker_has_all_keys_of_kafka_with_type_and_read_only() -> None:
    """P-151."""
    services = _services({"num.partitions": "3", "ssl.keystore.password": "secret", "my.plugin": "hidden"})
    configs = {config.name: config for config in _describe(services, BROKER, "1").configs}
    assert set(BROKER_CONFIGS) <= set(configs)
    assert (configs["num.partitions"].value, configs["num.partitions"].config_source) == ("3", 4)
    assert configs["num.partitions"].read_only
    assert configs["num.partitions"].config_type == INT
    assert not configs["log.retention.ms"].read_only
    assert configs["log.retention.ms"].config_type == LONG
    assert configs["log.retention.ms"].value is None
    for secret in ("ssl.keystore.password", "my.plugin"):
        assert configs[secret].is_sensitive
        assert configs[secret].value is None
        assert [synonym.value for synonym in configs[secret].synonyms] == [None]


def test_the_empty_name_is_the_cluster_wide_dynamic_settings() -> None:
    """P-151."""
    services = _services(None, (BROKER, "", "message.max.bytes", "2000"), (BROKER, "1", "max.connections", "5"))
    result = _describe(services, BROKER, "")
    assert [(config.name, config.value, config.config_source) for config in result.configs] == [
        ("message.max.bytes", "2000", 3)
    ]
    key = "listener.name.plaintext.max.connections"
    both = _services({"max.connections": "9"}, (BROKER, "", key, "7"), (BROKER, "", "max.connections", "8"))
    assert _synonyms(_describe(both, BROKER, ""), key) == [(key, "7", 3), ("max.connections", "8", 3)]
    own = {config.name: (config.value, config.config_source) for config in _describe(services, BROKER, "1").configs}
    assert (own["message.max.bytes"], own["max.connections"]) == (("2000", 3), ("5", 2))


def test_a_setting_of_one_listener_leaves_that_of_all_as_it_is() -> None:
    """P-151: it is no other unit of the same setting, and is described as it was given."""
    key = "listener.name.plaintext.max.connections"
    described = _describe(_services({"max.connections": "09"}, (BROKER, "1", key, "07")), BROKER, "1")
    values = {config.name: config.value for config in described.configs}
    assert (values["max.connections"], values[key]) == ("9", "07")
    assert _synonyms(described, key)[:2] == [(key, "07", 2), ("max.connections", "09", 4)]


def test_a_replication_throttle_is_a_number_and_no_secret() -> None:
    """Known only as a dynamic setting, and yet shown (kafka-reassign-partitions relies on it)."""
    services = _services(None, (BROKER, "1", "follower.replication.throttled.rate", "02000000"))
    found = [config for config in _describe(services, BROKER, "1").configs if config.name.endswith("throttled.rate")]
    assert [(c.value, c.config_source, c.is_sensitive, c.config_type) for c in found] == [("02000000", 2, False, LONG)]


def test_groups_and_client_metrics_have_defaults() -> None:
    services = _services(None, (GROUP, "g", "consumer.session.timeout.ms", "50000"))
    group = {config.name: (config.value, config.config_source) for config in _describe(services, GROUP, "g").configs}
    assert group["consumer.session.timeout.ms"] == ("50000", 8)
    assert group["consumer.heartbeat.interval.ms"] == ("5000", 5)
    metrics = {config.name: config.value for config in _describe(services, CLIENT_METRICS, "m").configs}
    assert metrics == {"interval.ms": "300000", "match": "", "metrics": ""}


def test_loggers_have_kafkas_level_names() -> None:
    logging.getLogger("pykbroker.test_of_loggers").setLevel(logging.WARNING)
    shown = {config.name: config.value for config in _describe(_services(), BROKER_LOGGER, "1").configs}
    assert shown["pykbroker.test_of_loggers"] == "WARN"
    assert "root" in shown


def test_documentation_is_given_when_asked_for() -> None:
    for kind, name in ((TOPIC, "t"), (BROKER, "1"), (GROUP, "g"), (CLIENT_METRICS, "m")):
        assert all(config.documentation is None for config in _describe(_services(), kind, name).configs)
        documented = _describe(_services(), kind, name, include_documentation=True)
        assert all(config.documentation for config in documented.configs)


@pytest.mark.parametrize("asked_for", [False, True])
def test_documentation_of_a_logger_is_empty_and_never_null(asked_for: bool) -> None:
    """P-151: Kafka's ConfigHelper does not set the field for a logger, and an unset string of the protocol is empty."""
    loggers = _describe(_services(), BROKER_LOGGER, "1", include_documentation=asked_for).configs
    assert loggers
    assert {logger.documentation for logger in loggers} == {""}


def test_synonyms_are_given_when_asked_for() -> None:
    assert all(not config.synonyms for config in _describe(_services(), TOPIC, "t", include_synonyms=False).configs)


OF_TOPIC = """
internal.segment.bytes compression.type remote.log.delete.on.disable leader.replication.throttled.replicas
remote.storage.enable min.insync.replicas segment.jitter.ms remote.log.copy.disable local.retention.ms cleanup.policy
flush.ms follower.replication.throttled.replicas compression.lz4.level segment.bytes retention.ms
compression.gzip.level flush.messages compression.zstd.level max.compaction.lag.ms file.delete.delay.ms
max.message.bytes min.compaction.lag.ms message.timestamp.type local.retention.bytes preallocate index.interval.bytes
min.cleanable.dirty.ratio unclean.leader.election.enable retention.bytes delete.retention.ms
message.timestamp.after.max.ms message.timestamp.before.max.ms segment.ms segment.index.bytes
"""


FIRST_OF_BROKER = """
log.cleaner.min.compaction.lag.ms offsets.topic.num.partitions sasl.oauthbearer.jwks.endpoint.refresh.ms
remote.log.metadata.manager.listener.name log.flush.interval.messages controller.socket.timeout.ms
log.flush.interval.ms principal.builder.class controller.quorum.request.timeout.ms min.insync.replicas
sasl.oauthbearer.expected.audience remote.log.manager.thread.pool.size group.consumer.max.session.timeout.ms
num.recovery.threads.per.data.dir ssl.keystore.type sasl.oauthbearer.assertion.private.key.file
share.coordinator.state.topic.replication.factor controller.quorum.bootstrap.servers
sasl.mechanism.inter.broker.protocol metadata.log.segment.bytes fetch.purgatory.purge.interval.requests
group.streams.num.standby.replicas group.share.record.lock.duration.ms ssl.endpoint.identification.algorithm
replica.socket.timeout.ms message.max.bytes share.coordinator.state.topic.segment.bytes
remote.log.manager.fetch.max.bytes.per.second group.share.session.timeout.ms max.connection.creation.rate
sasl.oauthbearer.assertion.claim.exp.seconds connections.max.reauth.ms share.coordinator.state.topic.min.isr
remote.log.manager.copy.quota.window.size.seconds log.flush.offset.checkpoint.interval.ms
sasl.oauthbearer.assertion.claim.aud quota.window.num sasl.oauthbearer.clock.skew.seconds
group.share.min.assignment.interval.ms group.consumer.min.session.timeout.ms authorizer.class.name
num.replica.fetchers alter.log.dirs.replication.quota.window.size.seconds sasl.oauthbearer.scope
sasl.oauthbearer.jwks.endpoint.url remote.log.metadata.custom.metadata.max.bytes log.roll.jitter.hours
telemetry.max.bytes log.cleaner.delete.retention.ms sasl.oauthbearer.assertion.file sasl.login.retry.backoff.ms
queued.max.requests log.cleaner.threads sasl.kerberos.service.name socket.request.max.bytes group.consumer.max.size
group.consumer.assignors remote.log.storage.system.enable log.message.timestamp.type
"""


def _names(result: DescribeConfigsResult) -> list[str]:
    return [config.name for config in result.configs]


def test_settings_come_in_kafkas_order() -> None:
    """P-613: as Apache Kafka 4.3.1 answered; further keys come first, those that were asked for as in the whole."""
    services = _services(
        {"listener.name.plaintext.max.connections": "7"},
        (TOPIC, "t", "internal.segment.bytes", "1000000"),
        (BROKER, "", "log.retention.ms", "10"),
        (BROKER, "", "background.threads", "12"),
        (BROKER, "", "message.max.bytes", "1000"),
    )
    assert _names(_describe(services, TOPIC, "t")) == OF_TOPIC.split()
    wanted = ["retention.ms", "segment.bytes", "cleanup.policy"]
    assert _names(_describe(services, TOPIC, "t", wanted)) == ["cleanup.policy", "segment.bytes", "retention.ms"]
    first = FIRST_OF_BROKER.split()
    names = _names(_describe(services, BROKER, str(services.node_id)))
    assert names[0] == "listener.name.plaintext.max.connections"
    assert [name for name in names if name in first] == first
    assert _names(_describe(services, BROKER, "")) == ["log.retention.ms", "message.max.bytes", "background.threads"]
    assert _names(_describe(services, CLIENT_METRICS, "m")) == ["interval.ms", "match", "metrics"]
    assert _names(_describe(services, GROUP, "g"))[:3] == [
        "consumer.session.timeout.ms",
        "consumer.assignment.interval.ms",
        "share.auto.offset.reset",
    ]
