"""`pykbroker transaction` on any Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaError

from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.command_line import Cli
from tests.support.transactions import transactional_batch
from tests.support.wire_client import WireClient

Name = Callable[[], str]


class Open:
    """A transaction with one record in partition 1 of a topic, and its producer."""

    def __init__(self, address: str, topic: str, transactional_id: str) -> None:
        self.topic, self.id = topic, transactional_id
        self.producer = KafkaProducer(bootstrap_servers=address, transactional_id=transactional_id)
        self.producer.init_transactions()
        self.producer.begin_transaction()
        self.producer.send(topic, b"v", partition=1).get(30)


@pytest.fixture
def opened(cli: Cli, address: str, new_name: Name) -> Iterator[Open]:
    topic = new_name()
    cli.new_topic(topic, "-p", "2")
    found = Open(address, topic, new_name())
    yield found
    found.producer.close(0)


def open_in(cli: Cli, topic: str) -> list[dict[str, Any]]:
    return [row for row in cli.json("transaction", "producers", topic) if row["start_offset"] is not None]


def test_list(cli: Cli, opened: Open) -> None:
    [row] = [row for row in cli.json("transaction", "list") if row["transactional_id"] == opened.id]
    assert (row["state"], row["coordinator_id"]) == ("Ongoing", 1)
    number = str(row["producer_id"])
    assert cli.json("transaction", "list", "--state", "ongoing", "--producer-id", number, "--pattern", opened.id) == [
        row
    ]
    assert cli.json("transaction", "list", "--state", "completecommit", "--producer-id", number) == []
    assert cli.json("transaction", "list", "--longer-than", "3600", "--producer-id", number) == []
    assert cli.json("transaction", "list", "--pattern", "no-such.*") == []
    assert opened.id in cli.ask("transaction", "list")
    assert cli.ask("transaction", "list", "--pattern", "no-such.*") == "no transactions\n"


def test_describe(cli: Cli, opened: Open) -> None:
    found = cli.json("transaction", "describe", opened.id)
    assert (found["state"], found["coordinator_id"], found["timeout_ms"]) == ("Ongoing", 1, 60000)
    assert found["start_ms"] is not None
    assert found["partitions"] == [{"topic": opened.topic, "partition": 1}]
    shown = cli.ask("transaction", "describe", opened.id)
    assert shown.startswith(f"transactional id {opened.id}: Ongoing  began 20")
    assert cli.run("transaction", "describe", "no-such")[::2] == (
        1,
        "pykbroker: transactional id no-such does not exist\n",
    )


def test_producers(cli: Cli, opened: Open) -> None:
    [row] = cli.json("transaction", "producers", opened.topic)
    described = cli.json("transaction", "describe", opened.id)
    assert (row["topic"], row["partition"], row["start_offset"]) == (opened.topic, 1, 0)
    assert (row["producer_id"], row["producer_epoch"]) == (described["producer_id"], described["producer_epoch"])
    assert cli.json("transaction", "producers", f"{opened.topic}:0") == []


def test_abort_by_id_fences_the_producer(cli: Cli, opened: Open) -> None:
    code, output, errors = cli.run("transaction", "abort", opened.id)
    assert (code, errors) == (0, "nothing was changed: add --execute to do it\n")
    assert f"transactional id {opened.id}: Ongoing" in output
    assert cli.json("transaction", "describe", opened.id)["state"] == "Ongoing"
    assert cli.run("transaction", "abort", opened.id, "--execute")[::2] == (0, "aborted\n")
    assert open_in(cli, opened.topic) == []
    assert cli.records(opened.topic, "--from-beginning", "--read-committed") == []
    assert len(cli.records(opened.topic, "--from-beginning")) == 1
    with pytest.raises(KafkaError):
        opened.producer.commit_transaction()
    code, _, errors = cli.run("transaction", "abort", opened.id, "--execute")
    assert code == 1
    assert f"transactional id {opened.id} has no open transaction, it is " in errors


def test_abort_in_a_partition(cli: Cli, opened: Open) -> None:
    [row] = open_in(cli, opened.topic)
    words = ["transaction", "abort", "--topic", opened.topic, "--partition", "1", "--start-offset", "0"]
    code, _, errors = cli.run(*words, "--execute")
    assert code == 1
    assert errors == (
        "pykbroker: the transaction is not a hanging one, its coordinator will end it: "
        f"`pykbroker transaction abort {opened.id}` aborts it in all its partitions\n"
    )
    assert cli.json(*words, "--force") == {"executed": False, "transaction": row}
    assert open_in(cli, opened.topic) == [row]
    words[-2:] = ["--producer-id", str(row["producer_id"])]
    assert cli.run(*words, "--force", "--execute")[::2] == (0, "aborted\n")
    assert open_in(cli, opened.topic) == []
    assert cli.records(opened.topic, "--from-beginning", "--read-committed") == []
    assert cli.run(*words, "--force")[::2] == (
        1,
        f"pykbroker: {opened.topic}-1 has no open transaction with producer {row['producer_id']}\n",
    )


def hang(cli: Cli, address: str, topic: str, producer_id: int) -> None:
    """Write a transaction's record that no coordinator knows of, as old brokers let it happen."""
    partition = PartitionProduceData(index=0, records=transactional_batch(producer_id=producer_id))
    request = ProduceRequest(
        transactional_id=topic,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[partition])],
    )
    host, _, port = address.rpartition(":")
    key = "transaction.partition.verification.enable"
    cli.ask("config", "set", "cluster", f"{key}=false")
    connection = WireClient((host, int(port)))
    try:
        # Apache Kafka answers before the broker has heard of the setting.
        deadline = time.monotonic() + 30
        while True:
            [answer] = connection.call(request, 9).responses[0].partition_responses
            if not answer.error_code or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        assert answer.error_code == 0
    finally:
        connection.close()
        cli.ask("config", "set", "cluster", "--unset", key)


