"""The command line of the simulation."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import signal
import time
import traceback
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.simulation.cluster import KINDS
from tests.simulation.mutations import MUTATIONS
from tests.simulation.scenario import Outcome, run_seed
from tests.simulation.world import RuleBroken

LAST_LINES = 60
PROGRESS_S = 10.0
PROCESSOR_TIME_MAX_S = 30
WARM_UP_SEED = "streams-3"
"""A run before the first fork, so that not each process imports and compiles what runs need."""


def main(arguments: list[str]) -> int:
    """0 when no rule was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", help="one run, with all its events")
    parser.add_argument("--seeds", type=int, help="so many runs on all cores")
    parser.add_argument(
        "--kind", choices=(*KINDS, "streams", "directories"), help="with --seeds: clusters of this kind only"
    )
    parser.add_argument("--first", type=int, default=0, help="the first of --seeds (default 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--quiet", action="store_true", help="with --seed: only the outcome")
    parser.add_argument("--keep-going", action="store_true", help="with --seeds: go on after a failure")
    parser.add_argument("--minutes", type=float, help="with --seeds: begin no further ones so long after the start")
    parser.add_argument("--mutations", nargs="*", help="break rules on purpose, all or those named; each must be found")
    parser.add_argument("--tries", type=int, default=60, help="with --mutations: seeds at most for each")
    options = parser.parse_args(arguments)
    started, failed = time.monotonic(), 0
    if options.jobs > 1 and options.seed is None:
        # Not later: a mutation may break this run.
        _run(WARM_UP_SEED)
    if options.mutations is not None:
        failed = mutations(options.mutations, options.tries, options.jobs)
        if options.seed is None and options.seeds is None:
            return failed
    if options.seed is not None:
        return one(options.seed, quiet=options.quiet)
    prefix = f"{options.kind}-" if options.kind else ""
    seeds = [f"{prefix}{number}" for number in range(options.first, options.first + (options.seeds or 100))]
    end = None if options.minutes is None else started + 60 * options.minutes
    return many(seeds, options.jobs, keep_going=options.keep_going, end=end) or failed


def one(seed: str, *, quiet: bool) -> int:
    """Runs a seed with all its events."""
    started = time.process_time()
    try:
        with _patience(5 * PROCESSOR_TIME_MAX_S):
            outcome = run_seed(seed, None if quiet else print)
    except RuleBroken as broken:
        for line in broken.lines[-LAST_LINES:] if quiet else ():
            print(line)
        if broken.__cause__ is not None:
            traceback.print_exception(broken.__cause__)
        print(f"\nBROKEN: {broken}")
        return 1
    print(_shown(outcome))
    print(f"{time.process_time() - started:.2f} s of processor time")
    return 0


@contextmanager
def _patience(seconds: int) -> Iterator[None]:
    """Raises TimeoutError where the run then is: something goes round without an end."""

    def give_up(number: int, frame: object) -> None:
        raise TimeoutError(f"more than {seconds} s of processor time")

    signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


class Failure(NamedTuple):
    """A run that broke a rule, or the simulation itself."""

    seed: str
    what: str
    lines: list[str]
    cause: str


def _run(seed: str) -> tuple[str, Outcome | Failure, float]:
    started = time.process_time()
    found: Outcome | Failure
    try:
        with _patience(PROCESSOR_TIME_MAX_S):
            found = run_seed(seed)
    except RuleBroken as broken:
        cause = "".join(traceback.format_exception(broken.__cause__)) if broken.__cause__ is not None else ""
        found = Failure(seed, broken.what, broken.lines[-LAST_LINES:], cause)
    except BaseException as error:
        found = Failure(seed, f"the simulation failed: {error!r}", [], traceback.format_exc())
    return seed, found, time.process_time() - started


def run_all(seeds: Iterator[str], jobs: int) -> Generator[tuple[str, Outcome | Failure, float]]:
    """Outcomes as they come, with the processor time of each."""
    if jobs <= 1:
        yield from map(_run, seeds)
        return
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=200) as pool:
        yield from pool.imap_unordered(_run, seeds)


