"""One simulated cluster from one seed."""

from __future__ import annotations

import gc
import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager

import trio

from pykbroker import memory
from tests.simulation.machines import Machine
from tests.simulation.network import Network
from tests.simulation.timeline import Timeline
from tests.simulation.trace import Trace, TraceHandler

CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZQ"


class RuleBroken(Exception):
    """A rule that must hold was broken. `lines` are the last events."""

    def __init__(self, seed: str, what: str, lines: list[str]) -> None:
        super().__init__(f"seed {seed}: {what}")
        self.what = what
        self.lines = lines


class World:
    """Time, network, machines and the trace of one run; `run` runs it.

    Attributes:
        random: for what is nobody's own.
        nursery: where machines and clients live; cancelled at the end.
        is_over: the run has come to its end, what happens now does not count.
    """

    def __init__(self, seed: str, show: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.cluster_id = CLUSTER_ID
        self.timeline = Timeline(seed)
        self.trace = Trace(lambda: self.timeline.now, show)
        self.network = Network(self.timeline, seed)
        self.random = random.Random(f"{seed} world")
        self.machines: dict[str, Machine] = {}
        self.nursery: trio.Nursery
        self.is_over = False
        self._violation: RuleBroken | None = None

    def add_machine(self, name: str, properties: Mapping[str, str]) -> Machine:
        machine = self.machines[name] = Machine(self, name, properties)
        return machine

    def broken(self, what: str, cause: BaseException | None = None) -> None:
        """Notes that a rule was broken, the first one, and ends the run."""
        self.trace.add("!", what)
        if self._violation is None and not self.is_over:
            self._violation = RuleBroken(self.seed, what, list(self.trace.last))
            self._violation.__cause__ = cause
        self.nursery.cancel_scope.cancel()

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        """Runs a scenario from time 0 to its end.

        Raises:
            RuleBroken: the first rule that was broken.
        """

        async def main() -> None:
            async with trio.open_nursery() as self.nursery:
                await scenario()
                self.is_over = True
                self.nursery.cancel_scope.cancel()

        with _surroundings(self.trace):
            self.timeline.run(main)
        if self._violation is not None:
            raise self._violation


@contextmanager
def _surroundings(trace: Trace) -> Iterator[None]:
    """Log lines go to the trace, nothing is collected or measured meanwhile: both would depend on the process."""
    logger = logging.getLogger("pykbroker")
    handler = TraceHandler(trace)
    before = logger.propagate, logger.level, memory.FreedMemory.give_back
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    memory.FreedMemory.give_back = lambda self: False  # type: ignore[method-assign]
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        logger.removeHandler(handler)
        logger.propagate, logger.level, memory.FreedMemory.give_back = before  # type: ignore[method-assign]
