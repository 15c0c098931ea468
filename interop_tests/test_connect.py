"""Kafka Connect: two distributed workers with file connectors, of which one dies and comes back; its REST interface."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from interop_tests.clients import confluent_consume, create_topic, wait_until
from interop_tests.connect_worker import TIMEOUT_S, ConnectWorker, RefusedError
from interop_tests.java_tools import CONSUMER_GROUPS, JavaTools
from interop_tests.kafka_jars import framework_jars
from interop_tests.made_once import or_skip

pytestmark = [pytest.mark.java, pytest.mark.area("frameworks"), pytest.mark.client("Kafka Connect")]

SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
COMMITTED = "read_committed"


class Workers:
    """Workers of one group, with sources that are exactly once (KIP-618)."""

    def __init__(self, libs: Path, bootstrap: str, group: str, folder: Path) -> None:
        self._libs = libs
        self._bootstrap = bootstrap
        self._group = group
        self._folder = folder
        self._started = 0
        self.running: list[ConnectWorker] = []

    def start(self) -> ConnectWorker:
        """Starts a further one; it answers a moment later."""
        place = self._folder / f"worker-{self._started}"
        self._started += 1
        config = {"exactly_once_source_support": "enabled"}
        self.running.append(ConnectWorker(self._libs, self._bootstrap, self._group, place, **config))
        return self.running[-1]

    def lose(self, worker: ConnectWorker) -> ConnectWorker:
        """Takes one off the list, ended or about to be; returns another."""
        self.running.remove(worker)
        return self.running[0]

    def with_id(self, worker_id: str) -> ConnectWorker:
        return next(worker for worker in self.running if worker.worker_id == worker_id)


@pytest.fixture(scope="module")
def workers(
    bootstrap: str, unique: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workers]:
    """Two workers."""
    libs = or_skip(framework_jars)
    made = Workers(libs, bootstrap, unique("connect"), tmp_path_factory.mktemp("connect"))
    for _ in range(2):
        made.start()
    for worker in made.running:
        worker.when_settled("GET", "/connectors")
    yield made
    for worker in made.running:
        worker.kill()


def source_of(path: Path, topic: str) -> dict[str, str]:
    """A source of a file's lines; a transaction is what it has read at once."""
    return {
        "connector.class": SOURCE,
        "tasks.max": "1",
        "file": str(path),
        "topic": topic,
        "exactly.once.support": "required",
        "transaction.boundary": "poll",
    }


def sink_of(path: Path, topic: str) -> dict[str, str]:
    return {
        "connector.class": SINK,
        "tasks.max": "1",
        "file": str(path),
        "topics": topic,
        "consumer.override.auto.offset.reset": "earliest",
        "consumer.override.isolation.level": COMMITTED,
    }


def append(path: Path, lines: Sequence[str]) -> None:
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@contextmanager
def written_meanwhile(path: Path, lines: Sequence[str]) -> Iterator[None]:
    """Lines are appended a few at a time by a thread; at the end of the block all of them are in the file."""
    hurry = threading.Event()

    def write() -> None:
        for start in range(0, len(lines), 10):
            append(path, lines[start : start + 10])
            hurry.wait(0.02)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        hurry.set()
        thread.join()


def topic_lines(bootstrap: str, topic: str, count: int) -> list[str]:
    """The lines in a topic of one partition, as a committed reader sees them; waits for `count`."""
    messages = confluent_consume(bootstrap, [topic], count, isolation=COMMITTED)
    return [(message.value or b"").decode() for message in messages]


