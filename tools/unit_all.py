"""Runs the unit tests on every CPython from 3.11 that this machine has: `make unit-all`.

Interpreters are looked for as `python3.X` on PATH, in pyenv's folder of versions and among those that uv knows; of each
minor version the newest is taken. Each gets a virtual environment `.venvs/py3.X` with the pins of
requirements/development.txt that unit tests need, without this checkout: tests run from the source, and what mypyc
would compile runs interpreted, unless a build for the same version lies there.

Arguments go to pytest. With --others the version of the Python that runs this is left out: `make test-all` has run the
unit tests on it already. With `--minutes M` no interpreter begins after the first M minutes; the newest comes first.
The last lines are a table and the sum of its rows; the exit code is 0 only when all tests that ran passed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from run_tests import passing_on, say, write
from suite_parts import CHECKOUT

PINS = CHECKOUT / "requirements" / "development.txt"
VENVS = CHECKOUT / ".venvs"
OLDEST = (3, 11)
MINORS_LOOKED_FOR = range(OLDEST[1], 30)
# Large, or there for other checks; without them the tests that need them are skipped.
NOT_FOR_UNIT_TESTS = {"pyspark", "py4j", "confluent-kafka", "ruff", "mypy", "ast_serialize"}
QUESTION = (
    "import ensurepip, json, platform, sys, venv;"
    "kind, level = platform.python_implementation(), sys.version_info.releaselevel;"
    "print(json.dumps([kind, sys.version_info[:3], level, sys.executable]))"
)


class Interpreter(NamedTuple):
    """A CPython: its version, as numbers, and how it is called."""

    version: tuple[int, int, int]
    path: str

    @property
    def minor(self) -> str:
        """`3.12`: what environments and lines of the table are named by."""
        return f"{self.version[0]}.{self.version[1]}"


def candidates() -> Iterator[str]:
    """Paths that may be interpreters."""
    for minor in MINORS_LOOKED_FOR:
        for folder in os.environ.get("PATH", "").split(os.pathsep):
            found = shutil.which(f"python3.{minor}", path=folder or None)
            if found:
                yield found
    root = os.environ.get("PYENV_ROOT") or output_of(["pyenv", "root"])
    if root:
        yield from map(str, sorted((Path(root) / "versions").glob("*/bin/python3")))
    for line in output_of(["uv", "python", "list", "--only-installed"]).splitlines():
        fields = line.split()
        if len(fields) > 1:
            yield fields[1]


def output_of(command: list[str]) -> str:
    """Standard output of a command; "" if there is no such command, it fails, or it takes longer than 60 seconds."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def ask(path: str) -> Interpreter | None:
    """Version and path of an interpreter; None if it does not run, has no venv, is too old or is not CPython.

    A pyenv shim exists for versions that are not active: only running it tells.
    """
    answer = output_of([path, "-c", QUESTION])
    if not answer:
        return None
    implementation, version, level, executable = json.loads(answer)
    if implementation != "CPython" or level == "alpha" or tuple(version[:2]) < OLDEST:
        return None
    # A shim leads to whatever is chosen at the moment; the executable is what it is.
    return Interpreter((version[0], version[1], version[2]), executable)


def interpreters() -> list[Interpreter]:
    """The newest interpreter of each minor version, ascending."""
    newest: dict[str, Interpreter] = {}
    for path in dict.fromkeys(candidates()):
        found = ask(path)
        if found is not None and (found.minor not in newest or newest[found.minor].version < found.version):
            newest[found.minor] = found
    return sorted(newest.values())


def pins(text: str) -> list[str]:
    """The pinned packages that unit tests need, of the lines of a requirements file."""
    lines = [line.strip() for line in text.splitlines()]
    wanted = [line for line in lines if line and not line.startswith("#")]
    return [line for line in wanted if re.split(r"[=<>\[; ]", line)[0] not in NOT_FOR_UNIT_TESTS]


def environment_for(interpreter: Interpreter) -> str:
    """The Python of an environment with the pins; made when it is missing, renewed when pins or interpreter changed.

    Raises subprocess.CalledProcessError when pip cannot install them.
    """
    folder = VENVS / f"py{interpreter.minor}"
    python = str(folder / "bin" / "python")
    wanted = "\n".join([interpreter.path, str(interpreter.version), *pins(PINS.read_text())])
    note = folder / ".installed-from"
    if note.is_file() and note.read_text() == wanted and output_of([python, "-c", "print(1)"]):
        return python
    say(f"making {folder.relative_to(CHECKOUT)}")
    subprocess.run([interpreter.path, "-m", "venv", "--clear", str(folder)], check=True)
    install = [python, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*install, *pins(PINS.read_text())], check=True, stdin=subprocess.DEVNULL)
    note.write_text(wanted)
    return python


def total(rows: Iterable[str]) -> str:
    """`200 passed, 1 failed, 3 skipped`: the sum of pytest's last lines; a run without one counts as failed."""
    counts: Counter[str] = Counter(passed=0, failed=0)
    for row in rows:
        found = re.findall(r"(\d+) (passed|failed|skipped|errors?)\b", row)
        for number, what in found:
            counts["failed" if what.startswith("error") else what] += int(number)
        if not found:
            counts["failed"] += 1
    return ", ".join(f"{number} {what}" for what, number in counts.items())


def main(arguments: list[str]) -> int:
    """Runs the tests on each interpreter, the newest first, and prints the table."""
    parser = ArgumentParser(usage="%(prog)s [--others] [--minutes M] [argument of pytest ...]", allow_abbrev=False)
    parser.add_argument("--others", action="store_true", help="leave out the version of the Python that runs this")
    parser.add_argument("--minutes", type=float, help="begin no interpreter but the first after this time")
    options, selected = parser.parse_known_args(arguments)
    found = interpreters()[::-1]
    if options.others:
        found = [interpreter for interpreter in found if interpreter.version[:2] != sys.version_info[:2]]
        if not found:
            say("there is no other CPython from 3.11 here: nothing to run")
            return 0
    if not found:
        say("no CPython from 3.11 was found")
        return 1
    rows: list[str] = []
    failed = False
    ignored = ("--ignore=tests/examples", "--ignore=tests/hostile", "--ignore=tests/installation")
    selected = selected or ["tests", "-m", "not java", *ignored, "-q", "-n", "auto"]
    whole_started = time.monotonic()
    for interpreter in found:
        started = time.monotonic()
        if rows and options.minutes is not None and started >= whole_started + options.minutes * 60:
            break
        name = ".".join(map(str, interpreter.version))
        say(f"CPython {name}: {interpreter.path}")
        try:
            command = [environment_for(interpreter), "-m", "pytest", "-p", "no:cacheprovider", *selected]
            code, summary = passing_on(command, dict(os.environ), write)
        except subprocess.CalledProcessError as error:
            code, summary = 1, f"the environment could not be made: {error}"
        failed = failed or code != 0
        verdict = "FAILED" if code else "ok    "
        rows.append(f"{verdict} CPython {name:8} {time.monotonic() - started:5.0f} s  {summary}")
    ran, left = found[: len(rows)], found[len(rows) :]
    say("\n" + "\n".join(rows))
    say(
        f"{total(rows)} on CPython {', '.join(interpreter.minor for interpreter in ran)}"
        + (f"; {', '.join(interpreter.minor for interpreter in left)} not run for want of time" if left else "")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
