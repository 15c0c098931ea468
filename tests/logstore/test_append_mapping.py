"""Appends through a mapping: the data are the file's, whatever the sizes of appends, windows and populated parts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pykbroker.logstore.append_mapping import IS_AVAILABLE, POPULATED_SIZE, STEP_MAX, AppendMapping

pytestmark = pytest.mark.skipif(not IS_AVAILABLE, reason="the system cannot allocate space ahead")


@pytest.mark.parametrize("size", [16 << 10, POPULATED_SIZE - 1, POPULATED_SIZE, 3 * POPULATED_SIZE + 5, STEP_MAX + 1])
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
