"""Declared messages to bytes and back: one reader and one writer per class and version, compiled on first use.

A reader or writer is Python source made from the declaration (`codec_source`), so a request costs a few straight
lines and no interpretation of the declaration. Compilation is lazy because a client uses one version of each API:
a broker that has served one client has compiled some thirty functions of the several thousand possible.

Decoding is total: any bytes give a value or a `DecodeError`. The error's field and position come from the traceback, so
that compiled code need not record them: each generated line belongs to one field, and each frame's local `p` is the
byte position at which that field begins.
"""

from __future__ import annotations

import struct as struct_module
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pykbroker.protocol.codec_source import (
    NO_LIMIT,
    Malformed,
    Source,
    elements_left,
    is_long,
    reader_source,
    writer_source,
)
from pykbroker.protocol.errors import DecodeError, EncodeError, UnsupportedVersion
from pykbroker.protocol.steps import Steps

if TYPE_CHECKING:
    from types import CodeType, TracebackType

    from pykbroker.protocol.fields import Message

M = TypeVar("M", bound="Message")

Reader = Callable[[Any, int, int], tuple[Any, int]]
Writer = Callable[[Any, bytearray, list[tuple[int, Any]]], None]

_readers: dict[tuple[type[Message], int, bool], Reader] = {}
_writers: dict[tuple[type[Message], int, bool], Writer] = {}
# Readers and writers of whole messages, by class and version: a look-up for a request makes no tuple as its key.
_message_readers: dict[type[Message], dict[int, Reader]] = {}
_message_writers: dict[type[Message], dict[int, Writer]] = {}
# As `_readers` and `_writers`, in steps.
_long_readers: dict[tuple[type[Message], int, bool], Any] = {}
_long_writers: dict[tuple[type[Message], int, bool], Any] = {}
_sources: dict[CodeType, Source] = {}

_NOT_WRITABLE = (struct_module.error, AttributeError, TypeError, OverflowError, ValueError)
"""Exceptions of a writer for a value that does not fit its field."""


def decode(message_type: type[M], version: int, data: bytes | memoryview) -> M:
    """The message that `data` begins with; bytes behind it are ignored, as in Kafka.

    Fields of Kafka's type ``records`` are slices of `data`: a memoryview stays one, nothing is copied.

    Raises:
        UnsupportedVersion: the message has no such version.
        DecodeError: the bytes are not such a message.
    """
    return decode_from(message_type, version, data, 0)[0]


def decode_from(
    message_type: type[M], version: int, data: bytes | memoryview, position: int, elements_max: int = NO_LIMIT
) -> tuple[M, int]:
    """Like `decode`, from a byte position; also gives the position behind the message.

    A message with more elements in its arrays and tagged fields than `elements_max`, all of them together, is refused.
    """
    try:
        reader = _message_readers[message_type][version]
    except KeyError:
        reader = _reader_of_message(message_type, version)
    elements_left[0] = elements_max
    try:
        value, end = reader(data, position, len(data))
    except (struct_module.error, IndexError, Malformed) as error:
        raise _decode_error(message_type, version, len(data), error) from None
    return value, end


def decode_in_steps(
    message_type: type[M], version: int, data: bytes | memoryview, position: int, elements_max: int = NO_LIMIT
) -> Steps[M]:
    """As `decode_from`, in steps, for a message with thousands of structs; without the position behind it."""
    if not is_long(message_type, version):
        return decode_from(message_type, version, data, position, elements_max)[0]
    _check_version(message_type, version)
    reader = _compile_reader(message_type, version, version in message_type.FLEXIBLE_VERSIONS, in_steps=True)
    steps = reader(data, position, len(data))
    left = elements_max
    try:
        while True:
            elements_left[0] = left
            next(steps)
            left = elements_left[0]  # meanwhile other messages are decoded
            yield
    except StopIteration as stop:
        value: M = stop.value[0]
        return value
    except (struct_module.error, IndexError, Malformed) as error:
        raise _decode_error(message_type, version, len(data), error) from None


