"""The runs of `check`: their order, several at once, a file of outcomes to continue from, the table at the end."""

from __future__ import annotations

import json
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

Plan = tuple[str, int | None]
"""A run to be made: a pipeline by its name, and the seed of the kills; None for an undisturbed run."""

_Task = TypeVar("_Task")
_Done = TypeVar("_Done")


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome of a run, a line of JSON in the file that `--results` names.

    Attributes:
        command: does the run again; with `kafka` it says which run this was.
        kafka: "pykbroker" if it was started for the run, else "another".
        kills_seed: None for an undisturbed run.
        digest: of the results; None if the run did not come to its end.
        took_s: None likewise.
        killed: what was killed, with the second of it.
        ended_at: UTC, in ISO 8601.
    """

    pipeline: str
    kills_seed: int | None
    command: str
    kafka: str
    passed: bool
    digest: str | None
    took_s: float | None
    killed: Sequence[str]
    ended_at: str

    @property
    def run(self) -> tuple[str, str]:
        """The run of which this is the outcome; the same for a run that is made again."""
        return self.command, self.kafka


def read_outcomes(path: Path) -> dict[tuple[str, str], Checked]:
    """The last outcome of each run in a file, which need not be there. A line that a crash has cut off is left out."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            checked = Checked(**json.loads(line))
        except (ValueError, TypeError):
            continue
        found[checked.run] = checked
    return found


def append_outcome(path: Path, checked: Checked) -> None:
    """Add a line to a file of outcomes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(checked)) + "\n")


def rounds(names: Sequence[str], seeds: Sequence[int]) -> tuple[list[Plan], list[Plan]]:
    """The undisturbed runs, and those with kills: all pipelines with one seed, then all with the next.

    A check that is cut short has so come equally far with each pipeline.
    """
    return [(name, None) for name in names], [(name, seed) for seed in seeds for name in names]


def carry_out(
    run: Callable[[_Task], _Done],
    tasks: Iterable[_Task],
    at_once: int,
    note: Callable[[_Done], None],
    may_begin: Callable[[], bool] = lambda: True,
) -> None:
    """Call `run` with each task, and `note` with what it gives, in the order in which they end.

    With `at_once` above 1 each `run` is in one of so many processes, and is to be a function of a module. No task is
    begun after `may_begin` has said no. If `note` raises, or this process is told to end, running tasks get SIGTERM
    and end what they have started.
    """
    left = iter(tasks)
    if at_once == 1:
        for task in left:
            if not may_begin():
                return
            note(run(task))
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy the threads' locks of clients
    running: set[Future[_Done]] = set()
    with ProcessPoolExecutor(at_once, context, _end_in_order) as executor:
        try:
            while True:
                free = at_once - len(running) if may_begin() else 0
                running |= {executor.submit(run, task) for task in islice(left, free)}
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    note(future.result())
        except BaseException:
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _end_in_order() -> None:
    """Let SIGTERM end what a worker does as an exception; Ctrl-C is for the first process, which sends SIGTERM then."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def deadline(minutes: float | None) -> Callable[[], bool]:
    """A function that says True for so many minutes from now on; always, for None."""
    until = None if minutes is None else time.monotonic() + 60 * minutes
    return lambda: until is None or time.monotonic() < until


def table(wanted: Mapping[str, Sequence[Any]], outcomes: Iterable[Checked]) -> list[str]:
    """Lines that count the outcomes of each pipeline; `wanted` has its planned runs."""
    width = max(map(len, wanted))
    lines = [f"{'':{width}}  passed  failed  left  longest"]
    known = list(outcomes)
    for name, runs in wanted.items():
        own = [one for one in known if one.pipeline == name]
        passed = sum(one.passed for one in own)
        longest = max((one.took_s for one in own if one.took_s is not None), default=None)
        took = "-" if longest is None else f"{longest:.0f} s"
        lines.append(f"{name:{width}}  {passed:6}  {len(own) - passed:6}  {len(runs) - len(own):4}  {took:>7}".rstrip())
    return lines
