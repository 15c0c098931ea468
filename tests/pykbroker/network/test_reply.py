"""A reply of bytes and file ranges: its order, its calls, and its leases."""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.logstore.file_range import FileRange
from pykbroker.logstore.filesystem import OsFileSystem
from pykbroker.network import reply
from pykbroker.network.reply import CHUNKS_MAX, GATHERED_MAX, READ_MAX, send_chunks
from pykbroker.network.request_memory import RequestMemory

CONTENT = random.Random(3).randbytes(4 * GATHERED_MAX)


class Segment:
    """A file that counts its leases."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(CONTENT)
        self.path = str(path)
        self.filesystem = OsFileSystem()
        self.leases = 0
        self._descriptor = os.open(path, os.O_RDWR)

    def acquire(self) -> int:
        self.leases += 1
        return self._descriptor

    def release(self) -> None:
        self.leases -= 1

    def range(self, position: int, size: int) -> FileRange:
        file: Any = self
        return FileRange(file, position, size)

    def truncate(self, size: int) -> None:
        os.truncate(self._descriptor, size)

    def close(self) -> None:
        os.close(self._descriptor)


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[Segment]:
    made = Segment(tmp_path / "segment")
    yield made
    made.close()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Calls that send, in order."""
    made: list[str] = []
    send_bytes, send_range = reply._send_bytes, reply._send_file_range

    async def counted_bytes(*args: Any) -> None:
        made.append("send")
        await send_bytes(*args)

    async def counted_range(*args: Any) -> None:
        made.append("sendfile")
        await send_range(*args)

    monkeypatch.setattr(reply, "_send_bytes", counted_bytes)
    monkeypatch.setattr(reply, "_send_file_range", counted_range)
    return made


async def sent(chunks: list[Any]) -> bytes:
    """Bytes that arrive when these chunks are sent."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    received = bytearray()
    async with trio.SocketStream(trio.socket.from_stdlib_socket(theirs)) as stream, trio.open_nursery() as nursery:

        async def receive() -> None:
            async for data in stream:
                received.extend(data)

        nursery.start_soon(receive)
        try:
            await send_chunks(ours, chunks, RequestMemory(1 << 30))
        finally:
            trio.lowlevel.notify_closing(ours)
            ours.close()
    return bytes(received)


def expected(chunks: list[Any]) -> bytes:
    return b"".join(
        CONTENT[chunk.position : chunk.position + chunk.size] if isinstance(chunk, FileRange) else chunk
        for chunk in chunks
    )


async def test_small_ranges_leave_in_one_call(segment: Segment, calls: list[str]) -> None:
    chunks: list[Any] = [b"head"]
    for number in range(100):
        chunks += [segment.range(number * 7, 50), b"between"]
    wanted = expected(chunks)
    assert await sent(chunks) == wanted
    assert calls == ["send"]
    assert segment.leases == 0


@pytest.mark.parametrize(
    ("size", "count", "sends", "is_long"),
    [(600, 1000, 5, True), (50, 1000, -(-1000 // CHUNKS_MAX), True), (READ_MAX, 40, 5, False)],
)
async def test_others_have_turns_between_very_many_small_ranges(
    segment: Segment, monkeypatch: pytest.MonkeyPatch, size: int, count: int, sends: int, is_long: bool
) -> None:
    """Each is read by a call of its own; a few larger ones leave in one go."""
    events: list[str] = []

    async def sends_at_once(*_: Any) -> None:
        events.append("send")

    monkeypatch.setattr(reply, "_send_bytes", sends_at_once)
    ours, theirs = socket.socketpair()

    async def other() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            events.append("turn")

    with ours, theirs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await send_chunks(ours, [segment.range(0, size) for _ in range(count)], RequestMemory(1 << 30))
            nursery.cancel_scope.cancel()
    assert ("turn" in events) == is_long
    assert events.count("send") == sends
    assert segment.leases == 0


class RecordingStream(trio.abc.SendStream):
    """Keeps what is sent, one item a call."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.sent.append(bytes(data))

    async def wait_send_all_might_not_block(self) -> None: ...

    async def aclose(self) -> None: ...