def test_a_file_is_copied_through_a_topic(
    workers: Workers, bootstrap: str, tools: JavaTools, name: str, tmp_path: Path
) -> None:
    """File source and file sink carry every line in order; either worker answers every REST request.

    Connectors are made, listed, paused, resumed, stopped and deleted; their offsets are Kafka's (KIP-875).
    """
    topic = create_topic(bootstrap, f"{name}-lines")
    source, sink = f"{name}-source", f"{name}-sink"
    original, copy = tmp_path / "original", tmp_path / "copy"
    lines = [f"line {number} ä" for number in range(500)]
    append(original, lines[:300])
    one, other = workers.running
    plugins = {plugin["class"] for plugin in one.request("GET", "/connector-plugins")}
    assert {SOURCE, SINK} <= plugins
    with pytest.raises(RefusedError, match="400"):
        one.request("PUT", f"/connectors/{source}/config", {"connector.class": SOURCE, "tasks.max": "1"})
    one.when_settled("PUT", f"/connectors/{source}/config", source_of(original, topic))
    other.when_settled("PUT", f"/connectors/{sink}/config", sink_of(copy, topic))
    for worker in (one, other):
        worker.wait_for_state(source, "RUNNING")
        worker.wait_for_state(sink, "RUNNING")
    wait_until(lambda: lines_of(copy) == lines[:300], "the copy", timeout_s=TIMEOUT_S, pause_s=0.1)
    assert topic_lines(bootstrap, topic, 300) == lines[:300]

    one.request("PUT", f"/connectors/{source}/pause")
    other.wait_for_state(source, "PAUSED")
    append(original, lines[300:])
    other.request("PUT", f"/connectors/{source}/resume")
    wait_until(lambda: lines_of(copy) == lines, "the rest of the copy", timeout_s=TIMEOUT_S, pause_s=0.1)

    for connector in (source, sink):
        one.when_settled("PUT", f"/connectors/{connector}/stop")
        other.wait_for_state(connector, "STOPPED", parts=1)
    [position] = other.when_settled("GET", f"/connectors/{source}/offsets")["offsets"]
    # The connector counts characters.
    assert position == {"partition": {"filename": str(original)}, "offset": {"position": len(original.read_text())}}
    [consumed] = one.when_settled("GET", f"/connectors/{sink}/offsets")["offsets"]
    past_last = confluent_consume(bootstrap, [topic], isolation=COMMITTED)[-1].offset + 1
    assert consumed["offset"]["kafka_offset"] == past_last
    described = tools.check(CONSUMER_GROUPS, "--describe", "--group", f"connect-{sink}").stdout
    assert str(past_last) in described
    for connector in (source, sink):
        other.when_settled("DELETE", f"/connectors/{connector}")
        one.wait_until_gone(connector)


def test_a_worker_dies_and_comes_back(workers: Workers, bootstrap: str, name: str, tmp_path: Path) -> None:
    """A source that is exactly once loses no line and doubles none when its worker is killed or stopped (KIP-618).

    The other worker goes on with the tasks; a worker that starts takes over a part of them (KIP-415).
    """
    topic = create_topic(bootstrap, f"{name}-lines")
    source, sink = f"{name}-source", f"{name}-sink"
    original, copy = tmp_path / "original", tmp_path / "copy"
    lines = [f"line {number}" for number in range(3000)]
    append(original, lines[:100])
    asked = workers.running[0]
    asked.when_settled("PUT", f"/connectors/{source}/config", source_of(original, topic))
    asked.when_settled("PUT", f"/connectors/{sink}/config", sink_of(copy, topic))
    asked.wait_for_state(source, "RUNNING")
    asked.wait_for_state(sink, "RUNNING")
    with written_meanwhile(original, lines[100:2000]):
        topic_lines(bootstrap, topic, 300)
        victim = workers.with_id(asked.states(source)[1][1])
        victim.kill()
        asked = workers.lose(victim)

    def is_alone() -> bool:
        return {*asked.states(source), *asked.states(sink)} == {("RUNNING", asked.worker_id)}

    wait_until(is_alone, "the other worker to have everything", timeout_s=TIMEOUT_S, pause_s=0.2)
    assert topic_lines(bootstrap, topic, 2000) == lines[:2000]

    back = workers.start()

    def is_shared() -> bool:
        found = [*back.states(source), *back.states(sink)]
        return {state for state, _ in found} == {"RUNNING"} and {of for _, of in found} == {
            asked.worker_id,
            back.worker_id,
        }

    wait_until(is_shared, "both workers to have a part", timeout_s=TIMEOUT_S, pause_s=0.2)
    with written_meanwhile(original, lines[2000:]):
        topic_lines(bootstrap, topic, 2100)
        leaving = workers.with_id(back.states(source)[1][1])
        asked = workers.lose(leaving)
        leaving.stop()
    wait_until(is_alone, "the last worker to have everything", timeout_s=TIMEOUT_S, pause_s=0.2)
    assert topic_lines(bootstrap, topic, 3000) == lines
    wait_until(lambda: set(lines_of(copy)) == set(lines), "the copy", timeout_s=TIMEOUT_S, pause_s=0.1)
