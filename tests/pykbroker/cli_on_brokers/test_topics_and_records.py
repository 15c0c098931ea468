"""Topics, records and groups through kafka-python: what the fakes of tests/pykbroker/cli assume."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.support.command_line import Cli


def test_the_life_of_a_topic(cli: Cli, new_name: Callable[[], str]) -> None:
    topic = new_name()
    cli.new_topic(topic, "-p", "2", "-c", "retention.ms=86400000")
    code, _, errors = cli.run("topic", "create", topic)
    assert code == 1
    assert "already exists" in errors
    assert cli.json("topic", "create", topic, "--if-not-exists") == {"name": topic, "created": False}
    [listed] = [row for row in cli.json("topic", "list") if row["name"] == topic]
    assert (listed["partitions"], listed["replication_factor"], listed["is_internal"]) == (2, 1, False)
    [described] = cli.json("topic", "describe", topic)
    assert described["configs"] == {"retention.ms": "86400000"}
    assert [part["end_offset"] for part in described["partitions"]] == [0, 0]
    cli.ask("topic", "alter", topic, "-p", "3", "--set", "segment.bytes=1048576", "--unset", "retention.ms")
    [described] = cli.json("topic", "describe", topic)
    assert described["configs"] == {"segment.bytes": "1048576"}
    assert len(described["partitions"]) == 3
    [everything] = cli.json("topic", "describe", topic, "--all-configs")
    assert everything["configs"]["cleanup.policy"] == "delete"
    cli.ask("topic", "delete", topic)
    assert cli.run("topic", "describe", topic)[2] == f"pykbroker: topic {topic}: does not exist\n"


def test_refusals_in_the_brokers_words(cli: Cli, new_name: Callable[[], str]) -> None:
    topic = new_name()
    assert "bogus" in cli.run("topic", "create", topic, "-c", "bogus=1")[2]
    cli.new_topic(topic, "-p", "2")
    assert "bogus" in cli.run("topic", "alter", topic, "--set", "bogus=1")[2]
    assert "would not be an increase" in cli.run("topic", "alter", topic, "-p", "1")[2]
    assert "Unable to replicate the partition 9 time(s)" in cli.run("topic", "create", new_name(), "-r", "9")[2]
    assert "does not exist" in cli.run("topic", "delete", new_name())[2]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_went(cli: Cli, new_name: Callable[[], str], codec: str) -> None:
    topic, copy = new_name(), new_name()
    cli.new_topic(topic)
    lines = "ä=1\nb=NULL\n".encode() + b"c=\xff\n"
    cli.ask("produce", topic, "-K", "=", "--null-marker", "NULL", "-H", "h=x", "-z", codec, stdin=lines)
    records = cli.records(topic, "--from-beginning")
    assert [(item["key"], item.get("value"), item.get("value_base64")) for item in records] == [
        ("ä", "1", None),
        ("b", None, None),
        ("c", None, "/w=="),
    ]
    assert all(item["headers"] == [{"key": "h", "value": "x"}] for item in records)
    cli.new_topic(copy)
    cli.ask("produce", copy, "--json", stdin="".join(json.dumps(item) + "\n" for item in records).encode())
    assert cli.records(copy, "--from-beginning") == [{**item, "topic": copy} for item in records]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(cli: Cli, new_name: Callable[[], str], acks: str) -> None:
    topic = new_name()
    cli.new_topic(topic)
    cli.ask("produce", topic, "--acks", acks, stdin=b"a\nb\n")
    assert [item["value"] for item in cli.records(topic, "--from-beginning")] == ["a", "b"]


def test_where_consuming_begins(cli: Cli, new_name: Callable[[], str]) -> None:
    topic = new_name()
    # Records of 1970 are beyond the default retention.
    cli.new_topic(topic, "-p", "2", "-c", "retention.ms=-1")
    lines = b"".join(b'{"value": "%d", "partition": 1, "timestamp": %d}\n' % (n, 1_000_000 + n) for n in range(10))
    cli.ask("produce", topic, "--json", stdin=lines)

    def values(*words: str) -> list[int]:
        return [int(item["value"]) for item in cli.records(topic, *words)]

    assert values("--offset", "7", "-p", "1") == [7, 8, 9]
    assert values("--offset", "-2", "-p", "1") == [8, 9]
    assert values("--timestamp", "1000004") == [4, 5, 6, 7, 8, 9]
    assert values("--timestamp", "2099-01-01") == []
    assert values("--from-beginning", "-n", "3") == [0, 1, 2]
    assert values() == []


def test_consuming_from_an_offset_that_is_not_there(cli: Cli, new_name: Callable[[], str]) -> None:
    topic = new_name()
    cli.new_topic(topic)
    cli.ask("produce", topic, stdin=b"a\nb\nc\n")
    code, output, errors = cli.run("consume", topic, "--offset", "4")
    assert (code, output) == (1, "")
    assert errors == (
        f"pykbroker: offset 4 is beyond the end of topic {topic}: partition 0 has offsets 0 to 2; "
        "--offset latest waits for the records to come\n"
    )
    assert cli.run("consume", topic, "--offset", "3", "--until-end") == (0, "", f"consumed 0 records from {topic}\n")
    cli.ask("topic", "trim", topic, "--offset", "1", "--execute")
    code, output, errors = cli.run("consume", topic, "--offset", "0", "--until-end")
    assert (code, output.split()) == (0, ["b", "c"])
    assert errors.startswith("partition 0 has no offset 0 any more: begins at its first, 1\n")
    code, output, errors = cli.run("consume", topic, "--timestamp", "2099-01-01", "--until-end")
    assert (code, output) == (0, "")
    assert errors.startswith(f"topic {topic} has no record at or after that time\n")
    cli.ask("topic", "trim", topic, "--offset", "latest", "--execute")
    assert "partition 0 is empty and ends at 3;" in cli.run("consume", topic, "--offset", "4")[2]
    missing = new_name()
    for words in (["--offset", "0"], ["--group", new_name()]):
        assert cli.run("consume", missing, *words)[::2] == (1, f"pykbroker: topic {missing} does not exist\n")


def test_the_life_of_a_group(cli: Cli, new_name: Callable[[], str]) -> None:
    topic, group = new_name(), new_name()
    cli.new_topic(topic)
    cli.ask("produce", topic, stdin=b"".join(b"%d\n" % number for number in range(10)))
    taken = cli.ask("consume", topic, "-g", group, "--from-beginning", "-n", "4")
    assert taken.split() == ["0", "1", "2", "3"]
    [listed] = [item for item in cli.json("group", "list") if item["group_id"] == group]
    assert listed == {
        "group_id": group,
        "protocol_type": "consumer",
        "group_state": "Empty",
        "group_type": "classic",
    }
    [part] = cli.json("group", "describe", group)["partitions"]
    assert (part["committed"], part["end_offset"], part["lag"]) == (4, 10, 6)
    shown = cli.json("group", "reset-offsets", group, "--all-topics", "--shift-by", "-3")
    assert shown == {
        "executed": False,
        "partitions": [{"topic": topic, "partition": 0, "committed": 4, "new_offset": 1}],
    }
    cli.ask("group", "reset-offsets", group, "--all-topics", "--shift-by", "-3", "--execute")
    assert cli.ask("consume", topic, "-g", group, "-n", "2").split() == ["1", "2"]
    cli.ask("group", "reset-offsets", group, "-t", f"{topic}:0", "--to-latest", "--execute")
    assert cli.json("group", "describe", group)["partitions"][0]["lag"] == 0
    cli.ask("group", "delete", group)
    assert cli.run("group", "describe", group)[2] == f"pykbroker: group {group} does not exist\n"
    assert cli.run("group", "delete", group)[2] == f"pykbroker: not deleted: {group} does not exist\n"


@pytest.mark.parametrize("words", [["topic", "list"], ["consume", "t"], ["produce", "t"]])
def test_a_cluster_that_is_not_there(words: list[str]) -> None:
    # In a process of its own: the client library leaves sockets open when it cannot connect.
    command = [sys.executable, "-m", "pykbroker", *words, "-b", "127.0.0.1:1", "--request-timeout", "0.5"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("pykbroker: no broker answers at 127.0.0.1:1")
    assert done.stderr.count("\n") == 1


def test_a_cluster_that_is_there(cli: Cli) -> None:
    assert cli.run("ready")[0] == 0
