"""Declarations of messages: a class per message or struct, whose fields have a type and a range of versions.

    class OffsetFetchRequestTopic(Message):
        name: str = string("0-7")
        partition_indexes: list[int] = array(int32, "0-7", nullable="2-7")

A field's first argument is the range of versions that carry it: ``"3+"``, ``"0-7"``, ``"4"`` or ``"none"``. The
declarations are the only description of the wire: `codec` compiles readers and writers from them, and the parity
test compares them with the JSON definitions of Apache Kafka's jars.

A message is data: keyword arguments, equality, a readable repr, no methods. A field that is not given has its
default; a list is a fresh one, a struct is its class's *shared* default value, so assign a new struct instead of
changing one that you did not make.

The classes are made by a metaclass and not by `dataclasses`, which compiles four methods per class when the module is
imported: 0.5 ms a class, a hundred classes, in a process that has to answer 250 ms after it started. Here
`__init__` is compiled when the first value is made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform

VERSION_MAX = 32767


class VersionRange:
    """The versions from `lowest` to `highest`, both included; empty when highest is below lowest."""

    __slots__ = ("highest", "lowest")

    def __init__(self, lowest: int, highest: int) -> None:
        self.lowest = lowest
        self.highest = highest

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, VersionRange):
            return NotImplemented
        return (self.lowest, self.highest) == (other.lowest, other.highest)

    def __hash__(self) -> int:
        return hash((self.lowest, self.highest))

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.lowest, self.highest + 1))

    def __repr__(self) -> str:
        if self.highest < self.lowest:
            return "none"
        if self.highest == VERSION_MAX:
            return f"{self.lowest}+"
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}-{self.highest}"


NO_VERSIONS = VersionRange(0, -1)


@lru_cache(maxsize=256)
def version_range(text: str) -> VersionRange:
    """Parses ``"3+"``, ``"0-7"``, ``"4"`` or ``"none"``."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), VERSION_MAX)
    lowest, dash, highest = text.partition("-")
    return VersionRange(int(lowest), int(highest if dash else lowest))


class Field:
    """One declared field: its wire type, the versions that carry it, its default.

    Attributes:
        kind: a key of `WIRE_SIZES`, or string, bytes, records, struct, array.
        element: for an array the `Field` of one element, for a struct its class, else None.
        versions: versions that carry the field.
        nullable: versions in which it may be None.
        tag, tagged: the tag number, and the versions in which it travels as a tagged field (KIP-482).
        default: value of a field that is absent; for arrays None or empty, for structs None or
            `STRUCT_DEFAULT`.
        ignorable: True if a value is dropped silently, and not refused, by versions without the field.
        takes_encoded: True if elements of an array of structs may be given as their bytes (`codec.encode_element`).
    """

    __slots__ = (
        "default",
        "element",
        "ignorable",
        "kind",
        "name",
        "nullable",
        "tag",
        "tagged",
        "takes_encoded",
        "versions",
    )

    def __init__(
        self,
        kind: str,
        versions: str,
        *,
        default: Any = None,
        nullable: str = "none",
        tag: int | None = None,
        tagged: str = "none",
        ignorable: bool = False,
        element: Any = None,
        takes_encoded: bool = False,
    ) -> None:
        self.kind = kind
        self.name = ""
        self.versions = version_range(versions)
        self.nullable = version_range(nullable)
        self.tag = tag
        self.tagged = version_range(tagged)
        self.default = default
        self.ignorable = ignorable
        self.element = element
        self.takes_encoded = takes_encoded


WIRE_SIZES = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
}
"""Kinds of fixed size: their `struct` letter and their bytes. (A uuid has a fixed size too, but is sliced.)"""


def _scalar(kind: str, zero: Any) -> Callable[..., Any]:
    def declare(versions: str = "0+", *, default: Any = zero, **options: Any) -> Any:
        return Field(kind, versions, default=default, **options)

    declare.__name__ = kind
    declare.__doc__ = f"Declares a field of Kafka's type {kind}."
    return declare


