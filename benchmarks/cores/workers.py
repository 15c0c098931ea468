"""Prototype: workers behind one port. Each owns the partitions whose number modulo N is its own.

A worker runs the broker's own connection loop and dispatch on a LogDirectory of its own. A request for a partition of
another worker goes over a Unix socket to its owner, and the answer comes back. The prototype is the cheapest form of
that: the owner is found by one byte of the frame, no task waits for a forwarded request, nothing is decoded twice. It
leaves out what decision 11 lists. The load is raw clients, each with one request at a time.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import socket
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from benchmarks.brokers import process_cpu_s
from benchmarks.clusters import memory_of
from benchmarks.cores.produce_path import data_path, partition_position, produce_frame
from pykbroker.network.connection import SocketConnection
from pykbroker.network.connection_loop import ConnectionLoop
from pykbroker.network.request_memory import RequestMemory
from pykbroker.security.connection_info import ConnectionInfo

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.process import BaseProcess

PARTITIONS_EACH = 4
CLIENTS = 16
SOCKET_BUFFER = 1 << 20
FRAME_MAX = 1 << 20
WARM_UP_S = 0.5
ATTEMPTS_MAX = 2000
"""Connections that are tried for an even spread; the kernel chooses the worker of each."""


class Link:
    """The socket to one other worker. Its answers come in the order of the requests."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._unsent = bytearray()
        self._received = bytearray()
        self._waiting: deque[socket.socket] = deque()
        self.has_ended = False

    def fileno(self) -> int:
        """Descriptor of the socket."""
        return self._socket.fileno()

    def forward(self, frame: memoryview, client: socket.socket) -> None:
        """Sends a request to the owner; `turn` sends the answer to the client."""
        self._waiting.append(client)
        self._unsent += len(frame).to_bytes(4, "big")
        self._unsent += frame
        self._flush()

    def _flush(self) -> None:
        # Requests that do not fit leave at the next turn: there is one as long as answers are due.
        with contextlib.suppress(BlockingIOError):
            del self._unsent[: self._socket.send(self._unsent)]

    async def turn(self, _now: float) -> bool:
        """Sends the answers that have come to their clients; the connection loop calls it."""
        received = self._received
        try:
            data = self._socket.recv(SOCKET_BUFFER)
        except BlockingIOError:
            return False
        if not data:
            self.has_ended = True
            return False
        received += data
        position = 0
        while len(received) - position >= 4:
            end = position + 4 + int.from_bytes(received[position : position + 4], "big")
            if end > len(received):
                break
            with contextlib.suppress(OSError):
                self._waiting.popleft().send(received[position:end])
            position = end
        del received[:position]
        if self._unsent:
            self._flush()
        return False


class WorkerConnection(SocketConnection):
    """A client's connection, whose requests go to the owner of the partition."""

    __slots__ = ("place", "worker")

    worker: Worker
    place: int

    async def _serve_frame(self, frame: memoryview, *, may_be_unfinished: bool) -> None:
        worker = self.worker
        link = worker.links[frame[self.place] % len(worker.links)]
        if link is None:
            await super()._serve_frame(frame, may_be_unfinished=may_be_unfinished)
        else:
            link.forward(frame, self._socket)


class Worker:
    """One process: a listening socket on the port that all share, its own logs, links to the others."""

    def __init__(self, number: int, links: Sequence[socket.socket | None], served: Sequence[socket.socket]) -> None:
        self.number = number
        self.links = [None if link is None else Link(link) for link in links]
        self._served = served

    async def run(self, listening: socket.socket, size: int, folder: Path) -> None:
        """Serves until the process is killed."""
        path = data_path(folder, PARTITIONS_EACH * len(self.links))
        place = partition_position(size)
        memory = RequestMemory(1 << 30)
        loop: Any = ConnectionLoop()
        info = ConnectionInfo("PLAINTEXT", ("127.0.0.1", 1), ("127.0.0.1", 2), None)
        listening.setblocking(False)
        async with trio.open_nursery() as nursery:
            for link in self.links:
                if link is not None:
                    loop.add(link)
            for other in self._served:
                other.setblocking(False)
                loop.add(SocketConnection(path.services, other, info, FRAME_MAX, memory, loop.remove))
            nursery.start_soon(loop.run)
            while True:
                try:
                    connected, _ = listening.accept()
                except BlockingIOError:
                    await trio.lowlevel.wait_readable(listening)
                    continue
                connected.setblocking(False)
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                # The load learns which worker the kernel chose; Kafka's protocol has no such thing.
                connected.send(bytes([self.number]))
                connection = WorkerConnection(path.services, connected, info, FRAME_MAX, memory, loop.remove)
                connection.worker, connection.place = self, place
                loop.add(connection)


