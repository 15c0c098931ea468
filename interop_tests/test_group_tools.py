"""kafka-groups and kafka-consumer-groups in all their options that the other tests leave out."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest

from interop_tests.clients import create_topic, poll_confluent
from interop_tests.java_tools import CONSUMER_GROUPS, GROUPS, JavaTools, Output
from interop_tests.test_java_tools import consume_and_commit, offsets_of

pytestmark = [pytest.mark.java, pytest.mark.area("groups"), pytest.mark.client("Java tools")]

Unique = Callable[[str], str]


@pytest.fixture
def group(bootstrap: str, name: str, unique: Unique) -> str:
    """A group that has committed the ends of both partitions of the topic `name`: five records each."""
    group = unique("group")
    create_topic(bootstrap, name, 2)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for partition in range(2):
        for number in range(5):
            producer.produce(name, b"%d" % number, partition=partition)
    assert producer.flush(30) == 0
    consume_and_commit(bootstrap, name, group, 10)
    return group


def planned(output: Output, topic: str) -> dict[str, str]:
    """New offsets by partition, from the table of --reset-offsets; warnings may stand before it."""
    lines = [line.split() for line in output.lines]
    head = next(cells for cells in lines if "NEW-OFFSET" in cells)
    rows = [dict(zip(head, cells, strict=False)) for cells in lines if topic in cells]
    return {row["PARTITION"]: row["NEW-OFFSET"] for row in rows}


def test_groups_by_kind(
    tools: JavaTools, bootstrap: str, group: str, name: str, unique: Unique, tmp_path: Path
) -> None:
    """kafka-groups --list with each of its filters, and with a file of settings."""
    newer = unique("newer")
    settings = {"bootstrap.servers": bootstrap, "group.id": newer, "group.protocol": "consumer"}
    consumer = confluent_kafka.Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    simple = unique("simple")
    alone = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": simple})
    alone.commit(offsets=[confluent_kafka.TopicPartition(name, 0, 1)], asynchronous=False)
    alone.close()
    config = tmp_path / "client.properties"
    config.write_text("client.id=lists-groups\n")
    try:
        poll_confluent(consumer, 10)

        def listed(*options: str) -> dict[str, tuple[str, str]]:
            rows = [line.split() for line in tools.check(GROUPS, "--list", *options).lines[1:]]
            return {row[0]: (row[1], row[2] if len(row) > 2 else "") for row in rows}

        everything = listed("--command-config", str(config))
        assert everything[newer] == ("Consumer", "consumer")
        assert everything[group] == ("Classic", "consumer")
        assert everything[simple] == ("Classic", "")
        for options, has in (
            (("--group-type", "consumer"), {newer}),
            (("--group-type", "classic"), {group, simple}),
            (("--protocol", "consumer"), {newer, group}),
            (("--protocol", "consumer", "--group-type", "classic"), {group}),
            (("--consumer",), {newer, group, simple}),
            (("--share",), set()),
            (("--streams",), set()),
        ):
            assert set(listed(*options)) & {newer, group, simple} == has, options
    finally:
        consumer.close()


def test_groups_by_state_and_type(tools: JavaTools, group: str, name: str) -> None:
    """kafka-consumer-groups --list with states and types, --describe of one and of all."""
    assert group in tools.check(CONSUMER_GROUPS, "--list", "--state", "Empty").stdout
    assert group not in tools.check(CONSUMER_GROUPS, "--list", "--state", "Stable").stdout
    assert group in tools.check(CONSUMER_GROUPS, "--list", "--type", "classic", "--state", "empty,stable").stdout
    assert group not in tools.check(CONSUMER_GROUPS, "--list", "--type", "consumer").stdout
    wrong = tools.run(CONSUMER_GROUPS, "--list", "--state", "Sleeping")
    assert "Invalid state list 'Sleeping'" in wrong.stdout + wrong.stderr
    assert re.search(
        rf"{group}\s+.*Empty\s+0", tools.check(CONSUMER_GROUPS, "--describe", "--group", group, "--state").stdout
    )
    for options in (("--offsets",), ("--offsets", "--verbose"), ("--timeout", "20000")):
        described = tools.check(CONSUMER_GROUPS, "--describe", "--group", group, *options)
        assert {row["LAG"] for row in offsets_of(described.stdout, name)} == {"0"}
    assert name in tools.check(CONSUMER_GROUPS, "--describe", "--all-groups").stdout
    states = tools.check(CONSUMER_GROUPS, "--describe", "--all-groups", "--state", "--verbose").stdout
    assert group in states
    nobody = tools.check(CONSUMER_GROUPS, "--describe", "--group", group, "--members", "--verbose")
    assert "has no active members" in nobody.stdout + nobody.stderr


def test_offsets_are_reset_in_every_way(tools: JavaTools, group: str, name: str, tmp_path: Path) -> None:
    """--reset-offsets to each kind of place, shown, exported, executed, read from a file."""
    on_topic = ("--group", group, "--topic", name, "--reset-offsets")

    def plan(*options: str) -> dict[str, str]:
        return planned(tools.check(CONSUMER_GROUPS, *on_topic, *options, "--dry-run"), name)

    assert plan("--to-earliest") == {"0": "0", "1": "0"}
    assert plan("--to-latest") == {"0": "5", "1": "5"}
    assert plan("--to-current") == {"0": "5", "1": "5"}
    assert plan("--shift-by", "-2") == {"0": "3", "1": "3"}
    assert plan("--shift-by", "-20") == {"0": "0", "1": "0"}
    assert plan("--to-offset", "99") == {"0": "5", "1": "5"}
    assert plan("--by-duration", "P1D") == {"0": "0", "1": "0"}
    assert plan("--to-datetime", "2020-01-01T00:00:00.000") == {"0": "0", "1": "0"}
    tomorrow = time.strftime("%Y-%m-%dT%H:%M:%S.000", time.gmtime(time.time() + 86_400))
    assert plan("--to-datetime", tomorrow) == {"0": "5", "1": "5"}
    one = tools.check(
        CONSUMER_GROUPS, "--group", group, "--topic", f"{name}:1", "--reset-offsets", "--to-offset", "2", "--dry-run"
    )
    assert planned(one, name) == {"1": "2"}
    exported = tools.check(CONSUMER_GROUPS, *on_topic, "--to-offset", "4", "--export", "--dry-run").stdout
    assert {f'"{name}",0,4', f'"{name}",1,4'} == {line for line in exported.splitlines() if name in line}
    file = tmp_path / "offsets.csv"
    file.write_text(f"{name},0,1\n{name},1,3\n")
    from_file = tools.check(CONSUMER_GROUPS, "--group", group, "--reset-offsets", "--from-file", str(file), "--execute")
    assert planned(from_file, name) == {"0": "1", "1": "3"}
    rows = offsets_of(tools.check(CONSUMER_GROUPS, "--describe", "--group", group).stdout, name)
    assert {row["PARTITION"]: row["CURRENT-OFFSET"] for row in rows} == {"0": "1", "1": "3"}
    everywhere = ("--group", group, "--all-topics", "--reset-offsets", "--to-latest", "--execute")
    assert planned(tools.check(CONSUMER_GROUPS, *everywhere), name) == {"0": "5", "1": "5"}


def test_offsets_and_groups_are_deleted(tools: JavaTools, group: str, name: str, unique: Unique) -> None:
    """--delete-offsets of several topics, one of which was never committed; --delete of several groups at once."""
    other = unique("never-committed")
    deleted = tools.check(
        CONSUMER_GROUPS, "--delete-offsets", "--group", group, "--topic", f"{name}:0", "--topic", f"{name}:1"
    ).stdout
    assert all(re.search(rf"{name}\s+{partition}\s+Successful", deleted) for partition in range(2)), deleted
    several = tools.run(CONSUMER_GROUPS, "--delete", "--group", group, "--group", other)
    assert f"Group '{other}' could not be deleted due to:" in several.stdout + several.stderr
    assert group in several.stdout
    assert group not in tools.check(CONSUMER_GROUPS, "--list").lines


def test_a_regular_expression_is_checked_without_a_broker(tools: JavaTools) -> None:
    """--validate-regex: the one option that asks nobody."""
    good = tools.run(CONSUMER_GROUPS, "--validate-regex", "orders-[0-9]+", connected=False)
    assert "is valid" in good.stdout, good
    bad = tools.run(CONSUMER_GROUPS, "--validate-regex", "orders-(", connected=False)
    assert "is invalid" in bad.stdout, bad