boolean = _scalar("bool", False)
int8 = _scalar("int8", 0)
int16 = _scalar("int16", 0)
uint16 = _scalar("uint16", 0)
int32 = _scalar("int32", 0)
uint32 = _scalar("uint32", 0)
int64 = _scalar("int64", 0)
float64 = _scalar("float64", 0.0)
uuid = _scalar("uuid", bytes(16))
string = _scalar("string", "")
byte_string = _scalar("bytes", b"")
records = _scalar("records", None)

STRUCT_DEFAULT: Any = type("StructDefault", (), {"__slots__": (), "__repr__": lambda self: "STRUCT_DEFAULT"})()


def struct(message_type: type[Message], versions: str = "0+", *, default: Any = STRUCT_DEFAULT, **options: Any) -> Any:
    """Declares a field that holds one struct."""
    return Field("struct", versions, default=default, element=message_type, **options)


def array(element: Any, versions: str = "0+", *, default: Any = (), **options: Any) -> Any:
    """Declares a list of structs (give the class) or of scalars (give `int32`, `string`, ...)."""
    inner = Field("struct", "0+", element=element) if isinstance(element, type) else element()
    return Field("array", versions, default=default, element=inner, **options)


@dataclass_transform(kw_only_default=True, eq_default=True)
class _MessageType(type):
    """Collects the fields of a class body into `FIELDS` and `__slots__`."""

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        body: dict[str, Any],
        *,
        versions: str = "none",
        flexible: str = "none",
        key: int = -1,
    ) -> _MessageType:
        fields = {attribute: value for attribute, value in body.items() if isinstance(value, Field)}
        for attribute, declared in fields.items():
            declared.name = attribute
            del body[attribute]
        body["__slots__"] = tuple(fields)
        body["FIELDS"] = tuple(fields.values())
        body["VERSIONS"] = version_range(versions)
        body["FLEXIBLE_VERSIONS"] = version_range(flexible)
        body["KEY"] = key
        return super().__new__(cls, name, bases, body)


class Message(metaclass=_MessageType):
    """Base of every declared message and struct. Keyword arguments of the constructor are the fields.

    Attributes:
        FIELDS: the declared fields in wire order.
        VERSIONS: versions the message has (empty for a struct inside a message).
        FLEXIBLE_VERSIONS: versions with compact lengths and tagged fields (KIP-482).
        KEY: the API key of a request or response, the type number of a log record, else -1.
    """

    FIELDS: ClassVar[tuple[Field, ...]]
    VERSIONS: ClassVar[VersionRange]
    FLEXIBLE_VERSIONS: ClassVar[VersionRange]
    KEY: ClassVar[int]
    __slots__ = ()

    if not TYPE_CHECKING:

        def __init__(self, **values):
            cls = type(self)
            if cls is Message:
                raise TypeError("Message is the base of messages and has no values of its own")
            cls.__init__ = _compile_init(cls)
            cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in self.FIELDS)})"


_default_structs: dict[type[Message], Message] = {}


def default_struct(message_type: type[Message]) -> Message:
    """The shared value of a struct whose fields all have their defaults; not to be changed."""
    value = _default_structs.get(message_type)
    if value is None:
        value = _default_structs[message_type] = message_type()
    return value


def response_class(request_class: type[Message]) -> type[Any]:
    """Class of the responses to a class of requests; one module declares both."""
    name = request_class.__name__.removesuffix("Request") + "Response"
    found: type[Any] = getattr(sys.modules[request_class.__module__], name)
    return found


def _compile_init(cls: type[Message]) -> Any:
    """The keyword-only constructor of a class, compiled from its fields."""
    names: dict[str, Any] = {}
    parameters: list[str] = []
    body: list[str] = []
    for number, field in enumerate(cls.FIELDS):
        if field.default is STRUCT_DEFAULT:
            names[f"d{number}"] = default_struct(field.element)
        else:
            names[f"d{number}"] = field.default
        parameters.append(f"{field.name}=d{number}")
        if field.kind == "array" and field.default is not None:
            body.append(f" self.{field.name} = [] if {field.name} is d{number} else {field.name}")
        else:
            body.append(f" self.{field.name} = {field.name}")
    star = "*, " if parameters else ""
    source = f"def __init__(self, {star}{', '.join(parameters)}):\n" + ("\n".join(body) or " pass")
    exec(source, names)  # noqa: S102  the source is made of declared field names only
    return names["__init__"]
