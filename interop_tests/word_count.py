"""Input and expected output of the Kafka Streams application that counts words."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

from interop_tests.clients import Message, confluent_consume, confluent_produce, end_of, wait_until
from interop_tests.streams_application import TIMEOUT_S, StreamsApplication

WORDS_PER_LINE = 4
VOCABULARY = [f"word-{number}" for number in range(60)]
SESSION_TIMEOUT_MS = 3000
# What makes dead members be missed soon, and rebalances begin at once; the minima must allow it.
QUICK_GROUPS = {
    "group.min.session.timeout.ms": "1000",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}


class Lines:
    """Lines of words by chance, sent to a topic in parts.

    Attributes:
        counts: how often each word was sent.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._chooser = random.Random(topic)
        self.counts: Counter[str] = Counter()

    @property
    def word_count(self) -> int:
        return self.counts.total()

    def send(self, count: int) -> None:
        """Sends further lines and waits until they are acknowledged."""
        lines = [self._chooser.choices(VOCABULARY, k=WORDS_PER_LINE) for _ in range(count)]
        for words in lines:
            self.counts.update(words)
        messages = [Message(str(number).encode(), " ".join(words).encode()) for number, words in enumerate(lines)]
        confluent_produce(self._bootstrap, self._topic, messages)


def counted(bootstrap: str, output: str, count: int) -> dict[str, list[int]]:
    """Counts of each word in their order, as a committed reader sees them; waits until there are `count` of them."""
    found: dict[str, list[int]] = defaultdict(list)
    for message in confluent_consume(bootstrap, [output], count, isolation="read_committed"):
        found[(message.key or b"").decode()].append(int(message.value or b""))
    return found


def one_by_one(counts: Counter[str]) -> dict[str, list[int]]:
    """Counts of each word if every occurrence was counted once."""
    return {word: list(range(1, count + 1)) for word, count in counts.items()}


def wait_for_output(
    bootstrap: str, topic: str, application: StreamsApplication, count: int = 50, first: int | None = None
) -> None:
    """Waits for further records of an application, decided ones or not; its input is not done with by then.

    `first` is where the records begin, by default the end of the topic.
    """
    first = end_of(bootstrap, topic) if first is None else first

    def is_busy() -> bool:
        return end_of(bootstrap, topic) >= first + count or not application.is_running

    wait_until(is_busy, f"{count} records of the application", timeout_s=TIMEOUT_S)
    assert application.is_running, application.output()
