"""Fixtures of the log store's tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pykbroker.logstore.filesystem import OsFileSystem
from tests.logstore.support import Place
from tests.support.fake_filesystem import FakeFileSystem
from tests.support.portable import without_calls_of_linux


@pytest.fixture(params=["real", "portable", "fake"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A directory for logs: on disk, on disk without the calls that only some systems have, and in memory."""
    if request.param == "portable":
        without_calls_of_linux(monkeypatch)
    filesystem: Any = FakeFileSystem() if request.param == "fake" else OsFileSystem()
    return Place(filesystem, str(tmp_path))


@pytest.fixture
def disk(tmp_path: Path) -> Place:
    """A directory for logs on disk."""
    return Place(OsFileSystem(), str(tmp_path))


@pytest.fixture
def memory() -> Place:
    """A directory for logs in memory, whose `filesystem` is a FakeFileSystem."""
    return Place(FakeFileSystem(), "/logs")
