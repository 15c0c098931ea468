"""Single steps of connections, with a socket in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pykbroker.network.connection import Connection, SocketConnection
from pykbroker.network.tls_connection import TlsConnection
from pykbroker.protocol.framing import BUFFER_SIZE_KEPT


def fake(**attributes: Any) -> Any:
    return SimpleNamespace(**attributes)


def test_an_error_of_ours_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    connection = fake(info=fake(client_host="127.0.0.1", client_port=5))
    Connection._log_end(connection, RuntimeError("a defect"))
    assert "closing the connection from 127.0.0.1:5 after an internal error" in caplog.text
    assert "RuntimeError: a defect" in caplog.text


def test_the_rest_of_a_small_reply_is_left_for_a_coroutine() -> None:
    chunks: list[Any] = [b"abcdef"]
    for sent, left in ((0, b"abcdef"), (2, b"cdef"), (4, b"")):
        assert SocketConnection._sends_at_once(fake(held=None, send_now=lambda data, sent=sent: sent), chunks) is (
            left == b""
        )
        assert left == b"" or bytes(chunks[0]) == left


@pytest.mark.parametrize("kind", [SocketConnection, TlsConnection])
def test_large_frames_are_not_received_while_replies_are_unfinished(kind: type[SocketConnection]) -> None:
    """The fake has no socket."""
    assert kind._receive_small(fake(_reader=fake(announced=BUFFER_SIZE_KEPT + 1))) is False


def test_replies_that_are_held_are_sent_before_the_end() -> None:
    class Held:
        sent = 0

        def send(self) -> None:
            self.sent += 1
            connection.has_ended = True

    held = Held()
    connection = fake(held=held, has_ended=False)
    SocketConnection.end(connection)
    SocketConnection.end(connection)
    assert held.sent == 1


async def test_a_reply_that_may_not_be_unfinished_is_finished_at_once() -> None:
    sent: list[Any] = []

    async def finish() -> list[bytes]:
        return [b"reply"]

    reply = fake(finish=finish)
    info = fake(
        repeated_produce=fake(serve=lambda info, frame: reply),
        sasl=None,
        timed=None,
        follow_up=None,
        close_reason=None,
        muted_until=0.0,
    )

    def send(chunks: list[Any]) -> bool:
        sent.extend(chunks)
        return True

    connection = fake(info=info, _sends_at_once=send, _reader=fake(announced=0), _unfinished=[])
    await Connection._serve_frame(connection, memoryview(b""), may_be_unfinished=False)
    assert (sent, connection._unfinished) == ([b"reply"], [])
    await Connection._serve_frame(connection, memoryview(b""), may_be_unfinished=True)
    assert (sent, connection._unfinished) == ([b"reply"], [reply])
