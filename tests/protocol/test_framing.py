"""Cutting frames out of a byte stream, in whatever pieces it arrives."""

from __future__ import annotations

import itertools
import random

import pytest

from pykbroker.protocol.errors import DecodeError, FrameTooLarge
from pykbroker.protocol.framing import BUFFER_SIZE_KEPT, BUFFER_SIZE_MIN, GROWTH, SIZE_TRUSTED_MAX, FrameReader
from pykbroker.protocol.headers import RequestHeader, read_request_header, read_response_header, response_header


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
    assert reader.first_bytes == b""


def test_frames_that_follow_each_other_closely_stay_in_one_buffer() -> None:
    """A producer with five requests on their way fills the buffer: what is left of a frame is moved to its start."""
    generator = random.Random(3)
    bodies = [generator.randbytes(generator.randint(2500, 3000)) for _ in range(200)]
    reader = FrameReader(1 << 20)
    assert feed(reader, framed(*bodies[:10]), 1 << 20) == bodies[:10]
    held = reader.buffer().obj
    assert feed(reader, framed(*bodies), 1 << 20) == bodies
    assert reader.buffer().obj is held


def test_a_frame_given_out_is_not_overwritten_by_growth() -> None:
    """The rest of a larger frame goes behind it or into a new buffer; the view of the frame before it stays whole."""
    reader = FrameReader(1 << 20)
    data = framed(b"first") + (100_000).to_bytes(4, "big") + b"begin"
    reader.buffer()[: len(data)] = data
    reader.received(len(data))
    first = reader.next_frame()
    assert first is not None
    left = 100_000 - len(b"begin")
    while left:
        assert reader.next_frame() is None
        room = reader.buffer()
        count = min(left, len(room))
        room[:count] = b"x" * count
        reader.received(count)
        left -= count
    assert bytes(first) == b"first"
    assert bytes(reader.next_frame() or b"") == b"begin".ljust(100_000, b"x")


def test_a_claim_costs_nothing() -> None:
    """The buffer grows with the bytes that came and not with the size that was announced."""
    reader = FrameReader(1 << 27)
    room = reader.buffer()
    room[:4] = (100 << 20).to_bytes(4, "big")
    reader.received(4)
    held = []
    for _ in range(6):
        assert reader.next_frame() is None
        held.append(reader.size_bytes)
        reader.received(len(reader.buffer()))
    assert held[:2] == [BUFFER_SIZE_MIN, BUFFER_SIZE_MIN]
    assert all(later <= GROWTH * earlier for earlier, later in itertools.pairwise(held))


@pytest.mark.parametrize(
    ("claim", "room"), [(900_000, 900_004), (100 << 20, BUFFER_SIZE_MIN)], ids=["of that size", "a larger one"]
)
def test_who_sent_a_large_frame_gets_the_room_for_the_next_at_once(claim: int, room: int) -> None:
    reader = FrameReader(1 << 27)
    body = bytes(900_000)
    assert feed(reader, framed(body), 1 << 18) == [body]
    assert len(reader.buffer()) == BUFFER_SIZE_MIN
    reader.buffer()[:4] = claim.to_bytes(4, "big")
    reader.received(4)
    assert reader.next_frame() is None
    reader.buffer()
    assert reader.size_bytes == room <= SIZE_TRUSTED_MAX


def test_a_large_frame_is_told_before_there_is_room_for_it() -> None:
    """So that whoever receives it can wait for memory."""
    reader = FrameReader(1 << 27)
    size = 10 << 20
    reader.buffer()[:4] = size.to_bytes(4, "big")
    reader.received(4)
    while not reader.size_to_grow_to:
        assert reader.next_frame() is None
        assert reader.size_bytes <= BUFFER_SIZE_KEPT
        reader.received(len(reader.buffer()))
        assert reader.next_frame() is None
    assert reader.size_to_grow_to == size
    reader.buffer()
    assert reader.size_bytes <= BUFFER_SIZE_KEPT * GROWTH


