"""Output of the demo: progress bars on a terminal, plain lines elsewhere, and the table at the end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pipeline.screen import Screen
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from results import Key

TOP_PAGES = 12


class DemoScreen(Screen):
    """Progress of the demo: how many events are sent, and how many are counted."""

    def __init__(self) -> None:
        super().__init__()
        self._sent_of = self._counted_of = 0

    def start_bars(self, to_send: int, to_count: int) -> None:
        """Show how many of so many events are sent, and counted."""
        self._sent_of, self._counted_of = to_send, to_count
        self.say(f"sending {to_send:,} events, of which {to_send - to_count:,} are repetitions, while the job counts")
        if not self._console.is_terminal:
            return
        self._progress = Progress(
            TextColumn("{task.description:>8}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._sent_task = self._progress.add_task("sent", total=to_send, note="by kafka-python")
        self._counted_task = self._progress.add_task("counted", total=to_count, note="")
        self._progress.start()

    def update(self, sent: int, counted: int, records: int) -> None:
        """Move the bars (on a terminal) or say now and then where they are."""
        if self._progress is not None:
            self._progress.update(self._sent_task, completed=sent)
            self._progress.update(self._counted_task, completed=counted, note=f"by Spark, {records:,} results")
        else:
            self.say_now_and_then(f"sent {sent:,} of {self._sent_of:,}, counted {counted:,} of {self._counted_of:,}")


def print_counts(counts: Mapping[Key, Mapping[str, int]], finished: Mapping[Key, Mapping[str, int]]) -> None:
    """A table of the most active pages over all minutes."""
    pages: dict[str, Counter[str]] = {}
    busiest: dict[str, tuple[int, str]] = {}
    for (minute, page), row in counts.items():
        pages.setdefault(page, Counter()).update(row)
        busiest[page] = max(busiest.get(page, (0, "")), (row["events"], minute))
    minutes = sorted({minute for minute, _ in counts})
    done = sorted({minute for minute, _ in finished})
    table = Table(
        title=f"Most active pages, {minutes[0]} to {minutes[-1]} ({len(done)} of {len(minutes)} minutes finished)"
    )
    for name in ("page", "page views", "searches", "clicks", "events", "busiest minute"):
        table.add_column(name, justify="left" if name == "page" else "right")
    for page, row in sorted(pages.items(), key=lambda item: (-item[1]["events"], item[0]))[:TOP_PAGES]:
        numbers = (f"{row[name]:,}" for name in ("page_views", "searches", "clicks", "events"))
        table.add_row(page, *numbers, f"{busiest[page][1][11:16]} ({busiest[page][0]})")
    Console().print(table)
