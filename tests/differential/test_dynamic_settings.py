"""Dynamic settings of brokers, changed for one broker and for all: the same errors and texts as Apache Kafka's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from interop_tests.brokers import ApacheKafkaProcess, PykbrokerProcess
from pykbroker.config.definitions import DOUBLE, INT, LONG, READ_ONLY
from pykbroker.config.definitions.broker import BROKER_CONFIGS, DYNAMIC_ONLY_CONFIGS
from pykbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.java

BROKER = 4
NUMBERS = ("", "x", "-2", "-1", "0", "1", "2", "5", "20", " 7 ", "1.5", "3000000000")
TEXTS = ("", "x", "a,b", ",", " x ", "true", "no.such.Class", "/tmp")
PREFIX = "listener.name.plaintext."
TOGETHER = [
    {"num.io.threads": "100", "log.cleaner.threads": "100"},
    {"cordoned.log.dirs": "/x", "num.io.threads": "x"},
    {f"{PREFIX}ssl.protocol": "a", "num.io.threads": "0"},
    {"log.retention.ms": "10", "log.local.retention.ms": "20", "log.cleaner.threads": "100"},
    {"log.retention.bytes": "10", "log.local.retention.bytes": "-1"},
    {"log.cleaner.dedupe.buffer.size": "2097152", "log.cleaner.threads": "2"},
    {"cordoned.log.dirs": "*,x"},
    {"max.connections.per.ip.overrides": "127.0.0.1:x"},
    {"max.connections.per.ip.overrides": "127.0.0.1:1,x"},
    {f"{PREFIX}max.connections": "0"},
    {f"{PREFIX}max.connection.creation.rate": "0"},
    {"metric.reporters": "org.apache.kafka.common.metrics.JmxReporter"},
    {"metric.reporters": "org.apache.kafka.common.metrics.JmxReporter,x"},
    {"metric.reporters": ""},
    {"custom": "1"},
]
# Both brokers have other listeners, which the texts show: test_dynamic_listeners has these.
OF_LISTENERS = {"listeners", "listener.security.protocol.map"}
# Kafka's listeners read all settings that have their prefix, also where these have no effect.
WITHOUT_EFFECT = {f"{PREFIX}controller.quorum.voters", f"{PREFIX}controller.quorum.bootstrap.servers"}


def cases() -> Iterator[tuple[str, dict[str, str]]]:
    """Name of the resource, and settings."""
    for key, definition in BROKER_CONFIGS.items():
        values = NUMBERS if definition.type in (INT, LONG, DOUBLE) else TEXTS
        if definition.update_mode == READ_ONLY:
            for name in (key, PREFIX + key):
                for level in ("1", ""):
                    yield level, {name: "1"}
            continue
        for level in ("1", ""):
            for value in values:
                yield level, {key: value}
            for value in ("x", "-1", "0"):
                yield level, {PREFIX + key: value}
    for key in DYNAMIC_ONLY_CONFIGS:
        for level in ("1", ""):
            for value in NUMBERS:
                yield level, {key: value}
    for settings in TOGETHER:
        for level in ("1", ""):
            yield level, settings


def is_alike(level: str, settings: dict[str, str]) -> bool:
    """False for a change whose text has the broker's own listeners, or that is refused here for a reason of our own."""
    return not (level and OF_LISTENERS.intersection(settings)) and not WITHOUT_EFFECT.intersection(settings)


def answer(client: WireClient, level: str, settings: dict[str, str]) -> tuple[int, str | None]:
    """Error code and text of a change that is only checked."""
    configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in settings.items()]
    resource = AlterConfigsResource(resource_type=BROKER, resource_name=level, configs=configs)
    response = client.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=True), 1)
    result = response.responses[0]
    return result.error_code, result.error_message


def test_changes_are_refused_in_the_same_words(processes: tuple[ApacheKafkaProcess, PykbrokerProcess]) -> None:
    """P-153, P-483."""
    kafka, ours = (WireClient(process.address) for process in processes)
    try:
        differ = [
            f"{level or 'all brokers'} {settings}\n  Kafka {theirs}\n  ours  {own}"
            for level, settings in cases()
            if is_alike(level, settings)
            if (theirs := answer(kafka, level, settings)) != (own := answer(ours, level, settings))
        ]
    finally:
        kafka.close()
        ours.close()
    assert not differ, f"{len(differ)} differ\n" + "\n".join(differ[:40])
