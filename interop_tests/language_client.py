"""A client of another language, driven through its program: actions with settings in JSON, answers in lines of JSON."""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from interop_tests.clients import wait_until

TIMEOUT_S = 180.0
Line = dict[str, Any]


class LanguageClientError(Exception):
    """An action failed as it should when it is refused.

    Attributes:
        code: the code in Kafka's protocol; None when the client has an error of its own.
    """

    def __init__(self, code: int | None, message: str) -> None:
        super().__init__(f"{message} (code {code})")
        self.code = code


class Record(NamedTuple):
    """A record as it is sent, and as it is seen again but for its offset."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int = 0

    def as_line(self) -> Line:
        """Records that a program has read."""
        headers = [{"key": name, "value": _encoded(value)} for name, value in self.headers]
        return {
            "partition": self.partition,
            "key": _encoded(self.key),
            "value": _encoded(self.value),
            "headers": headers,
            "timestamp_ms": self.timestamp_ms,
        }


def record_of(line: Line) -> Record:
    """A record that a program printed."""
    headers = tuple(sorted((one["key"], _decoded(one["value"]) or b"") for one in line["headers"] or ()))
    return Record(line["partition"], _decoded(line["key"]), _decoded(line["value"]), headers, line["timestamp_ms"])


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


class Running:
    """An action that goes on until its input is closed.

    Attributes:
        lines: what it has printed so far.
        complaint: the end of its standard error, once it has ended.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[Line] = []
        self.complaint = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def records(self) -> list[Record]:
        """Records that a member of a group was given."""
        return [record_of(line) for line in list(self.lines) if "value" in line]

    def send(self, *lines: Line | None) -> None:
        """Writes lines to its input; None is the empty line that ends a batch."""
        assert self.process.stdin is not None
        for line in lines:
            self.process.stdin.write("" if line is None else json.dumps(line))
            self.process.stdin.write("\n")
        self.process.stdin.flush()

    def wait_for_lines(self, count: int) -> None:
        """Waits until it has printed so many lines, or has ended."""
        wait_until(
            lambda: len(self.lines) >= count or not self._reader.is_alive(),
            f"{count} lines, {{}} so far".format,
            self.lines,
            timeout_s=TIMEOUT_S,
        )
        assert len(self.lines) >= count, f"it ended after {self.lines[-3:]}"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))


class LanguageClient:
    """A client pointed at a broker.

    Args:
        command: its program.
        bootstrap: host:port.
        login: `user` and `password` for a broker that asks for them.
    """

    def __init__(self, command: Sequence[str], bootstrap: str, **login: str) -> None:
        self.command = command
        self.settings = {"bootstrap": bootstrap, **login}

    def run(self, action: str, lines: Iterable[Line | None] = (), **settings: object) -> list[Line]:
        """Runs an action to its end: what it printed. Raises LanguageClientError when the client was refused."""
        with self.running(action, **settings) as running:
            running.send(*lines)
            assert running.process.stdin is not None
            running.process.stdin.close()
            code = running.process.wait(TIMEOUT_S)
            running._reader.join(TIMEOUT_S)
        found = running.lines
        if code == 1 and found and "error" in found[-1]:
            raise LanguageClientError(found[-1]["error"], found[-1]["message"])
        assert code == 0, f"{action} ended with code {code}: {running.complaint}"
        return found

    @contextmanager
    def running(self, action: str, **settings: object) -> Iterator[Running]:
        """Starts an action; at the end of the block its input is closed, and it must end without a failure."""
        with tempfile.TemporaryFile("w+") as complaints:
            process = subprocess.Popen(
                [*self.command, action, json.dumps(self.settings | settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
            )
            patience = threading.Timer(TIMEOUT_S, process.kill)
            patience.start()
            running = Running(process)
            try:
                yield running
                assert process.stdin is not None
                process.stdin.close()
                code = process.wait(TIMEOUT_S)
                complaints.seek(0)
                running.complaint = complaints.read()[-2000:]
                assert code in (0, 1), f"{action} ended with code {code}: {running.complaint}"
            finally:
                patience.cancel()
                process.kill()
                process.wait()

    def produce(self, topic: str, *batches: Sequence[Record], **settings: Any) -> list[tuple[int, int]]:
        """Sends batches, each when the one before is acknowledged: partition and offset of each record."""
        lines: list[Line | None] = []
        for batch in batches:
            lines += [*(record.as_line() for record in batch), None]
        return [(ack["partition"], ack["offset"]) for ack in self.run("produce", lines, topic=topic, **settings)]

    def consume(self, topic: str, **settings: Any) -> list[Record]:
        """All records of a topic up to its end, by partition."""
        found = self.run("consume", topic=topic, **settings)
        return [record_of(line) for line in sorted(found, key=lambda line: (line["partition"], line["offset"]))]
