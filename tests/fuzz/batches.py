"""Record batches for Produce: good ones, and ones that lie with a checksum that is right."""

from __future__ import annotations

import gzip
import random
import struct
import time
from functools import cache

from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.checksum import crc32c
from pykbroker.protocol.records.compression import CODEC_NAMES, compress
from pykbroker.protocol.records.layout import HEADER_SIZE
from pykbroker.protocol.records.record import Record
from tests.fuzz.mutation import mutated

BOMB_BYTES = 160 * 1024 * 1024
"""Decompressed size of a bomb, in bytes: above the limit of one batch."""


def good_batch(generator: random.Random, producers: list[tuple[int, int]]) -> bytes:
    """A batch that a leader stores, of any codec; sometimes of a producer with an id."""
    now_ms = int(time.time() * 1000)
    records = [
        Record(
            0,
            now_ms + generator.choice((0, 0, 1, -1000)),
            generator.choice((None, b"", b"key", generator.randbytes(9))),
            generator.choice((None, b"", b"v" * generator.choice((1, 100, 3000)))),
            [("h", generator.choice((None, b"x")))] if generator.random() < 0.2 else [],
        )
        for _ in range(generator.choice((1, 1, 2, 10, 200)))
    ]
    fields: dict[str, int | bool] = {}
    if producers and generator.random() < 0.4:
        producer_id, epoch = generator.choice(producers)
        fields = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": generator.choice((0, 0, 1, 5))}
        fields["is_transactional"] = generator.random() < 0.4
    return build_batch(records, codec=generator.randrange(5), **fields)  # type: ignore[arg-type]


def with_right_checksum(batch: bytes) -> bytes:
    """The batch with length and checksum made to fit its bytes."""
    if len(batch) < HEADER_SIZE:
        return batch
    out = bytearray(batch)
    struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)


@cache
def bomb(codec: int) -> bytes:
    """A small batch that decompresses to `BOMB_BYTES`: one record of zeros, as far as its codec can shrink them."""
    base = build_batch([Record(0, 0, None, b"", [])], codec=codec)
    if codec == 1:
        payload = gzip.compress(bytes(BOMB_BYTES), 9)
    elif codec == 2:
        # A raw block that announces the size and has next to nothing behind it.
        payload = b"\x80\x80\x80\x80\x05" + b"\xfe\x01\x00" * 1000
    else:
        payload = compress(codec, bytes(BOMB_BYTES))
    return with_right_checksum(base[:HEADER_SIZE] + payload)


def bad_batch(generator: random.Random, producers: list[tuple[int, int]]) -> bytes:
    """A batch with something wrong in it."""
    batch = good_batch(generator, producers)
    kind = generator.randrange(8)
    if kind == 0:
        return mutated(batch, generator)
    if kind == 1:
        return with_right_checksum(mutated(batch, generator, HEADER_SIZE))
    if kind == 2:
        return with_right_checksum(mutated(batch, generator))
    if kind == 3:
        # Counts and offsets that do not fit the records.
        out = bytearray(batch)
        number = generator.choice((-1, 0, 1, 2, 1000, 2**31 - 1, -(2**31)))
        struct.pack_into(">i", out, 23, number - 1 if generator.random() < 0.7 and number > -(2**31) else 5)
        struct.pack_into(">i", out, 57, number)
        return with_right_checksum(bytes(out))
    if kind == 4:
        # Another codec than the bytes have.
        out = bytearray(batch)
        out[22] = out[22] & ~7 | generator.randrange(8)
        return with_right_checksum(bytes(out))
    if kind == 5:
        return batch + generator.choice((batch, batch[:30], b"\0" * 70))
    if kind == 6:
        out = bytearray(batch)
        out[21:23] = generator.randbytes(2)
        struct.pack_into(">q", out, generator.choice((27, 35, 43)), generator.choice((-1, -2, 2**63 - 1, -(2**63))))
        return with_right_checksum(bytes(out))
    if generator.random() < 0.9:
        return batch[: generator.randrange(len(batch))]
    return bomb(generator.randrange(1, len(CODEC_NAMES)))
