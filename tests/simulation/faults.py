"""Faults: kills, loss of power, cuts, pauses, slow and full disks, by seed, while the clients work.

Which losses are allowed: a record that is acknowledged with acks=all and min.insync.replicas=2 is in the page cache of
two brokers at least. kill -9 leaves page caches, so any number of brokers may be killed at any time. Loss of power does
not; Kafka promises nothing then when all replicas lose it that are in sync or eligible (KIP-966): the last leader leads
again, without what its disk lost. So machines lose power only in clusters that sync each append
(`log.flush.interval.messages=1`), and there any of them at any time. The quorum syncs its log always.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from tests.simulation.disk import RESERVE_BYTES
from tests.simulation.network import LinkQuality

if TYPE_CHECKING:
    from tests.simulation.machines import Machine
    from tests.simulation.world import World

SLOW = LinkQuality(0.02, 0.2, 0.6, 0.05)


class Faults:
    """Lets things go wrong until it is cancelled; `heal` ends all of it."""

    def __init__(self, world: World, *, may_lose_power: bool, has_directories: bool) -> None:
        self._world = world
        self._random = random.Random(f"{world.seed} faults")
        kinds: dict[Callable[[], None], int] = {
            self._kill: 5,
            self._kill_in_write: 4,
            self._stop: 1,
            self._one_by_one: 2,
            self._isolate: 3,
            self._cut_one_way: 3,
            self._split: 2,
            self._reset: 2,
            self._pause: 3,
            self._pause_client: 2,
            self._slow_links: 1,
            self._slow_disk: 1,
            self._full_disk: 1,
            self._failing_disk: 1,
            self._skew: 1,
        }
        if may_lose_power:
            kinds[self._cut_power] = 6
        self._has_directories = has_directories
        if has_directories:
            kinds[self._failing_directory] = 4
        # A run has some kinds of trouble only: so some runs have much of one.
        chosen = self._random.sample(sorted(kinds, key=lambda kind: kind.__name__), self._random.randint(2, 6))
        asked = world.seed.split("-")[:-1]
        chosen = [kind for kind in kinds if kind.__name__.removeprefix("_") in asked] or chosen
        if has_directories and self._failing_directory not in chosen:
            chosen.append(self._failing_directory)
        self._kinds = chosen
        self._weights = [kinds[kind] for kind in chosen]
        self._interval_s = self._random.choice((0.4, 0.8, 1.5))

    async def run(self) -> None:
        while True:
            await trio.sleep(self._random.expovariate(1 / self._interval_s))
            self._random.choices(self._kinds, self._weights)[0]()

    def heal(self) -> None:
        """Everything works again; machines that are down start."""
        world = self._world
        world.trace.add("", "everything is mended")
        world.network.mend_all()
        for name in world.network.machines:
            world.timeline.release(name)
        for machine in world.machines.values():
            self._mend_disk(machine)
            self._mend_disk_path(machine)
            machine.resume()
            machine.kill_in_write_never()
            if not machine.is_up:
                machine.start()
        if self._has_directories:
            world.nursery.start_soon(self._restart_all)

    async def _restart_all(self) -> None:
        """Restarts all machines, one after another: a log directory that has failed is offline until the next start."""
        for machine in self._world.machines.values():
            await machine.stop()
            while not machine.is_ready:
                await trio.sleep(0.5)

    # Kinds of trouble

    def _some_machine(self) -> Machine:
        return self._random.choice(list(self._world.machines.values()))

    def _later(self, low: float, high: float, call: Callable[..., object], *arguments: object) -> None:
        self._world.timeline.call_later(self._random.uniform(low, high), call, *arguments)

    def _kill(self) -> None:
        machine = self._some_machine()
        if machine.is_up:
            machine.kill()
            self._start_later(machine)

    def _kill_in_write(self) -> None:
        machine = self._some_machine()
        if machine.is_up:
            machine.kill_in_write(self._random.choice((1, 1, 2, 5, 20)))
            self._start_later(machine)

    def _cut_power(self) -> None:
        machine = self._some_machine()
        machine.cut_power()
        self._start_later(machine)

    def _stop(self) -> None:
        machine = self._some_machine()
        if machine.is_up:
            self._world.nursery.start_soon(machine.stop)
            self._start_later(machine)

    def _one_by_one(self) -> None:
        """All machines but one go down, each after the sessions of those before have ended, and come back in this
        order just after the last one went: who has the newest records is missing then for the longest time."""
        machines = self._random.sample(list(self._world.machines.values()), len(self._world.machines))
        chance, now = self._random, self._world.timeline.now
        gap_s = chance.uniform(1.0, 2.5)
        last_s = gap_s * (len(machines) - 1)
        for number, machine in enumerate(machines):
            self._world.timeline.call_later(gap_s * number, machine.kill)
            self._world.start_at(
                machine, now + last_s + chance.uniform(0.02, 0.5) + 2.0 * (number == len(machines) - 1)
            )

    def _start_later(self, machine: Machine) -> None:
        self._world.start_at(machine, self._world.timeline.now + self._random.choice((0.05, 0.3, 1.0, 2.5)))

    def _cut(self, pairs: list[tuple[str, str]], why: str) -> None:
        network = self._world.network
        self._world.trace.add("", why)
        seconds = self._random.choice((0.2, 0.8, 2.0, 4.0))
        for source, target in pairs:
            network.cut(source, target)
            self._world.timeline.call_later(seconds, network.mend, source, target)

    def _isolate(self) -> None:
        """A machine is cut off from the other nodes, often from clients too."""
        name = self._some_machine().name
        others = [n for n in self._names(with_clients=self._random.random() < 0.5) if n != name]
        self._cut([pair for other in others for pair in ((name, other), (other, name))], f"{name} is cut off")

    def _cut_one_way(self) -> None:
        name = self._some_machine().name
        others = [n for n in self._names(with_clients=False) if n != name]
        if self._random.random() < 0.5:
            others = [self._random.choice(others)]
        if self._random.random() < 0.5:
            self._cut([(name, other) for other in others], f"nothing gets from {name} to {', '.join(others)}")
        else:
            self._cut([(other, name) for other in others], f"nothing gets to {name} from {', '.join(others)}")

    def _split(self) -> None:
        names = self._names(with_clients=True)
        self._random.shuffle(names)
        at = self._random.randrange(1, len(names))
        one, other = names[:at], names[at:]
        self._cut([pair for a in one for b in other for pair in ((a, b), (b, a))], f"split: {one} and {other}")

    def _reset(self) -> None:
        one, other = self._random.sample(self._names(with_clients=True), 2)
        self._world.trace.add("", f"connections between {one} and {other} are reset")
        self._world.network.reset_between(one, other)

    def _pause(self) -> None:
        machine = self._some_machine()
        machine.pause(self._random.choice((0.05, 0.4, 1.0, 2.5)))

    def _pause_client(self) -> None:
        """A client stands still, perhaps for longer than its session, and goes on as if nothing had been."""
        timeline = self._world.timeline
        name = self._random.choice([n for n in self._world.network.machines if n not in self._world.machines])
        if not timeline.is_held(name):
            self._world.trace.add(name, "stands still")
            timeline.hold(name)
            self._later(0.5, 5.0, timeline.release, name)

    def _slow_links(self) -> None:
        one, other = self._random.sample(self._names(with_clients=False), 2)
        self._world.trace.add("", f"slow between {one} and {other}")
        qualities = self._world.network.qualities
        for pair in ((one, other), (other, one)):
            qualities[pair] = SLOW
            self._later(0.5, 3.0, qualities.pop, pair, None)

    def _slow_disk(self) -> None:
        machine = self._some_machine()
        self._world.trace.add(machine.name, "has a slow disk")
        machine.disk.sync_delay_s = self._random.choice((0.01, 0.1, 0.5))
        self._later(0.5, 3.0, self._mend_disk, machine)

    def _full_disk(self) -> None:
        """One machine's, or at times those of all: several nodes may share one. Not even what a node has set aside for
        its metadata can be used where others take what it gives back."""
        chance = self._random
        machines = list(self._world.machines.values()) if chance.random() < 0.15 else [self._some_machine()]
        for machine in machines:
            self._world.trace.add(machine.name, "has a full disk")
            machine.is_failing = True
            left = chance.choice((0, 200, 2000, 0, 200, 2000, -RESERVE_BYTES))
            machine.disk.capacity_bytes = machine.disk.used_bytes() + left
            self._later(0.3, 3.0, self._mend_disk, machine)

    def _failing_disk(self) -> None:
        """Some calls fail for a while; a broker may give up at its start, and else must not."""
        machine = self._some_machine()
        calls = self._random.sample(("append", "append_mapped", "sync", "write_file", "read", "rename"), 2)
        self._world.trace.add(machine.name, f"has a disk that fails {' and '.join(calls)}")
        machine.is_failing = True
        machine.disk.failing = frozenset(calls)
        self._later(0.1, 1.5, self._mend_disk, machine)

    def _failing_directory(self) -> None:
        """One log directory of a machine fails, not that with the metadata log. When it works again it stays offline
        until the next start, which may come before that."""
        machine = self._some_machine()
        path = self._random.choice(machine.log_directories[1:])
        works_after_s = self._random.uniform(0.5, 6.0)
        restarts_after_s = self._random.choice((None, 0.5, 2.0, works_after_s + 0.1, works_after_s + 1.0))
        if machine.disk.failing_path:
            return
        machine.fail_directory(path)
        self._world.timeline.call_later(works_after_s, self._mend_disk_path, machine)
        if restarts_after_s is not None:
            self._world.timeline.call_later(restarts_after_s, machine.kill)
            self._world.start_at(machine, self._world.timeline.now + restarts_after_s + 0.05)

    def _mend_disk_path(self, machine: Machine) -> None:
        machine.disk.failing_path = ""

    def _mend_disk(self, machine: Machine) -> None:
        machine.disk.failing = frozenset()
        machine.disk.sync_delay_s = 0.0
        machine.disk.capacity_bytes = None

    def _skew(self) -> None:
        machine = self._some_machine()
        machine.skew_ms = self._random.randint(-3000, 3000)
        self._world.trace.add(machine.name, f"has a clock that is {machine.skew_ms} ms ahead")

    def _names(self, *, with_clients: bool) -> list[str]:
        if with_clients or len(self._world.machines) == 1:
            return list(self._world.network.machines)
        return list(self._world.machines)
