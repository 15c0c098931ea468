"""Kafka's UUIDs: 16 bytes on the wire, 22 characters of URL-safe base64 in text.

They stay raw `bytes` in the broker: as dictionary keys and in messages that is the cheapest form.
"""

from __future__ import annotations

import binascii
from typing import Protocol

ZERO_UUID = bytes(16)
"""Stands for "no id" on the wire."""

METADATA_TOPIC_ID = bytes(15) + b"\x01"
"""The reserved id of `__cluster_metadata`."""

MIGRATING_DIRECTORY = bytes(16)
UNASSIGNED_DIRECTORY = bytes(15) + b"\x01"
LOST_DIRECTORY = bytes(15) + b"\x02"
"""Reserved ids of log directories (KIP-858): of a replica whose metadata has no directories, of one that has not got a
directory yet, and of one whose directory has failed."""


def uuid_to_text(uuid: bytes) -> str:
    """The 22-character text form of 16 bytes."""
    return binascii.b2a_base64(uuid, newline=False).decode().rstrip("=").replace("+", "-").replace("/", "_")


def uuid_from_text(text: str) -> bytes:
    """The 16 bytes of a text form.

    Raises:
        ValueError: the text is not 22 characters of URL-safe base64.
    """
    try:
        padding = "=" * (-len(text) % 4)
        uuid = binascii.a2b_base64(text.replace("-", "+").replace("_", "/") + padding, strict_mode=True)
    except binascii.Error as error:
        raise ValueError(f"not a Kafka UUID: {text!r}: {error}") from None
    if len(uuid) != 16:
        raise ValueError(f"not a Kafka UUID: {text!r}: {len(uuid)} bytes instead of 16")
    return uuid


class RandomBytes(Protocol):
    """The part of `random.Random` that draws UUIDs."""

    def randbytes(self, count: int, /) -> bytes: ...


def random_uuid(random: RandomBytes) -> bytes:
    """A new UUID, as `version_4_uuid`."""
    return version_4_uuid(random.randbytes(16))


def random_uuid_text(random: RandomBytes) -> str:
    """A new UUID in its text form."""
    return uuid_to_text(random_uuid(random))


def version_4_uuid(random_bytes: bytes) -> bytes:
    """A version 4 UUID from 16 random bytes; never a reserved one, and its text never begins with a dash.

    Kafka draws again when the text would begin with "-", as such an id is awkward on a command line.
    """
    uuid = bytearray(random_bytes)
    uuid[6] = uuid[6] & 0x0F | 0x40
    uuid[8] = uuid[8] & 0x3F | 0x80
    if uuid[0] >= 0xF8:  # the six leading bits 111110 are "-" in base64
        uuid[0] &= 0x7F
    return bytes(uuid)
