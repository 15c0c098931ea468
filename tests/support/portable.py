"""This machine as one that lacks what only Linux, or only some systems, have: the broker's fallbacks are used."""

from __future__ import annotations

import os

import pytest

from pykbroker.logstore import append_mapping, gathering_write
from pykbroker.logstore import filesystem as filesystem_module
from pykbroker.network import reply


def without_calls_of_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """No space can be allocated ahead, no sendfile, no gathering write at a position, no fdatasync, no MSG_MORE."""
    for name in ("posix_fallocate", "sendfile", "pwritev", "fdatasync"):
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setattr(append_mapping, "IS_AVAILABLE", hasattr(os, "posix_fallocate"))
    monkeypatch.setattr(reply, "HAS_SENDFILE", hasattr(os, "sendfile"))
    monkeypatch.setattr(reply, "_MORE", 0)
    monkeypatch.setattr(gathering_write, "_write_parts", gathering_write._write_joined)
    monkeypatch.setattr(filesystem_module, "_sync_data", filesystem_module._choose_sync())
