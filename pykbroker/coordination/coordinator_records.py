"""The frame of the records in the coordinators' topics (Kafka's CoordinatorRecordSerde).

A key is an int16, the type of the record, with the key's fields in version 0. A value begins with its version as int16.
A null value is a tombstone.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.codec import (
    decode,
    decode_versioned,
    encode_behind,
    encode_behind_in_steps,
    encode_versioned,
)
from pykbroker.protocol.fields import Message
from pykbroker.protocol.steps import Steps

KEY_VERSION = 0

Kinds = Mapping[int, tuple[type[Message], type[Message]]]
"""The types of records of one topic: classes of key and value by the type."""


class CoordinatorRecord(NamedTuple):
    """A record that was read. `value` is None for a tombstone, whose `value_version` is 0."""

    key: Message
    value: Message | None
    value_version: int


def kinds_of(*modules: ModuleType) -> Kinds:
    """The types of records that modules of `protocol.log_messages` declare: each `...Key` with its `...Value`."""
    return {
        key.KEY: (key, getattr(module, f"{name.removesuffix('Key')}Value"))
        for module in modules
        for name, key in vars(module).items()
        if name.endswith("Key")
    }


def key_types(module: ModuleType) -> tuple[type[Message], ...]:
    """Classes of the keys that a module of `protocol.log_messages` declares."""
    return tuple(key for key, _ in kinds_of(module).values())


def encode_record(key: Message, value: Message | None, value_version: int) -> tuple[bytes, bytes | None]:
    """Key and value as bytes."""
    encoded_key = encode_behind(key.KEY.to_bytes(2, "big", signed=True), key, KEY_VERSION)
    return encoded_key, None if value is None else encode_versioned(value, value_version)


def encode_record_in_steps(key: Message, value: Message, value_version: int) -> Steps[tuple[bytes, bytes]]:
    """As `encode_record`, in steps, for a value with thousands of structs."""
    version = value_version.to_bytes(2, "big", signed=True)
    encoded = yield from encode_behind_in_steps(version, value, value_version)
    return encode_behind(key.KEY.to_bytes(2, "big", signed=True), key, KEY_VERSION), encoded


def decode_record(kinds: Kinds, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """Decodes what `encode_record` encoded; None for an unknown type, to be skipped.

    Later versions of Kafka may write other types.

    Raises:
        DecodeError, UnsupportedVersion: the record is of a known type and cannot be read.
    """
    classes = kinds.get(int.from_bytes(key[:2], "big", signed=True))
    if classes is None:
        return None
    decoded_key = decode(classes[0], KEY_VERSION, key[2:])
    if value is None:
        return CoordinatorRecord(decoded_key, None, 0)
    return CoordinatorRecord(
        decoded_key, decode_versioned(classes[1], value), int.from_bytes(value[:2], "big", signed=True)
    )
