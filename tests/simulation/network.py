"""A network in memory: named machines, connections with delays, cuts in one direction or both, slow links.

A connection is TCP's: bytes arrive in order or not at all. What a cut swallows is sent again when it is mended, late;
a process that ends resets its connections, and a machine that loses power says nothing: its peers learn it from the
reset that answers what they send to the machine's next life. Messages of different connections overtake each other.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import trio

from pykbroker.network.listener import BindError
from tests.simulation.timeline import Timeline

BUFFER_SIZE = 1 << 18
"""Bytes under way or unread in one direction of a connection before the sender waits."""

TICK_S = 0.00025
"""Arrivals are rounded up to this: what arrives together costs one step of the clock."""

SYN_RETRY_S = 1.0

FIRST_PORT = 40_000


class LinkQuality(NamedTuple):
    """Delays of a direction between two machines, in seconds: from `low` to `high`, and at times up to `spike`."""

    low: float = 0.0002
    high: float = 0.001
    spike: float = 0.03
    spike_chance: float = 0.01


class _Machine:
    def __init__(self, address: str) -> None:
        self.address = address
        self.ports: dict[int, SimulatedListening] = {}
        # In the order of their making.
        self.ends: dict[SimulatedStream, None] = {}
        self.is_up = True


class _Pipe:
    """One direction of a connection."""

    __slots__ = (
        "in_flight",
        "last_arrival",
        "network",
        "queue",
        "receiver",
        "source",
        "stalled",
        "target",
        "window_free",
    )

    def __init__(self, network: Network, source: str, target: str) -> None:
        self.network = network
        self.source = source
        self.target = target
        self.receiver: SimulatedStream
        self.last_arrival = 0.0
        self.in_flight = 0
        # What was sent, in order. Each arrival takes the oldest, whatever it was that was due.
        self.queue: deque[bytes | bool | None] = deque()
        self.stalled = 0
        self.window_free: trio.Event | None = None

    def push(self, item: bytes | bool | None) -> None:
        """Sends bytes, None for the end, False for a reset."""
        self.queue.append(item)
        self._schedule()

    def _schedule(self) -> None:
        network = self.network
        arrival = network.arrival(self.source, self.target)
        self.last_arrival = arrival = max(arrival, self.last_arrival)
        network.timeline.call_at(arrival, self._arrive)

    def _arrive(self) -> None:
        if self.network.is_cut(self.source, self.target):
            self.network.stalled[self] = None
            self.stalled += 1
        else:
            self.receiver.take(self.queue.popleft())

    def resume(self) -> None:
        """The link is whole again: what was lost is sent again."""
        self.last_arrival = max(self.last_arrival, self.network.timeline.now + self.network.random.uniform(0, 0.3))
        count, self.stalled = self.stalled, 0
        for _ in range(count):
            self._schedule()

    def read(self, size: int) -> None:
        """The receiver has taken bytes out."""
        self.in_flight -= size
        if self.window_free is not None and self.in_flight < BUFFER_SIZE:
            self.window_free.set()
            self.window_free = None

    def wake_sender(self) -> None:
        if self.window_free is not None:
            self.window_free.set()
            self.window_free = None


class SimulatedStream(trio.abc.Stream):
    """One end of a connection."""

    def __init__(self, network: Network, machine: str, incoming: _Pipe, outgoing: _Pipe) -> None:
        self._network = network
        self._machine = machine
        self._incoming = incoming
        self._outgoing = outgoing
        self._buffer = bytearray()
        self._is_at_end = False
        self._broken: str | None = None
        self._is_closed = False
        self._reading: trio.lowlevel.Task | None = None
        incoming.receiver = self
        network.machines[machine].ends[self] = None

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        while not self.send_at_once(data):
            self._outgoing.window_free = self._outgoing.window_free or trio.Event()
            await self._outgoing.window_free.wait()

    def send_at_once(self, data: bytes | bytearray | memoryview) -> bool:
        """Sends all bytes, or none if so many are under way that a sender must wait; says which."""
        self._check()
        if self._outgoing.in_flight >= BUFFER_SIZE:
            return False
        content = bytes(data)
        if not content:
            return True
        self._outgoing.in_flight += len(content)
        network = self._network
        if len(content) > 1 and network.random.random() < network.split_chance:
            at = network.random.randrange(1, len(content))
            self._outgoing.push(content[:at])
            self._outgoing.push(content[at:])
        else:
            self._outgoing.push(content)
        return True

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        while True:
            if self._is_closed:
                raise trio.ClosedResourceError("this end was closed")
            if self._buffer:
                data = bytes(self._buffer[:max_bytes])
                del self._buffer[: len(data)]
                self._incoming.read(len(data))
                return data
            if self._broken is not None:
                raise trio.BrokenResourceError(self._broken)
            if self._is_at_end:
                return b""
            # As an Event would, in less time: this is the most frequent wait of a run.
            self._reading = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._stop_reading)

    def _stop_reading(self, raise_cancel: object) -> trio.lowlevel.Abort:
        self._reading = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _wake_reader(self) -> None:
        task, self._reading = self._reading, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Closes this end; the other hears of it."""
        if not self._is_closed:
            self._is_closed = True
            self._leave()
            if self._broken is None:
                self._outgoing.push(None)

    def _check(self) -> None:
        if self._is_closed:
            raise trio.ClosedResourceError("this end was closed")
        if self._broken is not None:
            raise trio.BrokenResourceError(self._broken)

    def _leave(self) -> None:
        self._network.machines[self._machine].ends.pop(self, None)
        self._wake_reader()
        self._outgoing.wake_sender()

    # What the network does with it

    def take(self, item: bytes | bool | None) -> None:
        """Something arrives."""
        network = self._network
        if item is False:
            self.break_("connection reset by peer")
        elif self._is_closed or self._broken is not None:
            # Nobody reads here any more; the sender is told, if there is a machine to tell it.
            if item is not None and network.machines[self._machine].is_up:
                self._outgoing.push(False)
        elif item is None:
            self._is_at_end = True
        else:
            assert isinstance(item, bytes)
            self._buffer += item
        self._wake_reader()

    def break_(self, why: str) -> None:
        """Ends it from outside."""
        if self._broken is None and not self._is_closed:
            self._broken = why
            self._buffer.clear()
            self._leave()

    def reset(self) -> None:
        """The process of this end is gone: the other end is told."""
        if self._broken is None and not self._is_closed:
            self._outgoing.push(False)
        self.break_("this process is gone")


