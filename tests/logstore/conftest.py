"""Fixtures of the log store's tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pykbroker.logstore.filesystem import OsFileSystem
from tests.logstore.support import Place
from tests.support.fake_filesystem import FakeFileSystem


@pytest.fixture(params=["real", "fake"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A folder for logs, once on disk and once in memory."""
    filesystem: Any = OsFileSystem() if request.param == "real" else FakeFileSystem()
    return Place(filesystem, str(tmp_path))


@pytest.fixture
def disk(tmp_path: Path) -> Place:
    """A folder for logs on disk."""
    return Place(OsFileSystem(), str(tmp_path))


@pytest.fixture
def memory() -> Place:
    """A folder for logs in memory, whose `filesystem` is a FakeFileSystem."""
    return Place(FakeFileSystem(), "/logs")
