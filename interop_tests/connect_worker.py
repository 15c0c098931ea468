"""Workers of Kafka Connect in distributed mode, MirrorMaker 2 on its own, and Connect's REST interface."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interop_tests.clients import wait_until
from interop_tests.java_process import JavaProcess
from interop_tests.java_tools import JAVA_FLAGS
from interop_tests.kafka_jars import JAVA
from interop_tests.ports import free_port

TIMEOUT_S = 90.0
# Every internal topic has one replica; members that are killed are missed after six seconds.
QUICK = {
    "offset.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "offset.storage.partitions": "5",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "500",
    "offset.flush.interval.ms": "500",
    # The other ways load every class of every jar.
    "plugin.discovery": "service_load",
}
# Connect tells of trouble, and of little else, at this level. File connectors use the encoding of the locale.
FLAGS = [*JAVA_FLAGS, "-Dorg.apache.logging.log4j.level=WARN", "-Dfile.encoding=UTF-8"]


class RefusedError(Exception):
    """A request to the REST interface was answered with an error.

    Attributes:
        status: of HTTP.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class ConnectProcess(JavaProcess):
    """A main class of Connect with a file of properties."""

    def __init__(self, libs: Path, main_class: str, properties: Mapping[str, str], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "connect.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        super().__init__([JAVA, *FLAGS, "-cp", f"{libs}/*", main_class, str(path)], folder)


class ConnectWorker(ConnectProcess):
    """A worker; those of one group share connectors and tasks.

    Attributes:
        worker_id: host:port of its REST interface, its name in the status of tasks.
    """

    def __init__(self, libs: Path, bootstrap: str, group: str, folder: Path, **config: str) -> None:
        port = free_port()
        self.worker_id = f"127.0.0.1:{port}"
        properties = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "listeners": f"http://{self.worker_id}",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.storage.topic": f"{group}-offsets",
            "config.storage.topic": f"{group}-configs",
            "status.storage.topic": f"{group}-status",
            **QUICK,
        } | {key.replace("_", "."): value for key, value in config.items()}
        super().__init__(libs, "org.apache.kafka.connect.cli.ConnectDistributed", properties, folder)

    def request(self, method: str, path: str, body: object = None) -> Any:
        """The answer of the REST interface; None for an empty one. Raises RefusedError, OSError."""
        request = urllib.request.Request(
            f"http://{self.worker_id}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        # A proxy that the environment names is for other places.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=TIMEOUT_S) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise RefusedError(error.code, error.read().decode(errors="replace")) from None
        return json.loads(text) if text else None

    def when_settled(self, method: str, path: str, body: object = None) -> Any:
        """As request, but asks again while the group rebalances or the worker starts."""
        answers: list[Any] = []

        def is_answered() -> bool:
            assert self.is_running, self.output()
            try:
                answers.append(self.request(method, path, body))
            except RefusedError as error:
                # 409 is a rebalance; 500 a leader that is gone, or a request to it that took too long.
                if error.status not in (404, 409, 500, 503):
                    raise
                return False
            except OSError:
                return False
            return True

        wait_until(is_answered, f"{method} {path} at {self.worker_id}", timeout_s=TIMEOUT_S, pause_s=0.2)
        return answers[0]

    def states(self, connector: str) -> list[tuple[str, str]]:
        """State and worker of a connector, then of each of its tasks; empty while it is not known."""
        try:
            status = self.request("GET", f"/connectors/{connector}/status")
        except (RefusedError, OSError):
            return []
        return [(part["state"], part["worker_id"]) for part in (status["connector"], *status["tasks"])]

    def wait_for_state(self, connector: str, state: str, parts: int = 2) -> None:
        """Waits until a connector and its tasks are in a state; a stopped connector has no tasks."""
        wait_until(
            lambda: [found for found, _ in self.states(connector)] == [state] * parts,
            f"{connector} to be {state}",
            timeout_s=TIMEOUT_S,
            pause_s=0.1,
        )

    def wait_until_gone(self, connector: str) -> None:
        """Waits until this worker has heard that a connector was deleted."""
        wait_until(lambda: connector not in self.request("GET", "/connectors"), f"the end of {connector}")
