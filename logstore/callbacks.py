"""Callbacks of a log, and implementations that do nothing."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str], None]
"""Callback that takes a line of text about a damaged file."""


def no_report(text: str) -> None:
    """Ignores the text. The caller of `open` can read `cut` instead."""


def no_listener() -> None:
    """Does nothing."""
