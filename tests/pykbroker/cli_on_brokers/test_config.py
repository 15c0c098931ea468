"""`pykbroker config` on any Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.command_line import Cli


def values(cli: Cli, *words: str) -> dict[str, Any]:
    return {item["name"]: item["value"] for item in cli.json("config", "get", *words)["configs"]}


def set_here(cli: Cli, topic: str) -> dict[str, Any]:
    """The settings of the topic itself: a topic of Apache Kafka may have some from the cluster."""
    found = cli.json("config", "get", "topic", topic)["configs"]
    return {item["name"]: item["value"] for item in found if item["source"] == "dynamic topic"}


def test_a_topic(cli: Cli, new_name: Callable[[], str]) -> None:
    topic = new_name()
    cli.new_topic(topic)
    assert cli.ask("config", "set", "topic", topic, "retention.ms=5", "segment.bytes=1048576") == (
        f"altered topic {topic}\n"
    )
    assert set_here(cli, topic) == {"retention.ms": "5", "segment.bytes": "1048576"}
    [found] = cli.json("config", "get", "topic", topic, "retention.ms")["configs"]
    assert (found["value"], found["source"], found["is_read_only"]) == ("5", "dynamic topic", False)
    assert found["synonyms"][0] == {"name": "retention.ms", "value": "5", "source": "dynamic topic"}
    cli.ask("config", "set", "topic", topic, "--unset", "retention.ms", "--append", "cleanup.policy=compact")
    assert set_here(cli, topic) == {"cleanup.policy": "delete,compact", "segment.bytes": "1048576"}
    cli.ask("config", "set", "topic", topic, "--subtract", "cleanup.policy=delete")
    assert values(cli, "topic", topic, "cleanup.policy", "max.message.bytes") == {
        "cleanup.policy": "compact",
        "max.message.bytes": "1048588",
    }
    assert len(values(cli, "topic", topic, "--all")) > 20
    shown = cli.ask("config", "get", "topic", topic)
    assert "cleanup.policy" in shown
    assert "dynamic topic" in shown


def test_a_dry_run_changes_nothing(cli: Cli, new_name: Callable[[], str]) -> None:
    topic = new_name()
    cli.new_topic(topic)
    code, output, errors = cli.run("config", "set", "topic", topic, "retention.ms=5", "--dry-run")
    assert (code, output, errors) == (0, "", "the cluster accepts it; nothing was changed\n")
    assert set_here(cli, topic) == {}
    code, _, errors = cli.run("config", "set", "topic", topic, "retention.ms=never", "--dry-run")
    assert code == 1
    assert "Invalid value never for configuration retention.ms" in errors


def test_a_broker_and_the_default_for_all(cli: Cli) -> None:
    key = "log.cleaner.backoff.ms"

    def found(*words: str) -> tuple[str, str]:
        [item] = cli.json("config", "get", *words, key)["configs"]
        return item["value"], item["source"]

    def becomes(expected: tuple[str, str]) -> None:
        # Apache Kafka answers before the broker has heard of the change.
        deadline = time.monotonic() + 30
        while (now := found("broker", "1")) != expected and time.monotonic() < deadline:
            time.sleep(0.05)
        assert now == expected

    becomes(("15000", "default"))
    cli.ask("config", "set", "cluster", f"{key}=7000")
    becomes(("7000", "dynamic default broker"))
    assert found("cluster") == ("7000", "dynamic default broker")
    cli.ask("config", "set", "broker", "1", f"{key}=8000")
    becomes(("8000", "dynamic broker"))
    [item] = cli.json("config", "get", "broker", "1", key)["configs"]
    assert [other["value"] for other in item["synonyms"]] == ["8000", "7000", "15000"]
    cli.ask("config", "set", "broker", "1", "--unset", key)
    cli.ask("config", "set", "cluster", "--unset", key)
    becomes(("15000", "default"))
    assert f"the cluster has no value for {key}" in cli.run("config", "get", "cluster", key)[2]


def test_what_cannot_be_changed(cli: Cli) -> None:
    [item] = cli.json("config", "get", "broker", "1", "node.id")["configs"]
    assert item["is_read_only"]
    code, _, errors = cli.run("config", "set", "broker", "1", "node.id=5")
    assert (code, errors) == (1, "pykbroker: broker 1: Cannot update these configs dynamically: [node.id]\n")


@pytest.mark.parametrize(
    ("resource_type", "key", "value"),
    [("group", "consumer.session.timeout.ms", "50000"), ("client-metrics", "interval.ms", "60000")],
)
def test_groups_and_client_metrics(
    cli: Cli, new_name: Callable[[], str], resource_type: str, key: str, value: str
) -> None:
    name = new_name()
    assert cli.ask("config", "get", resource_type, name) == "no setting differs from its default\n"
    cli.ask("config", "set", resource_type, name, f"{key}={value}")
    assert values(cli, resource_type, name) == {key: value}
    cli.ask("config", "set", resource_type, name, "--unset", key)
    assert values(cli, resource_type, name) == {}


def test_loggers(cli: Cli) -> None:
    found = values(cli, "broker-logger", "1")
    assert set(found.values()) <= {"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF"}
    assert found


def test_what_is_not_there(cli: Cli, new_name: Callable[[], str]) -> None:
    topic = new_name()
    cli.new_topic(topic)
    assert cli.run("config", "get", "topic", "no-such")[::2] == (1, "pykbroker: topic no-such: does not exist\n")
    assert cli.run("config", "get", "broker", "9")[::2] == (1, "pykbroker: there is no broker 9: the cluster has 1\n")
    code, _, errors = cli.run("config", "get", "topic", topic, "retention.m")
    assert code == 1
    assert errors.startswith(f"pykbroker: topic {topic} has no setting 'retention.m'. Did you mean 'retention.ms'")
    assert "Unknown topic config name: bogus" in cli.run("config", "set", "topic", topic, "bogus=1")[2]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["get", "topic"], "the name of the topic is missing"),
        (["set", "topic", "retention.ms=5"], "the name of the topic is missing"),
        (["set", "topic", "t"], "nothing to change"),
        (["set", "topic", "t", "retention.ms"], "expected KEY=VALUE"),
        (["set", "topic", "t", "a=1", "--unset", "a"], "a is changed twice"),
        (["get", "topics", "t"], "'topics' is not one of"),
    ],
)
def test_wrong_usage(cli: Cli, words: list[str], text: str) -> None:
    code, _, errors = cli.run("config", *words)
    assert code == 2
    assert text in errors
