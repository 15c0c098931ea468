"""Connections that cannot be accepted, prepared or bound, and those that are closed before they are served."""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.network import listener as listener_module
from pykbroker.network.connection_limits import UNLIMITED, ConnectionLimits, connection_capacity
from pykbroker.network.listener import ACCEPT_PAUSE_S, BindError, Listener, bind
from pykbroker.network.request_memory import limit_bytes
from tests.pykbroker.network.test_connection_limits import QuietListener, listening, settled
from tests.support.data_path import DataPath, cluster_image


class Script:
    """A listening socket of a simulation: each `accept` does the next step, and then none is left."""

    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)
        self.accepted_at: list[float] = []
        self._more = trio.Event()

    def listen(self, backlog: int, /) -> None: ...

    def accept(self) -> tuple[Any, Any]:
        if not self.steps:
            raise BlockingIOError
        self.accepted_at.append(trio.current_time())
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step, ("10.0.0.1", 50000)

    def add(self, step: Any) -> None:
        self.steps.append(step)
        self._more.set()

    async def wait_readable(self) -> None:
        await self._more.wait()
        self._more = trio.Event()

    def getsockname(self) -> Any:
        return "127.0.0.1", 9092

    def close(self) -> None: ...


@asynccontextmanager
async def serving(folder: Path, script: Script) -> AsyncIterator[tuple[Listener, trio.Nursery]]:
    path = DataPath(folder, cluster_image())
    sockets: Any = [script]
    listener = Listener("PLAINTEXT", sockets, path.services)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.serve, nursery)
        yield listener, nursery
        nursery.cancel_scope.cancel()
    path.close()


async def is_closed(stream: trio.abc.ReceiveStream) -> bool:
    with trio.move_on_after(0.001):
        return await stream.receive_some(1) == b""
    return False


