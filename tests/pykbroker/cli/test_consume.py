from __future__ import annotations

import json
import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import (
    KafkaConnectionError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)

from pykbroker.cli import consume, main
from pykbroker.cli.client.errors import explained_errors
from pykbroker.cli.errors import CliError
from tests.pykbroker.cli.conftest import Run


def record(partition: int, offset: int, value: bytes | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        topic="t",
        partition=partition,
        offset=offset,
        timestamp=1000 + offset,
        key=b"k%d" % partition,
        value=b"v%d" % offset if value is None else value,
        headers=[("h", b"x")],
    )


class FakeConsumer:
    """The calls of kafka-python's consumer that `consume` makes, over records in memory."""

    def __init__(self, records: dict[int, list[SimpleNamespace]]) -> None:
        self._records = records
        self._positions: dict[TopicPartition, int] = {}
        self.subscribed: list[str] = []
        self.is_closed = False

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(self._records) if topic == "t" else None

    def subscribe(self, topics: list[str]) -> None:
        self.subscribed = topics
        self._positions = {TopicPartition("t", partition): 0 for partition in self._records}

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._positions = dict.fromkeys(partitions, 0)

    def seek(self, where: TopicPartition, offset: int) -> None:
        self._positions[where] = offset

    def position(self, where: TopicPartition) -> int:
        return self._positions[where]

    def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {where: self._records[where.partition][0].offset for where in partitions}

    def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {where: self._records[where.partition][-1].offset + 1 for where in partitions}

    def offsets_for_times(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, Any]:
        found = {}
        for where, time in times.items():
            later = [item for item in self._records[where.partition] if item.timestamp >= time]
            found[where] = SimpleNamespace(offset=later[0].offset) if later else None
        return found

    def assignment(self) -> set[TopicPartition]:
        return set(self._positions)

    def poll(self, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[SimpleNamespace]]:
        found: dict[TopicPartition, list[SimpleNamespace]] = {}
        for where, position in self._positions.items():
            waiting = [item for item in self._records[where.partition] if item.offset >= position]
            taken = waiting[: max_records - sum(map(len, found.values()))]
            if taken:
                found[where] = taken
                self._positions[where] = taken[-1].offset + 1
        return found

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> FakeConsumer:
    """Partition 0 holds the offsets 5 to 9, partition 1 the offset 0."""
    fake = FakeConsumer({0: [record(0, offset) for offset in range(5, 10)], 1: [record(1, 0)]})
    monkeypatch.setattr(consume, "open_consumer", lambda *arguments: fake)
    return fake


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--from-beginning"], "v5 v6 v7 v8 v9 v0"),
        (["--offset", "earliest", "-p", "1"], "v0"),
        (["--offset", "8", "-p", "0"], "v8 v9"),
        (["--offset", "-2"], "v8 v9 v0"),
        (["--offset", "latest"], ""),
        ([], ""),
        (["--timestamp", "1007"], "v7 v8 v9"),
        (["--from-beginning", "-n", "3"], "v5 v6 v7"),
    ],
)
def test_where_it_begins(run: Run, consumer: FakeConsumer, words: list[str], expected: str) -> None:
    code, output, _ = run("consume", "t", "--until-end", *words)
    assert code == 0
    assert output.split() == expected.split()
    assert consumer.is_closed


def test_json_lines(run: Run, consumer: FakeConsumer) -> None:
    code, output, errors = run("consume", "t", "--from-beginning", "--until-end", "-p", "1", "--json")
    assert (code, errors) == (0, "consumed 1 record from t\n")
    assert json.loads(output) == {
        "topic": "t",
        "partition": 1,
        "offset": 0,
        "timestamp": 1000,
        "key": "k1",
        "value": "v0",
        "headers": [{"key": "h", "value": "x"}],
    }


