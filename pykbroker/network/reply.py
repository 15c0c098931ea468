"""Sending of a reply: byte chunks by send, file ranges by sendfile, so that large records never enter the interpreter.

Small file ranges are read and leave with the bytes around them in one call. A stream that is not a socket (the
simulation's network) gets copies of all ranges, gathered in the same way.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import trio

from pykbroker.completion import Completion, is_suspended_here
from pykbroker.logstore.file_range import FileRange

if TYPE_CHECKING:
    from pykbroker.network.request_memory import RequestMemory

Connected = socket.socket | trio.abc.Stream
"""Transport of a connection: a socket, which supports sendfile and receives into a given buffer, or any stream."""

SEND_TIMEOUT_S = 30.0
"""Time limit, in seconds, for a client with a full socket to accept the next part of a reply. Then it is disconnected:
a client that never reads must not hold a segment's lease for ever."""

HAS_SENDFILE = sys.platform == "linux" and hasattr(os, "sendfile")
"""True where Linux's sendfile is used. Other systems lack it or give it another meaning: there the bytes are copied."""

READ_MAX = 1 << 14
"""Largest file range, in bytes, that is read into memory. This saves most of the calls of a response with many
partitions. One range of 16 KiB costs the same by sendfile and by read and send; a larger one costs less by sendfile."""

GATHERED_MAX = 1 << 17
"""Gathered chunks are sent when they have this many bytes."""

CHUNKS_MAX = 256
"""Number of gathered chunks that are sent even if they have fewer bytes: each small file range was read by a call."""

CHUNKS_PER_TURN = 128
"""Chunks of one gathered send after which other connections have a turn."""

COPY_SIZE = 1 << 18
"""Bytes of a file range that are in memory at a time where there is no sendfile."""

PART_SIZE = 1 << 18
"""Bytes of a large chunk that are sent in one call."""

