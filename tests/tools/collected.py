"""A pytest plugin that prints each collected test as a line of JSON: its id, its kinds of fault, if it is sampled."""

from __future__ import annotations

import json

import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    """After deselection, so that `-m` counts."""
    for item in session.items:
        fault = item.get_closest_marker("fault")
        kind = fault.args[0] if fault is not None else None
        print("collected", json.dumps([item.nodeid, kind, item.get_closest_marker("sample") is not None]))
