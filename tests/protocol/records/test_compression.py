"""The codecs against bytes of other libraries, their limits, and bytes that mean nothing."""

from __future__ import annotations

import contextlib
import gzip
import random
import subprocess
import sys

import kafka.codec
import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.protocol.records import compression
from pykbroker.protocol.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, codec_of_topic, compress, decompress
from pykbroker.protocol.records.errors import CompressionFailed, RecordError, RecordTooLarge
from tests.protocol.records.samples import fixture

TEXT = b"It was a bright cold day in April. " * 9000
NOISE = random.Random(1).randbytes(300_000)
ALL = [GZIP, SNAPPY, LZ4, ZSTD]


@pytest.mark.parametrize("codec", ALL)
@pytest.mark.parametrize("data", [b"", b"a", TEXT, NOISE], ids=["empty", "one byte", "text", "noise"])
def test_round_trip(codec: int, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed) == data
    assert decompress(codec, memoryview(bytearray(packed)), len(data)) == data
    if data:
        with pytest.raises(RecordTooLarge):
            decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize(("codec", "level"), [(GZIP, 1), (GZIP, 9), (LZ4, 1), (LZ4, 17), (ZSTD, -5), (ZSTD, 19)])
def test_levels(codec: int, level: int) -> None:
    assert decompress(codec, compress(codec, TEXT, level)) == TEXT


def test_kafkas_default_lz4_level_means_the_fast_compressor() -> None:
    assert compress(LZ4, TEXT, 9) == compress(LZ4, TEXT)


def test_no_codec() -> None:
    assert compress(NONE, b"abc") == decompress(NONE, bytearray(b"abc")) == b"abc"


@pytest.mark.parametrize("codec", [-1, 5, 6, 7])
def test_unknown_ids(codec: int) -> None:
    with pytest.raises(CompressionFailed):
        compress(codec, b"")
    with pytest.raises(CompressionFailed):
        decompress(codec, b"")


def test_names_of_compression_type() -> None:
    assert [codec_of_topic(name) for name in ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")] == [
        None,
        NONE,
        GZIP,
        SNAPPY,
        LZ4,
        ZSTD,
    ]
    with pytest.raises(ValueError, match="brotli"):
        codec_of_topic("brotli")


@pytest.mark.parametrize("data", [b"x", TEXT, NOISE])
def test_kafka_pythons_codecs_and_ours_read_each_other(data: bytes) -> None:
    """P-166: snappy in both framings."""
    assert decompress(GZIP, kafka.codec.gzip_encode(data)) == data
    assert decompress(SNAPPY, kafka.codec.snappy_encode(data, xerial_compatible=True)) == data
    assert decompress(SNAPPY, kafka.codec.snappy_encode(data, xerial_compatible=False)) == data
    assert decompress(ZSTD, kafka.codec.zstd_encode(data)) == data
    assert kafka.codec.gzip_decode(compress(GZIP, data)) == data
    assert kafka.codec.snappy_decode(compress(SNAPPY, data)) == data
    assert kafka.codec.lz4_decode(compress(LZ4, data)) == data
    assert kafka.codec.zstd_decode(compress(ZSTD, data)) == data


def test_gzip_of_very_many_members_has_one_limit() -> None:
    """Each costs the same, however much follows it."""
    members = gzip.compress(b"") * 2000 + gzip.compress(b"x" * 5000) * 30 + gzip.compress(b"") * 2000
    assert decompress(GZIP, members) == b"x" * 150_000
    with pytest.raises(RecordTooLarge, match="larger than 149999 bytes"):
        decompress(GZIP, members, 149_999)
    with pytest.raises(CompressionFailed, match="ends early"):
        decompress(GZIP, members[:-1])


def test_gzip_of_several_members_and_with_a_tail() -> None:
    members = gzip.compress(b"one ") + gzip.compress(b"two ") + gzip.compress(b"three")
    assert decompress(GZIP, members) == b"one two three"
    assert decompress(GZIP, members + b"no member") == b"one two three"
    with pytest.raises(RecordTooLarge):
        decompress(GZIP, members, 8)


def test_snappy_streams_in_a_row() -> None:
    """snappy-java flushes may leave a second header within the stream."""
    assert decompress(SNAPPY, compress(SNAPPY, b"one ") + compress(SNAPPY, b"two")) == b"one two"


def test_zstd_frames_without_size_and_several_in_a_row() -> None:
    streaming = zstandard.ZstdCompressor(write_content_size=False)
    assert decompress(ZSTD, streaming.compress(TEXT)) == TEXT
    assert decompress(ZSTD, streaming.compress(TEXT) + compress(ZSTD, b"more")) == TEXT + b"more"
    # beyond the room of the first guess
    zeros = bytes(50_000_000)
    assert decompress(ZSTD, streaming.compress(zeros)) == zeros
    chunks = streaming.compressobj()
    flushed = chunks.compress(b"a") + chunks.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) + chunks.compress(b"b")
    assert decompress(ZSTD, flushed + chunks.flush()) == b"ab"


