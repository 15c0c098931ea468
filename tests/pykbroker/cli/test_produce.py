from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError

from pykbroker.cli import produce
from pykbroker.cli.errors import CliError
from pykbroker.cli.produce import LineFormat, OutgoingRecord, parse_line
from tests.pykbroker.cli.conftest import Run


class FakeProducer:
    """Takes what kafka-python's producer takes; refuses values that begin with b"refuse"."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.is_closed = False

    def send(self, topic: str, **record: Any) -> FakeFuture:
        if topic == "nope":
            raise KafkaTimeoutError("Failed to update metadata after 1 secs.")
        self.sent.append({"topic": topic, **record})
        return FakeFuture((record["value"] or b"").startswith(b"refuse"), len(self.sent) - 1)

    def flush(self, timeout: float) -> None:
        pass

    def close(self, timeout: float) -> None:
        self.is_closed = True


class FakeFuture:
    def __init__(self, is_refused: bool, offset: int) -> None:
        self._is_refused = is_refused
        self.partition, self.offset = 0, offset

    def add_errback(self, callback: Callable[[Exception], None]) -> None:
        from kafka.errors import MessageSizeTooLargeError

        if self._is_refused:
            callback(MessageSizeTooLargeError("too large"))

    def add_callback(self, callback: Callable[[Any], None]) -> None:
        if not self._is_refused:
            callback(self)


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> FakeProducer:
    fake = FakeProducer()
    monkeypatch.setattr(produce, "open_producer", lambda *arguments: fake)
    return fake


def type_in(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))


def test_lines_become_records(run: Run, producer: FakeProducer, monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch, b"a\n\xff\r\nlast")
    code, output, errors = run("produce", "t", "-H", "src=cli", "-p", "2", "-v")
    assert (code, errors) == (0, "produced 3 records to t\n")
    assert output == "partition 0 offset 0\npartition 0 offset 1\npartition 0 offset 2\n"
    assert [record["value"] for record in producer.sent] == [b"a", b"\xff", b"last"]
    assert producer.sent[0]["headers"] == [("src", b"cli")]
    assert {record["partition"] for record in producer.sent} == {2}
    assert producer.is_closed


def test_a_refused_record_ends_it(run: Run, producer: FakeProducer, monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch, b"a\nrefuse me\nb\n")
    code, _, errors = run("produce", "t")
    assert code == 1
    assert errors.startswith("pykbroker: the broker refused: ")
    assert len(producer.sent) == 2


def test_a_malformed_line_ends_it_after_those_before(
    run: Run, producer: FakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_in(monkeypatch, b"k=v\nnothing\n")
    code, _, errors = run("produce", "t", "-K", "=")
    assert (code, errors) == (1, "pykbroker: line 2: no '=' after the key\n")
    assert [(record["key"], record["value"]) for record in producer.sent] == [(b"k", b"v")]
    assert producer.is_closed


@pytest.mark.parametrize(
    ("line", "line_format", "expected"),
    [
        (b"k=v=w\n", LineFormat("="), OutgoingRecord(b"k", b"v=w", [])),
        (b"k=\n", LineFormat("="), OutgoingRecord(b"k", b"", [])),
        (b"k=NULL\n", LineFormat("=", null_marker="NULL"), OutgoingRecord(b"k", None, [])),
        (b"NULL=v\n", LineFormat("=", null_marker="NULL"), OutgoingRecord(None, b"v", [])),
        (b"a:1,b:x:y|v\n", LineFormat(None, "|"), OutgoingRecord(None, b"v", [("a", b"1"), ("b", b"x:y")])),
        (b"|k=v\n", LineFormat("=", "|"), OutgoingRecord(b"k", b"v", [])),
    ],
)
def test_line_formats(line: bytes, line_format: LineFormat, expected: OutgoingRecord) -> None:
    assert parse_line(line, 1, line_format) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"value": "v"}', OutgoingRecord(None, b"v", [])),
        (b'{"key": "k", "value": null}', OutgoingRecord(b"k", None, [])),
        (b'{"value": {"a": 1}}', OutgoingRecord(None, b'{"a": 1}', [])),
        (b'{"value_base64": "/w=="}', OutgoingRecord(None, b"\xff", [])),
        (
            b'{"value": "v", "headers": [{"key": "h", "value": null}], "partition": 3, "timestamp": 9, "offset": 7}',
            OutgoingRecord(None, b"v", [("h", None)], 3, 9),
        ),
    ],
)
def test_json_lines(line: bytes, expected: OutgoingRecord) -> None:
    assert parse_line(line, 1, LineFormat(is_json=True)) == expected


@pytest.mark.parametrize(
    "line", [b"nonsense", b"[1]", b'{"headers": [1]}', b'{"partition": "x"}', b'{"partition": 1e999}']
)
def test_lines_that_are_no_json_record(line: bytes) -> None:
    with pytest.raises(CliError, match=r"line 5: not a record"):
        parse_line(line, 5, LineFormat(is_json=True))


def test_json_lines_exclude_separators(run: Run, producer: FakeProducer) -> None:
    assert run("produce", "t", "--json", "-K", "=")[0] == 2


def test_a_topic_that_the_cluster_does_not_create(
    run: Run, producer: FakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_in(monkeypatch, b"a\n")
    code, _, errors = run("produce", "nope", "--request-timeout", "1")
    assert code == 1
    assert errors == "pykbroker: topic nope: no partitions known within 1 s; it does not exist and was not created\n"
    assert producer.is_closed


def test_a_person_is_told_what_lines_become(run: Run, producer: FakeProducer, monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch, b"a\n")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    _, _, errors = run("produce", "t")
    assert errors.startswith("each line becomes a record in t; end with Ctrl-D\n")
    assert [sent["value"] for sent in producer.sent] == [b"a"]