async def test_without_descriptors_it_is_tried_again_after_a_pause(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Other errors are of one connection, which has ended before it was accepted: the next one comes at once."""
    ours, theirs = trio.testing.memory_stream_pair()
    script = Script(
        OSError(errno.EMFILE, "Too many open files"), OSError(errno.ECONNABORTED, "Connection aborted"), theirs
    )
    async with serving(tmp_path, script) as (listener, _):
        await trio.sleep(2 * ACCEPT_PAUSE_S)
        assert script.accepted_at == pytest.approx([0, ACCEPT_PAUSE_S, ACCEPT_PAUSE_S])
        assert caplog.messages == [
            "listener PLAINTEXT cannot accept connections for now: [Errno 24] Too many open files"
        ]
        assert len(listener.connections) == 1
        assert not await is_closed(ours)


async def test_errors_without_end_leave_the_others_their_turn(tmp_path: Path) -> None:
    script = Script(*[OSError(errno.EPERM, "Operation not permitted")] * 10_000)
    async with serving(tmp_path, script):
        while not script.accepted_at:
            await trio.lowlevel.checkpoint()
        assert len(script.steps) > 9000


async def test_a_connection_of_an_address_with_a_quota_is_closed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-612: at once its client would only try again."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(ConnectionLimits, "address_throttle_ms", lambda *_: 500)
    ours, theirs = trio.testing.memory_stream_pair()
    async with serving(tmp_path, Script(theirs)) as (listener, _):
        await trio.sleep(0.4)
        assert not await is_closed(ours)
        await trio.sleep(0.2)
        assert await is_closed(ours)
        assert len(listener.connections) == 0
    assert "closing a connection from 10.0.0.1 in 500 ms: its address exceeds its connection rate" in caplog.text


async def test_a_connection_that_waits_for_the_rate_when_the_listener_ends_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait(*_: Any) -> None:
        await trio.sleep(100)

    monkeypatch.setattr(ConnectionLimits, "throttle_creation", wait)
    ours, theirs = socket.socketpair()
    with ours:
        async with serving(tmp_path, Script(theirs)):
            await trio.sleep(1)
            assert theirs.fileno() >= 0
        assert theirs.fileno() == -1
        assert ours.recv(1) == b""


async def test_a_client_that_is_gone_when_its_socket_is_prepared_counts_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Listener, connected: Any) -> Any:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    monkeypatch.setattr(Listener, "_prepare", refuse)
    ours, theirs = socket.socketpair()
    with ours:
        async with serving(tmp_path, Script(theirs)) as (listener, _):
            await trio.sleep(1)
            assert ours.recv(1) == b""
            assert listener._limits.connections.count == 0


async def test_buffers_of_sockets_have_the_sizes_of_the_settings(tmp_path: Path) -> None:
    async with listening(tmp_path, socket_send_buffer_bytes="50000", socket_receive_buffer_bytes="60000") as (
        listeners,
        _,
    ):
        (listener,) = listeners.values()
        with socket.create_connection(("127.0.0.1", listener.port), timeout=5):
            await settled()
            (connection,) = listener.connections
            connected: Any = connection._connected
            sizes = [connected.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)]
    # Linux doubles them, for its own bookkeeping.
    assert sizes in ([50000, 60000], [100000, 120000])


class Socket:
    """A socket whose `bind` fails for one family of addresses."""

    def __init__(self, family: int, refused: dict[int, int]) -> None:
        self.family = family
        self.refused = refused
        self.is_closed = False

    def bind(self, address: Any) -> None:
        if self.family in self.refused:
            raise OSError(self.refused[self.family], os.strerror(self.refused[self.family]))
        self.address = address

    def getsockname(self) -> Any:
        return self.address

    def setsockopt(self, *_: Any) -> None: ...

    def setblocking(self, is_blocking: bool) -> None: ...

    def close(self) -> None:
        self.is_closed = True


def bound(
    monkeypatch: pytest.MonkeyPatch, refused: dict[int, int], unknown: dict[int, int] | None = None
) -> tuple[Callable[[], list[Any]], list[Socket]]:
    """`bind` of a name with an address of IPv4 and one of IPv6; errors by family, of `bind` and of `socket`."""
    made: list[Socket] = []

    def make(family: int, kind: int, protocol: int) -> Socket:
        if family in (unknown or {}):
            raise OSError((unknown or {})[family], "Address family not supported by protocol")
        made.append(Socket(family, refused))
        return made[-1]

    addresses = [
        (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 9092)),
        (socket.AF_INET6, socket.SOCK_STREAM, 0, "", ("::1", 9092, 0, 0)),
    ]
    monkeypatch.setattr(listener_module, "_addresses", lambda host, port: addresses)
    monkeypatch.setattr(socket, "socket", make)
    sockets: Callable[[], list[Any]] = lambda: bind("localhost", 9092)  # noqa: E731
    return sockets, made


def test_where_ipv6_is_switched_off_ipv4_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    bind_both, made = bound(monkeypatch, {socket.AF_INET6: errno.EADDRNOTAVAIL})
    assert bind_both() == made[:1]
    assert [each.is_closed for each in made] == [False, True]


def test_where_ipv6_does_not_exist_ipv4_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    bind_both, made = bound(monkeypatch, {}, {socket.AF_INET6: errno.EAFNOSUPPORT})
    assert bind_both() == made


@pytest.mark.parametrize(
    ("refused", "unknown"),
    [
        ({socket.AF_INET: errno.EADDRNOTAVAIL}, {}),
        ({socket.AF_INET6: errno.EADDRINUSE}, {}),
        ({}, {socket.AF_INET: errno.EAFNOSUPPORT}),
        ({}, {socket.AF_INET6: errno.EMFILE}),
    ],
)
def test_other_failures_close_what_was_bound(
    monkeypatch: pytest.MonkeyPatch, refused: dict[int, int], unknown: dict[int, int]
) -> None:
    bind_both, made = bound(monkeypatch, refused, unknown)
    with pytest.raises(BindError, match="cannot listen on localhost:9092"):
        bind_both()
    assert all(each.is_closed for each in made)


def test_at_the_limit_of_descriptors_no_connection_has_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of them is for logs; a process without a limit has none here either."""
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1000, 1000))
    limits = ConnectionLimits(lambda: BrokerConfig.from_properties({}))
    listener: Any = QuietListener("PLAINTEXT")
    limits.count = connection_capacity() - 1
    assert limits._has_slot(listener)
    limits.count += 1
    assert limits.count < 750
    assert not limits._has_slot(listener)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert connection_capacity() == UNLIMITED


def test_the_memory_of_requests_is_that_of_the_setting_where_there_is_one() -> None:
    assert limit_bytes(BrokerConfig.from_properties({"queued.max.request.bytes": "200000000"})) == 200_000_000