_NO_SENDFILE_HERE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""Error numbers of sendfile for a file system that it cannot read from."""

# Flag for the kernel to send a small chunk in one packet with the next one; 0 where the system lacks it.
_MORE = getattr(socket, "MSG_MORE", 0)


async def send_chunks(connection: Connected, chunks: list[Any], memory: RequestMemory) -> None:
    """Sends bytes-like chunks and `FileRange`s in order over a non-blocking socket or a stream; releases every range.

    Bytes that wait in memory until the client reads are counted in `memory`.

    Raises:
        CloseConnection: the bytes that wait for all clients have reached the limit.
        OSError, BrokenResourceError, ClosedResourceError: the connection has ended.
        trio.TooSlowError: the client accepts nothing for `SEND_TIMEOUT_S`.
    """
    try:
        if not isinstance(connection, socket.socket):
            with memory.reply_waiting(sum(map(len, chunks))):
                await _send_to_stream(connection, chunks)
            return
        if len(chunks) == 1:
            if len(chunks[0]) > GATHERED_MAX:
                await _send_large(connection, chunks[0], memory)
            else:
                await _send_bytes(connection, chunks[0], 0, memory)
            return
        gathered: list[Any] = []
        size = 0
        for chunk in chunks:
            is_range = isinstance(chunk, FileRange)
            is_full = size >= GATHERED_MAX or len(gathered) >= CHUNKS_MAX
            is_large = len(chunk) > (READ_MAX if is_range else GATHERED_MAX)
            if gathered and (is_full or is_large):
                await _send_bytes(connection, b"".join(gathered), _MORE, memory)
                if len(gathered) > CHUNKS_PER_TURN:
                    await trio.lowlevel.checkpoint()
                gathered, size = [], 0
            if not is_range and is_large:
                await _send_large(connection, chunk, memory)
                continue
            if not is_range:
                gathered.append(chunk)
            elif is_large:
                await _send_file_range(connection, chunk)
                chunk.release()
                continue
            else:
                gathered += chunk.pieces(READ_MAX)
                chunk.release()
            size += len(chunk)
        if gathered:
            await _send_bytes(connection, b"".join(gathered), 0, memory)
    finally:
        for chunk in chunks:
            if isinstance(chunk, FileRange):
                chunk.release()


async def _send_to_stream(stream: trio.abc.Stream, chunks: list[Any]) -> None:
    gathered: list[Any] = []
    size = 0
    for chunk in chunks:
        for data in chunk.pieces(COPY_SIZE) if isinstance(chunk, FileRange) else (chunk,):
            if gathered and size >= GATHERED_MAX:
                with trio.fail_after(SEND_TIMEOUT_S):
                    await stream.send_all(b"".join(gathered))
                gathered, size = [], 0
            gathered.append(data)
            size += len(data)
    with trio.fail_after(SEND_TIMEOUT_S):
        await stream.send_all(b"".join(gathered))


async def _send_bytes(connection: socket.socket, data: Any, flags: int, memory: RequestMemory | None = None) -> None:
    try:
        sent = connection.send(data, flags)
    except BlockingIOError:
        sent = 0
    if sent == len(data):
        return
    rest = memoryview(data)[sent:]
    with memory.reply_waiting(len(data)) if memory is not None else nullcontext():
        while rest:
            await wait_writable(connection)
            try:
                rest = rest[connection.send(rest, flags) :]
            except BlockingIOError:
                continue


async def _send_large(connection: socket.socket, data: Any, memory: RequestMemory) -> None:
    """Sends bytes that are not copied before, in parts between which other connections have turns.

    A socket may take megabytes at once, each of which takes the system half a millisecond.
    """
    rest = memoryview(data)
    while rest:
        try:
            sent = connection.send(rest[:PART_SIZE])
        except BlockingIOError:
            sent = 0
        rest = rest[sent:]
        if not sent:
            break
        await trio.lowlevel.checkpoint()
    if rest:
        with memory.reply_waiting(len(data)):
            while rest:
                await wait_writable(connection)
                with suppress(BlockingIOError):
                    rest = rest[connection.send(rest[:PART_SIZE]) :]


async def _send_file_range(connection: socket.socket, file_range: FileRange) -> None:
    target = connection.fileno()
    source, position, rest = file_range.fd, file_range.position, file_range.size
    if not HAS_SENDFILE:
        await _send_copied(connection, source, position, rest)
        return
    while rest:
        try:
            sent = os.sendfile(target, source, position, rest)
        except BlockingIOError:
            await wait_writable(connection)
            continue
        except OSError as error:
            if error.errno not in _NO_SENDFILE_HERE:
                raise
            await _send_copied(connection, source, position, rest)
            return
        if sent == 0:
            raise OSError(f"file ended {rest} bytes before the range that was to be sent")
        position += sent
        rest -= sent


async def _send_copied(connection: socket.socket, source: int, position: int, rest: int) -> None:
    """Sends a file range by reading it piece by piece into memory."""
    while rest:
        data = os.pread(source, min(rest, COPY_SIZE), position)
        if not data:
            raise OSError(f"file ended {rest} bytes before the range that was to be sent")
        await _send_bytes(connection, data, 0)
        position += len(data)
        rest -= len(data)


class Writable(Completion):
    """The wait of a reply until its socket takes bytes again; the loop that has suspended the reply completes it."""

    __slots__ = ()


async def wait_writable(connection: socket.socket) -> None:
    """Waits until the socket of the connection that the current task serves takes bytes again.

    Raises:
        trio.TooSlowError: it does not for `SEND_TIMEOUT_S`.
    """
    if is_suspended_here():
        writable = Writable()
        await writable.wait(trio.current_time() + SEND_TIMEOUT_S)
        if not writable.is_complete:
            raise trio.TooSlowError
        return
    with trio.fail_after(SEND_TIMEOUT_S):
        await trio.lowlevel.wait_writable(connection)
