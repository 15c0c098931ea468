"""Output of a run: a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

PLAIN_INTERVAL_S = 4.0


class Screen:
    """Lines about a run, each with the seconds since it began, and a progress bar; a quiet screen prints neither."""

    def __init__(self, quiet: bool = False) -> None:
        self._console = Console(highlight=False)
        self._quiet = quiet
        self._began = time.monotonic()
        self._said_at = 0.0
        self._progress: Progress | None = None

    def say(self, text: str) -> None:
        """One line of what happens now."""
        if not self._quiet:
            self._console.print(f"[dim]{time.monotonic() - self._began:5.1f} s[/dim]  {text}", soft_wrap=True)

    def say_now_and_then(self, text: str) -> None:
        """One line, unless the last one of this kind is less than four seconds old."""
        if time.monotonic() - self._said_at > PLAIN_INTERVAL_S:
            self._said_at = time.monotonic()
            self.say(text)

    def show(self, total: int, fed: int, lags: dict[str, int]) -> None:
        """Show the number of records that are fed, and for each query of those that it has not read."""
        note = ", ".join(f"{query} {lag:,}" for query, lag in lags.items())
        if self._quiet:
            return
        if self._console.is_terminal:
            self._show_bar(total, fed, f"to read: {note}" if note else "")
        else:
            self.say_now_and_then(f"fed {fed:,} of {total:,}; to read: {note or '-'}")

    def _show_bar(self, total: int, fed: int, note: str) -> None:
        if self._progress is None:
            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn())
            self._progress = Progress(*columns, console=self._console)
            self._task = self._progress.add_task("", total=total, note=note)
            self._progress.start()
        self._progress.update(self._task, total=total, completed=fed, note=note)

    def close(self) -> None:
        """Leave the bar as it is and give the terminal back."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
