"""`pykbroker group describe` while the group has members, on any Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.command_line import Cli

confluent_kafka = pytest.importorskip("confluent_kafka")

Name = Callable[[], str]


@contextmanager
def member(address: str, topic: str, group: str, client_id: str, **settings: Any) -> Iterator[None]:
    """A consumer that stays in its group until the end of the block, and commits nothing."""
    config = {
        "bootstrap.servers": address,
        "group.id": group,
        "client.id": client_id,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    is_over = threading.Event()

    def run() -> None:
        consumer = confluent_kafka.Consumer(config)
        consumer.subscribe([topic])
        try:
            while not is_over.is_set():
                consumer.poll(0.1)
        finally:
            consumer.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def described(cli: Cli, group: str, *, members: int, partitions: int) -> dict[str, Any]:
    """The group, as soon as so many members have so many partitions."""
    deadline = time.monotonic() + 60
    while True:
        code, _, errors = cli.run("group", "describe", group)
        if code == 0:
            found: dict[str, Any] = cli.json("group", "describe", group)
            assigned = sum(len(item["partitions"]) for item in found["members"])
            if (found["group_state"], len(found["members"]), assigned) == ("Stable", members, partitions):
                return found
        assert time.monotonic() < deadline, errors
        time.sleep(0.1)


@pytest.fixture
def topic(cli: Cli, new_name: Name) -> str:
    """Five records in each of three partitions, of which the group of the topic's name has committed the first two."""
    name = new_name()
    cli.new_topic(name, "-p", "3")
    for partition in range(3):
        cli.ask("produce", name, "-p", str(partition), stdin=b"a\n" * 5)
    cli.ask("group", "reset-offsets", name, "--topic", name, "--to-offset", "2", "--execute")
    return name


def check_two_members(cli: Cli, topic: str, found: dict[str, Any]) -> None:
    by_client = {item["client_id"]: item for item in found["members"]}
    assert set(by_client) == {"one", "two"}
    assert sorted(len(item["partitions"]) for item in found["members"]) == [1, 2]
    for item in found["members"]:
        assert item["member_id"]
        assert item["client_host"] == "/127.0.0.1"
        assert item["lag"] == 3 * len(item["partitions"])
    rows = found["partitions"]
    assert [(row["topic"], row["partition"], row["committed"], row["lag"]) for row in rows] == [
        (topic, partition, 2, 3) for partition in range(3)
    ]
    for row in rows:
        owner = by_client[row["client_id"]]
        assert row["member_id"] == owner["member_id"]
        assert {"topic": topic, "partition": row["partition"]} in owner["partitions"]
    shown = cli.ask("group", "describe", topic)
    assert shown.startswith(f"group {topic}: Stable, 2 members\n")
    for item in found["members"]:
        assert item["member_id"] in shown
    lines = cli.ask("group", "describe", topic, "--members").splitlines()
    for item in found["members"]:
        [line] = [line for line in lines if item["member_id"] in line]
        assert ", ".join(f"{topic}-{part['partition']}" for part in item["partitions"]) in line
        assert f" {item['client_id']} " in line


def test_a_classic_group(cli: Cli, address: str, topic: str) -> None:
    with member(address, topic, topic, "one"), member(address, topic, topic, "two", group_instance_id="second"):
        found = described(cli, topic, members=2, partitions=3)
        assert found["group_type"] == "classic"
        assert {item["group_instance_id"] for item in found["members"]} == {None, "second"}
        check_two_members(cli, topic, found)
        code, _, errors = cli.run("group", "reset-offsets", topic, "--all-topics", "--to-latest", "--execute")
        assert (code, errors) == (1, f"pykbroker: group {topic} has 2 running members: stop them first\n")


def test_a_member_without_partitions(cli: Cli, address: str, topic: str, new_name: Name) -> None:
    group = new_name()
    narrow = new_name()
    cli.new_topic(narrow)
    with member(address, narrow, group, "one"), member(address, narrow, group, "two"):
        found = described(cli, group, members=2, partitions=1)
    assert sorted(len(item["partitions"]) for item in found["members"]) == [0, 1]
    assert [item["lag"] for item in found["members"]] == [None, None]


def test_a_group_of_the_newer_protocol(cli: Cli, address: str, topic: str) -> None:
    newer = {"group_protocol": "consumer"}
    with member(address, topic, topic, "one", **newer), member(address, topic, topic, "two", **newer):
        found = described(cli, topic, members=2, partitions=3)
        assert found["group_type"] == "consumer"
        assert found["protocol"] == "uniform"
        check_two_members(cli, topic, found)
