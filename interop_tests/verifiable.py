"""VerifiableProducer and VerifiableConsumer, with which Kafka's own system tests drive its Java clients."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

from interop_tests.java_tools import JAVA_FLAGS
from interop_tests.kafka_jars import JAVA

# What the clients allow themselves: 60 s for a commit (default.api.timeout.ms) and 30 s for the close behind it, or
# 120 s for the records that a producer still has (delivery.timeout.ms).
TIMEOUT_S = 150.0
THREAD_DUMP_S = 5.0


class Tool:
    """A running tool that tells what it does, an event of JSON a line."""

    def __init__(self, libs: Path, name: str, bootstrap: str, *arguments: str) -> None:
        main_class = f"org.apache.kafka.tools.{name}"
        self._name = name
        self.events: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [JAVA, *JAVA_FLAGS, "-cp", f"{libs}/*", main_class, "--bootstrap-server", bootstrap, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._other: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def named(self, name: str) -> list[dict[str, Any]]:
        """The events of a name so far."""
        return [event for event in self.events if event["name"] == name]

    def finish(self) -> None:
        """Waits for its own end. Raises AssertionError with what it said when that was none in order."""
        code = self._wait()
        assert code == 0, "".join(self._other)[-3000:]

    def stop(self) -> None:
        """Ends it in order (SIGTERM): a consumer commits and leaves its group."""
        self.process.terminate()
        self._wait()

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)

    def _wait(self) -> int:
        """The exit code. Raises AssertionError with what its threads wait for when the tool does not end."""
        try:
            code = self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            printed = len(self._other)
            self.process.send_signal(signal.SIGQUIT)  # A JVM prints its threads and goes on.
            self._reader.join(THREAD_DUMP_S)
            dump = "".join(self._other[printed:])
            self.kill()
            last = "".join(f"{event}\n" for event in self.events[-3:])
            before = "".join(self._other[:printed])[-3000:]
            raise AssertionError(
                f"{self._name} has not ended after {TIMEOUT_S:.0f} s\n{last}{before}\n{dump}"
            ) from None
        self._reader.join(TIMEOUT_S)
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith("\n"):
                # A killed tool may leave the beginning of an event, which is no JSON.
                self._other.append(line)
            elif line.startswith("{"):
                self.events.append(json.loads(line))
            else:
                self._other.append(line)


class Consumer(Tool):
    """A VerifiableConsumer that tells each record."""

    @property
    def assigned(self) -> set[int]:
        """The partitions that it has now."""
        owned: set[int] = set()
        for event in self.events:
            changed = {place["partition"] for place in event.get("partitions", ())}
            if event["name"] == "partitions_assigned":
                owned |= changed
            elif event["name"] == "partitions_revoked":
                owned -= changed
        return owned

    @property
    def values(self) -> list[str]:
        """Values of the records it has consumed."""
        return [event["value"] for event in self.named("record_data")]
