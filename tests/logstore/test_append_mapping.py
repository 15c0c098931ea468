"""Appends to a busy file: the file has exactly the data, for all sizes of appends, windows and populated parts."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykbroker.logstore import gathering_write
from pykbroker.logstore.append_mapping import (
    IS_AVAILABLE,
    POPULATED_SIZE,
    STEP_MAX,
    STEP_MIN,
    WRITTEN_SIZE,
    AppendMapping,
)

pytestmark = pytest.mark.skipif(not IS_AVAILABLE, reason="the system cannot allocate space ahead")


@pytest.mark.parametrize(
    "size", [WRITTEN_SIZE - 1, WRITTEN_SIZE, POPULATED_SIZE - 1, POPULATED_SIZE, 3 * POPULATED_SIZE + 5, STEP_MAX + 1]
)
@pytest.mark.parametrize("start", [0, 5000])
def test_appends_of_any_size(tmp_path: Path, size: int, start: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"s" * start)
    descriptor = os.open(path, os.O_RDWR)
    try:
        mapping = AppendMapping(descriptor, start)
        expected = bytearray(b"s" * start)
        for number in range(2 + 3 * STEP_MAX // size):
            part = bytes([number % 255 + 1]) * size
            mapping.append([part[:7], memoryview(part)[7:]], size)
            expected += part
            if number % 50 == 20:
                mapping.close()
                assert path.stat().st_size == len(expected)
        assert os.pread(descriptor, len(expected), 0) == expected
        mapping.close()
        assert path.read_bytes() == expected
    finally:
        os.close(descriptor)


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    """An empty file."""
    found = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    yield found
    os.close(found)


@pytest.mark.parametrize("seed", range(5))
def test_stored_and_written_appends_take_turns(descriptor: int, seed: int) -> None:
    chance = random.Random(seed)
    mapping = AppendMapping(descriptor, 0)
    expected = bytearray()
    while len(expected) < 4 * STEP_MAX:
        bound = chance.choice((100, WRITTEN_SIZE, 3 * WRITTEN_SIZE, STEP_MAX))
        part = chance.randbytes(chance.randint(1, bound))
        mapping.append([part], len(part))
        expected += part
        if chance.random() < 0.02:
            mapping.close()
            assert os.fstat(descriptor).st_size == len(expected)
    assert os.pread(descriptor, len(expected), 0) == expected
    assert not any(os.pread(descriptor, 2 * STEP_MAX, len(expected)))
    mapping.close()
    assert os.fstat(descriptor).st_size == len(expected)


def test_a_large_append_allocates_its_space_before_it_writes(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full refuses it whole, and one that is nearly full takes it without the step ahead."""
    free = 3 * WRITTEN_SIZE
    allocate = os.posix_fallocate

    def with_little_space(number: int, offset: int, length: int) -> None:
        if offset + length > free:
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(number, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", with_little_space)
    mapping = AppendMapping(descriptor, 0)
    part = b"x" * WRITTEN_SIZE
    for _ in range(3):
        mapping.append([part], len(part))
    with pytest.raises(OSError, match="No space left"):
        mapping.append([part], len(part))
    assert (mapping.size, os.fstat(descriptor).st_size) == (free, free)
    assert os.pread(descriptor, free, 0) == b"x" * free


def test_a_large_append_of_thousands_of_parts_that_is_written_in_pieces(
    descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system takes 1024 parts, and may write fewer bytes than it was given."""
    write = os.pwrite

    def write_some(number: int, data: memoryview, position: int) -> int:
        return write(number, data[:50_000], position)

    monkeypatch.setattr(gathering_write, "_write_parts", lambda number, parts, at: write_some(number, parts[0], at))
    monkeypatch.setattr(os, "pwrite", write_some)
    parts = [b"%05d" % number for number in range(40_000)]
    mapping = AppendMapping(descriptor, 0)
    mapping.append(parts, 200_000)
    assert os.pread(descriptor, 200_000, 0) == b"".join(parts)


def test_a_window_whose_space_ahead_does_not_fit_is_mapped_without_it(
    descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small appends fill a nearly full disk to its last byte, and are refused whole beyond that."""
    free = STEP_MIN + 3 * 4096 + 100
    allocate = os.posix_fallocate

    def with_little_space(number: int, offset: int, length: int) -> None:
        if offset + length > free:
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(number, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", with_little_space)
    mapping = AppendMapping(descriptor, 0)
    part = b"x" * 1000
    for _ in range(free // 1000):
        mapping.append([part], len(part))
    with pytest.raises(OSError, match="No space left"):
        mapping.append([part], len(part))
    assert mapping.size == free // 1000 * 1000
    mapping.close()
    assert os.pread(descriptor, free, 0) == b"x" * mapping.size
