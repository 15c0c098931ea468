"""Quix Streams, a framework on confluent-kafka: state with a changelog topic, and exactly once through kill -9."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop_tests.clients import Message, confluent_consume, confluent_produce, create_topic, end_of, wait_until
from interop_tests.made_once import or_skip
from interop_tests.python_packages import installed

pytestmark = [pytest.mark.area("frameworks"), pytest.mark.client("Quix Streams")]

VERSION = "3.28.1"
PROGRAM = Path(__file__).with_name("quix_word_count.py")
TIMEOUT_S = 90.0
WORDS = [f"word-{number}" for number in range(20)]

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture(scope="module")
def package() -> Path:
    """The folder that holds Quix Streams."""
    return or_skip(installed, "quixstreams", VERSION, with_dependencies=True)


@pytest.fixture
def start(package: Path, bootstrap: str, tmp_path: Path) -> Iterator[Start]:
    """Starts the word count with a folder for its state; it ends with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def run(source: str, sink: str, group: str, folder: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "output.log").open("ab") as log:
            command = [sys.executable, str(PROGRAM), bootstrap, source, sink, group, str(tmp_path / folder)]
            environment = os.environ | {"PYTHONPATH": str(package)}
            started.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=tmp_path))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


def test_counts_once_through_kills_and_a_lost_state(bootstrap: str, name: str, start: Start, tmp_path: Path) -> None:
    """A committed reader sees each count of each word once, in order, although the program is killed twice.

    After the second kill the folder with its state is another, empty one: the counts go on from the changelog topic.
    """
    source = create_topic(bootstrap, f"{name}-words", 3)
    sink = create_topic(bootstrap, f"{name}-counts", 2)
    chooser = random.Random(name)
    sent: Counter[str] = Counter()

    def send(count: int) -> None:
        words = chooser.choices(WORDS, k=count)
        sent.update(words)
        confluent_produce(bootstrap, source, [Message(word.encode(), b"-") for word in words])

    for folder in ("state", "state"):
        send(300)
        before = end_of(bootstrap, sink)
        process = start(source, sink, name, folder)

        def is_under_way(before: int = before, process: subprocess.Popen[bytes] = process) -> bool:
            assert process.poll() is None, (tmp_path / "output.log").read_text()[-3000:]
            send(20)
            return end_of(bootstrap, sink) > before + 150

        wait_until(is_under_way, "counts", timeout_s=TIMEOUT_S)
        process.kill()
        process.wait()
    start(source, sink, name, "another-state")
    counts: dict[str, list[int]] = {}

    def are_all_there() -> bool:
        counts.clear()
        for message in confluent_consume(bootstrap, [sink], isolation="read_committed"):
            assert message.key is not None
            assert message.value is not None
            counts.setdefault(message.key.decode(), []).append(int(message.value))
        return sum(map(len, counts.values())) >= sent.total()

    wait_until(are_all_there, "all counts", timeout_s=TIMEOUT_S, pause_s=0.5)
    assert counts == {word: list(range(1, total + 1)) for word, total in sent.items()}
