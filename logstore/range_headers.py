"""Headers of the record batches in a file range, read without the records between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pykbroker.protocol.records.layout import HEADER_SIZE, LEGACY_LENGTH_MIN, BatchHeader, read_header

if TYPE_CHECKING:
    from pykbroker.logstore.file_range import FileRange

_LARGE_SIZE = 4096
"""Batches larger than this are skipped by one small read each."""
_CHUNK_SIZE = 16_384


def headers_in(records: FileRange) -> Iterator[tuple[int, BatchHeader]]:
    """(start within the range, header) of every whole batch; of old formats only offset, length and magic are valid."""
    size = len(records)
    start = begin = end = 0
    chunk = b""
    want = HEADER_SIZE
    while start < size:
        if start + HEADER_SIZE > end:
            chunk = records.peek(start, want)
            begin, end = start, start + len(chunk)
            if len(chunk) < HEADER_SIZE:
                chunk = chunk.ljust(HEADER_SIZE, b"\0")
        header = read_header(chunk, start - begin)
        if header.length < LEGACY_LENGTH_MIN or start + header.size_bytes > size:
            return
        yield start, header
        want = HEADER_SIZE if header.length > _LARGE_SIZE else _CHUNK_SIZE
        start += header.size_bytes