def many(seeds: list[str], jobs: int, *, keep_going: bool, end: float | None = None) -> int:
    """Runs seeds in parallel; prints progress, and each that broke a rule.

    Args:
        end: time of the monotonic clock, in seconds, after which the seeds that are left are not run; the last line
            says how many those are.
    """
    started = time.monotonic()
    failures: list[Failure] = []
    totals: dict[str, int] = {}
    processor_s = virtual_s = 0.0
    done = 0
    told_at = started
    for _, found, seconds in run_all(iter(seeds), jobs):
        done += 1
        processor_s += seconds
        if isinstance(found, Failure):
            failures.append(found)
            print(f"\nseed {found.seed} BROKEN: {found.what}")
            for line in found.lines:
                print("   ", line)
            print(found.cause + f"replay: make simulate SEED={found.seed}", flush=True)
            if not keep_going:
                break
        else:
            virtual_s += found.virtual_s
            for what, number in found.counts.items():
                totals[what] = totals.get(what, 0) + number
        if end is not None and time.monotonic() >= end:
            break
        if time.monotonic() >= told_at + PROGRESS_S:
            told_at = time.monotonic()
            rate = done / (time.monotonic() - started)
            print(f"{done} of {len(seeds)} seeds, {len(failures)} broken, {rate:.1f} a second", flush=True)
    elapsed = time.monotonic() - started
    print(
        f"{done} seeds in {elapsed:.0f} s ({processor_s / max(done, 1):.2f} s of processor time each), "
        f"{virtual_s:.0f} s of virtual time: "
        + ", ".join(f"{number} {what}" for what, number in sorted(totals.items()))
    )
    for failure in failures:
        print(f"BROKEN: seed {failure.seed}: {failure.what}")
    left = "" if failures or done == len(seeds) else f", {len(seeds) - done} not run for want of time"
    print(f"{done - len(failures)} passed, {len(failures)} failed{left}")
    return 1 if failures else 0


def mutations(names: list[str], tries: int, jobs: int) -> int:
    """Breaks each rule until a seed finds it; 0 when all are found."""
    started = time.monotonic()
    chosen = [mutation for mutation in MUTATIONS if not names or mutation.name in names]
    missed: list[str] = []
    for mutation in chosen:
        began = time.monotonic()
        prefix = f"{mutation.kind}-" if mutation.kind else ""
        found: Failure | None = None
        tried = 0
        with mutation.applied():
            outcomes = run_all((f"{prefix}{number}" for number in range(tries)), jobs)
            for _, outcome, _ in outcomes:
                tried += 1
                if isinstance(outcome, Failure):
                    found = outcome
                    break
            outcomes.close()
        seconds = time.monotonic() - began
        if found is not None and re.search(r"\b(TypeError|AttributeError|NameError)\b", found.what + found.cause):
            # What it stands in place of has another shape by now: so it breaks itself, and not the rule.
            missed.append(mutation.name)
            print(f"WRONG      {mutation.name}: {mutation.rule} (seed {found.seed})\n           {found.what}")
            print(found.cause[-2000:], flush=True)
        elif found is None:
            missed.append(mutation.name)
            print(f"NOT FOUND  {mutation.name}: {mutation.rule} ({tried} seeds, {seconds:.0f} s)", flush=True)
        else:
            print(
                f"found      {mutation.name}: {mutation.rule} ({tried} seeds, {seconds:.0f} s)\n"
                f"           seed {found.seed}: {found.what[:200]}",
                flush=True,
            )
    print(
        f"{len(chosen) - len(missed)} passed, {len(missed)} failed of {len(chosen)} mutations "
        f"in {time.monotonic() - started:.0f} s"
    )
    return 1 if missed else 0


def _shown(outcome: Outcome) -> str:
    counts = ", ".join(f"{number} {what}" for what, number in outcome.counts.items())
    return (
        f"seed {outcome.seed}: digest {outcome.digest}, {outcome.events} events, {outcome.calls} network calls, "
        f"{outcome.virtual_s:.1f} s of virtual time\n{counts}"
    )