class SimulatedListening:
    """A port; see `pykbroker.network.listening_socket.ListeningSocket`."""

    def __init__(self, machine: _Machine, host: str, port: int) -> None:
        self._machine = machine
        self._address = host, port
        self._waiting: deque[tuple[SimulatedStream, tuple[str, int]]] = deque()
        self._arrived = trio.Event()
        self.is_open = False

    def listen(self, backlog: int) -> None:
        self.is_open = True

    def accept(self) -> tuple[SimulatedStream, tuple[str, int]]:
        if not self._waiting:
            raise BlockingIOError
        return self._waiting.popleft()

    async def wait_readable(self) -> None:
        if not self._waiting:
            self._arrived = trio.Event()
            await self._arrived.wait()
        else:
            await trio.lowlevel.checkpoint()

    def getsockname(self) -> tuple[str, int]:
        return self._machine.address, self._address[1]

    def close(self) -> None:
        if self._machine.ports.get(self._address[1]) is self:
            del self._machine.ports[self._address[1]]
        self.is_open = False
        for stream, _ in self._waiting:
            stream.reset()
        self._waiting.clear()

    def enter(self, stream: SimulatedStream, address: tuple[str, int]) -> None:
        """A connection was made."""
        self._waiting.append((stream, address))
        self._arrived.set()


