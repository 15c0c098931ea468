"""The time that a client has for its SASL login (P-290)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from pykbroker.network.listener import HANDSHAKE_CHECK_S, LOGIN_TIMEOUT_S, Listener, bind
from pykbroker.security.plain import PlainExchange
from pykbroker.security.sasl import SaslSession
from pykbroker.security.sasl_mechanism import Mechanism
from tests.support.data_path import DataPath, cluster_image

HANDSHAKE = bytes.fromhex("00000011 0011 0001 00000001 ffff 0005") + b"PLAIN"
TOKEN = b"\0alice\0secret"
LOGIN = bytes.fromhex("0000001b 0024 0000 00000002 ffff 0000000d") + TOKEN
WRONG = LOGIN.replace(b"secret", b"wrongs")
API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000003 ffff")


@asynccontextmanager
async def listening(tmp_path: Path, max_reauth_ms: int = 0) -> AsyncIterator[Listener]:
    """A SASL_PLAINTEXT listener at which alice may log in."""
    path = DataPath(tmp_path, cluster_image())
    mechanisms = {"PLAIN": Mechanism(lambda: PlainExchange({"alice": "secret"}), max_reauth_ms)}
    listener = Listener(
        "SASL_PLAINTEXT",
        bind("127.0.0.1", 0),
        path.services,
        make_sasl=lambda: SaslSession(mechanisms, 524288, trio.current_time),
    )
    listener.open()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.serve, nursery)
        yield listener
        nursery.cancel_scope.cancel()
    path.close()


async def answer(stream: trio.SocketStream, request: bytes) -> bytes:
    await stream.send_all(request)
    received = b""
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
        piece = await stream.receive_some()
        assert piece
        received += piece
    return received


@pytest.mark.parametrize("first", [b"", HANDSHAKE])
async def test_a_client_that_never_logs_in_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, first: bytes
) -> None:
    """P-290: bytes that come now and then do not give it more time; nor does a handshake."""
    async with listening(tmp_path) as listener:
        slow = await trio.open_tcp_stream("127.0.0.1", listener.port)
        quick = await trio.open_tcp_stream("127.0.0.1", listener.port)
        for request in (HANDSHAKE, LOGIN):
            await answer(quick, request)
        if first:
            await answer(slow, first)
        began = trio.current_time()
        with suppress(trio.BrokenResourceError):
            await slow.send_all(b"\0\0\1\0")
            for _ in range(200):
                await slow.send_all(b"x")
                await trio.sleep(1)
        assert LOGIN_TIMEOUT_S - 1 <= trio.current_time() - began < LOGIN_TIMEOUT_S + 5
        assert len(listener.connections) == 1
        await trio.sleep(10 * LOGIN_TIMEOUT_S)
        assert await answer(quick, API_VERSIONS)
        await slow.aclose()
        await quick.aclose()
    assert "its login took longer than 60 s" in caplog.text


async def test_another_login_has_no_limit(tmp_path: Path) -> None:
    async with listening(tmp_path, max_reauth_ms=10**9) as listener:
        client = await trio.open_tcp_stream("127.0.0.1", listener.port)
        for request in (HANDSHAKE, LOGIN, HANDSHAKE):
            await answer(client, request)
        await trio.sleep(2 * LOGIN_TIMEOUT_S)
        assert (await answer(client, LOGIN))[8:10] == b"\0\0"
        await client.aclose()


async def test_the_answer_to_a_refused_login_may_be_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configured delay of refusals holds, also where it is longer than the limit."""
    monkeypatch.setattr("pykbroker.network.listener.LOGIN_TIMEOUT_S", 0.05)
    monkeypatch.setattr("pykbroker.network.listener.HANDSHAKE_CHECK_S", 0.01)
    async with listening(tmp_path) as listener:
        client = await trio.open_tcp_stream("127.0.0.1", listener.port)
        await answer(client, HANDSHAKE)
        assert (await answer(client, WRONG))[8:10] == (58).to_bytes(2, "big")
        assert await client.receive_some() == b""
        await client.aclose()


async def test_a_plain_listener_has_none(tmp_path: Path) -> None:
    path = DataPath(tmp_path, cluster_image())
    listener = Listener("PLAINTEXT", bind("127.0.0.1", 0), path.services)
    listener.open()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.serve, nursery)
        client = await trio.open_tcp_stream("127.0.0.1", listener.port)
        await trio.sleep(2 * LOGIN_TIMEOUT_S + HANDSHAKE_CHECK_S)
        assert await answer(client, API_VERSIONS)
        await client.aclose()
        nursery.cancel_scope.cancel()
    path.close()
