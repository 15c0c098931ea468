"""A reader of DER, for the names in certificates and the encrypted keys of Java's key stores.

It is total: any bytes give elements or a `DerError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

OBJECT_IDENTIFIER = 0x06
OCTET_STRING = 0x04
SEQUENCE = 0x30
CONTEXT_0, CONTEXT_3 = 0xA0, 0xA3

LENGTH_BYTES_MAX = 4


class DerError(ValueError):
    """The bytes are not DER, or not of the expected structure."""


class Element(NamedTuple):
    """One element: its tag, its content, and all of its bytes."""

    tag: int
    content: bytes
    encoded: bytes

    def children(self) -> list[Element]:
        """Elements of a constructed one."""
        return list(elements(self.content))


def elements(data: bytes) -> Iterator[Element]:
    """Elements that stand one after the other in `data`.

    Raises:
        DerError: a tag of several bytes, an indefinite length, or fewer bytes than announced.
    """
    position = 0
    while position < len(data):
        element = _element(data, position)
        yield element
        position += len(element.encoded)


def parse(data: bytes) -> Element:
    """The first element of `data`.

    Raises:
        DerError: there is none.
    """
    return _element(data, 0)


def _element(data: bytes, start: int) -> Element:
    if start + 2 > len(data):
        raise DerError("ends within an element")
    tag, length = data[start], data[start + 1]
    position = start + 2
    if tag & 0x1F == 0x1F:
        raise DerError("has a tag of several bytes")
    if length & 0x80:
        count = length & 0x7F
        if not 0 < count <= LENGTH_BYTES_MAX or position + count > len(data):
            raise DerError("has a length that is not DER's")
        length = int.from_bytes(data[position : position + count], "big")
        position += count
    end = position + length
    if end > len(data):
        raise DerError("ends within an element")
    return Element(tag, data[position:end], data[start:end])


def dotted(content: bytes) -> str:
    """An object identifier's content as numbers with dots.

    Raises:
        DerError: it is empty or ends within a number.
    """
    if not content or content[-1] & 0x80:
        raise DerError("has a malformed object identifier")
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
