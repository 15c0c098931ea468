"""Checkpoint files: small text files with offsets, replaced atomically (docs/storage-format.md).

Format: a line with the version 0, a line with the number of entries, one line per entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import starmap

from pykbroker.logstore.errors import CorruptFile
from pykbroker.logstore.filesystem import FileSystem

_VERSION = "0"


def read_lines(filesystem: FileSystem, path: str) -> list[str]:
    """Lines of the entries; none when the file is missing or empty (Kafka creates empty files).

    Raises CorruptFile for an unknown version, a wrong number of lines, or a last line without a line end.
    """
    content = filesystem.read_file(path)
    if not content:
        return []
    lines = content.decode("utf-8", "replace").splitlines()
    if lines[0].strip() != _VERSION:
        raise CorruptFile(path, f"version {lines[0]!r} where {_VERSION!r} was expected")
    entries = lines[2:]
    if not content.endswith(b"\n"):
        raise CorruptFile(path, "the last line is cut off")
    if len(lines) < 2 or not lines[1].strip().isdecimal() or int(lines[1]) != len(entries):
        raise CorruptFile(path, f"the second line does not say how many lines follow ({len(entries)})")
    return entries


def encode_lines(entries: Iterable[str]) -> bytes:
    """Content of a file with these entries."""
    lines = list(entries)
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def read_offsets(filesystem: FileSystem, path: str) -> dict[tuple[str, int], int]:
    """(topic, partition) -> offset of a checkpoint file of a data directory."""
    offsets: dict[tuple[str, int], int] = {}
    for line in read_lines(filesystem, path):
        fields = line.split()
        try:
            topic, partition, offset = fields
            offsets[topic, int(partition)] = int(offset)
        except ValueError as error:
            raise CorruptFile(path, f"line {line!r} is not 'topic partition offset'") from error
    return offsets


def write_offsets(filesystem: FileSystem, path: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Replaces a checkpoint file of a data directory, durably."""
    filesystem.write_file(path, encode_lines(starmap(offset_line, offsets.items())))


def offset_line(topic_partition: tuple[str, int], offset: int) -> str:
    """Entry of a partition in a checkpoint file of a data directory."""
    return f"{topic_partition[0]} {topic_partition[1]} {offset}"
