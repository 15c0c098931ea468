"""Kafka's messages from a declaration in text: values to bytes and bytes to values, in every version.

Written for these tests alone, so that a mistake in a broker's own serialization cannot hide in the test of it.
A message is a dictionary by Kafka's field names; UUIDs and bytes are hexadecimal text; a field that is missing has its
default. Encoding is canonical (a tagged field with its default is left out), so that equal values are equal bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

LAYOUTS = Path(__file__).with_name("layouts.txt")
API_VERSIONS = 18
_FOREVER = 1 << 15

Message = dict[str, Any]


class Versions(NamedTuple):
    """A range of versions, both ends included."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    @classmethod
    def of(cls, text: str) -> Versions:
        """From `4+`, `0-3`, `5` or `none`."""
        if text == "none":
            return cls(_FOREVER, -1)
        first, dash, last = text.partition("-")
        if text.endswith("+"):
            return cls(int(text[:-1]), _FOREVER)
        return cls(int(first), int(last if dash else first))


NEVER = Versions.of("none")


class Field(NamedTuple):
    """One field: `kind` is Kafka's type, with `struct` and `[]struct` for what has members."""

    name: str
    kind: str
    versions: Versions
    nullable: Versions
    tag: int
    tagged: Versions
    default: str | None
    members: tuple[Field, ...]


class Api(NamedTuple):
    """One API: its number, its versions, and what its request and its reply consist of."""

    key: int
    name: str
    versions: Versions
    flexible: Versions
    request: tuple[Field, ...]
    reply: tuple[Field, ...]

    def encode_request(self, version: int, correlation_id: int, message: Message) -> bytes:
        """A whole frame without its size."""
        flexible = version in self.flexible
        client_id = b"\0\6frames"
        header = struct.pack(">hhi", self.key, version, correlation_id) + client_id + (b"\0" if flexible else b"")
        return header + encode(self.request, version, message, flexible)

    def encode_reply(self, version: int, correlation_id: int, message: Message) -> bytes:
        """The frame that a broker would send, without its size."""
        flexible = version in self.flexible
        tags = b"\0" if flexible and self.key != API_VERSIONS else b""
        return struct.pack(">i", correlation_id) + tags + encode(self.reply, version, message, flexible)

    def decode_reply(self, version: int, frame: bytes) -> Message:
        """Decode a reply's frame. Raises ValueError when it does not have this layout."""
        flexible = version in self.flexible
        reader = Reader(frame)
        reader.take(4)
        if flexible and self.key != API_VERSIONS and reader.varint() != 0:
            raise ValueError("tagged fields in the header")
        message = decode(self.reply, version, reader, flexible)
        if reader.left:
            raise ValueError(f"{reader.left} bytes too many")
        return message


@cache
def apis() -> dict[str, Api]:
    """All APIs by name."""
    found: dict[str, Api] = {}
    lines = [line for line in LAYOUTS.read_text().splitlines() if line.strip() and not line.startswith("#")]
    starts = [number for number, line in enumerate(lines) if line.startswith("api ")] + [len(lines)]
    for start, end in pairwise(starts):
        _, key, name, versions, _, flexible = lines[start].split()
        middle = lines.index(" reply", start)
        request, reply = _fields(lines[start + 2 : middle], 2), _fields(lines[middle + 1 : end], 2)
        found[name] = Api(int(key), name, Versions.of(versions), Versions.of(flexible), request, reply)
    return found


def _fields(lines: list[str], depth: int) -> tuple[Field, ...]:
    found: list[Field] = []
    tops = [number for number, line in enumerate(lines) if line[depth] != " "] + [len(lines)]
    for start, end in pairwise(tops):
        text, _, default = lines[start].strip().partition(" = ")
        name, kind, versions, *rest = text.split()
        nullable, tag, tagged = NEVER, -1, NEVER
        if rest[:1] == ["null"]:
            nullable, rest = Versions.of(rest[1]), rest[2:]
        if rest[:1] == ["tag"]:
            tag, tagged = int(rest[1]), Versions.of(rest[2])
        members = _fields(lines[start + 1 : end], depth + 1)
        fallback = default.replace('""', "") if " = " in lines[start] else None
        found.append(Field(name, kind, Versions.of(versions), nullable, tag, tagged, fallback, members))
    return tuple(found)


_NUMBERS = {"bool": ">?", "int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q"}
_NUMBERS["float64"] = ">d"


def default_of(field: Field, version: int) -> Any:
    """The value of a field that a message leaves out."""
    text = field.default
    if text == "null":
        return None
    if field.kind.startswith("[]"):
        return []
    if field.kind == "struct":
        return {}
    if field.kind == "bool":
        return text == "true"
    if field.kind == "uuid":
        return "0" * 32
    if field.kind in _NUMBERS:
        return int(text, 0) if text else 0
    return text or ""


