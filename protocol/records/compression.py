"""Compression codecs by Kafka's ids. Each codec's package is imported when it is first used.

`decompress` is total and bounded: any bytes give at most `limit_bytes` bytes or a `RecordError`.

* gzip: written as one member; several members are read, and bytes after a complete member are ignored, as Java does.
* snappy: written in the framing of snappy-java ("xerial"), which Kafka's Java clients expect from each other; read in
  that framing and raw (librdkafka and others send raw blocks, P-166).
* lz4: frame format with independent blocks; one frame is read, what follows it is ignored, as Java does. Checksums of
  the header and of blocks are verified, that of the content is not (P-350): the batch has a CRC of its own.
* zstd: frames with or without content size, also several in a row.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pykbroker.protocol.records.errors import CompressionFailed, RecordTooLarge

if TYPE_CHECKING:
    import zstandard

Buffer = bytes | bytearray | memoryview
"""Bytes that the functions here read without copying them."""

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""Kafka's names of the codecs, by id."""

_CODECS_OF_TOPICS: Final = {
    "uncompressed": NONE,
    "zstd": ZSTD,
    "lz4": LZ4,
    "snappy": SNAPPY,
    "gzip": GZIP,
    "producer": None,
}

LIMIT_BYTES: Final = 128 * 1024 * 1024
"""The default bound of `decompress`: far above batches of ordinary producers, small enough for a broker's memory."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
# snappy-java's block size in Kafka's producer; readers take any.
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_LZ4_DEFAULT_LEVEL: Final = 9
_LZ4_INDEPENDENT_FLAG: Final = 0x20
_LZ4_CONTENT_SIZE_FLAG: Final = 0x08
_LZ4_CONTENT_CHECKSUM_FLAG: Final = 0x04
_LZ4_DICTIONARY_FLAG: Final = 0x01
_LZ4_CHECKSUM_BYTES: Final = 4
_ZSTD_PIECE_BYTES: Final = 1024
_GZIP_PIECE_BYTES: Final = 1024

# zstandard's contexts cost microseconds to make, and two threads must not use one at the same time.
_of_thread: Final = threading.local()


def codec_of_topic(compression_type: str) -> int | None:
    """The codec id that a topic's `compression.type` asks for.

    None means "producer": batches keep the codec they came with. Raises ValueError for an unknown name.
    """
    try:
        return _CODECS_OF_TOPICS[compression_type]
    except KeyError:
        known = ", ".join(_CODECS_OF_TOPICS)
        raise ValueError(f"compression.type {compression_type!r} is none of {known}") from None


def compress(codec: int, data: bytes, level: int | None = None) -> bytes:
    """Compress with codec id `codec`; `level` is the codec's own (gzip -1 to 9, lz4 1 to 17, zstd -131072 to 22).

    None takes the default level of Kafka. Raises CompressionFailed for an unknown id.
    """
    if codec == NONE:
        return data
    function = _COMPRESSORS.get(codec)
    if function is None:
        raise CompressionFailed(f"Unknown compression type id: {codec}")
    return function(data, level)


def decompress(codec: int, data: Buffer, limit_bytes: int = LIMIT_BYTES) -> bytes:
    """Decompress `data`, whole; with codec `NONE` a copy of `data`.

    Raises CompressionFailed when the bytes are not of that codec or end early, and for an unknown id; RecordTooLarge
    beyond `limit_bytes`.
    """
    if codec == NONE:
        return bytes(data)
    function = _DECOMPRESSORS.get(codec)
    if function is None:
        raise CompressionFailed(f"Unknown compression type id: {codec}")
    return function(data, limit_bytes)


def _too_large(codec: int, limit_bytes: int) -> RecordTooLarge:
    return RecordTooLarge(f"The {CODEC_NAMES[codec]} data of the record batch is larger than {limit_bytes} bytes")


def _broken(codec: int, reason: object) -> CompressionFailed:
    return CompressionFailed(f"The record batch is not valid {CODEC_NAMES[codec]} data: {reason}")


def _compress_gzip(data: bytes, level: int | None) -> bytes:
    compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
    return compressor.compress(data) + compressor.flush()


def _decompress_gzip(data: Buffer, limit_bytes: int) -> bytes:
    if not len(data):
        raise _broken(GZIP, "it is empty")
    member = zlib.decompressobj(31)
    try:
        first = member.decompress(data, limit_bytes + 1)
    except zlib.error as error:
        raise _broken(GZIP, error) from None
    if len(first) > limit_bytes:
        raise _too_large(GZIP, limit_bytes)
    if not member.eof:
        raise _broken(GZIP, "it ends early")
    rest = member.unused_data
    return first if not rest else first + _read_gzip_members(rest, len(first), limit_bytes)


def _read_gzip_members(data: bytes, size: int, limit_bytes: int) -> bytes:
    """The members after the first one, which had `size` bytes; bytes that are no member are ignored.

    They are read in pieces, because zlib copies its unused input at the end of each member: a megabyte with fifty
    thousand empty members would be copied fifty thousand times.
    """
    parts: list[bytes] = []
    view = memoryview(data)
    position = 0
    while position < len(view):
        member = zlib.decompressobj(31)
        of_member: list[bytes] = []
        while not member.eof:
            piece = view[position : position + _GZIP_PIECE_BYTES]
            if not piece:
                raise _broken(GZIP, "it ends early")
            try:
                of_member.append(member.decompress(piece, limit_bytes - size + 1))
            except zlib.error:
                return b"".join(parts)
            size += len(of_member[-1])
            if size > limit_bytes:
                raise _too_large(GZIP, limit_bytes)
            position += len(piece) - len(member.unused_data)
        parts += of_member
    return b"".join(parts)


def _compress_snappy(data: bytes, level: int | None) -> bytes:
    import snappy

    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    for position in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = snappy.compress(bytes(view[position : position + _XERIAL_BLOCK_BYTES]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit_bytes: int) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(bytes(data), limit_bytes)
    view = memoryview(data)
    end = len(view)
    if end < len(_XERIAL_HEADER):
        raise _broken(SNAPPY, "it ends within its header")
    position = len(_XERIAL_HEADER)
    parts: list[bytes] = []
    size_before = 0
    # Up to three bytes at the end are no length of a block: snappy-java ignores them, and so do we.
    while position + 4 <= end:
        block_start = position + 4
        size = int.from_bytes(view[position:block_start], "big")
        position = block_start + size
        if position > end:
            # A second stream appended to the first begins with the magic again; snappy-java reads on, so do we.
            if bytes(view[block_start - 4 : block_start + 4]) == _XERIAL_MAGIC:
                position = block_start - 4 + len(_XERIAL_HEADER)
                continue
            raise _broken(SNAPPY, f"a block of {size} bytes ends early")
        part = _decompress_snappy_block(bytes(view[block_start:position]), limit_bytes, size_before)
        size_before += len(part)
        parts.append(part)
    return b"".join(parts)


def _decompress_snappy_block(block: bytes, limit_bytes: int, size_before: int = 0) -> bytes:
    import snappy

    # The block begins with its decompressed size as an unsigned varint, which is checked before anything is allocated.
    size = 0
    for index in range(5):
        if index >= len(block):
            raise _broken(SNAPPY, "a block ends within its size")
        size |= (block[index] & 0x7F) << (7 * index)
        if block[index] < 0x80:
            break
    else:
        raise _broken(SNAPPY, "the size of a block is not a varint")
    if size_before + size > limit_bytes:
        raise _too_large(SNAPPY, limit_bytes)
    try:
        return bytes(snappy.decompress(block))
    except Exception as error:  # python-snappy raises different classes, depending on what it is built on
        raise _broken(SNAPPY, error) from None


def _compress_lz4(data: bytes, level: int | None) -> bytes:
    import lz4.frame

    compressed: bytes = lz4.frame.compress(
        data,
        # As in Kafka, the default level 9 means the fast compressor, any other the thorough one.
        compression_level=0
        if level is None or level == _LZ4_DEFAULT_LEVEL
        else max(level, lz4.frame.COMPRESSIONLEVEL_MINHC),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,  # Kafka's Java reader refuses linked blocks
        store_size=False,
    )
    return compressed


def _lz4_block_size_max(data: Buffer) -> int:
    """Largest size of a decompressed block of an LZ4 frame in bytes: 64 KiB from Java, 4 MiB from franz-go, Sarama."""
    return 1 << 8 + 2 * (data[5] >> 4 & 7) if len(data) > 5 else 0


def _lz4_header_without_content_checksum(data: Buffer) -> bytes:
    """The header of an LZ4 frame with the flag for a content checksum cleared; empty if the flag is not set.

    To verify that checksum takes as long as the rest of a produce request. franz-go and Sarama write it, Java does not.
    """
    if len(data) <= 4 or not data[4] & _LZ4_CONTENT_CHECKSUM_FLAG:
        return b""
    flags = data[4]
    end = 6 + (8 if flags & _LZ4_CONTENT_SIZE_FLAG else 0) + (4 if flags & _LZ4_DICTIONARY_FLAG else 0)
    head = bytes(data[: end + 1])
    if len(head) <= end or head[end] != _lz4_header_checksum(head[4:end]):
        return b""
    descriptor = bytes((flags & ~_LZ4_CONTENT_CHECKSUM_FLAG,)) + head[5:end]
    return head[:4] + descriptor + bytes((_lz4_header_checksum(descriptor),))


@lru_cache(maxsize=64)
def _lz4_header_checksum(descriptor: bytes) -> int:
    """The second byte of XXH32 of at most 15 bytes."""
    value = 374761393 + len(descriptor)
    whole = len(descriptor) & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(descriptor[position : position + 4], "little")
        value = _rotated(value + word * 3266489917, 17) * 668265263
    for byte in descriptor[whole:]:
        value = _rotated(value + byte * 374761393, 11) * 2654435761
    value &= 0xFFFFFFFF
    value = (value ^ value >> 15) * 2246822519 & 0xFFFFFFFF
    value = (value ^ value >> 13) * 3266489917 & 0xFFFFFFFF
    return (value ^ value >> 16) >> 8 & 0xFF


def _rotated(value: int, count: int) -> int:
    value &= 0xFFFFFFFF
    return value << count | value >> 32 - count


def _decompress_lz4(data: Buffer, limit_bytes: int) -> bytes:
    import lz4.frame

    if len(data) > 4 and not data[4] & _LZ4_INDEPENDENT_FLAG:
        raise _broken(LZ4, "its blocks depend on each other, which Kafka's readers do not support")
    decompressor = lz4.frame.LZ4FrameDecompressor()
    parts: list[bytes] = []
    left = limit_bytes + 1
    rest: Buffer = data
    header = _lz4_header_without_content_checksum(data)
    # The decompressor allocates `max_length` bytes, so the first calls have a likely size and not the whole limit. It
    # decompresses a block in place if there is room for a largest one, and copies it from another buffer if not.
    piece = max(4 * len(data) + _CHUNK_BYTES, _lz4_block_size_max(data))
    try:
        if header:
            decompressor.decompress(header, max_length=0)
            rest = memoryview(data)[len(header) :]
        while not decompressor.eof and left > 0:
            part: bytes = decompressor.decompress(rest, max_length=min(piece, left))
            if not part and decompressor.needs_input:
                break
            parts.append(part)
            left -= len(part)
            rest = b""
            piece *= 4
    except (RuntimeError, EOFError, ValueError) as error:
        raise _broken(LZ4, error) from None
    if left <= 0:
        raise _too_large(LZ4, limit_bytes)
    if not decompressor.eof or (header and len(decompressor.unused_data or b"") < _LZ4_CHECKSUM_BYTES):
        raise _broken(LZ4, "it ends early")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _compress_zstd(data: bytes, level: int | None) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def _decompress_zstd(data: Buffer, limit_bytes: int) -> bytes:
    import zstandard

    decompressor: zstandard.ZstdDecompressor | None = getattr(_of_thread, "zstd", None)
    if decompressor is None:
        decompressor = _of_thread.zstd = zstandard.ZstdDecompressor()
    try:
        # Java writes frames without their content size. One call decompresses these too, if the output fits into
        # `room`, which is a small guess because it is allocated.
        size = zstandard.frame_content_size(data)
        if size > limit_bytes:
            raise _too_large(ZSTD, limit_bytes)
        room = min(limit_bytes, 8 * len(data) + _CHUNK_BYTES)
        try:
            return decompressor.decompress(data, max_output_size=room, allow_extra_data=False)
        except zstandard.ZstdError:
            return _read_zstd_frames(decompressor, data, limit_bytes)
    except zstandard.ZstdError as error:
        raise _broken(ZSTD, error) from None


def _read_zstd_frames(decompressor: zstandard.ZstdDecompressor, data: Buffer, limit_bytes: int) -> bytes:
    """Decompress several frames, output larger than the first guess, or invalid bytes, piece by piece."""
    parts: list[bytes] = []
    size = 0
    view = memoryview(data)
    frame = decompressor.decompressobj()
    position = 0
    while position < len(view):
        if frame.eof:
            frame = decompressor.decompressobj()
        # A kilobyte makes at most 32 MiB (each four bytes at most 128 KiB), which bounds how far we pass the limit.
        piece = view[position : position + _ZSTD_PIECE_BYTES]
        part = frame.decompress(piece)
        position += len(piece) - len(frame.unused_data)
        size += len(part)
        if size > limit_bytes:
            raise _too_large(ZSTD, limit_bytes)
        parts.append(part)
    if not frame.eof:
        raise _broken(ZSTD, "it ends early")
    return b"".join(parts)


_COMPRESSORS: Final[dict[int, Callable[[bytes, int | None], bytes]]] = {
    GZIP: _compress_gzip,
    SNAPPY: _compress_snappy,
    LZ4: _compress_lz4,
    ZSTD: _compress_zstd,
}
_DECOMPRESSORS: Final[dict[int, Callable[[Buffer, int], bytes]]] = {
    GZIP: _decompress_gzip,
    SNAPPY: _decompress_snappy,
    LZ4: _decompress_lz4,
    ZSTD: _decompress_zstd,
}