@pytest.mark.parametrize("store_size", [True, False])
@pytest.mark.parametrize("block_checksum", [True, False])
def test_the_checksum_of_lz4_content_is_not_verified(store_size: bool, block_checksum: bool) -> None:
    """P-350: but it has to be there, and the other checksums hold."""
    data = TEXT
    frame = lz4.frame.compress(
        data, block_linked=False, content_checksum=True, block_checksum=block_checksum, store_size=store_size
    )
    wrong = bytearray(frame)
    wrong[-1] ^= 1
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(wrong)
    assert decompress(LZ4, frame) == decompress(LZ4, wrong) == data
    assert decompress(LZ4, memoryview(wrong + b"tail")) == data
    for size in (len(frame) - 1, len(frame) - 4, len(frame) - 5, 7, 6, 5):
        with pytest.raises(CompressionFailed):
            decompress(LZ4, frame[:size])
    wrong[14 if store_size else 6] ^= 1  # the header's own checksum
    with pytest.raises(CompressionFailed):
        decompress(LZ4, wrong)
    if block_checksum:
        damaged = bytearray(frame)
        damaged[-12] ^= 1
        with pytest.raises(CompressionFailed):
            decompress(LZ4, damaged)


def test_lz4_frames_with_a_content_checksum_are_bounded() -> None:
    frame = lz4.frame.compress(bytes(1_000_000), block_linked=False, content_checksum=True)
    assert decompress(LZ4, frame, 1_000_000) == bytes(1_000_000)
    with pytest.raises(RecordTooLarge):
        decompress(LZ4, frame, 999_999)


def test_lz4_reads_one_frame_with_independent_blocks() -> None:
    frame = compress(LZ4, TEXT)
    assert decompress(LZ4, frame + b"tail") == TEXT
    checked = lz4.frame.compress(TEXT, block_linked=False, content_checksum=True, block_checksum=True, store_size=True)
    assert decompress(LZ4, checked) == TEXT
    with pytest.raises(CompressionFailed, match="depend on each other"):
        decompress(LZ4, lz4.frame.compress(TEXT, block_linked=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB))


@pytest.mark.parametrize("content_checksum", [False, True])
@pytest.mark.parametrize("block_size", [0, 4, 5, 6, 7])
@pytest.mark.parametrize("size", [1, 3_000_000, 9_000_001])
def test_lz4_frames_of_any_block_size(size: int, block_size: int, content_checksum: bool) -> None:
    data = (TEXT * (size // len(TEXT) + 1))[:size]
    frame = lz4.frame.compress(data, block_linked=False, block_size=block_size, content_checksum=content_checksum)
    assert decompress(LZ4, frame) == decompress(LZ4, frame, size) == data
    with pytest.raises(RecordTooLarge):
        decompress(LZ4, frame, size - 1)


@pytest.mark.parametrize("codec", ALL)
def test_bombs_are_stopped_at_the_limit(codec: int) -> None:
    bomb = compress(codec, bytes(30_000_000))
    with pytest.raises(RecordTooLarge, match="larger than 100000 bytes"):
        decompress(codec, bomb, 100_000)


def test_a_zstd_bomb_without_size_is_stopped() -> None:
    bomb = zstandard.ZstdCompressor(level=19, write_content_size=False).compress(bytes(300_000_000))
    assert len(bomb) < 30_000
    with pytest.raises(RecordTooLarge):
        decompress(ZSTD, bomb, 1_000_000)


def test_sizes_that_lie() -> None:
    claims_four_gigabytes = b"\xff\xff\xff\xff\x0f" + snappy.compress(b"abc")[1:]
    with pytest.raises(RecordTooLarge):
        decompress(SNAPPY, claims_four_gigabytes)
    with pytest.raises(CompressionFailed):
        decompress(SNAPPY, b"\x80\x80\x80\x20" + snappy.compress(b"abc")[1:])
    with pytest.raises(CompressionFailed):
        decompress(SNAPPY, b"\xff\xff\xff\xff\xff\xff")


@pytest.mark.parametrize("codec", ALL)
def test_whatever_ends_early_is_invalid(codec: int) -> None:
    packed = compress(codec, NOISE[:1000])
    header_and_up_to_three_bytes = {16, 17, 18, 19} if codec == SNAPPY else set()
    for cut in set(range(len(packed))) - header_and_up_to_three_bytes:
        with pytest.raises(CompressionFailed):
            decompress(codec, packed[:cut])


@pytest.mark.parametrize("codec", ALL)
@given(data=st.binary(max_size=200))
def test_any_bytes_give_bytes_or_a_record_error(codec: int, data: bytes) -> None:
    with contextlib.suppress(RecordError):
        assert len(decompress(codec, data, 100_000)) <= 100_000


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_mutated_batches_of_the_java_client(name: str) -> None:
    rng = random.Random(name)
    codec = compression.CODEC_NAMES.index(name)
    payload = fixture(f"large_{name}")[61:]
    for _ in range(2000):
        mutated = bytearray(payload)
        for _ in range(rng.randint(1, 4)):
            mutated[rng.randrange(len(mutated) if rng.random() < 0.5 else 40)] = rng.randrange(256)
        with contextlib.suppress(RecordError):
            assert len(decompress(codec, mutated, 1_000_000)) <= 1_000_000


def test_codecs_are_loaded_only_when_needed() -> None:
    code = (
        "import sys, pykbroker.protocol.records.validation; "
        "print([name for name in ('snappy', 'cramjam', 'lz4', 'zstandard') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
