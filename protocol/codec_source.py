"""The Python source of a reader or writer for one struct at one version, made from its declaration.

A reader is ``read(b, p, end) -> (value, position)`` over a buffer `b`, a writer ``write(o, out, payloads)`` onto a
bytearray; ``payloads`` collects (position in out, value) of ``records`` fields, whose bytes are not copied. A reader or
writer in steps is a generator with the same arguments and result, for messages with thousands of structs.
"""

from __future__ import annotations

import codecs
import struct as struct_module
from typing import TYPE_CHECKING, Any

from pykbroker.protocol.fields import STRUCT_DEFAULT, WIRE_SIZES, default_struct

if TYPE_CHECKING:
    from pykbroker.protocol.fields import Field, Message

STRING_SIZE_MAX = 32767
"""Longest string in bytes: the legacy length is an int16, and Kafka refuses longer compact ones too."""


NO_LIMIT = 1 << 62

elements_left = [NO_LIMIT]
"""Number of further array elements and tagged fields that the message being decoded may have. A cell that generated
code counts down, so that readers need no further argument; `codec.decode_from` sets it. A hundred megabytes can hold
thirty million structs, which are gigabytes once they are objects."""


class Malformed(Exception):  # control flow inside the codec, never seen outside
    """Raised by generated code for invalid bytes; `codec` turns it into a DecodeError."""


JAVA_REPLACE = "java_replace"
"""Error handler of decoding UTF-8: U+FFFD for each malformed sequence, as Java sees them."""


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD for an encoded surrogate, of which Python makes one for each byte; else as Python's "replace"."""
    assert isinstance(error, UnicodeDecodeError)
    data, start = error.object, error.start
    if data[start] == 0xED and start + 1 < len(data) and 0xA0 <= data[start + 1] <= 0xBF:
        third = data[start + 2 : start + 3]
        return "\ufffd", start + (3 if third and 0x80 <= third[0] <= 0xBF else 2)
    return "\ufffd", error.end


codecs.register_error(JAVA_REPLACE, _replace_as_java)


