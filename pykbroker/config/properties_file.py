"""Java's .properties format, in which server.properties is written."""

from __future__ import annotations

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


class PropertiesError(ValueError):
    """A line that Java would refuse; the text has its number and key. Its value may be a password."""


def parse_properties(text: str) -> dict[str, str]:
    r"""Keys and values of a properties text; the last of equal keys counts.

    Comment lines begin with # or !; a line that ends in an odd number of backslashes goes on in the next, whose
    leading blanks are dropped; a key ends at the first unescaped =, : or blank; \t \n \r \f \uXXXX are escapes and any
    other escaped character stands for itself. Blanks at the end of a value are kept (Kafka trims them per key).

    Raises:
        PropertiesError: a \u escape without four hexadecimal digits.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        try:
            properties[_unescape(key)] = _unescape(value)
        except ValueError:
            raise PropertiesError(f"line {number}: malformed \\uxxxx escape in the setting {key}") from None
    return properties


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """The lines with continuations joined, without comments and empty lines, each with its first line's number."""
    lines: list[tuple[int, str]] = []
    pending: str | None = None
    pending_number = 0
    for number, natural in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = natural.lstrip(_BLANKS)
        if pending is None:
            if not line or line[0] in "#!":
                continue
            pending, pending_number = "", number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
        else:
            lines.append((pending_number, pending + line))
            pending = None
    if pending:
        lines.append((pending_number, pending))
    return lines


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    key, rest = line[:position], line[position:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\" and position < len(text):
            escaped = text[position]
            position += 1
            if escaped == "u":
                digits = text[position : position + 4]
                if len(digits) < 4:
                    raise ValueError(digits)
                character = chr(int(digits, 16))
                position += 4
            else:
                character = _ESCAPES.get(escaped, escaped)
        parts.append(character)
    # Java's \u escapes are UTF-16 units: a character beyond U+FFFF is written as two of them.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