def test_bytes_that_are_not_text_survive_as_base64(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = consume.record_as_json(record(0, 1, b"\xff"))
    assert shown["value_base64"] == "/w=="
    assert "value" not in shown


def test_formats(run: Run, consumer: FakeConsumer) -> None:
    words = ("consume", "t", "--from-beginning", "--until-end", "-p", "1")
    assert run(*words, "--print-key")[1] == "k1\tv0\n"
    assert run(*words, "-f", r"{topic}/{partition}/{offset}/{timestamp}\t{headers}")[1] == "t/1/0/1000\th:x\n"
    code, _, errors = run(*words, "-f", "{nope}")
    assert code == 2
    assert "'nope' is not one of topic, partition" in errors
    for template in ("{value", "{value.size}", "{value[key]}", "{}"):
        code, _, errors = run(*words, "-f", template)
        assert code == 2
        assert "its fields can be topic, partition" in errors


def test_a_group_subscribes(run: Run, consumer: FakeConsumer) -> None:
    code, output, _ = run("consume", "t", "--group", "g", "-n", "6")
    assert (code, len(output.split())) == (0, 6)
    assert consumer.subscribed == ["t"]


def test_ctrl_c_leaves_the_position_at_the_first_record_that_was_not_printed(consumer: FakeConsumer) -> None:
    consumer.subscribe(["t"])
    printed: list[int] = []

    def show(item: SimpleNamespace) -> None:
        if len(printed) == 2:
            raise KeyboardInterrupt
        printed.append(item.offset)

    count = consume._print_records(consumer, show, max_messages=None, idle_s=None, ends=None)
    assert (count, printed) == (2, [5, 6])
    assert consumer.position(TopicPartition("t", 0)) == 7
    assert consumer.position(TopicPartition("t", 1)) == 0


def test_sigterm_closes_the_consumer_after_what_was_printed(
    run: Run, consumer: FakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Kafka's console consumer: `timeout` ends the command, and the group is left with a committed position."""
    before = signal.getsignal(signal.SIGTERM)
    printed: list[int] = []

    def show(item: SimpleNamespace) -> None:
        if len(printed) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        printed.append(item.offset)

    def close() -> None:
        os.kill(os.getpid(), signal.SIGTERM)  # as `timeout` does, which signals the process and then its group
        consumer.is_closed = True

    monkeypatch.setattr(consume, "line_printer", lambda template: show)
    monkeypatch.setattr(consumer, "close", close)
    code, _, errors = run("consume", "t", "--group", "g")
    assert (code, errors, printed) == (0, "consumed 2 records from t\n", [5, 6])
    assert consumer.is_closed
    assert consumer.position(TopicPartition("t", 0)) == 7
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    "words",
    [
        ["--from-beginning", "--offset", "1"],
        ["--offset", "middle"],
        ["--timestamp", "noon"],
        ["--timestamp", "0001-01-01T00:00:00+14:00"],
        ["-g", "g", "-p", "1"],
        ["-g", "g", "--offset", "1"],
        ["-g", "g", "--until-end"],
    ],
)
def test_options_that_exclude_one_another(run: Run, consumer: FakeConsumer, words: list[str]) -> None:
    assert run("consume", "t", *words)[0] == 2


def test_what_is_not_there(run: Run, consumer: FakeConsumer) -> None:
    assert run("consume", "nope")[2] == "pykbroker: topic nope does not exist\n"
    assert run("consume", "t", "-p", "9")[2] == "pykbroker: topic t has partitions 0 to 1, not 9\n"
    assert run("consume", "nope", "--group", "g", "--timeout", "0.1")[2] == "pykbroker: topic nope does not exist\n"


def test_an_offset_behind_the_end(run: Run, consumer: FakeConsumer) -> None:
    words = "--offset latest waits for the records to come"
    code, output, errors = run("consume", "t", "--offset", "11", "-p", "0", "-n", "1", "--timeout", "0.1")
    assert (code, output) == (1, "")
    assert errors == (f"pykbroker: offset 11 is beyond the end of topic t: partition 0 has offsets 5 to 9; {words}\n")
    assert consumer.is_closed
    code, _, errors = run("consume", "t", "--offset", "11", "--until-end")
    assert code == 1
    assert "partition 0 has offsets 5 to 9, partition 1 has offsets 0 to 0;" in errors


def test_the_offset_of_the_next_record_is_not_behind_the_end(run: Run, consumer: FakeConsumer) -> None:
    assert run("consume", "t", "--offset", "10", "-p", "0", "--until-end") == (0, "", "consumed 0 records from t\n")


def test_an_offset_behind_the_end_of_some_partitions(run: Run, consumer: FakeConsumer) -> None:
    code, output, errors = run("consume", "t", "--offset", "8", "--until-end")
    assert (code, output.split()) == (0, ["v8", "v9"])
    assert errors == "partition 1 has offsets 0 to 0: begins at its end, 1\nconsumed 2 records from t\n"


def test_an_offset_before_the_first_record(run: Run, consumer: FakeConsumer) -> None:
    code, output, errors = run("consume", "t", "--offset", "2", "-p", "0", "--until-end")
    assert (code, output.split()) == (0, ["v5", "v6", "v7", "v8", "v9"])
    assert errors == "partition 0 has no offset 2 any more: begins at its first, 5\nconsumed 5 records from t\n"


def test_a_time_after_the_last_record(run: Run, consumer: FakeConsumer) -> None:
    code, output, errors = run("consume", "t", "--timestamp", "5000", "--until-end")
    assert (code, output) == (0, "")
    assert errors == "topic t has no record at or after that time\nconsumed 0 records from t\n"


def test_an_idle_time_ends_it(run: Run, consumer: FakeConsumer) -> None:
    """After the last record, as no more comes."""
    code, output, errors = run("consume", "t", "--from-beginning", "--timeout", "0.001")
    assert (code, output.split()) == (0, ["v5", "v6", "v7", "v8", "v9", "v0"])
    assert "consumed 6 records from t" in errors


def test_a_reader_that_has_gone_is_no_error(
    consumer: FakeConsumer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`pykbroker consume t | head -1`: the consumer is closed, and nothing is said."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as output:
        monkeypatch.setattr("sys.stdout", output)
        assert main(["consume", "t", "--from-beginning"]) == 0
    assert capfd.readouterr().err == ""
    assert consumer.is_closed


def broker_error(kind: type[Any], text: str) -> Exception:
    error: Exception = kind(text)
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (broker_error(KafkaConnectionError, "refused"), "no broker answers at b:1 ("),
        (broker_error(UnsupportedVersionError, "old"), "the broker does not serve what this command needs: old"),
        (broker_error(TopicAuthorizationFailedError, "no"), "refused: no"),
        (broker_error(KafkaError, "odd"), "the client failed: odd"),
        (broker_error(KafkaError, "Request 'secret' failed"), "the client failed: KafkaError"),
        (OSError("no room"), "no room"),
        (ValueError("no number"), "no number"),
    ],
)
def test_errors_of_the_client_library(error: Exception, words: str) -> None:
    """Each is one sentence; texts in which the library shows requests have its name alone."""
    with pytest.raises(CliError) as explained, explained_errors("b:1"):
        raise error
    assert words in explained.value.text


def test_a_login_may_be_the_reason_that_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library tells a refused login in its log alone."""
    monkeypatch.setattr("pykbroker.cli.client.errors.client_settings", lambda: {"sasl_mechanism": "PLAIN"})
    with pytest.raises(CliError, match="or it refused the login of --command-config"), explained_errors("b:1"):
        raise KafkaConnectionError("closed")