def test_a_hanging_transaction(cli: Cli, address: str, new_name: Name) -> None:
    topic = new_name()
    cli.new_topic(topic)
    hang(cli, address, topic, 123_456)
    assert cli.records(topic, "--from-beginning", "--read-committed", "--timeout", "1") == []
    [row] = cli.json("transaction", "find-hanging", topic, "--longer-than", "0")
    assert (row["producer_id"], row["start_offset"], row["coordinator_epoch"]) == (123_456, 0, None)
    assert "123456" in cli.ask("transaction", "find-hanging", "--longer-than", "0")
    words = ["transaction", "abort", "--topic", topic, "--partition", "0", "--start-offset"]
    assert cli.run(*words, "5")[::2] == (1, f"pykbroker: {topic}-0 has no open transaction with start offset 5\n")
    assert cli.run(*words, "0")[::2] == (0, "nothing was changed: add --execute to do it\n")
    assert cli.run(*words, "0", "--execute")[::2] == (0, "aborted\n")
    assert cli.ask("transaction", "find-hanging", topic, "--longer-than", "0") == "no hanging transactions\n"
    # The record and the marker.
    assert cli.json("topic", "describe", topic)[0]["partitions"][0]["end_offset"] == 2


def test_what_its_coordinator_will_end_does_not_hang(cli: Cli, opened: Open) -> None:
    assert cli.json("transaction", "find-hanging", opened.topic, "--longer-than", "0") == []
    assert cli.ask("transaction", "find-hanging") == "no hanging transactions\n"


@pytest.mark.parametrize(
    "words",
    [
        ["abort"],
        ["abort", "tx", "--topic", "t"],
        ["abort", "tx", "--force"],
        ["abort", "--topic", "t", "--partition", "0"],
        ["abort", "--topic", "t", "--start-offset", "0"],
        ["abort", "--topic", "t", "--partition", "0", "--start-offset", "0", "--producer-id", "1"],
        ["list", "--state", "Open"],
    ],
)
def test_wrong_usage(cli: Cli, words: list[str]) -> None:
    assert cli.run("transaction", *words)[0] == 2
