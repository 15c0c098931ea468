"""The order of the suite's files in a run."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from interop_tests.conftest import LONGEST_FIRST, place_of

SUITE = Path(__file__).resolve().parents[2] / "interop_tests"


def test_the_longest_files_come_first() -> None:
    """Each is there under its name; others keep their order behind them."""
    files = sorted(path.name for path in SUITE.glob("test_*.py"))
    assert set(LONGEST_FIRST) <= set(files)
    ordered = sorted(files, key=place_of)
    assert tuple(ordered[: len(LONGEST_FIRST)]) == LONGEST_FIRST
    assert ordered[len(LONGEST_FIRST) :] == [name for name in files if name not in LONGEST_FIRST]