def encode(fields: tuple[Field, ...], version: int, message: Message, flexible: bool) -> bytes:
    """A struct in a version."""
    known = {field.name for field in fields}
    if unknown := message.keys() - known:
        raise ValueError(f"no such fields: {sorted(unknown)}; there are {sorted(known)}")
    out = bytearray()
    tagged: dict[int, bytes] = {}
    for field in fields:
        if version not in field.versions:
            continue
        default = default_of(field, version)
        value = message.get(field.name, default)
        if flexible and version in field.tagged:
            data = _encode_value(field, field.kind, version, value, flexible)
            if value != default and data != _encode_value(field, field.kind, version, default, flexible):
                tagged[field.tag] = data
        else:
            out += _encode_value(field, field.kind, version, value, flexible)
    if flexible:
        out += varint(len(tagged))
        for tag in sorted(tagged):
            out += varint(tag) + varint(len(tagged[tag])) + tagged[tag]
    return bytes(out)


def _encode_value(field: Field, kind: str, version: int, value: Any, flexible: bool) -> bytes:
    if kind in _NUMBERS:
        return struct.pack(_NUMBERS[kind], value)
    if kind == "uuid":
        return bytes.fromhex(value)
    if kind == "struct":
        if version not in field.nullable:
            return encode(field.members, version, value, flexible)
        return b"\xff" if value is None else b"\1" + encode(field.members, version, value, flexible)
    if kind.startswith("[]"):
        head = _length(None if value is None else len(value), ">i", flexible)
        inner = kind[2:]
        if inner == "struct":
            return head + b"".join(encode(field.members, version, item, flexible) for item in value or [])
        return head + b"".join(_encode_value(field, inner, version, item, flexible) for item in value or [])
    data = None if value is None else value.encode() if kind == "string" else bytes.fromhex(value)
    return _length(None if data is None else len(data), ">h" if kind == "string" else ">i", flexible) + (data or b"")


def _length(count: int | None, code: str, flexible: bool) -> bytes:
    if flexible:
        return varint(0 if count is None else count + 1)
    return struct.pack(code, -1 if count is None else count)


def varint(value: int) -> bytes:
    """An unsigned number, seven bits a byte."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Reader:
    """Bytes from front to back. Raises ValueError at their end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    @property
    def left(self) -> int:
        """Number of unread bytes."""
        return len(self.data) - self.position

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if not 0 <= count <= self.left:
            raise ValueError(f"{count} bytes wanted at {self.position}, {self.left} left")
        self.position += count
        return self.data[self.position - count : self.position]

    def number(self, code: str) -> Any:
        """A number by its struct code."""
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def varint(self) -> int:
        """An unsigned number, seven bits a byte."""
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7


def decode(fields: tuple[Field, ...], version: int, reader: Reader, flexible: bool) -> Message:
    """A struct in a version: the fields that were there."""
    message: Message = {}
    for field in fields:
        if version in field.versions and not (flexible and version in field.tagged):
            message[field.name] = _decode_value(field, field.kind, version, reader, flexible)
    if flexible:
        by_tag = {field.tag: field for field in fields if version in field.versions and version in field.tagged}
        for _ in range(reader.varint()):
            tag, size = reader.varint(), reader.varint()
            inner = Reader(reader.take(size))
            if tag not in by_tag:
                raise ValueError(f"unknown tag {tag}")
            field = by_tag[tag]
            message[field.name] = _decode_value(field, field.kind, version, inner, flexible)
    return message


def _decode_value(field: Field, kind: str, version: int, reader: Reader, flexible: bool) -> Any:
    if kind in _NUMBERS:
        return reader.number(_NUMBERS[kind])
    if kind == "uuid":
        return reader.take(16).hex()
    if kind == "struct":
        if version in field.nullable and reader.number(">b") < 0:
            return None
        return decode(field.members, version, reader, flexible)
    if kind.startswith("[]"):
        count = reader.varint() - 1 if flexible else reader.number(">i")
        return None if count < 0 else list(_items(field, kind[2:], version, reader, flexible, count))
    size = reader.varint() - 1 if flexible else reader.number(">h" if kind == "string" else ">i")
    if size < 0:
        return None
    data = reader.take(size)
    return data.decode() if kind == "string" else data.hex()


def _items(field: Field, kind: str, version: int, reader: Reader, flexible: bool, count: int) -> Iterator[Any]:
    one: Callable[[], Any]
    if kind == "struct":
        one = lambda: decode(field.members, version, reader, flexible)  # noqa: E731
    else:
        one = lambda: _decode_value(field, kind, version, reader, flexible)  # noqa: E731
    for _ in range(count):
        yield one()