def test_a_quiet_connection_gives_its_buffer_back() -> None:
    reader = FrameReader(1 << 20)
    assert feed(reader, framed(bytes(100_000)), 4096) == [bytes(100_000)]
    assert reader.size_bytes >= 100_000
    reader.shrink()
    assert reader.size_bytes == BUFFER_SIZE_MIN
    reader.buffer()[:2] = b"\0\0"
    reader.received(2)
    reader.shrink()
    assert feed(reader, b"\0\x03abc", 2) == [b"abc"]


@pytest.mark.parametrize("size", [-1, -(1 << 31), 101])
def test_a_size_out_of_bounds_is_refused(size: int) -> None:
    """P-7: below 0 or above the limit."""
    reader = FrameReader(100)
    with pytest.raises(FrameTooLarge, match=f"a frame of {size} bytes is announced; the limit is 100 bytes"):
        feed(reader, size.to_bytes(4, "big", signed=True), 4)


def test_a_size_that_begins_at_the_end_of_the_buffer() -> None:
    reader = FrameReader(1 << 20)
    body = bytes(BUFFER_SIZE_MIN - 6)
    reader.buffer()[:] = framed(body) + b"\0\0"
    reader.received(BUFFER_SIZE_MIN)
    assert reader.next_frame() == body
    assert reader.next_frame() is None
    reader.buffer()[:3] = b"\0\1x"
    reader.received(3)
    assert reader.next_frame() == b"x"


def test_header_versions() -> None:
    """P-5: the client id keeps its int16 length in the flexible header; P-6: unknown tags are skipped."""
    plain = b"\x00\x12\x00\x02\x00\x00\x00\x07\x00\x03abc"
    assert read_request_header(plain, {18: 3}) == RequestHeader(18, 2, 7, "abc", len(plain))
    flexible = b"\x00\x12\x00\x03\x00\x00\x00\x07\x00\x03abc\x01\x05\x02xy"
    assert read_request_header(flexible + b"body", {18: 3}) == RequestHeader(18, 3, 7, "abc", len(flexible))
    negative = b"\x00\x12\x00\x03\x00\x00\x00\x07\x00\x03abc\xff\xff\xff\xff\x0f"
    assert read_request_header(negative + b"body", {18: 3}).body_position == len(negative)
    null = b"\x00\x12\x00\x02\x00\x00\x00\x07\xff\xff"
    assert read_request_header(memoryview(null), {18: 3}).client_id is None
    assert response_header(7, False) == b"\x00\x00\x00\x07"
    assert response_header(7, True) == b"\x00\x00\x00\x07\x00"


def test_broken_headers_are_decode_errors() -> None:
    good = b"\x00\x12\x00\x03\x00\x00\x00\x07\x00\x03abc\x01\x05\x02xy"
    for size in range(len(good)):
        with pytest.raises(DecodeError, match="RequestHeader"):
            read_request_header(good[:size], {18: 3})
    with pytest.raises(DecodeError, match="tagged fields"):
        read_request_header(b"\x00\x12\x00\x03\x00\x00\x00\x07\x00\x01a\xff\xff\x03" + bytes(100), {18: 3})


def test_broken_response_headers_are_decode_errors() -> None:
    with pytest.raises(DecodeError, match="a frame of 3 bytes has no header"):
        read_response_header(b"\0\0\0", False)
    with pytest.raises(DecodeError, match="tagged fields"):
        read_response_header(b"\0\0\0\7", True)
    with pytest.raises(DecodeError, match="tagged fields"):
        read_response_header(b"\0\0\0\7\1\0\5ab", True)
    assert read_response_header(b"\0\0\0\7\1\0\2ab", True) == (7, 9)


def test_a_client_id_of_any_bytes_is_read() -> None:
    """As Java does: what is no UTF-8 becomes U+FFFD."""
    header = read_request_header(b"\x00\x12\x00\x02\x00\x00\x00\x07\x00\x02a\xff", {18: 3})
    assert header.client_id == "a\ufffd"
