"""AlterConfigs and IncrementalAlterConfigs: P-153."""

from __future__ import annotations

import logging

import pytest

from pykbroker.config.descriptions import ConfigViews
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.handlers.alter_configs import handle_alter_configs
from pykbroker.handlers.incremental_alter_configs import handle_incremental_alter_configs
from pykbroker.logstore.log_config import LogConfig
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import ConfigRecord
from pykbroker.protocol.messages import alter_configs as replacing
from pykbroker.protocol.messages import incremental_alter_configs as editing
from tests.support.admin import apply_records, call, make_context, make_services
from tests.support.services import Services

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

Edit = tuple[int, str, str | None]


def _services() -> Services:
    services = make_services()
    services.controller.submit_now(CreateTopics([NewTopic("t"), NewTopic("u")]))  # type: ignore[attr-defined]
    return services


def _edit(services: Services, *resources: tuple[int, str, list[Edit]], validate_only: bool = False) -> list[int]:
    request = editing.IncrementalAlterConfigsRequest(
        resources=[
            editing.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    editing.AlterableConfig(name=key, config_operation=operation, value=value)
                    for operation, key, value in edits
                ],
            )
            for kind, name, edits in resources
        ],
        validate_only=validate_only,
    )
    responses = call(handle_incremental_alter_configs, make_context(1, services=services), request).responses
    assert [(at.resource_type, at.resource_name) for at in responses] == [(at[0], at[1]) for at in resources]
    return [response.error_code for response in responses]


def _replace(services: Services, kind: int, name: str, configs: dict[str, str | None]) -> int:
    request = replacing.AlterConfigsRequest(
        resources=[
            replacing.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[replacing.AlterableConfig(name=key, value=value) for key, value in configs.items()],
            )
        ]
    )
    (response,) = call(handle_alter_configs, make_context(2, services=services), request).responses
    code: int = response.error_code
    return code


def _log_config(services: Services) -> LogConfig:
    """Effective settings of the log of topic t."""
    return services.metadata.settings.log_config(services.metadata.image, "t")


def test_edits_change_only_what_they_name() -> None:
    """P-153."""
    services = _services()
    edits: list[Edit] = [
        (SET, "retention.ms", "1"),
        (APPEND, "cleanup.policy", "compact"),
        (DELETE, "segment.ms", None),
    ]
    assert _edit(services, (TOPIC, "t", edits)) == [ErrorCode.NONE]
    assert services.metadata.image.topic_config("t") == {"retention.ms": "1", "cleanup.policy": "delete,compact"}
    assert _edit(services, (TOPIC, "t", [(DELETE, "retention.ms", None)])) == [ErrorCode.NONE]
    assert _edit(services, (TOPIC, "t", [(SUBTRACT, "cleanup.policy", "delete")])) == [ErrorCode.NONE]
    assert services.metadata.image.topic_config("t") == {"cleanup.policy": "compact"}
    assert _log_config(services).retention_ms == 604800000


def test_a_replacement_forgets_what_it_does_not_name() -> None:
    """P-153."""
    services = _services()
    _edit(services, (TOPIC, "t", [(SET, "retention.ms", "1"), (SET, "segment.ms", "2")]))
    assert _replace(services, TOPIC, "t", {"segment.ms": "3"}) == ErrorCode.NONE
    assert services.metadata.image.topic_config("t") == {"segment.ms": "3"}


@pytest.mark.parametrize(
    ("edits", "code"),
    [
        ([(APPEND, "retention.ms", "1")], ErrorCode.INVALID_CONFIG),
        ([(SUBTRACT, "retention.ms", "1")], ErrorCode.INVALID_CONFIG),
        ([(SET, "no.such.key", "1")], ErrorCode.INVALID_CONFIG),
        ([(SET, "retention.ms", "x")], ErrorCode.INVALID_CONFIG),
        ([(SET, "retention.ms", None)], ErrorCode.INVALID_REQUEST),
        ([(9, "retention.ms", "1")], ErrorCode.INVALID_REQUEST),
        ([(SET, "retention.ms", "1"), (DELETE, "retention.ms", None)], ErrorCode.INVALID_REQUEST),
        ([(DELETE, "retention.ms", None)], ErrorCode.NONE),
    ],
)
def test_edits_of_a_topic_that_are_refused(edits: list[Edit], code: ErrorCode) -> None:
    """P-153; deleting what is not set succeeds."""
    services = _services()
    assert _edit(services, (TOPIC, "t", edits)) == [code]
    assert services.metadata.image.topic_config("t") == {}


