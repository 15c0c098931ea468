"""Flink's Kafka connector: a job with exactly-once source and sink, which dies and goes on from a checkpoint."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop_tests.clients import Message, confluent_consume, confluent_produce, create_topic, end_of, wait_until
from interop_tests.java_process import JavaProcess
from interop_tests.language_programs import flink_program
from interop_tests.made_once import or_skip

pytestmark = [pytest.mark.java, pytest.mark.area("frameworks"), pytest.mark.client("Flink")]

TIMEOUT_S = 90.0
WORDS = [f"word-{number}" for number in range(20)]

Start = Callable[..., JavaProcess]


@pytest.fixture
def start(bootstrap: str, tmp_path: Path) -> Iterator[Start]:
    """Starts the job, for the first time or from a checkpoint; it ends with the test."""
    command = or_skip(flink_program)
    started: list[JavaProcess] = []

    def run(source: str, sink: str, name: str, checkpoint: Path | None = None) -> JavaProcess:
        settings = {
            "execution.checkpointing.interval": "300ms",
            "execution.checkpointing.dir": f"file://{tmp_path}/checkpoints",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "restart-strategy.type": "disable",
        }
        if checkpoint is not None:
            settings["execution.state-recovery.path"] = f"file://{checkpoint}"
        arguments = [bootstrap, source, sink, name, *(f"{key}={value}" for key, value in settings.items())]
        started.append(JavaProcess([*command, *arguments], tmp_path / f"job-{len(started)}"))
        return started[-1]

    yield run
    for job in started:
        job.kill()


def newest_checkpoint(folder: Path) -> Path | None:
    """The folder of the last checkpoint that is complete."""
    complete = sorted(folder.glob("checkpoints/*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime_ns)
    return complete[-1].parent if complete else None


def test_exactly_once_from_a_checkpoint(bootstrap: str, name: str, start: Start, tmp_path: Path) -> None:
    """A committed reader sees each record counted once, although the job is killed twice by kill -9.

    Transactions that a checkpoint has are committed by the job that begins with it, later ones are aborted.
    """
    source = create_topic(bootstrap, f"{name}-words", 3)
    sink = create_topic(bootstrap, f"{name}-counts", 2)
    chooser = random.Random(name)
    sent: Counter[str] = Counter()

    def send(count: int) -> None:
        words = chooser.choices(WORDS, k=count)
        sent.update(words)
        confluent_produce(bootstrap, source, [Message(None, word.encode()) for word in words])

    for _ in range(2):
        before, last = end_of(bootstrap, sink), newest_checkpoint(tmp_path)
        job = start(source, sink, name, last)
        send(500)

        def is_under_way(before: int = before, last: Path | None = last, job: JavaProcess = job) -> bool:
            assert job.is_running, job.output()
            send(20)
            return end_of(bootstrap, sink) > before + 200 and newest_checkpoint(tmp_path) not in (None, last)

        wait_until(is_under_way, "a checkpoint and output", timeout_s=TIMEOUT_S, pause_s=0.05)
        job.kill()
        send(200)
    start(source, sink, name, newest_checkpoint(tmp_path))
    found: dict[str, list[int]] = defaultdict(list)
    for message in confluent_consume(bootstrap, [sink], sent.total(), isolation="read_committed"):
        word, _, count = (message.value or b"").decode().partition(" ")
        found[word].append(int(count))
    assert {word: sorted(counts) for word, counts in found.items()} == {
        word: list(range(1, count + 1)) for word, count in sent.items()
    }
