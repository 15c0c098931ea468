"""Both kinds of poller return the sockets that have something to read."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import trio

from pykbroker.network.poller import EpollPoller, SelectorPoller, make_poller


@pytest.fixture(params=["epoll", "selector"])
def poller(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "epoll" and not hasattr(select, "epoll"):
        pytest.skip("this system has no epoll")
    made: Any = EpollPoller() if request.param == "epoll" else SelectorPoller()
    yield made
    made.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_a_socket_is_returned_as_long_as_it_has_bytes(poller: Any, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    poller.add(ours.fileno(), "watched")
    assert list(poller.poll()) == []
    theirs.send(b"ab")
    assert list(poller.poll()) == ["watched"]
    assert ours.recv(1) == b"a"
    assert list(poller.poll()) == ["watched"]
    assert ours.recv(1) == b"b"
    assert list(poller.poll()) == []


def test_the_end_of_a_stream_is_something_to_read(poller: Any, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    poller.add(ours.fileno(), "watched")
    theirs.close()
    assert list(poller.poll()) == ["watched"]


def test_a_removed_socket_is_not_returned(poller: Any, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    poller.add(ours.fileno(), "first")
    theirs.send(b"a")
    assert ours.fileno() in poller
    poller.remove(ours.fileno())
    assert ours.fileno() not in poller
    assert list(poller.poll()) == []
    poller.add(ours.fileno(), "second")
    assert list(poller.poll()) == ["second"]


def test_a_socket_may_be_watched_for_room(poller: Any, pair: tuple[socket.socket, socket.socket]) -> None:
    """Then it is not returned for bytes to read."""
    ours, theirs = pair
    ours.setblocking(False)
    poller.add(ours.fileno(), "watched")
    filled = 0
    with suppress(BlockingIOError):
        while True:
            filled += ours.send(bytes(1 << 12))
    theirs.send(b"a")
    poller.watch_room(ours.fileno())
    assert list(poller.poll()) == []
    while filled:
        filled -= len(theirs.recv(filled))
    assert list(poller.poll()) == ["watched"]
    assert ours.recv(1) == b"a"
    poller.watch_bytes(ours.fileno())
    assert list(poller.poll()) == []
    theirs.send(b"b")
    assert list(poller.poll()) == ["watched"]


def test_the_end_of_a_stream_is_found_by_one_that_waits_for_room(
    poller: Any, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    ours.setblocking(False)
    poller.add(ours.fileno(), "watched")
    with suppress(BlockingIOError):
        while True:
            ours.send(bytes(1 << 12))
    poller.watch_room(ours.fileno())
    assert list(poller.poll()) == []
    theirs.close()
    assert list(poller.poll()) == ["watched"]


def test_nothing_is_watched_after_close(poller: Any, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = pair
    poller.add(ours.fileno(), "watched")
    poller.close()
    assert ours.fileno() not in poller


async def test_a_task_can_wait_for_all_sockets(poller: Any, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    poller.add(ours.fileno(), "watched")
    with trio.move_on_after(1) as waiting:
        await trio.lowlevel.wait_readable(poller.fileno())
    assert waiting.cancelled_caught
    theirs.send(b"a")
    await trio.lowlevel.wait_readable(poller.fileno())
    assert list(poller.poll()) == ["watched"]
    trio.lowlevel.notify_closing(poller.fileno())


def test_systems_without_epoll_get_the_portable_one(monkeypatch: pytest.MonkeyPatch) -> None:
    if hasattr(select, "epoll"):
        with_epoll: Any = make_poller()
        assert isinstance(with_epoll, EpollPoller)
        with_epoll.close()
    monkeypatch.delattr(select, "epoll", raising=False)
    without: Any = make_poller()
    assert isinstance(without, SelectorPoller)
    without.close()