def test_one_bad_resource_does_not_hinder_the_others() -> None:
    services = _services()
    good: list[Edit] = [(SET, "retention.ms", "1")]
    codes = _edit(services, (TOPIC, "nope", good), (TOPIC, "t", good), (BROKER, "9", good), (7, "x", good))
    assert codes == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert _edit(services, (TOPIC, "t", good), (TOPIC, "t", good)) == [ErrorCode.INVALID_REQUEST] * 2


def test_validate_only_writes_nothing() -> None:
    services = _services()
    assert _edit(services, (TOPIC, "t", [(SET, "retention.ms", "1")]), validate_only=True) == [ErrorCode.NONE]
    assert services.metadata.image.topic_config("t") == {}


def test_dynamic_broker_settings_take_effect() -> None:
    """KIP-226: one broker's before all brokers'; topics inherit them."""
    services = _services()
    assert _edit(services, (BROKER, "", [(SET, "message.max.bytes", "2000"), (SET, "max.connections", "9")])) == [0]
    assert _log_config(services).max_message_bytes == 2000
    assert services.metadata.config.connections.max_total == 9
    assert _edit(services, (BROKER, "1", [(SET, "message.max.bytes", "3000")])) == [0]
    assert _log_config(services).max_message_bytes == 3000
    assert _edit(services, (BROKER, "1", [(DELETE, "message.max.bytes", None)])) == [0]
    assert _log_config(services).max_message_bytes == 2000
    assert _replace(services, BROKER, "", {}) == 0
    assert services.metadata.config.connections.max_total == 2**31 - 1


def test_levels_are_judged_together() -> None:
    """Settings that one broker would have: its own settings over those of all, and not each level by itself."""
    services = _services()
    size, threads = "log.cleaner.dedupe.buffer.size", "log.cleaner.threads"
    assert _edit(services, (BROKER, "", [(SET, size, "2097154")])) == [0]
    assert _edit(services, (BROKER, "1", [(SET, threads, "2")])) == [0]
    assert _edit(services, (BROKER, "", [(SET, size, "2097153")])) == [ErrorCode.INVALID_REQUEST]
    # Four threads are twice as many as there are now, but the buffers of all brokers do not suffice for them.
    assert _edit(services, (BROKER, "1", [(SET, threads, "4")])) == [ErrorCode.INVALID_REQUEST]
    assert _edit(services, (BROKER, "1", [(SET, threads, "4"), (SET, size, "4194308")])) == [0]
    assert _edit(services, (BROKER, "1", [(DELETE, threads, None)])) == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize(
    ("name", "edits", "code"),
    [
        ("1", [(SET, "num.partitions", "3")], ErrorCode.INVALID_REQUEST),
        ("1", [(SET, "listeners", "UNKNOWN://:1")], ErrorCode.INVALID_REQUEST),
        ("1", [(SET, "message.max.bytes", "x")], ErrorCode.INVALID_REQUEST),
        ("1", [(SET, "ssl.keystore.location", "/x")], ErrorCode.INVALID_REQUEST),
        ("", [(SET, "listener.name.plaintext.ssl.keystore.location", "/x")], ErrorCode.INVALID_REQUEST),
        # Kafka compares these two for topics and at its start alone.
        ("", [(SET, "log.cleaner.min.compaction.lag.ms", "9"), (SET, "log.cleaner.max.compaction.lag.ms", "8")], 0),
        ("", [(SET, "log.cleaner.dedupe.buffer.size", "1048576")], ErrorCode.INVALID_REQUEST),
        ("", [(SET, "num.network.threads", "7")], ErrorCode.INVALID_REQUEST),
        ("1", [(SET, "log.cleaner.threads", "3")], ErrorCode.INVALID_REQUEST),
        ("1", [(SET, "max.connections", "0")], ErrorCode.INVALID_REQUEST),
        ("", [(SET, "listener.name.plaintext.max.connections", "5")], ErrorCode.NONE),
        ("1", [(APPEND, "no.such.key", "x")], ErrorCode.INVALID_CONFIG),
        # What a list would be is checked, too.
        ("", [(APPEND, "process.roles", "controller")], ErrorCode.INVALID_REQUEST),
        ("", [(SUBTRACT, "process.roles", "broker")], ErrorCode.INVALID_REQUEST),
        ("", [(APPEND, "log.cleanup.policy", "bogus")], ErrorCode.INVALID_REQUEST),
        ("", [(APPEND, "log.cleanup.policy", "compact,")], ErrorCode.NONE),
        ("1", [(9, "message.max.bytes", "1")], ErrorCode.INVALID_REQUEST),
        ("one", [(SET, "message.max.bytes", "1")], ErrorCode.INVALID_REQUEST),
        ("", [(SET, "my.plugin.key", "x")], ErrorCode.NONE),
    ],
)
def test_broker_settings_that_are_refused(name: str, edits: list[Edit], code: int) -> None:
    """P-151, P-153: read-only keys, keys of one broker for all, values that cannot be."""
    assert _edit(_services(), (BROKER, name, edits)) == [code]


