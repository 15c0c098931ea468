"""Failures that a person at a terminal can expect: one line of text and an exit code, never a traceback."""

from __future__ import annotations

import sys

EXIT_FAILED = 1
EXIT_USAGE = 2


class CliError(Exception):
    """An expected failure; the text says what was wrong and, where it can, what to do."""

    def __init__(self, text: str, exit_code: int = 1) -> None:
        super().__init__(text)
        self.text = text
        self.exit_code = exit_code


def complain(text: str) -> None:
    """Prints the text to standard error, as a line of this command."""
    print(f"pykbroker: {text}", file=sys.stderr, flush=True)
