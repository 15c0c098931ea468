"""Callbacks of a log, and those that do nothing."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str], None]
"""Takes a line about what was found damaged."""


def no_report(text: str) -> None:
    """Ignore the report: the opener looks at `cut`."""


def nobody_listens() -> None:
    """Do nothing."""