def test_a_replacement_of_broker_settings_is_judged_too() -> None:
    services = _services()
    assert _replace(services, BROKER, "1", {"num.partitions": "3"}) == ErrorCode.INVALID_REQUEST
    assert _replace(services, BROKER, "2", {}) == ErrorCode.INVALID_REQUEST
    assert _replace(services, BROKER, "1", {"max.connections": None}) == ErrorCode.INVALID_REQUEST
    assert _replace(services, BROKER_LOGGER, "1", {}) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("kind", "key", "value", "code"),
    [
        (GROUP, "consumer.session.timeout.ms", "50000", ErrorCode.NONE),
        (GROUP, "consumer.session.timeout.ms", "1", ErrorCode.INVALID_CONFIG),
        (GROUP, "no.such.key", "1", ErrorCode.INVALID_CONFIG),
        (GROUP, "streams.num.standby.replicas", "3", ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "interval.ms", "1000", ErrorCode.NONE),
        (CLIENT_METRICS, "interval.ms", "1", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "no.such.key", "1", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "match", "client_id=a.*", ErrorCode.NONE),
        (CLIENT_METRICS, "match", "client_id=[", ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "match", "planet=earth", ErrorCode.INVALID_CONFIG),
    ],
)
def test_groups_and_client_metrics(kind: int, key: str, value: str, code: ErrorCode) -> None:
    services = _services()
    assert _edit(services, (kind, "x", [(SET, key, value)])) == [code]
    assert services.metadata.image.configs.get((kind, "x"), {}) == ({key: value} if code == ErrorCode.NONE else {})


def test_names_of_client_metrics_are_checked_before_values() -> None:
    names = [(SET, "interval.ms", "often"), (SET, "no.such.key", "1")]
    bounds = [(SET, "match", "planet=earth"), (SET, "interval.ms", "1")]
    for edits in (names, bounds):
        assert _edit(_services(), (CLIENT_METRICS, "x", [*edits])) == [ErrorCode.INVALID_REQUEST]


def test_what_is_stored_and_ignored_hinders_no_change() -> None:
    """P-371: settings that came over a controller's port. DescribeConfigs does not show them."""
    services = _services()
    stored = [("num.partitions", "9"), ("max.connections", "many"), ("log.cleanup.policy", "compact")]
    services.metadata.image = apply_records(
        services.metadata.image,
        [ConfigRecord(resource_type=BROKER, resource_name="1", name=name, value=value) for name, value in stored],
    )
    assert _edit(
        services, (BROKER, "1", [(SET, "message.max.bytes", "7"), (APPEND, "log.cleanup.policy", "delete")])
    ) == [ErrorCode.NONE]
    views = ConfigViews(services.config, services.metadata.config, services.metadata.image, services.node_id)
    shown = {entry.name: entry.value for entry in views.broker(None)}
    assert (shown["num.partitions"], shown["message.max.bytes"]) == ("1", "7")
    assert shown["log.cleanup.policy"] == "compact,delete"


def test_logger_levels() -> None:
    """KIP-412."""
    logger = logging.getLogger("pykbroker.test_of_levels")
    services = _services()
    assert _edit(services, (BROKER_LOGGER, "1", [(SET, logger.name, "DEBUG")])) == [ErrorCode.NONE]
    assert logger.level == logging.DEBUG
    assert _edit(services, (BROKER_LOGGER, "1", [(SET, logger.name, "WARN")]), validate_only=True) == [ErrorCode.NONE]
    assert logger.level == logging.DEBUG
    assert _edit(services, (BROKER_LOGGER, "1", [(DELETE, logger.name, None)])) == [ErrorCode.NONE]
    assert logger.level == logging.NOTSET
    for name, edit, code in (
        ("1", (SET, logger.name, "LOUD"), ErrorCode.INVALID_CONFIG),
        ("1", (SET, "no.such.logger", "WARN"), ErrorCode.INVALID_CONFIG),
        ("1", (APPEND, logger.name, "WARN"), ErrorCode.INVALID_REQUEST),
        ("1", (DELETE, "root", None), ErrorCode.INVALID_REQUEST),
        ("2", (SET, logger.name, "WARN"), ErrorCode.INVALID_REQUEST),
        ("+1", (DELETE, logger.name, None), ErrorCode.NONE),
        ("1", (9, logger.name, "WARN"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ):
        assert _edit(services, (BROKER_LOGGER, name, [edit])) == [code]