def encode_chunks(message: Message, version: int) -> list[Any]:
    """The message as a list of byte chunks, in order, with the values of ``records`` fields left as they are.

    Such a value needs only a length: bytes, a memoryview, or a file range that later goes out by sendfile.

    Raises:
        UnsupportedVersion: the message has no such version.
        EncodeError: a value does not fit its field, or the version has no place for a value that must not be lost.
    """
    message_type = type(message)
    try:
        writer = _message_writers[message_type][version]
    except KeyError:
        writer = _writer_of_message(message_type, version)
    out = bytearray()
    payloads: list[tuple[int, Any]] = []
    try:
        writer(message, out, payloads)
    except _NOT_WRITABLE as error:
        raise _encode_error(message_type, version, error) from error
    return [out] if not payloads else _chunks(out, payloads)


def chunks_in_steps(message: Message, version: int) -> Steps[list[Any]]:
    """As `encode_chunks`, in steps, for a message with thousands of structs. It must not change meanwhile."""
    message_type = type(message)
    if not is_long(message_type, version):
        return encode_chunks(message, version)
    _check_version(message_type, version)
    writer = _compile_writer(message_type, version, version in message_type.FLEXIBLE_VERSIONS, in_steps=True)
    out = bytearray()
    payloads: list[tuple[int, Any]] = []
    try:
        yield from writer(message, out, payloads)
    except _NOT_WRITABLE as error:
        raise _encode_error(message_type, version, error) from error
    return [out] if not payloads else _chunks(out, payloads)


def _chunks(out: bytearray, payloads: list[tuple[int, Any]]) -> list[Any]:
    chunks: list[Any] = []
    start = 0
    for end, payload in payloads:
        chunks.append(out[start:end])
        chunks.append(payload)
        start = end
    if start < len(out):
        chunks.append(out[start:])
    return chunks


def encode(message: Message, version: int) -> bytes:
    """The message's bytes. Raises as `encode_chunks` does."""
    return b"".join(encode_chunks(message, version))


def encode_behind(prefix: bytes, message: Message, version: int) -> bytes:
    """`prefix` and the message's bytes, for log records, which have no ``records`` field. Raises as `encode_chunks`."""
    message_type = type(message)
    try:
        writer = _message_writers[message_type][version]
    except KeyError:
        writer = _writer_of_message(message_type, version)
    out = bytearray(prefix)
    payloads: list[tuple[int, Any]] = []
    try:
        writer(message, out, payloads)
    except _NOT_WRITABLE as error:
        raise _encode_error(message_type, version, error) from error
    assert not payloads, "records of a log record would be lost"
    return bytes(out)


def encode_behind_in_steps(prefix: bytes, message: Message, version: int) -> Steps[bytes]:
    """As `encode_behind`, in steps, for a message with thousands of structs. It must not change meanwhile."""
    if not is_long(type(message), version):
        return encode_behind(prefix, message, version)
    chunks = yield from chunks_in_steps(message, version)
    assert len(chunks) == 1, "records of a log record would be lost"
    return prefix + bytes(chunks[0])


def encode_element(message_type: type[Message], element: Message, version: int) -> bytes:
    """The bytes of a struct as it stands inside a message of `message_type` at `version`.

    For arrays that take encoded elements (`Field.takes_encoded`): an element that is sent often is encoded only once,
    and a long array in pieces. The struct has no ``records`` field. Raises as `encode_chunks` does.
    """
    _check_version(message_type, version)
    struct_type = type(element)
    writer = _compile_writer(struct_type, version, version in message_type.FLEXIBLE_VERSIONS)
    out = bytearray()
    payloads: list[tuple[int, Any]] = []
    try:
        writer(element, out, payloads)
    except _NOT_WRITABLE as error:
        raise _encode_error(struct_type, version, error) from error
    assert not payloads, "records of an encoded element would be lost"
    return bytes(out)


def prepare_to_read(message_type: type[Message], version: int) -> None:
    """Compiles now what the first call of `decode` would compile. Raises UnsupportedVersion."""
    _reader_of_message(message_type, version)


def prepare_to_write(message_type: type[Message], version: int) -> None:
    """Compiles now the constructors, and what the first call of `encode` would compile. Raises UnsupportedVersion."""
    _writer_of_message(message_type, version)
    _make_each(message_type)


def _make_each(message_type: type[Message]) -> None:
    message_type()
    for field in message_type.FIELDS:
        element = field.element.element if field.kind == "array" else field.element
        if element is not None:
            _make_each(element)


