"""Who is told what a log finds out, and who stands in for them where nobody asks."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str], None]
"""Takes a line about what was found damaged."""


def no_report(text: str) -> None:
    """Who opens a log and does not ask for reports looks at `cut`."""


def nobody_listens() -> None:
    """Nobody is interested."""
