"""Sending a reply: byte chunks by send, file ranges by sendfile, so that record bytes never enter the interpreter."""

from __future__ import annotations

import os
import socket
from typing import Any

import trio

from pykbroker.logstore.file_range import FileRange

SEND_TIMEOUT_S = 30.0
"""How long a client may take to accept any part of a reply once its socket is full; then it is disconnected. A
client that never reads must not hold a segment's lease for ever."""


async def send_chunks(connection: socket.socket, chunks: list[Any]) -> None:
    """Sends bytes-like chunks and `FileRange`s in order over a non-blocking socket; releases every range.

    Raises:
        OSError: the connection is gone.
        trio.TooSlowError: the client accepts nothing for `SEND_TIMEOUT_S`.
    """
    last = len(chunks) - 1
    position = 0
    try:
        for position, chunk in enumerate(chunks):
            if isinstance(chunk, FileRange):
                await _send_file_range(connection, chunk)
                chunk.release()
            else:
                # MSG_MORE lets the kernel put a small chunk into one packet with what follows.
                await _send_bytes(connection, chunk, socket.MSG_MORE if position < last else 0)
    finally:
        for chunk in chunks[position:]:
            if isinstance(chunk, FileRange):
                chunk.release()


async def _send_bytes(connection: socket.socket, data: Any, flags: int) -> None:
    try:
        sent = connection.send(data, flags)
    except BlockingIOError:
        sent = 0
    if sent == len(data):
        return
    rest = memoryview(data)[sent:]
    while rest:
        await _wait_writable(connection)
        try:
            rest = rest[connection.send(rest, flags) :]
        except BlockingIOError:
            continue


async def _send_file_range(connection: socket.socket, file_range: FileRange) -> None:
    target = connection.fileno()
    source, position, rest = file_range.fd, file_range.position, file_range.size
    while rest:
        try:
            sent = os.sendfile(target, source, position, rest)
        except BlockingIOError:
            await _wait_writable(connection)
            continue
        if sent == 0:
            raise OSError(f"file ended {rest} bytes before the range that was to be sent")
        position += sent
        rest -= sent


async def _wait_writable(connection: socket.socket) -> None:
    with trio.fail_after(SEND_TIMEOUT_S):
        await trio.lowlevel.wait_writable(connection)
