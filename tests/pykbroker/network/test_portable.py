"""The whole way of a record through a broker on a system that has less than Linux."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from pykbroker.network import reply
from pykbroker.protocol.records.batch import iter_batches
from tests.support.data_path import batch
from tests.support.portable import without_calls_of_linux
from tests.support.whole_broker import WholeBroker

SIZE = 700_000


def round_trip(folder: Path) -> None:
    """Small and large batches in, out, and out again after a restart."""
    folder.mkdir(exist_ok=True)
    expected: list[int] = []
    with WholeBroker(folder) as broker:
        assert broker.create_topic("t", segment_bytes="1048576") == 0
        for size in (10, SIZE, 10, SIZE, SIZE):
            assert broker.produce("t", batch(1, size=size)) == 0
            expected.append(size)
        assert sizes(broker) == expected
    with WholeBroker(folder) as broker:
        assert sizes(broker) == expected
        assert broker.produce("t", batch(1, size=5)) == 0
        assert sizes(broker) == [*expected, 5]


def sizes(broker: WholeBroker) -> list[int]:
    found: list[int] = []
    while True:
        records = broker.fetch("t", 0, len(found)).records
        if not records:
            return found
        for one in iter_batches(bytes(records)):
            assert one.verify_crc()
            found += [len(record.value or b"") for record in one.records()]


def test_without_the_calls_of_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS: no posix_fallocate, another sendfile, no fdatasync; pwritev since version 11."""
    without_calls_of_linux(monkeypatch)
    round_trip(tmp_path / "data")


@pytest.mark.skipif(not reply.HAS_SENDFILE, reason="this system has no sendfile of Linux's kind")
@pytest.mark.parametrize("code", [errno.EINVAL, errno.EOPNOTSUPP])
def test_a_file_system_that_sendfile_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Some network and user-space file systems."""
    calls: list[int] = []

    def refuse(target: int, source: int, offset: int, count: int) -> int:
        calls.append(count)
        raise OSError(code, "not supported")

    monkeypatch.setattr(os, "sendfile", refuse)
    round_trip(tmp_path / "data")
    assert calls


def test_a_limit_of_descriptors_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS names no hard limit and refuses to take none as the soft one."""
    asked: list[int] = []

    def set_limit(which: int, limits: tuple[int, int]) -> None:
        asked.append(limits[0])
        if limits[0] == resource.RLIM_INFINITY or limits[0] > 10_240:
            raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    round_trip(tmp_path / "data")
    assert asked[-1] == 10_240
