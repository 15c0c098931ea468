"""Runs the same scripts on two brokers and tells where the answers differ."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from pykbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from pykbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.differential.explained import explanation_of
from tests.differential.plain import differences
from tests.differential.script import Step
from tests.differential.world import ANSWER_TIMEOUT_S, World

NOT_COORDINATOR_YET = (14, 15, 16)


class Difference(NamedTuple):
    """An answer, or a part of one, that is not the same. `request` is its step as text."""

    number: int
    request: str
    path: str
    kafka: Any
    ours: Any

    def __str__(self) -> str:
        place = self.path or "the answer"
        return f"step {self.number}, {self.request}\n  at {place}\n  Kafka {self.kafka!r}\n  ours  {self.ours!r}"

    @property
    def kind(self) -> str:
        """Key that differences of the same cause share: API, path and values, without indexes and large numbers."""
        api = re.sub(r"^connection \d: ", "", self.request).partition("(")[0].split()[0]
        kafka, ours = (re.sub(r"\d{4,}", "#", str(value)[:60]) for value in (self.kafka, self.ours))
        return f"{api} {re.sub(r'[0-9]+', '#', self.path)} {kafka} / {ours}"


class Pair:
    """Apache Kafka and pykbroker side by side."""

    def __init__(self, kafka: tuple[str, int], ours: tuple[str, int]) -> None:
        self.kafka = World(kafka)
        self.ours = World(ours)
        self.worlds = (self.kafka, self.ours)
        # Brokers that ran before may have topics of earlier comparisons.
        self._runs = int(time.time()) % 50_000
        self.explained: dict[str, int] = {}

    def prepare(self) -> None:
        """Waits until both coordinate groups."""
        for world in self.worlds:
            deadline = time.monotonic() + ANSWER_TIMEOUT_S
            while True:
                world.call(FindCoordinatorRequest(coordinator_keys=["any"]), 4)
                world.call(FindCoordinatorRequest(coordinator_keys=["any"], key_type=1), 4)
                answer = world.call(DescribeGroupsRequest(groups=["any"]), 6)
                if answer.groups[0].error_code not in NOT_COORDINATOR_YET or time.monotonic() > deadline:
                    break
                time.sleep(0.05)

    def run(self, script: Sequence[Step]) -> list[Difference]:
        """Unexplained differences of a script, in the order of its requests; the first may be why there are others."""

        def play(world: World) -> None:
            for step in script:
                world.run(step)

        return self.play(play)

    def play(self, scenario: Callable[[World], None]) -> list[Difference]:
        """As `run`, for a script that is a function of a world."""
        self._runs += 1
        for world in self.worlds:
            world.begin(f"d{self._runs:05}-")
            scenario(world)
            world.collect_waiting(0.3)
            world.end()
        return list(self._compared())

    def _compared(self) -> Iterator[Difference]:
        pairs = zip(self.kafka.answers, self.ours.answers, strict=True)
        for number, ((request, kafka), (_, ours)) in enumerate(pairs):
            found = [Difference(number, request, *difference) for difference in differences(kafka, ours)]
            unexplained = []
            for difference in found:
                entry = explanation_of(*difference[1:])
                if entry is None:
                    unexplained.append(difference)
                    continue
                self.explained[entry.reason] = self.explained.get(entry.reason, 0) + 1
                if entry.is_all:
                    unexplained = []
                    break
            yield from unexplained


def minimised(pair: Pair, script: Sequence[Step], wanted: str) -> list[Step]:
    """A part of a script, as short as dropping requests makes it, that still gives a difference of this kind."""

    def shows(steps: Sequence[Step]) -> bool:
        return any(found.kind == wanted for found in pair.run(steps))

    steps = list(script)
    size = max(len(steps) // 2, 1)
    while True:
        start = 0
        while start < len(steps):
            shorter = steps[:start] + steps[start + size :]
            if shorter and shows(shorter):
                steps = shorter
            else:
                start += size
        if size == 1:
            return steps
        size //= 2
