"""Runs parts of the test suite: `python tools/run_tests.py [--whole] [part ...]`.

Without names it runs the parts of `make test`, with --whole those of `make test-all` (`suite_parts.py` has both). Heavy
parts run alone, the others two at a time, with a background part beside them; then each line of output begins with the
name of its part. A part that fails does not keep the next from running. The last lines are the parts' own summaries,
with the tests that failed and their assertions, so that a reader who sees only the end of a log knows what ran and what
to mend; the exit code is 0 only when every part passed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from suite_parts import CHECKOUT, Part, parts

# pytest's own code for "no test was selected".
NOTHING_COLLECTED = 5
AT_A_TIME = min(2, os.cpu_count() or 1)
# What pytest prints of a failure: lines of the exception, and the test in its short summary.
OF_FAILURE = re.compile(r"(E   |FAILED |ERROR )\s*\S")
LINES_OF_FAILURES, WIDTH = 24, 600

_printing = threading.Lock()
_fetching = threading.Lock()


def main(arguments: list[str]) -> int:
    """Runs the named parts, all of them when none is named."""
    known = parts(whole="--whole" in arguments)
    names = [argument for argument in arguments if argument != "--whole"] or list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"unknown part {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    started = time.monotonic()
    summaries = run_all({name: known[name] for name in names}, run, AT_A_TIME)
    minutes, seconds = divmod(round(time.monotonic() - started), 60)
    passed = sum(summary.startswith("ok") for summary in summaries)
    say("\n" + "\n".join(summaries))
    say(f"{passed} of {len(summaries)} parts are good, after {minutes} min {seconds} s")
    return 0 if passed == len(summaries) else 1


def run_all(
    chosen: dict[str, Part], run: Callable[[Part, Callable[[str], object]], tuple[int, str]], at_a_time: int
) -> list[str]:
    """Runs parts, the heavy ones first and each alone.

    Args:
        chosen: the parts by name.
        run: runs one; gets a function for the lines that it prints, gives exit code and summary.
        at_a_time: how many of those that wait run at the same time, background parts not counted.

    Returns:
        A line for each part, in the order of `chosen`.
    """
    summaries: dict[str, str] = {}
    whole_started = time.monotonic()
    heavy = [name for name, part in chosen.items() if part.is_heavy]
    background = [name for name, part in chosen.items() if part.is_background]
    waiting = [name for name in chosen if name not in heavy and name not in background]
    others = [*waiting, *background]
    side_by_side = (at_a_time > 1 and len(waiting) > 1) or bool(waiting and background)

    def take(name: str, prefix: str = "") -> None:
        part = chosen[name].begun_after((time.monotonic() - whole_started) / 60)
        say(f"{prefix}[{[*heavy, *others].index(name) + 1}/{len(chosen)}] {part.description}")
        started = time.monotonic()
        try:
            code, summary = run(part, lambda line: write(prefix + line))
        except Exception as error:
            code, summary = 1, f"it could not be run: {error!r}"
        verdict = "ok    " if code in (0, NOTHING_COLLECTED) else "FAILED"
        summaries[name] = f"{verdict} {name:12} {time.monotonic() - started:5.0f} s  {summary}"

    for name in heavy:
        take(name)
    width = max(map(len, others), default=0)
    with ThreadPoolExecutor(max(at_a_time, 1)) as lanes, ThreadPoolExecutor(1) as background_lane:
        running = [
            lane.submit(take, name, f"{name:{width}} | " if side_by_side else "")
            for lane, names in ((lanes, waiting), (background_lane, background))
            for name in names
        ]
        try:
            for one in running:
                one.result()
        except KeyboardInterrupt:
            # The processes that run have got the signal too.
            lanes.shutdown(wait=False, cancel_futures=True)
            background_lane.shutdown(wait=False, cancel_futures=True)
            raise
    return [summaries[name] for name in chosen]


def run(part: Part, write: Callable[[str], object]) -> tuple[int, str]:
    """Exit code of the part and its summary; everything it prints is passed on as it comes."""
    environment = os.environ | {"PYKBROKER_PYTHON": sys.executable, "PYTHONUNBUFFERED": "1"}
    # A part starts hundreds of processes; each would compile the same modules.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if part.needs_kafka_jars:
        with _fetching:
            jars = subprocess.run(
                [sys.executable, "-m", "interop_tests.kafka_jars"],
                cwd=CHECKOUT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
        if jars.returncode != 0:
            return jars.returncode, "the jars of Apache Kafka could not be fetched (see above)"
        environment["PYKBROKER_KAFKA_LIBS"] = jars.stdout.strip()
    return passing_on(part.command, environment, write)


def passing_on(command: list[str], environment: dict[str, str], write: Callable[[str], object]) -> tuple[int, str]:
    """Runs a command.

    Returns:
        Its exit code, and its last line that is not empty, with the processor time of the command and of the processes
        that it started and waited for. If it failed, the last lines in which pytest told of failures follow that one,
        indented and cut to WIDTH characters.
    """
    last = ""
    failures: deque[str] = deque(maxlen=LINES_OF_FAILURES)
    try:
        process = subprocess.Popen(
            command,
            cwd=CHECKOUT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        return 1, f"{command[0]} could not be started: {error.strerror}"
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            write(line)
            last = line.strip("=\n ") or last
            if OF_FAILURE.match(line):
                failures.append(f"       {line.rstrip()[:WIDTH]}")
        # The only way to know the processor time of one child and of those that it waited for.
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    last = f"{last} ({used.ru_utime + used.ru_stime:.0f} s of processor time)"
    return process.returncode, "\n".join([last, *failures] if process.returncode else [last])


def write(line: str) -> None:
    """A line of a part, whole, whichever thread it comes from."""
    with _printing:
        sys.stdout.write(line)
        sys.stdout.flush()


def say(text: str) -> None:
    """A line of ours between those of pytest."""
    write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