class Network:
    """All machines and the links between them.

    Attributes:
        quality: of all links but those in `qualities`, which are by (from, to).
        split_chance: how often what was sent at once arrives in two pieces.
        stalled: directions with something that a cut has swallowed.
    """

    def __init__(self, timeline: Timeline, seed: str) -> None:
        self.timeline = timeline
        self.random = random.Random(f"{seed} network")
        self.machines: dict[str, _Machine] = {}
        self.quality = LinkQuality()
        self.qualities: dict[tuple[str, str], LinkQuality] = {}
        self.split_chance = 0.02
        self.stalled: dict[_Pipe, None] = {}
        self._cuts: dict[tuple[str, str], None] = {}
        self._next_port = FIRST_PORT
        self.busy_until: dict[str, float] = {}

    def add(self, name: str) -> None:
        self.machines[name] = _Machine(f"10.0.0.{len(self.machines) + 1}")

    # Faults

    def cut(self, source: str, target: str) -> None:
        """Nothing gets from one machine to the other until `mend`."""
        self._cuts[source, target] = None

    def mend(self, source: str, target: str) -> None:
        self._cuts.pop((source, target), None)
        for pipe in [p for p in self.stalled if (p.source, p.target) == (source, target)]:
            del self.stalled[pipe]
            pipe.resume()

    def mend_all(self) -> None:
        """Every link is whole and quick again."""
        for source, target in list(self._cuts):
            self.mend(source, target)
        self.qualities.clear()

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def kill(self, name: str) -> None:
        """The process ends: its ports are closed and its connections reset."""
        machine = self.machines[name]
        for listening in list(machine.ports.values()):
            listening.close()
        for end in list(machine.ends):
            end.reset()

    def power_off(self, name: str) -> None:
        """The machine is gone without a word, until `power_on`."""
        machine = self.machines[name]
        machine.is_up = False
        for end in list(machine.ends):
            end.break_("no power")
        for listening in list(machine.ports.values()):
            listening.close()

    def power_on(self, name: str) -> None:
        self.machines[name].is_up = True

    def reset_between(self, one: str, other: str) -> None:
        """Every connection between two machines is reset, as by a firewall that forgot them."""
        for end in list(self.machines[one].ends):
            if end._outgoing.target == other:
                end._outgoing.receiver.break_("connection reset by peer")
                end.break_("connection reset by peer")

    def arrival(self, source: str, target: str) -> float:
        """Arrival time, in seconds, of bytes that are sent now."""
        quality = self.qualities.get((source, target), self.quality)
        chance = self.random
        high = quality.spike if chance.random() < quality.spike_chance else quality.high
        at = max(self.timeline.now, self.busy_until.get(source, 0.0)) + chance.uniform(quality.low, high)
        return (at // TICK_S + 1) * TICK_S

    # What a machine has of it

    def bind_of(self, name: str) -> Callable[[str, int], Sequence[SimulatedListening]]:
        """`Host.bind` of a machine."""

        def bind(host: str, port: int) -> list[SimulatedListening]:
            machine = self.machines[name]
            if port in machine.ports:
                raise BindError(f"cannot listen on {host}:{port}: the port is in use")
            listening = machine.ports[port] = SimulatedListening(machine, host, port)
            return [listening]

        return bind

    def opener_of(self, name: str) -> Callable[[str, int], Any]:
        """`Host.open_stream` of a machine."""

        async def open_stream(host: str, port: int) -> trio.abc.Stream:
            attempt = _Attempt(self, name, host, port)
            self.timeline.call_at(self.arrival(name, host), attempt.arrive)
            try:
                await attempt.done.wait()
            finally:
                attempt.is_given_up = True
            if attempt.stream is None:
                raise ConnectionRefusedError(f"connection to {host}:{port} refused")
            return attempt.stream

        return open_stream

    def next_port(self) -> int:
        self._next_port += 1
        return self._next_port


class _Attempt:
    """A connection that is being made: one trip there, one back."""

    def __init__(self, network: Network, source: str, target: str, port: int) -> None:
        self.network = network
        self.source = source
        self.target = target
        self.port = port
        self.done = trio.Event()
        self.stream: SimulatedStream | None = None
        self.is_given_up = False

    def arrive(self) -> None:
        """The first packet is there, or not."""
        network = self.network
        if self.is_given_up:
            return
        machine = network.machines[self.target]
        if network.is_cut(self.source, self.target) or network.is_cut(self.target, self.source) or not machine.is_up:
            network.timeline.call_later(SYN_RETRY_S, self.arrive)
            return
        listening = machine.ports.get(self.port)
        if listening is None or not listening.is_open:
            network.timeline.call_at(network.arrival(self.target, self.source), self.done.set)
            return
        there, back = _Pipe(network, self.source, self.target), _Pipe(network, self.target, self.source)
        theirs = SimulatedStream(network, self.target, there, back)
        self.stream = SimulatedStream(network, self.source, back, there)
        listening.enter(theirs, (network.machines[self.source].address, network.next_port()))
        back.last_arrival = network.arrival(self.target, self.source)
        network.timeline.call_at(back.last_arrival, self._answered)

    def _answered(self) -> None:
        if self.is_given_up and self.stream is not None:
            self.stream.close()
        self.done.set()
