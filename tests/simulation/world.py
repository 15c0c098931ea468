"""One simulated cluster from one seed."""

from __future__ import annotations

import gc
import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager

import trio

from pykbroker.controller import space_reserve
from pykbroker.node import process_memory as memory
from pykbroker.node import quorum_node
from tests.simulation.disk import FILL_INTERVAL_MS, RELEASE_BYTES, RESERVE_BYTES
from tests.simulation.hooks import Observed
from tests.simulation.machines import WALL_CLOCK_MS, Machine
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
        broker_names: node ids of brokers to their machines' names.
        replicas: partitions to the machines that have them at the end.
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
        self.broker_names: dict[int, str] = {}
        self.replicas: dict[tuple[str, int], list[str]] = {}
        self._may_start = True
        self.nursery: trio.Nursery
        self.observed = Observed(self)
        self.is_over = False
        self._violation: RuleBroken | None = None

    def add_machine(self, name: str, properties: Mapping[str, str]) -> Machine:
        machine = self.machines[name] = Machine(self, name, properties)
        return machine

    def life_of(self, node_id: int) -> int:
        """Number of the process that runs on a node's machine: 1 for the first start."""
        return self.machines[self.broker_names[node_id]].lives

    def wall_clock_ms(self) -> int:
        """The time of day as clients have it."""
        return WALL_CLOCK_MS + int(self.timeline.now * 1000)

    def replicas_of(self, topic: str, partition: int) -> list[str]:
        return self.replicas.get((topic, partition), [])

    def start_at(self, machine: Machine, time_s: float) -> None:
        """Starts a machine later, if it is down then."""
        self.nursery.start_soon(self._start_at, machine, time_s)

    async def _start_at(self, machine: Machine, time_s: float) -> None:
        await trio.sleep_until(time_s)
        if self._may_start and not machine.is_up:
            machine.start()

    def let_end(self) -> None:
        """From now on what ends has ended."""
        self._may_start = False

    def ended(self, machine: Machine) -> None:
        """A machine's process has ended by itself or in order: it is started again, as a supervisor would."""
        if self._may_start:
            self.start_at(machine, self.timeline.now + 0.5)

    def broken(self, what: str, cause: BaseException | None = None) -> None:
        """Notes that a rule was broken, the first one, and ends the run."""
        self.trace.add("!", what)
        if self._violation is None:
            self._violation = RuleBroken(self.seed, what, list(self.trace.last))
            self._violation.__cause__ = cause
        if not self.is_over:
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
        self.raise_broken()

    def raise_broken(self) -> None:
        """Raises RuleBroken if a rule was broken."""
        if self._violation is not None:
            raise self._violation


@contextmanager
def _surroundings(trace: Trace) -> Iterator[None]:
    """Log lines go to the trace, nothing is collected or measured meanwhile: both would depend on the process."""
    logger = logging.getLogger("pykbroker")
    handler = TraceHandler(trace)
    before = logger.propagate, logger.level, memory.FreedMemory.give_back
    reserve_before = quorum_node.RESERVE_BYTES, space_reserve.RELEASE_STEP, space_reserve.FILL_INTERVAL_MS
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    memory.FreedMemory.give_back = lambda *_: False  # type: ignore[method-assign]
    quorum_node.RESERVE_BYTES, space_reserve.RELEASE_STEP = RESERVE_BYTES, RELEASE_BYTES
    space_reserve.FILL_INTERVAL_MS = FILL_INTERVAL_MS
    # What is there before, modules above all, is not looked at again: a thirtieth of a run would be spent on that.
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        logger.removeHandler(handler)
        logger.propagate, logger.level, memory.FreedMemory.give_back = before  # type: ignore[method-assign]
        quorum_node.RESERVE_BYTES, space_reserve.RELEASE_STEP, space_reserve.FILL_INTERVAL_MS = reserve_before
