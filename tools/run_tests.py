"""Runs the parts of the test suite one after another: `python tools/run_tests.py unit java interop`.

A part that fails does not keep the next from running. The last lines are pytest's own summaries, so that whoever
sees only the end of a log knows what ran; the exit code is 0 only when every part passed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parent.parent
SPARK35_PYTHON = CHECKOUT / ".venvs" / "spark35" / "bin" / "python"
# What takes seconds by itself is a part of its own.
UNIT_TESTS = ["tests", "-m", "not java", "--ignore=tests/hostile", "--ignore=tests/simulation"]
# Of the simulation, which takes about a second of processor time for each.
SIMULATED_SEEDS = "1000"
SIMULATED_VOTERS = "100"
CLUSTER_TESTS = sorted(str(path.relative_to(CHECKOUT)) for path in CHECKOUT.glob("interop_tests/test_cluster_*.py"))
# pytest's own code for "no test was selected".
NOTHING_COLLECTED = 5


class Part(NamedTuple):
    """One run of pytest, or of a module whose last line says how it went."""

    description: str
    arguments: list[str]
    python: str = sys.executable
    needs_kafka_jars: bool = False
    module: str = "pytest"


def parts() -> dict[str, Part]:
    """All parts, in the order in which they should run."""
    return {
        "unit": Part("unit tests, on all cores", [*UNIT_TESTS, "-n", "auto"]),
        "hostile": Part(
            "hostile clients against a broker process, and tests of the simulation",
            ["tests/hostile", "tests/simulation"],
        ),
        "simulate": Part(
            "clusters simulated in one thread, first with rules broken on purpose (`make simulate` runs more)",
            ["--seeds", SIMULATED_SEEDS, "--mutations"],
            module="tests.simulation",
        ),
        "voters": Part(
            "simulated clusters to which controllers come and from which they go",
            ["--kind", "voters", "--seeds", SIMULATED_VOTERS],
            module="tests.simulation",
        ),
        "java": Part("unit tests that ask Apache Kafka's jars", ["tests", "-m", "java"], needs_kafka_jars=True),
        "interop": Part(
            "stock clients, Java tools and Spark against broker processes, two files at a time",
            ["interop_tests", "--ignore-glob=*/test_cluster_*.py", "-n", "2", "--dist", "loadfile"],
            needs_kafka_jars=True,
        ),
        "cluster": Part(
            "stock clients, Java tools and Spark against three nodes whose processes, links and disks are hurt",
            [*CLUSTER_TESTS, "--report-name=cluster"],
            needs_kafka_jars=True,
        ),
        "kafka-python": Part(
            "kafka-python's own integration tests against a broker process",
            ["-q"],
            module="interop_tests.kafka_python_suite",
        ),
        "spark35": Part(
            "Spark 3.5 against a broker process",
            ["interop_tests/test_spark.py", "interop_tests/test_spark_streaming.py", "--report-name=spark35"],
            str(SPARK35_PYTHON),
        ),
    }


def main(names: list[str]) -> int:
    """Runs the named parts, all of them when none is named."""
    known = parts()
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"unknown part {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    names = names or list(known)
    summaries: list[str] = []
    failed = False
    for number, name in enumerate(names, 1):
        part = known[name]
        say(f"[{number}/{len(names)}] {part.description}")
        started = time.monotonic()
        code, summary = run(part)
        failed = failed or code not in (0, NOTHING_COLLECTED)
        verdict = "ok    " if code in (0, NOTHING_COLLECTED) else "FAILED"
        summaries.append(f"{verdict} {name:12} {time.monotonic() - started:5.0f} s  {summary}")
    say("\n" + "\n".join(summaries))
    return 1 if failed else 0


def run(part: Part) -> tuple[int, str]:
    """Exit code of the part and its last line; everything it prints is passed on as it comes."""
    environment = os.environ | {"PYKBROKER_PYTHON": sys.executable, "PYTHONUNBUFFERED": "1"}
    if part.needs_kafka_jars:
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
    return passing_on([part.python, "-m", part.module, *part.arguments], environment, sys.stdout.write)


def passing_on(command: list[str], environment: dict[str, str], write: Callable[[str], object]) -> tuple[int, str]:
    """Runs a command; its exit code and its last line that is not empty."""
    last = ""
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
            sys.stdout.flush()
            last = line.strip("=\n ") or last
    return process.returncode, last


def say(text: str) -> None:
    """A line of ours between those of pytest."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
