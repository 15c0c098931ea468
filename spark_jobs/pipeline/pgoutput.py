"""Decoding of pgoutput, the logical replication messages of PostgreSQL, protocol version 1; pure.

Source: PostgreSQL's documentation, "Logical Replication Message Formats". A change is complete with the relation
message that came before it, which has the columns as they were at that time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

# By type OID: the name in Connect's schemas, and how the text of a value is read. All other types stay text.
CONNECT_TYPES = {16: "boolean", 20: "int64", 21: "int16", 23: "int32", 700: "float", 701: "double"}
SECONDS_TO_2000 = 946_684_800


class PgOutputError(Exception):
    """A message that is not what the protocol says; the text says what was found."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: `is_key` if it is part of the replica identity, `oid` of its type."""

    name: str
    oid: int
    is_key: bool

    @property
    def connect_type(self) -> str:
        """The type in a Connect schema."""
        return CONNECT_TYPES.get(self.oid, "string")

    def value_of(self, text: str) -> Any:
        """A value from its text form."""
        kind = self.connect_type
        if kind == "boolean":
            return text == "t"
        if kind.startswith("int"):
            return int(text)
        return float(text) if kind in ("float", "double") else text


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as a relation message describes it."""

    schema: str
    name: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one row: op is c (insert), u (update) or d (delete), as in Debezium's envelope."""

    relation: Relation
    op: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Transaction:
    """The changes of a committed transaction.

    Attributes:
        end_lsn: position behind its commit record; grows from transaction to transaction.
        committed_ms: milliseconds since 1970.
    """

    xid: int
    end_lsn: int
    committed_ms: int
    changes: tuple[Change, ...]


class Reader:
    """Values one after the other out of the bytes of a message."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, kind: str) -> Any:
        """A value in network byte order, by its format letter of `struct`."""
        found = struct.unpack_from(f">{kind}", self._data, self._position)[0]
        self._position += struct.calcsize(f">{kind}")
        return found

    def raw(self, size: int) -> bytes:
        """So many bytes."""
        self._position += size
        return self._data[self._position - size : self._position]

    def string(self) -> str:
        """Text that ends with a zero byte."""
        end = self._data.index(0, self._position)
        text = self._data[self._position : end].decode()
        self._position = end + 1
        return text


class Decoder:
    """Puts transactions together from messages in their order; remembers the relations that it was told about."""

    def __init__(self) -> None:
        self._relations: dict[int, Relation] = {}

    def transactions(self, messages: Iterable[bytes]) -> Iterator[Transaction]:
        """Each transaction at its commit. Raises PgOutputError for a message that cannot be understood."""
        xid = 0
        changes: list[Change] = []
        for message in messages:
            reader = Reader(message)
            kind = reader.take("c")
            if kind == b"B":
                reader.raw(16)
                xid, changes = reader.take("I"), []
            elif kind == b"R":
                self._take_relation(reader)
            elif kind in b"IUD":
                changes.append(self._change(kind, reader))
            elif kind == b"C":
                reader.raw(9)
                end_lsn, micros = reader.take("Q"), reader.take("q")
                yield Transaction(xid, end_lsn, SECONDS_TO_2000 * 1000 + micros // 1000, tuple(changes))
            elif kind not in b"OYT":
                raise PgOutputError(f"message of kind {kind!r}")

    def _take_relation(self, reader: Reader) -> None:
        oid, schema, name = reader.take("I"), reader.string(), reader.string()
        reader.raw(1)
        columns = []
        for _ in range(reader.take("H")):
            is_key = bool(reader.take("B") & 1)
            column_name, type_oid, _modifier = reader.string(), reader.take("I"), reader.take("i")
            columns.append(Column(column_name, type_oid, is_key))
        self._relations[oid] = Relation(schema, name, tuple(columns))

    def _change(self, kind: bytes, reader: Reader) -> Change:
        oid = reader.take("I")
        if oid not in self._relations:
            raise PgOutputError(f"a change of relation {oid}, which was not described before")
        relation = self._relations[oid]
        part = reader.take("c")
        before = None
        if part in (b"K", b"O"):
            before = _row(relation, reader)
            part = reader.take("c") if kind == b"U" else b""
        after = _row(relation, reader) if part == b"N" else None
        return Change(relation, {b"I": "c", b"U": "u", b"D": "d"}[kind], before, after)


def _row(relation: Relation, reader: Reader) -> dict[str, Any]:
    """The values of a row; an unchanged value that was not sent (TOAST) is left out."""
    row: dict[str, Any] = {}
    count = reader.take("H")
    for column in relation.columns[:count]:
        kind = reader.take("c")
        if kind == b"n":
            row[column.name] = None
        elif kind == b"t":
            row[column.name] = column.value_of(reader.raw(reader.take("I")).decode())
        elif kind != b"u":
            raise PgOutputError(f"a value of kind {kind!r}")
    return row
