"""Hashes of the topics that a group subscribes to, by which a new coordinator finds that they have changed (KIP-1101).

The hash of a group is stored in its epoch record. It is XXH3 (64 bits, seed 0) over 8 bytes in little-endian order for
each existing topic, sorted by name: the topic's own hash, which covers its id, name, partitions and racks. A string is
hashed as its UTF-16 units in little-endian order and their number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

_MAGIC = b"\x00"


def topic_hash(name: str, topic_id: bytes, racks: Mapping[int, Sequence[str]]) -> int:
    """Hash of one topic as a signed 64-bit integer.

    Args:
        name: name of the topic.
        topic_id: its id, 16 bytes.
        racks: partition -> racks of its replicas; has an entry for each partition.
    """
    high, low = struct.unpack(">QQ", topic_id)
    count = len(racks)
    parts = [_MAGIC, struct.pack("<QQ", high, low), _utf16(name), struct.pack("<i", count)]
    if not any(racks.values()):
        parts.append(struct.pack(f"<{count}i", *range(count)))
    else:
        encoded: dict[tuple[str, ...], bytes] = {}  # thousands of partitions have a few combinations of racks
        for partition in range(count):
            names = tuple(racks[partition])
            if names not in encoded:
                encoded[names] = _racks(names)
            parts += (struct.pack("<i", partition), encoded[names])
    return _xxh3(b"".join(parts))


def group_hash(topic_hashes: Iterable[tuple[str, int]]) -> int:
    """Hash of a group from the (name, hash) of its existing topics; 0 if there are none."""
    hashes = [value for _, value in sorted(topic_hashes, key=itemgetter(0))]
    return _xxh3(struct.pack(f"<{len(hashes)}q", *hashes)) if hashes else 0


def _racks(names: Iterable[str]) -> bytes:
    """The racks of one partition. The length comes before the rack as well as behind it."""
    ordered = [_utf16(name) for name in sorted(names)]
    return b"".join([rack[-4:] + rack for rack in ordered])


def _utf16(text: str) -> bytes:
    data = text.encode("utf-16-le")
    return data + struct.pack("<i", len(data) // 2)


def _xxh3(data: bytes) -> int:
    import xxhash

    value: int = xxhash.xxh3_64_intdigest(data)
    return value - (1 << 64) if value >= 1 << 63 else value
