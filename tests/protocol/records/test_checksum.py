"""The checksum of record batches, where the package crc32c is installed in an unusual way."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.protocol.records import checksum


@pytest.mark.parametrize("is_found", [True, False])
def test_without_the_extension_beside_it_the_package_is_imported(
    monkeypatch: pytest.MonkeyPatch, is_found: bool
) -> None:
    """In a zip file, for example."""
    if not is_found:
        finder: Any = type("Finder", (), {"find_spec": staticmethod(lambda *_: None)})
        monkeypatch.setattr(checksum, "PathFinder", finder)
    assert checksum._load()(b"123456789") == 0xE3069283
