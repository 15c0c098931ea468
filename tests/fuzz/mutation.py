"""Bytes made worse: the mutations that frames and record batches share."""

from __future__ import annotations

import random

_INTERESTING_BYTES = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)
_INTERESTING_RUNS = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xff\xff\xff\xff\x0f",
    b"\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"\x80\0\0\0\0\0\0\0",
    b"\x7f\xff",
    b"\xff\xff",
)


def mutated(data: bytes, generator: random.Random, start: int = 0) -> bytes:
    """A copy of `data` with a few faults behind byte `start`: changed, inserted, removed, repeated, cut off."""
    out = bytearray(data)
    for _ in range(generator.choice((1, 1, 1, 2, 3, 8))):
        if len(out) <= start:
            break
        at = generator.randrange(start, len(out))
        kind = generator.randrange(7)
        if kind == 0:
            out[at] = generator.choice(_INTERESTING_BYTES)
        elif kind == 1:
            out[at] ^= 1 << generator.randrange(8)
        elif kind == 2:
            out[at:at] = generator.randbytes(generator.randint(1, 4))
        elif kind == 3:
            del out[at : at + generator.randint(1, 9)]
        elif kind == 4:
            run = generator.choice(_INTERESTING_RUNS)
            out[at : at + len(run)] = run
        elif kind == 5:
            out[at:at] = out[at : at + generator.randint(1, 40)] * generator.randint(1, 3)
        elif generator.random() < 0.3:
            del out[at:]
    return bytes(out)