async def test_a_stream_gets_a_reply_in_one_call_up_to_a_limit(segment: Segment) -> None:
    chunks: list[Any] = [b"head", segment.range(7, 50), b"between", segment.range(0, READ_MAX + 1)]
    wanted = expected(chunks)
    stream: Any = RecordingStream()
    await send_chunks(stream, chunks, RequestMemory(1 << 30))
    assert stream.sent == [wanted]
    stream.sent.clear()
    chunks = [b"head", *(segment.range(number * READ_MAX, READ_MAX) for number in range(30))]
    wanted = expected(chunks)
    await send_chunks(stream, chunks, RequestMemory(1 << 30))
    assert b"".join(stream.sent) == wanted
    assert len(stream.sent) == -(-30 * READ_MAX // GATHERED_MAX)
    assert segment.leases == 0


async def test_large_ranges_are_not_read(segment: Segment, calls: list[str]) -> None:
    large = READ_MAX + 1
    chunks = [b"head", segment.range(0, large), b"a", segment.range(5, READ_MAX), b"b", segment.range(9, large)]
    wanted = expected(chunks)
    assert await sent(chunks) == wanted
    assert calls == ["send", "sendfile", "send", "sendfile"]
    assert segment.leases == 0


async def test_what_is_gathered_has_a_limit(segment: Segment, calls: list[str]) -> None:
    chunks: list[Any] = [b"head", *(segment.range(number * READ_MAX, READ_MAX) for number in range(30))]
    wanted = expected(chunks)
    assert await sent(chunks) == wanted
    assert len(calls) == -(-30 * READ_MAX // GATHERED_MAX)
    assert segment.leases == 0


async def test_large_chunks_are_sent_without_a_copy(segment: Segment, calls: list[str]) -> None:
    large = CONTENT * (3 * GATHERED_MAX // len(CONTENT) + 1)
    chunks: list[Any] = [b"head", bytearray(large), b"between", segment.range(0, 50), memoryview(large), b"tail"]
    wanted = expected(chunks)
    assert await sent(chunks) == wanted
    assert calls == ["send"] * 3
    assert await sent([large]) == large


async def test_others_have_turns_while_a_large_chunk_is_sent() -> None:
    """And its bytes count as waiting only after the socket has refused some."""
    memory = RequestMemory(1 << 30)
    events: list[tuple[str, int]] = []

    class Socket:
        def send(self, data: Any) -> int:
            events.append(("send", memory.reply_bytes))
            if len(events) == 2:
                return 10
            return len(data)

    async def other() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            events.append(("turn", 0))

    connection: Any = Socket()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await reply._send_large(connection, bytes(10 * reply.PART_SIZE), memory)
        nursery.cancel_scope.cancel()
    names = [name for name, _ in events]
    assert names.count("turn") >= names.count("send") - 2 > 7
    assert not any(size for _, size in events)


async def test_the_bytes_of_a_large_chunk_count_while_it_waits() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    memory = RequestMemory(1 << 30)
    waiting: list[int] = []

    class Socket(Full):
        def send(self, data: Any, flags: int = 0) -> int:
            waiting.append(memory.reply_bytes)
            return super().send(data, flags)

    slow: Any = Socket(ours, 3)
    with ours, theirs:
        await reply._send_large(slow, CONTENT[:5000], memory)
        theirs.setblocking(False)
        assert theirs.recv(10_000) == CONTENT[:5000]
    assert (waiting[0], set(waiting[1:]), memory.reply_bytes) == (0, {5000}, 0)


async def test_random_replies_arrive_as_they_are(segment: Segment) -> None:
    generator = random.Random(8)
    for _ in range(30):
        chunks: list[Any] = [b"head"]
        for _ in range(generator.randrange(12)):
            size = generator.choice([1, 100, READ_MAX, READ_MAX + 1, 3 * READ_MAX])
            position = generator.randrange(len(CONTENT) - size)
            chunks.append(generator.choice([segment.range(position, size), CONTENT[position : position + size]]))
        wanted = expected(chunks)
        assert await sent(chunks) == wanted
        assert segment.leases == 0


@pytest.mark.parametrize("size", [100, READ_MAX + 1])
async def test_a_file_that_became_shorter_ends_the_connection(segment: Segment, size: int) -> None:
    """A truncation by replication: the client must not take what follows for records."""
    chunks = [b"head", segment.range(1000, size), b"tail", segment.range(0, 10)]
    segment.truncate(1050)
    with pytest.raises(ExceptionGroup) as failed:
        await sent(chunks)
    assert failed.group_contains(OSError, match="file ended")
    assert segment.leases == 0


class Full:
    """A socket that takes nothing at first although it is writable, as after a race with another buffer's use."""

    def __init__(self, connection: socket.socket, refusals: int) -> None:
        self._connection = connection
        self._refusals = refusals

    def send(self, data: Any, flags: int = 0) -> int:
        if self._refusals:
            self._refusals -= 1
            raise BlockingIOError
        return self._connection.send(data[:1000], flags)

    def fileno(self) -> int:
        return self._connection.fileno()


async def test_a_socket_that_takes_nothing_is_waited_for() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    full: Any = Full(ours, 3)
    with ours, theirs:
        await reply._send_bytes(full, CONTENT[:5000], 0)
        theirs.setblocking(False)
        assert theirs.recv(10_000) == CONTENT[:5000]


@pytest.mark.parametrize("has_sendfile", [True, False])
async def test_a_range_waits_for_a_slow_reader_and_arrives_whole(
    segment: Segment, monkeypatch: pytest.MonkeyPatch, has_sendfile: bool
) -> None:
    """More than the buffers of both sockets hold, and a reader that begins late."""
    monkeypatch.setattr(reply, "HAS_SENDFILE", has_sendfile)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 10_000)
    received = bytearray()
    chunk = segment.range(7, len(CONTENT) - 7)
    async with trio.SocketStream(trio.socket.from_stdlib_socket(theirs)) as stream, trio.open_nursery() as nursery:

        async def send() -> None:
            with ours:
                await reply._send_file_range(ours, chunk)

        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked()
        async for data in stream:
            received += data
    chunk.release()
    assert received == CONTENT[7:]


async def test_an_error_of_the_file_ends_the_reply(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not taken for a file system that sendfile cannot read."""

    def refuse(*_: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "sendfile", refuse)
    chunk = segment.range(0, READ_MAX + 1)
    with pytest.RaisesGroup(pytest.RaisesExc(OSError, match="Input/output error")):
        await sent([b"head", chunk])
    assert segment.leases == 0


async def test_a_file_that_is_copied_and_became_shorter_ends_the_reply(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply, "HAS_SENDFILE", False)
    segment.truncate(100)
    with pytest.RaisesGroup(pytest.RaisesExc(OSError, match="file ended")):
        await sent([b"head", segment.range(0, READ_MAX + 1)])
    assert segment.leases == 0
