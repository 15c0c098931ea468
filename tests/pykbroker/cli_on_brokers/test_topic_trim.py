"""`pykbroker topic trim` on any Kafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.command_line import Cli


@pytest.fixture
def topic(cli: Cli, new_name: Callable[[], str]) -> str:
    """A topic with ten records in partition 0, at the times 1,000,000 ms and on, and four in partition 1."""
    name = new_name()
    cli.new_topic(name, "-p", "2", "-c", "retention.ms=-1")
    for partition, count in ((0, 10), (1, 4)):
        lines = [f'{{"value": "{n}", "partition": {partition}, "timestamp": {1_000_000 + n}}}' for n in range(count)]
        cli.ask("produce", name, "--json", stdin="\n".join(lines).encode())
    return name


def starts(cli: Cli, topic: str) -> list[int]:
    return [part["start_offset"] for part in cli.json("topic", "describe", topic)[0]["partitions"]]


def test_it_shows_first_and_trims_on_demand(cli: Cli, topic: str) -> None:
    words = ["topic", "trim", topic, "--offset", "3"]
    code, output, errors = cli.run(*words)
    assert (code, errors) == (0, "nothing was changed: add --execute to do it\n")
    assert "new start offset" in output
    assert starts(cli, topic) == [0, 0]
    shown = cli.json(*words, "-p", "0")
    assert shown == {
        "executed": False,
        "partitions": [{"topic": topic, "partition": 0, "start_offset": 0, "end_offset": 10, "new_start_offset": 3}],
    }
    assert cli.json(*words, "-p", "0", "--execute") == {**shown, "executed": True}
    assert starts(cli, topic) == [3, 0]
    assert len(cli.records(topic, "--from-beginning", "-p", "0")) == 7


def test_by_time(cli: Cli, topic: str) -> None:
    cli.ask("topic", "trim", topic, "--timestamp", "1000002", "--execute")
    assert starts(cli, topic) == [2, 2]
    # Partition 1 has nothing so late: all its records are older.
    cli.ask("topic", "trim", topic, "--timestamp", "1000006", "--execute")
    assert starts(cli, topic) == [6, 4]


def test_all_records(cli: Cli, topic: str) -> None:
    cli.ask("topic", "trim", topic, "--offset", "latest", "--execute")
    assert starts(cli, topic) == [10, 4]
    # What is gone does not come back.
    [part] = cli.json("topic", "trim", topic, "--offset", "2", "-p", "0", "--execute")["partitions"]
    assert part["new_start_offset"] == 10
    assert starts(cli, topic) == [10, 4]


def test_what_cannot_be_trimmed(cli: Cli, topic: str, new_name: Callable[[], str]) -> None:
    code, _, errors = cli.run("topic", "trim", topic, "--offset", "5", "--execute")
    assert (code, errors) == (1, f"pykbroker: offset 5 is beyond the end of {topic}-1, which is 4\n")
    assert starts(cli, topic) == [0, 0]
    cli.ask("config", "set", "topic", topic, "cleanup.policy=compact")
    code, _, errors = cli.run("topic", "trim", topic, "--offset", "1")
    assert (code, errors) == (
        1,
        f"pykbroker: topic {topic} has cleanup.policy=compact: only delete lets records be removed\n",
    )
    assert cli.run("topic", "trim", new_name(), "--offset", "1")[2].endswith(": does not exist\n")
    assert cli.run("topic", "trim", topic, "--offset", "1", "-p", "7")[2] == (
        f"pykbroker: topic {topic} has partitions 0 to 1, not 7\n"
    )


@pytest.mark.parametrize("words", [[], ["--offset", "1", "--timestamp", "1"], ["--offset", "-1"], ["--offset", "x"]])
def test_wrong_usage(cli: Cli, words: list[str]) -> None:
    assert cli.run("topic", "trim", "t", *words)[0] == 2
