from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tests.pykbroker.cli.conftest import Run


@contextmanager
def server(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Accepts one connection at `host:port`, keeps the bytes that it gets, and answers."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connected, _ = listening.accept()
            with connected:
                received.append(connected.recv(1000))
                connected.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}", received
        thread.join()


def test_a_broker_that_answers(run: Run) -> None:
    answer = struct.pack(">iih", 10, 1, 0) + bytes(4)
    with server(answer) as (address, received):
        code, output, errors = run("ready", "-b", address)
    assert (code, output, errors) == (0, "", f"ready: {address}\n")
    # ApiVersions (18) version 0, correlation 1, with a client id.
    assert received == [struct.pack(">ihhih", 25, 18, 0, 1, 15) + b"pykbroker-ready"]


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n", b"", struct.pack(">iih", 10, 2, 0)])
def test_something_else_that_answers(run: Run, answer: bytes) -> None:
    with server(answer) as (address, _):
        code, _, errors = run("ready", "-b", address, "--timeout", "0")
    assert code == 1
    assert "no broker answered" in errors


def test_nobody_there(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    code, _, errors = run("ready", "-b", f"127.0.0.1:{port}", "--timeout", "0")
    assert code == 1
    assert f"127.0.0.1:{port}: Connection refused" in errors
    assert run("ready", "-b", f"127.0.0.1:{port}", "--timeout", "0", "-q") == (1, "", "")


@pytest.mark.parametrize("address", ["localhost", "localhost:", ":9092", "localhost:65536", "localhost:" + "9" * 5000])
def test_addresses(run: Run, address: str) -> None:
    code, _, errors = run("ready", "-b", address)
    assert code == 2
    assert "expected HOST:PORT" in errors


def test_a_broker_that_answers_later(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command repeats its request until the time is over."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        assert len(slept) < 3, "the time is over"
        clock[0] += 1.0

    clock = [0.0]
    monkeypatch.setattr("pykbroker.cli.ready.time", SimpleNamespace(sleep=sleep, monotonic=lambda: clock[0]))
    code, _, errors = run("ready", "-b", f"127.0.0.1:{port}", "--timeout", "2")
    assert (code, "no broker answered within 2 s" in errors) == (1, True)
    assert slept
