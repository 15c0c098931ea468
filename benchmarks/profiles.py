"""make profile: one shape of load on a broker, and where the broker's time goes.

    make profile                                   # 100 clients, one record a request
    make profile SHAPE="codec zstd, produce"

py-spy samples the Python stacks while the load runs. Where `perf` is installed the load runs a second time under it,
for the time in the interpreter, libraries and kernel: two samplers at a time would see each other. Written to
reports/profile: the raw stacks, a flame graph (SVG), and perf's report. py-spy and perf need the right to look into
another process: as root, or with kernel.yama.ptrace_scope=0 and kernel.perf_event_paranoid at 1 or less.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.brokers import CHECKOUT, BrokerFailedError, Pykbroker
from benchmarks.flame_graph import stacks_in, svg, top_functions
from benchmarks.go_programs import build, has_go
from benchmarks.load_shapes import arguments_of, create_topic, run_load, warm_up
from benchmarks.shapes import SHAPES, Shape, topic_of

if TYPE_CHECKING:
    from collections import Counter

PY_SPY = CHECKOUT / ".venvs" / "profile" / "bin" / "py-spy"
REPORTS = CHECKOUT / "reports" / "profile"
SAMPLES_PER_S = "199"  # no divisor of any timer's
TOP = 20


def under(sampler: list[str], load: Path, broker: Pykbroker, arguments: list[str]) -> None:
    """Runs the load while a sampler looks at the broker; both write their files at SIGINT.

    Raises:
        BrokerFailedError: the load or the sampler failed.
    """
    with subprocess.Popen(sampler, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            run_load(load, broker, *arguments)
        finally:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
    # perf ends by the signal that it was sent.
    if process.returncode not in (0, -signal.SIGINT, 128 + signal.SIGINT):
        raise BrokerFailedError(f"{sampler[0]} ended with code {process.returncode}:\n{said.strip()}")


def prepared(load: Path, broker: Pykbroker, shape: Shape, seconds: int) -> list[str]:
    """Makes the topic of a shape, with what it reads; the load's arguments."""
    create_topic(broker, topic_of(shape), shape.partitions, shape.configs)
    for other in SHAPES:
        if other.name == shape.reads:
            run_load(load, broker, *arguments_of(other, seconds, quick=False))
    return arguments_of(shape, seconds, quick=False)


def python_profile(load: Path, broker: Pykbroker, arguments: list[str], title: str) -> list[str]:
    """Samples Python's stacks; lines for the screen."""
    raw = REPORTS / "py-spy.raw"
    sampler = [str(PY_SPY), "record", "--pid", str(broker.pid), "--format", "raw", "--output", str(raw)]
    under([*sampler, "--rate", SAMPLES_PER_S, "--duration", "unlimited"], load, broker, arguments)
    stacks = stacks_in(raw.read_text())
    (REPORTS / "flame.svg").write_text(svg(stacks, title))
    by_self, cumulative = top_functions(stacks)
    samples = sum(count for _, count in stacks)
    return [
        *top_lines("by their own time", by_self, samples),
        "",
        *top_lines("with what they call", cumulative, samples),
    ]


def top_lines(heading: str, counts: Counter[str], samples: int) -> list[str]:
    """The first functions of a count, with their share of all samples."""
    lines = [f"{count / samples:6.1%}  {name}" for name, count in counts.most_common(TOP)]
    return [f"functions {heading} ({samples} samples)", *lines]


def perf_profile(load: Path, broker: Pykbroker, arguments: list[str]) -> list[str]:
    """Samples by perf; lines for the screen."""
    data = REPORTS / "perf.data"
    sampler = ["perf", "record", "--freq", SAMPLES_PER_S, "--call-graph", "fp", "--pid", str(broker.pid)]
    under([*sampler, "--output", str(data)], load, broker, arguments)
    report = ["perf", "report", "--input", str(data), "--stdio", "--no-children", "--call-graph", "none"]
    done = subprocess.run(report, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BrokerFailedError(f"perf report failed:\n{done.stderr.strip()}")
    (REPORTS / "perf.txt").write_text(done.stdout)
    rows = [line.rstrip() for line in done.stdout.splitlines() if line.strip() and not line.startswith("#")]
    return ["functions of the machine's code, by perf", *rows[:TOP]]


def main() -> int:
    """Measure, print, save."""
    names = {shape.name: shape for shape in SHAPES}
    parser = argparse.ArgumentParser(prog="make profile", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--shape", choices=names, default="100 clients", metavar="NAME", help=", ".join(names))
    parser.add_argument("--seconds", type=int, default=5, help="of a shape that lasts a time (default 5)")
    arguments = parser.parse_args()
    shape = names[arguments.shape]
    if not has_go() or not PY_SPY.exists():
        needed = "Go for the load" if PY_SPY.exists() else "py-spy, which `make profile` installs"
        print(f"profile: needs {needed}", file=sys.stderr)
        return 2
    REPORTS.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-load-") as folder, Pykbroker() as broker:
            load = build("load", Path(folder))
            warm_up(load, broker, quick=False)
            options = prepared(load, broker, shape, arguments.seconds)
            print("\n".join(python_profile(load, broker, options, f"pykbroker, {shape.name}")), flush=True)
            if shutil.which("perf"):
                print("\n" + "\n".join(perf_profile(load, broker, options)))
            else:
                print("profile: perf is not installed, so this is py-spy's view alone", file=sys.stderr)
    except BrokerFailedError as error:
        print(f"profile: {error}", file=sys.stderr)
        return 2
    print(f"\nwritten to {REPORTS}: open flame.svg in a browser")
    return 0


if __name__ == "__main__":
    sys.exit(main())