def decode_versioned(message_type: type[M], data: bytes | memoryview) -> M:
    """Decodes a message behind its int16 version: a coordinator's record, or a consumer's subscription or assignment.

    Raises:
        UnsupportedVersion: a version that is not declared.
        DecodeError: the bytes are not such a message.
    """
    if len(data) < 2:
        raise DecodeError(message_type.__name__, -1, "version", 0, "the int16 version is missing")
    version = int.from_bytes(data[:2], "big", signed=True)
    return decode_from(message_type, version, data, 2)[0]


def encode_versioned(message: Message, version: int) -> bytes:
    """The message behind its int16 version. Raises as `encode_chunks` does."""
    return encode_behind(version.to_bytes(2, "big", signed=True), message, version)


def _reader_of_message(message_type: type[Message], version: int) -> Reader:
    _check_version(message_type, version)
    reader: Reader = _compile_reader(message_type, version, version in message_type.FLEXIBLE_VERSIONS)
    _message_readers.setdefault(message_type, {})[version] = reader
    return reader


def _writer_of_message(message_type: type[Message], version: int) -> Writer:
    _check_version(message_type, version)
    writer: Writer = _compile_writer(message_type, version, version in message_type.FLEXIBLE_VERSIONS)
    _message_writers.setdefault(message_type, {})[version] = writer
    return writer


def _check_version(message_type: type[Message], version: int) -> None:
    if version not in message_type.VERSIONS:
        raise UnsupportedVersion(f"{message_type.__name__} has versions {message_type.VERSIONS}, not {version}")


def _compile_reader(message_type: type[Message], version: int, is_flexible: bool, *, in_steps: bool = False) -> Any:
    readers = _long_readers if in_steps else _readers
    key = (message_type, version, is_flexible)
    reader = readers.get(key)
    if reader is None:
        source = reader_source(message_type, version, is_flexible, in_steps=in_steps)
        reader = readers[key] = _compile(source, "read", version, is_flexible, _compile_reader)
    return reader


def _compile_writer(message_type: type[Message], version: int, is_flexible: bool, *, in_steps: bool = False) -> Any:
    writers = _long_writers if in_steps else _writers
    key = (message_type, version, is_flexible)
    writer = writers.get(key)
    if writer is None:
        source = writer_source(message_type, version, is_flexible, in_steps=in_steps)
        writer = writers[key] = _compile(source, "write", version, is_flexible, _compile_writer)
    return writer


def _compile(source: Source, name: str, version: int, is_flexible: bool, nested: Callable[..., Any]) -> Any:
    names = dict(source.names)
    for local_name, struct_type in source.structs.items():
        in_steps = source.in_steps and is_long(struct_type, version)
        names[local_name] = nested(struct_type, version, is_flexible, in_steps=in_steps)
    exec(compile(source.text, f"<{source.title}>", "exec"), names)  # noqa: S102  made from declarations only
    function = names[name]
    source.forget_text()
    _sources[function.__code__] = source
    return function


def _trace(traceback: TracebackType | None) -> list[tuple[str, int, Source]]:
    """Field names, byte positions and sources of the generated frames on a traceback, outermost first."""
    steps = []
    while traceback is not None:
        frame = traceback.tb_frame
        source = _sources.get(frame.f_code)
        if source is not None:
            field = source.field_at(traceback.tb_lineno)
            items = frame.f_locals.get("v")
            name = f"{field}[{len(items)}]" if isinstance(items, list) and field in source.arrays else field
            steps.append((name, frame.f_locals.get("p", 0), source))
        traceback = traceback.tb_next
    return steps


def _encode_error(message_type: type[Message], version: int, error: Exception) -> EncodeError:
    path = ".".join(part for part, _, _ in _trace(error.__traceback__)) or "?"
    return EncodeError(f"{message_type.__name__} v{version}: field {path}: {error}")


def _decode_error(message_type: type[Message], version: int, size: int, error: Exception) -> DecodeError:
    steps = _trace(error.__traceback__)
    position = steps[-1][1] if steps else 0
    if isinstance(error, Malformed):
        reason = str(error)
    else:
        reason = f"the bytes end too early: {size} bytes in all"
        if steps:
            # A run of integers is unpacked at once; find the one that does not fit.
            name, position, source = steps[-1]
            for field, field_size in source.runs.get(name, ()):
                if position + field_size > size:
                    steps[-1] = (field, position, source)
                    break
                position += field_size
    return DecodeError(message_type.__name__, version, ".".join(step[0] for step in steps), position, reason)