def read_uvarint(b: Any, p: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte had its high bit set: value, position behind it."""
    # Two bytes or three, the sizes of nearly all batches, without the loop.
    value = first & 0x7F
    byte = b[p]
    if byte < 0x80:
        return value | byte << 7, p + 1
    value |= (byte & 0x7F) << 7
    byte = b[p + 1]
    if byte < 0x80:
        return value | byte << 14, p + 2
    value |= (byte & 0x7F) << 14
    p += 2
    for shift in (21, 28):
        byte = b[p]
        p += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            # As in Java, bits beyond an int's are lost.
            return value & 0xFFFFFFFF, p
    raise Malformed("a varint of more than 32 bits")


def write_uvarint(out: bytearray, value: int) -> None:
    """Appends an unsigned varint."""
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


STEP_ELEMENTS = 64
"""Number of structs of an array, a power of two, between two yields of a reader or writer in steps."""


def is_long(message_type: type[Message], version: int) -> bool:
    """True if a struct has an array of structs at this version, itself or in a struct of its own."""
    return any(
        (field.kind == "array" and field.element.kind == "struct")
        or (field.kind == "struct" and is_long(field.element, version))
        for field in message_type.FIELDS
        if version in field.versions
    )


class Source:
    """Generated text with what error reports need: the field of each line, array fields, runs of integers.

    With `in_steps` the function is a generator, and so are those of its structs for which `is_long` is true.
    """

    def __init__(self, title: str, *, in_steps: bool = False) -> None:
        self.title = title
        self.in_steps = in_steps
        self.lines: list[str] = []
        self.line_fields: list[str] = []
        self.field = ""
        self.arrays: set[str] = set()
        self.runs: dict[str, list[tuple[str, int]]] = {}
        self.names: dict[str, Any] = {
            "Malformed": Malformed,
            "elements_left": elements_left,
            "read_uvarint": read_uvarint,
            "write_uvarint": write_uvarint,
        }
        self.structs: dict[str, type[Message]] = {}

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def add(self, indent: int, line: str) -> None:
        self.lines.append(" " * indent + line)
        self.line_fields.append(self.field)

    def forget_text(self) -> None:
        """Keeps only what error reports need, once the text is compiled."""
        self.lines.clear()
        self.names.clear()
        self.structs.clear()

    def field_at(self, line_number: int) -> str:
        return self.line_fields[line_number - 1]

    def bind(self, prefix: str, value: Any) -> str:
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def call_struct(self, message_type: type[Message], version: int) -> str:
        """The beginning of a call of the function of a struct."""
        name = self.bind_struct(message_type)
        return f"yield from {name}" if self.in_steps and is_long(message_type, version) else name

    def bind_struct(self, message_type: type[Message]) -> str:
        for name, bound in self.structs.items():
            if bound is message_type:
                return name
        name = f"struct{len(self.structs)}"
        self.structs[name] = message_type
        return name


def _tagged_fields(message_type: type[Message], version: int) -> list[Field]:
    tagged = [f for f in message_type.FIELDS if version in f.versions and version in f.tagged]
    return sorted(tagged, key=lambda f: -1 if f.tag is None else f.tag)


def _plain_fields(message_type: type[Message], version: int) -> list[Field]:
    return [f for f in message_type.FIELDS if version in f.versions and version not in f.tagged]


def _runs(fields: list[Field]) -> list[list[Field]]:
    """Splits fields into runs of integers that one struct format covers, and single other fields."""
    runs: list[list[Field]] = []
    for field in fields:
        if field.kind in WIRE_SIZES and runs and runs[-1][0].kind in WIRE_SIZES:
            runs[-1].append(field)
        else:
            runs.append([field])
    return runs


def _format(run: list[Field]) -> struct_module.Struct:
    return struct_module.Struct(">" + "".join(WIRE_SIZES[f.kind][0] for f in run))


# ---------------------------------------------------------------------------------------------------- readers


def reader_source(message_type: type[Message], version: int, is_flexible: bool, *, in_steps: bool = False) -> Source:
    """Source of the reader of one struct at one version."""
    source = Source(f"{message_type.__name__} v{version} reader", in_steps=in_steps)
    source.names["new"] = message_type.__new__
    source.names["cls"] = message_type
    source.add(0, "def read(b, p, end):")
    source.add(1, "o = new(cls)")
    plain = _plain_fields(message_type, version)
    for field in message_type.FIELDS:
        if field not in plain:
            source.add(1, f"o.{field.name} = {_default_expression(source, field)}")
    for run in _runs(plain):
        source.field = run[0].name
        if run[0].kind in WIRE_SIZES:
            layout = _format(run)
            unpack = source.bind("unpack", layout.unpack_from)
            source.runs[run[0].name] = [(f.name, WIRE_SIZES[f.kind][1]) for f in run]
            targets = "".join(f"o.{f.name}, " for f in run)
            source.add(1, f"{targets}= {unpack}(b, p)")
            source.add(1, f"p += {layout.size}")
        else:
            _read_field(source, 1, run[0], version, is_flexible, f"o.{run[0].name}")
    if is_flexible:
        _read_tags(source, message_type, version)
    source.field = ""
    source.add(1, "return o, p")
    return source


def _default_expression(source: Source, field: Field) -> str:
    if field.kind == "array":
        return "None" if field.default is None else "[]"
    if field.default is STRUCT_DEFAULT:
        return source.bind("default", default_struct(field.element))
    return source.bind("default", field.default)


def _read_uvarint(source: Source, indent: int, target: str) -> None:
    source.add(indent, f"{target} = b[p]; p += 1")
    source.add(indent, f"if {target} > 127: {target}, p = read_uvarint(b, p, {target})")


def _read_length(source: Source, indent: int, field: Field, is_flexible: bool) -> None:
    """Reads a length into n; -1 stands for null."""
    if is_flexible:
        _read_uvarint(source, indent, "n")
        source.add(indent, "n -= 1")
    else:
        is_short = field.kind == "string"
        unpack = source.bind("unpack", struct_module.Struct(">h" if is_short else ">i").unpack_from)
        source.add(indent, f"n, = {unpack}(b, p); p += {2 if is_short else 4}")


def _read_field(source: Source, indent: int, field: Field, version: int, is_flexible: bool, target: str) -> None:
    """Reads one field that is not an integer in a run into `target`."""
    if field.kind in WIRE_SIZES:
        letter, size = WIRE_SIZES[field.kind]
        unpack = source.bind("unpack", struct_module.Struct(">" + letter).unpack_from)
        source.add(indent, f"{target}, = {unpack}(b, p); p += {size}")
    elif field.kind == "uuid":
        source.add(indent, "if p + 16 > end: raise IndexError")
        source.add(indent, f"{target} = bytes(b[p:p + 16]); p += 16")
    elif field.kind == "struct":
        _read_struct(source, indent, field, version, target)
    else:
        _read_sized(source, indent, field, version, is_flexible, target)


def _read_struct(source: Source, indent: int, field: Field, version: int, target: str) -> None:
    reader = source.call_struct(field.element, version)
    if version not in field.nullable:
        source.add(indent, f"{target}, p = {reader}(b, p, end)")
        return
    source.add(indent, "n = b[p]; p += 1")
    # Null is -1 as a byte, but in a tagged field 0 as a varint.
    source.add(indent, f"if n {'== 0' if version in field.tagged else '> 127'}: {target} = None")
    source.add(indent, f"else: {target}, p = {reader}(b, p, end)")


def _read_sized(source: Source, indent: int, field: Field, version: int, is_flexible: bool, target: str) -> None:
    _read_length(source, indent, field, is_flexible)
    source.add(indent, "if n < 0:")
    if version in field.nullable:
        source.add(indent + 1, f"{target} = None")
    else:
        source.add(indent + 1, "raise Malformed('null, but the field is not nullable')")
    source.add(indent, "else:")
    indent += 1
    if field.kind == "array":
        _read_elements(source, indent, field, version, is_flexible, target)
        return
    if field.kind == "string":
        source.add(indent, f"if n > {STRING_SIZE_MAX}: raise Malformed(f'a string of {{n}} bytes')")
    source.add(indent, "e = p + n")
    source.add(indent, "if e > end: raise IndexError")
    # As in Java, bytes that are no UTF-8 read as U+FFFD.
    value = {"string": f"str(b[p:e], 'utf-8', {JAVA_REPLACE!r})", "bytes": "bytes(b[p:e])", "records": "b[p:e]"}[
        field.kind
    ]
    source.add(indent, f"{target} = {value}; p = e")


def _read_elements(source: Source, indent: int, field: Field, version: int, is_flexible: bool, target: str) -> None:
    element: Field = field.element
    source.arrays.add(field.name)
    _count_elements(source, indent, "n")
    if element.kind in WIRE_SIZES:
        letter, size = WIRE_SIZES[element.kind]
        source.names["unpack_from"] = struct_module.unpack_from
        source.add(indent, f"if n * {size} > end - p: raise IndexError")
        source.add(indent, f"{target} = list(unpack_from('>%d{letter}' % n, b, p)); p += n * {size}")
        return
    # Every element has at least one byte: a count beyond the bytes that are left would only cost memory.
    source.add(indent, "if n > end - p: raise Malformed(f'an array of {n} elements in {end - p} bytes')")
    source.add(indent, "v = []; append = v.append")
    source.add(indent, "for _ in range(n):")
    _read_field(source, indent + 1, element, version, is_flexible, "x")
    source.add(indent + 1, "append(x)")
    if source.in_steps and element.kind == "struct":
        source.add(indent + 1, f"if not len(v) & {STEP_ELEMENTS - 1}: yield")
    source.add(indent, f"{target} = v; v = None")


def _count_elements(source: Source, indent: int, count: str) -> None:
    source.add(indent, f"elements_left[0] -= {count}")
    source.add(indent, "if elements_left[0] < 0: raise Malformed('the message has too many elements')")


def _read_tags(source: Source, message_type: type[Message], version: int) -> None:
    """Reads tagged fields as Kafka's generated readers do.

    Tags may come in any order and more than once; the last one counts. The size of a known field is not looked at. A
    field that the struct has at other versions only is refused; a count beyond an int32 is negative in Java, so none.
    """
    source.field = "tagged fields"
    _read_uvarint(source, 1, "tags")
    # Nearly always there are none.
    source.add(1, "if not tags or tags > 0x7FFFFFFF: return o, p")
    _count_elements(source, 1, "tags")
    source.add(1, "for _ in range(tags):")
    _read_uvarint(source, 2, "tag")
    _read_uvarint(source, 2, "size")
    known = _tagged_fields(message_type, version)
    for field in message_type.FIELDS:
        if field.tag is None:
            continue
        source.field = field.name
        source.add(2, f"if tag == {field.tag}:")
        if field in known:
            _read_field(source, 3, field, version, True, f"o.{field.name}")
            source.add(3, "continue")
        else:
            source.add(3, f"raise Malformed('tag {field.tag} is not valid at version {version}')")
    source.field = "tagged fields"
    # Unknown tags are skipped by their size (P-6).
    source.add(2, "if size > end - p: raise IndexError")
    source.add(2, "p += size")


# ---------------------------------------------------------------------------------------------------- writers


def writer_source(message_type: type[Message], version: int, is_flexible: bool, *, in_steps: bool = False) -> Source:
    """Source of the writer of one struct at one version."""
    source = Source(f"{message_type.__name__} v{version} writer", in_steps=in_steps)
    source.add(0, "def write(o, out, payloads):")
    for field in message_type.FIELDS:
        if version not in field.versions and not field.ignorable:
            source.field = field.name
            text = f"version {version} cannot carry it"
            source.add(1, f"if {_is_set(source, field)}: raise ValueError({text!r})")
    for run in _runs(_plain_fields(message_type, version)):
        source.field = run[0].name
        if run[0].kind in WIRE_SIZES:
            pack = source.bind("pack", _format(run).pack)
            source.add(1, f"out += {pack}({', '.join(f'o.{f.name}' for f in run)})")
        else:
            source.add(1, f"x = o.{run[0].name}")
            _write_value(source, 1, run[0], version, is_flexible, "x")
    if is_flexible:
        _write_tags(source, message_type, version)
    source.field = ""
    source.add(1, "return")
    return source


def _is_set(source: Source, field: Field) -> str:
    """An expression that is true if the field differs from its default."""
    value = f"o.{field.name}"
    if field.kind == "array":
        return f"{value} is not None" if field.default is None else f"{value} is None or len({value})"
    if field.default is None:
        return f"{value} is not None"
    default = _default_expression(source, field)
    if field.kind == "struct":
        return f"{value} is not {default} and {value} != {default}"
    return f"{value} != {default}"


def _write_length(source: Source, indent: int, kind: str, is_flexible: bool) -> None:
    """Writes the length `n` of a value of this kind."""
    if is_flexible:
        source.add(indent, "if n < 127: out.append(n + 1)")
        source.add(indent, "else: write_uvarint(out, n + 1)")
    else:
        pack = source.bind("pack", struct_module.Struct(">h" if kind == "string" else ">i").pack)
        source.add(indent, f"out += {pack}(n)")


def _write_value(source: Source, indent: int, field: Field, version: int, is_flexible: bool, value: str) -> None:
    """Writes the expression `value` (a local name) as one field."""
    if field.kind in WIRE_SIZES:
        pack = source.bind("pack", struct_module.Struct(">" + WIRE_SIZES[field.kind][0]).pack)
        source.add(indent, f"out += {pack}({value})")
        return
    if field.kind == "uuid":
        source.add(indent, f"if len({value}) != 16: raise ValueError('a uuid has 16 bytes')")
        source.add(indent, f"out += {value}")
        return
    if field.kind == "struct" and version not in field.nullable:
        source.add(indent, f"{source.call_struct(field.element, version)}({value}, out, payloads)")
        return
    source.add(indent, f"if {value} is None:")
    if version not in field.nullable:
        source.add(indent + 1, "raise ValueError('null, but the field is not nullable')")
    elif field.kind == "struct":
        source.add(indent + 1, f"out.append({0 if version in field.tagged else 255})")
    elif is_flexible:
        source.add(indent + 1, "out.append(0)")
    else:
        source.add(indent + 1, f"out += {'NULL_SHORT' if field.kind == 'string' else 'NULL_INT'}")
        source.names["NULL_SHORT"] = b"\xff\xff"
        source.names["NULL_INT"] = b"\xff\xff\xff\xff"
    source.add(indent, "else:")
    indent += 1
    if field.kind == "struct":
        source.add(indent, "out.append(1)")
        source.add(indent, f"{source.call_struct(field.element, version)}({value}, out, payloads)")
    elif field.kind == "string":
        source.add(indent, f"s = {value}.encode(); n = len(s)")
        source.add(indent, f"if n > {STRING_SIZE_MAX}: raise ValueError(f'a string of {{n}} bytes')")
        _write_length(source, indent, "string", is_flexible)
        source.add(indent, "out += s")
    elif field.kind == "array":
        _write_elements(source, indent, field, version, is_flexible, value)
    else:
        source.add(indent, f"n = len({value})")
        _write_length(source, indent, field.kind, is_flexible)
        if field.kind == "bytes":
            source.add(indent, f"out += {value}")
        else:
            source.add(indent, f"if n: payloads.append((len(out), {value}))")


def _write_elements(source: Source, indent: int, field: Field, version: int, is_flexible: bool, value: str) -> None:
    element: Field = field.element
    source.add(indent, f"n = len({value})")
    _write_length(source, indent, "array", is_flexible)
    if element.kind in WIRE_SIZES:
        source.names["pack_many"] = struct_module.pack
        source.add(indent, f"out += pack_many('>%d{WIRE_SIZES[element.kind][0]}' % n, *{value})")
        return
    if source.in_steps and element.kind == "struct":
        source.names["enumerate"] = enumerate
        source.add(indent, f"for i, y in enumerate({value}):")
        source.add(indent + 1, f"if not i & {STEP_ELEMENTS - 1}: yield")
    else:
        source.add(indent, f"for y in {value}:")
    if field.takes_encoded:
        source.add(indent + 1, "if y.__class__ is bytes: out += y; continue")
    _write_value(source, indent + 1, element, version, is_flexible, "y")


def _write_tags(source: Source, message_type: type[Message], version: int) -> None:
    tagged = _tagged_fields(message_type, version)
    if not tagged:
        source.add(1, "out.append(0)")
        return
    source.add(1, "main = out; tags = []")
    for field in tagged:
        source.field = field.name
        source.add(1, f"if {_is_set(source, field)}:")
        source.add(2, f"x = o.{field.name}; out = bytearray()")
        _write_value(source, 2, field, version, True, "x")
        source.add(2, f"tags.append(({field.tag}, out))")
    source.field = "tagged fields"
    source.add(1, "if not tags: main.append(0); return")
    source.add(1, "write_uvarint(main, len(tags))")
    source.add(1, "for tag, content in tags:")
    source.add(2, "write_uvarint(main, tag); write_uvarint(main, len(content)); main += content")
