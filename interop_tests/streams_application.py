"""Instances of the applications of languages/java/Streams.java."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interop_tests.clients import wait_until
from interop_tests.java_process import JavaProcess
from interop_tests.ports import free_port

TIMEOUT_S = 90.0


class StreamsApplication(JavaProcess):
    """An instance with one thread, which tells of each record at once; `config` has further settings, "_" for ".".

    Attributes:
        port: the name of the instance for those who ask which one has a key; nothing listens there.
    """

    def __init__(
        self, command: Sequence[str], topology: Sequence[str], bootstrap: str, folder: Path, **config: str
    ) -> None:
        self.port = free_port()
        self._answer_count = 0
        settings = {
            "bootstrap.servers": bootstrap,
            "state.dir": str(folder / "state"),
            "application.server": f"127.0.0.1:{self.port}",
            "commit.interval.ms": "100",
            "statestore.cache.max.bytes": "0",
        } | {key.replace("_", "."): value for key, value in config.items()}
        if settings["group.protocol"] == "classic":  # the other one has it from the broker
            settings["heartbeat.interval.ms"] = "500"
        super().__init__([*command, *topology, *(f"{key}={value}" for key, value in settings.items())], folder)

    @property
    def state(self) -> str:
        """The last state that it told of; "" before the first."""
        return next((event["state"] for event in reversed(self.events) if "state" in event), "")

    @property
    def restored_count(self) -> int:
        """Records of changelogs that it read before its active tasks could go on."""
        return sum(event["restored"] for event in self.events if "restored" in event)

    def wait_until_running(self) -> None:
        """Waits for the state RUNNING: all tasks are assigned and restored."""

        def is_settled() -> bool:
            return self.state in ("RUNNING", "ERROR") or not self.is_running

        wait_until(is_settled, "the application to run", timeout_s=TIMEOUT_S, pause_s=0.05)
        assert self.state == "RUNNING", f"{self.events[-3:]}\n{self.output()}"

    def ask(self, question: str) -> Any:
        """The answer to a question; None if it was refused, as while tasks move."""
        before = self._answer_count
        self.say(question)

        def answers() -> list[dict[str, Any]]:
            return [event for event in list(self.events) if "answer" in event or "refused" in event]

        wait_until(lambda: len(answers()) > before or not self.is_running, f"an answer to {question}")
        assert len(answers()) > before, self.output()
        self._answer_count += 1
        return answers()[before].get("answer")