@dataclass(frozen=True, slots=True)
class WorkersRun:
    """One load on N workers. CPU is that of all workers for each request; `spread` the kernel's first 16 choices."""

    workers: int
    share: float
    size: int
    requests_per_s: float
    cpu_us: float
    pss_mb: float
    spread: str


def _listening(port: int) -> socket.socket:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen(128)
    return listening


def _start(count: int, size: int, folder: Path) -> tuple[int, list[BaseProcess]]:
    """Forks the workers; the port and the processes."""
    listeners = [_listening(0)]
    port = listeners[0].getsockname()[1]
    listeners += [_listening(port) for _ in range(count - 1)]
    links: list[list[socket.socket | None]] = [[None] * count for _ in range(count)]
    served: list[list[socket.socket]] = [[] for _ in range(count)]
    for number in range(count):
        for owner in range(count):
            if owner != number:
                links[number][owner], owners_end = socket.socketpair()
                served[owner].append(owners_end)
    context = multiprocessing.get_context("fork")
    processes: list[BaseProcess] = []
    for number in range(count):
        worker = Worker(number, links[number], served[number])
        own = folder / str(number)
        own.mkdir()
        process = context.Process(target=trio.run, args=(worker.run, listeners[number], size, own), daemon=True)
        process.start()
        processes.append(process)
    given_away = [*listeners, *(end for row in served for end in row)]
    given_away += [end for row in links for end in row if end is not None]
    for end in given_away:
        end.close()
    return port, processes


def _connect(port: int, count: int) -> tuple[dict[socket.socket, int], str]:
    """As many connections to each worker, with the worker's number, and the kernel's first choices."""
    wanted = CLIENTS // count
    chosen: dict[socket.socket, int] = {}
    first: list[int] = []
    for _ in range(ATTEMPTS_MAX):
        client = socket.create_connection(("127.0.0.1", port), timeout=10)
        number = client.recv(1)[0]
        if len(first) < CLIENTS:
            first.append(number)
        if list(chosen.values()).count(number) < wanted:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            chosen[client] = number
        else:
            client.close()
        if len(chosen) == wanted * count and len(first) == CLIENTS:
            break
    return chosen, "/".join(str(first.count(number)) for number in range(count))


def _plan(number: int, count: int, share: float) -> list[int]:
    """Partitions that a client of a worker asks for, in turn, of which this share belongs to other workers."""
    others = [other for other in range(count) if other != number]
    plan, foreign = [], 0
    for place in range(12 * max(len(others), 1)):
        if others and int((place + 1) * share + 1e-9) > foreign:
            owner = others[foreign % len(others)]
            foreign += 1
        else:
            owner = number
        plan.append(owner + count * (place % PARTITIONS_EACH))
    return plan


def _load(clients: dict[socket.socket, int], count: int, share: float, size: int, seconds: float) -> int:
    """Sends and receives for so long; the number of answers."""
    frames = [produce_frame(partition, size) for partition in range(PARTITIONS_EACH * count)]
    wire = [len(frame).to_bytes(4, "big") + frame for frame in frames]
    by_descriptor = {
        client.fileno(): (client, [wire[partition] for partition in _plan(number, count, share)])
        for client, number in clients.items()
    }
    asked = dict.fromkeys(by_descriptor, 0)
    epoll = select.epoll()
    for descriptor, (client, plan) in by_descriptor.items():
        epoll.register(descriptor, select.EPOLLIN)
        client.sendall(plan[0])
    answers, ends = 0, time.perf_counter() + seconds
    while time.perf_counter() < ends:
        for descriptor, _ in epoll.poll(1.0):
            client, plan = by_descriptor[descriptor]
            if not client.recv(4096):
                raise RuntimeError("a worker has closed a connection")
            answers += 1
            asked[descriptor] += 1
            client.sendall(plan[asked[descriptor] % len(plan)])
    # The last answers, so that the next load begins with none under way.
    for client in clients:
        client.recv(4096)
    epoll.close()
    return answers


def measure_workers(count: int, shares: Sequence[float], size: int, seconds: float) -> list[WorkersRun]:
    """Starts N workers and measures each share of forwarded requests on them."""
    runs = []
    memory_disk = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="bench-workers-", dir=memory_disk) as folder:
        port, processes = _start(count, size, Path(folder))
        pids = [process.pid or 0 for process in processes]
        try:
            clients, spread = _connect(port, count)
            for share in shares:
                _load(clients, count, share, size, WARM_UP_S)
                before_s = sum(map(process_cpu_s, pids))
                began = time.perf_counter()
                answers = _load(clients, count, share, size, seconds)
                took = time.perf_counter() - began
                cpu_us = (sum(map(process_cpu_s, pids)) - before_s) * 1e6 / answers
                pss = memory_of(pids).pss_mb
                runs.append(WorkersRun(count, share, size, answers / took, cpu_us, pss, spread))
        finally:
            for process in processes:
                process.kill()
                process.join()
    return runs
