"""The Kafka of a run: pykbroker as one process or as three nodes, which can be killed, or a Kafka that runs already."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from processes import ManagedProcess, ProcessFailedError

from pipeline.stall import FATAL_STACKS

if TYPE_CHECKING:
    from pipeline.records import Topic

START_TIMEOUT_S = 60.0
TOPICS_TIMEOUT_S = 30.0


class Cluster:
    """A Kafka that runs already and is left alone; subclasses start one."""

    is_ours = False
    nodes = 0

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    def start(self) -> None:
        """Start it; returns when it answers."""

    def close(self) -> None:
        """End it at once."""

    def running(self) -> dict[ManagedProcess, list[int]]:
        """Process ids of its nodes that run, by the process in whose log they write; none of one not ours."""
        return {}

    def kill(self, choice: int) -> str:
        """kill -9 to a node, which the number chooses; returns the name of the killed one.

        Raises NotImplementedError for a Kafka that is not ours.
        """
        raise NotImplementedError("this Kafka is not ours to kill")

    def revive(self) -> None:
        """Start what was killed, on its port with its data."""

    def create_topics(self, topics: Mapping[str, Topic]) -> None:
        """Create topics by their real names. Raises KafkaException if one cannot be created."""
        from confluent_kafka.admin import AdminClient, NewTopic

        replicas = min(3, self.nodes) if self.is_ours else -1
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        more = {"min.insync.replicas": "2"} if replicas == 3 else {}
        new = [
            NewTopic(
                name,
                num_partitions=topic.partitions,
                replication_factor=replicas,
                config={"retention.ms": "-1"} | more | dict(topic.config),
            )
            for name, topic in topics.items()
        ]
        for future in admin.create_topics(new, operation_timeout=TOPICS_TIMEOUT_S).values():
            future.result()

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics; one that is not there is no error."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin: Any = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        for future in admin.delete_topics(list(names), operation_timeout=TOPICS_TIMEOUT_S).values():
            with contextlib.suppress(KafkaException):
                future.result()


class OneNode(Cluster):
    """A pykbroker process on a free port, which it keeps over kills."""

    is_ours = True
    nodes = 1

    def __init__(self, command: Sequence[str], folder: Path, name: str = "broker") -> None:
        super().__init__("")
        self._command = command
        self._folder = folder
        self._name = name
        self._process: ManagedProcess | None = None

    def start(self) -> None:
        """Start it, the second time on the port of the first."""
        port_file = self._folder / f"{self._name}.address"
        port_file.unlink(missing_ok=True)
        port = self.bootstrap_servers.rpartition(":")[2] or "0"
        arguments = ["start", "--port", port, "--port-file", str(port_file), "--stop-with-stdin"]
        arguments += ["--data-dir", str(self._folder / f"{self._name}-data")]
        argv, log = [*self._command, *arguments], self._folder / f"{self._name}.log"
        self._process = ManagedProcess("the broker", argv, log, FATAL_STACKS)
        self.bootstrap_servers = wait_for_text(self._process, lambda: read_text(port_file))

    def running(self) -> dict[ManagedProcess, list[int]]:
        """The process with its own id, if it runs."""
        process = self._process
        return {process: [process.pid]} if process is not None and process.exit_code() is None else {}

    def kill(self, choice: int) -> str:
        """kill -9 to the process."""
        if self._process is not None:
            self._process.kill()
        return self._name

    def revive(self) -> None:
        """Start it again if it is dead."""
        if self._process is not None and self._process.exit_code() is not None:
            self.start()

    def stop(self, timeout_s: float) -> None:
        """End it in order, by SIGTERM. Raises ProcessFailedError if that takes longer than so many seconds."""
        if self._process is not None:
            self._process.stop(timeout_s)

    def close(self) -> None:
        """kill -9: the data is of no more use."""
        if self._process is not None:
            self._process.kill()


class ThreeNodes(Cluster):
    """`pykbroker start --nodes 3`; a node that was killed is started again by its properties file."""

    is_ours = True
    nodes = 3

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        super().__init__("")
        self._command = command
        self._folder = folder
        self._supervisor: ManagedProcess | None = None
        self._pids: dict[int, int] = {}
        self._again: dict[int, ManagedProcess] = {}
        self._dead: set[int] = set()

    def start(self) -> None:
        """Start the nodes on free ports."""
        port_file = self._folder / "cluster.address"
        arguments = ["start", "--nodes", str(self.nodes), "--port", "0", "--port-file", str(port_file)]
        arguments += ["--data-dir", str(self._data()), "--stop-with-stdin"]
        argv, log = [*self._command, *arguments], self._folder / "cluster.log"
        process = ManagedProcess("the cluster", argv, log, FATAL_STACKS)
        self._supervisor = process
        self.bootstrap_servers = wait_for_text(process, lambda: read_text(port_file))
        told = wait_for_text(process, lambda: next((line for line in process.lines() if "  processes " in line), ""))
        self._pids = dict(enumerate((int(pid) for pid in re.findall(r"\d+", told)), start=1))

    def _data(self) -> Path:
        return self._folder / "cluster-data"

    def running(self) -> dict[ManagedProcess, list[int]]:
        """The supervisor with its nodes that were never killed, and each of the others that runs with its own id."""
        again = {process: [process.pid] for process in self._again.values() if process.exit_code() is None}
        if self._supervisor is None:
            return again
        first = [pid for node, pid in self._pids.items() if node not in self._again and node not in self._dead]
        return again | {self._supervisor: first}

    def kill(self, choice: int) -> str:
        """kill -9 to one node; while one is dead no other is killed, for two of three are a majority."""
        if self._dead:
            self.revive()
        node = choice % self.nodes + 1
        again = self._again.get(node)
        if again is not None:
            again.kill()
        else:
            os.kill(self._pids[node], signal.SIGKILL)
        self._dead.add(node)
        return f"node {node} of {self.nodes}"

    def revive(self) -> None:
        """Start dead nodes again; returns when all replicas are in sync again, so that a next kill loses nothing."""
        for node in sorted(self._dead):
            argv = [*self._command, "start", "--config", str(self._data() / f"node-{node}.properties")]
            log = self._folder / f"node-{node}.log"
            self._again[node] = ManagedProcess(f"node {node}", [*argv, "--stop-with-stdin"], log, FATAL_STACKS)
        if self._dead:
            self._dead.clear()
            self._wait_until_in_sync()

    def _wait_until_in_sync(self) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(KafkaException):
                topics = admin.list_topics(timeout=5).topics.values()
                partitions = [partition for topic in topics for partition in topic.partitions.values()]
                if all(len(partition.isrs) == len(partition.replicas) for partition in partitions):
                    return
            time.sleep(0.2)
        raise ProcessFailedError(f"replicas were not in sync again within {START_TIMEOUT_S:.0f} s")

    def close(self) -> None:
        """End all nodes; those of the supervisor end with it."""
        for process in self._again.values():
            process.kill()
        if self._supervisor is not None:
            self._supervisor.kill()


def read_text(path: Path) -> str:
    """Text of a file; "" while it is not there."""
    return path.read_text().strip() if path.exists() else ""


def wait_for_text(process: ManagedProcess, read: Callable[[], str]) -> str:
    """Text that `read` gives, once it is not empty. Raises ProcessFailedError if the process ends or takes too long."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not (text := read()):
        process.require_running()
        if time.monotonic() > deadline:
            raise process.failure(f"was not ready after {START_TIMEOUT_S:.0f} s")
        time.sleep(0.02)
    return text
