"""Cutting frames out of a byte stream, in whatever pieces it arrives."""

from __future__ import annotations

import random

import pytest

from pykbroker.protocol.errors import DecodeError, FrameTooLarge
from pykbroker.protocol.framing import BUFFER_SIZE_KEPT, BUFFER_SIZE_MIN, FrameReader
from pykbroker.protocol.headers import RequestHeader, read_request_header, response_header


def feed(reader: FrameReader, data: bytes, piece_size: int) -> list[bytes]:
    """Gives the reader the bytes in pieces and takes out every frame as soon as it is there."""
    frames = []
    while data:
        room = reader.buffer()
        piece = data[: min(piece_size, len(room))]
        room[: len(piece)] = piece
        reader.received(len(piece))
        data = data[len(piece) :]
        while (frame := reader.next_frame()) is not None:
            frames.append(bytes(frame))
    return frames


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


@pytest.mark.parametrize("piece_size", [1, 2, 3, 5, 4096, 1 << 20])
def test_frames_arrive_whole_whatever_the_pieces(piece_size: int) -> None:
    generator = random.Random(7)
    sizes = [0, 1, 10, 4092, 4093, 5000] + ([BUFFER_SIZE_KEPT + 1, 3] if piece_size > 100 else [])
    bodies = [generator.randbytes(size) for size in sizes]
    assert feed(FrameReader(1 << 20), framed(*bodies), piece_size) == bodies


def test_a_large_buffer_is_given_back() -> None:
    reader = FrameReader(1 << 24)
    assert len(feed(reader, framed(bytes(BUFFER_SIZE_KEPT + 5)), 1 << 16)[0]) == BUFFER_SIZE_KEPT + 5
    assert len(reader.buffer()) == BUFFER_SIZE_MIN
    assert not reader.has_unread_bytes


def test_a_frame_given_out_is_not_overwritten_by_growth() -> None:
    """The rest of a larger frame goes into a new buffer; the view of the frame before it stays whole."""
    reader = FrameReader(1 << 20)
    data = framed(b"first") + (100_000).to_bytes(4, "big") + b"begin"
    reader.buffer()[: len(data)] = data
    reader.received(len(data))
    first = reader.next_frame()
    assert first is not None
    assert reader.next_frame() is None
    room = reader.buffer()
    room[:] = b"x" * len(room)
    assert bytes(first) == b"first"
    assert len(room) >= 100_000 - len(b"begin")


@pytest.mark.parametrize("size", [-1, -(1 << 31), 101])
def test_a_size_out_of_bounds_is_refused(size: int) -> None:
    """P-7: below 0 or above the limit."""
    reader = FrameReader(100)
    with pytest.raises(FrameTooLarge, match=f"a frame of {size} bytes is announced; the limit is 100 bytes"):
        feed(reader, size.to_bytes(4, "big", signed=True), 4)


def test_header_versions() -> None:
    """P-5: the client id keeps its int16 length in the flexible header; P-6: unknown tags are skipped."""
    plain = b"\x00\x12\x00\x02\x00\x00\x00\x07\x00\x03abc"
    assert read_request_header(plain, {18: 3}) == RequestHeader(18, 2, 7, "abc", len(plain))
    flexible = b"\x00\x12\x00\x03\x00\x00\x00\x07\x00\x03abc\x01\x05\x02xy"
    assert read_request_header(flexible + b"body", {18: 3}) == RequestHeader(18, 3, 7, "abc", len(flexible))
    null = b"\x00\x12\x00\x02\x00\x00\x00\x07\xff\xff"
    assert read_request_header(memoryview(null), {18: 3}).client_id is None
    assert response_header(7, False) == b"\x00\x00\x00\x07"
    assert response_header(7, True) == b"\x00\x00\x00\x07\x00"


def test_broken_headers_are_decode_errors() -> None:
    good = b"\x00\x12\x00\x03\x00\x00\x00\x07\x00\x03abc\x01\x05\x02xy"
    for size in range(len(good)):
        with pytest.raises(DecodeError, match="RequestHeader"):
            read_request_header(good[:size], {18: 3})
    with pytest.raises(DecodeError, match="UTF-8"):
        read_request_header(b"\x00\x12\x00\x02\x00\x00\x00\x07\x00\x01\xff", {18: 3})
