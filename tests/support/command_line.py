"""The client commands in this process, against a cluster."""

from __future__ import annotations

import io
import json
import time
from typing import Any

import pytest

from pykbroker.cli import main


class Cli:
    """Runs command lines in this process against one cluster."""

    def __init__(self, address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("PYKBROKER_BOOTSTRAP_SERVERS", address)

    def run(self, *words: str, stdin: bytes = b"") -> tuple[int, str, str]:
        self._capsys.readouterr()
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(words)
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def ask(self, *words: str, stdin: bytes = b"") -> str:
        code, output, errors = self.run(*words, stdin=stdin)
        assert code == 0, errors
        return output

    def new_topic(self, name: str, *words: str) -> None:
        """Create a topic and wait until it can be described: Apache Kafka answers before its brokers know of it."""
        self.ask("topic", "create", name, *words)
        deadline = time.monotonic() + 30
        while self.run("topic", "describe", name)[0] and time.monotonic() < deadline:
            time.sleep(0.05)

    def json(self, *words: str) -> Any:
        return json.loads(self.ask(*words, "--json"))

    def records(self, topic: str, *words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ask("consume", topic, "--json", "--until-end", *words).splitlines()]
