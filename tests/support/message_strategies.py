"""Random values of declared messages, as Hypothesis strategies and from a seeded generator."""

from __future__ import annotations

import random
import string
from typing import Any

from pykbroker.protocol.fields import STRUCT_DEFAULT, Field, Message, default_struct

_RANGES = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}
_LETTERS = string.ascii_letters + "äß€𝄞 .-_"


def random_message(message_type: type[Message], version: int, generator: random.Random) -> Any:
    """A message whose fields of this version have random values; all other fields have their defaults."""
    values = {
        field.name: _random_value(field, version, generator)
        for field in message_type.FIELDS
        if version in field.versions and (generator.random() < 0.9 or _must_be_given(field, version))
    }
    return message_type(**values)


def _must_be_given(field: Field, version: int) -> bool:
    """Records have no default but null, which not every field of them may be."""
    return field.kind == "records" and version not in field.nullable


def _random_value(field: Field, version: int, generator: random.Random) -> Any:
    if version in field.nullable and generator.random() < 0.2:
        return None
    if field.kind == "array":
        count = generator.choice((0, 1, 2, 5))
        return [_random_value(field.element, version, generator) for _ in range(count)]
    if field.kind == "struct":
        if field.default is STRUCT_DEFAULT and generator.random() < 0.2:
            return default_struct(field.element)
        return random_message(field.element, version, generator)
    if field.kind == "bool":
        return generator.random() < 0.5
    if field.kind == "float64":
        return generator.uniform(-1e9, 1e9)
    if field.kind == "string":
        # 200 characters make a compact length of two bytes.
        return "".join(generator.choices(_LETTERS, k=generator.choice((0, 1, 7, 200))))
    if field.kind == "uuid":
        return generator.randbytes(16)
    if field.kind in ("bytes", "records"):
        return generator.randbytes(generator.choice((0, 1, 30, 300)))
    lowest, highest = _RANGES[field.kind]
    return generator.choice((lowest, highest, 0, 1, -1 if lowest else 1, generator.randint(lowest, highest)))
