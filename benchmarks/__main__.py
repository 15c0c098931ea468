"""make bench: Kafka's own tools and the shapes of the Go load, on this broker and a peer in turn.

    python -m benchmarks --quick                           # one small round of everything
    python -m benchmarks --only small --only transactions  # these alone
    python -m benchmarks --peer kfake --rounds 5           # kfake of franz-go in place of Apache Kafka

Every round starts each broker anew on an empty folder, so that what disturbs the machine disturbs all of them. The
tables have the medians of the rounds. What the rounds found is in reports/bench; `make bench` draws it, and compares it
with what the last release kept.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks import group_shape, load_shapes, shapes, throughput
from benchmarks.brokers import KINDS, Broker, BrokerFailedError
from benchmarks.go_programs import Kfake, build, has_go
from benchmarks.keep import NAMES
from benchmarks.reports import REPORTS

TOOL_CASES = ("produce", "consume", "latency")
BROKERS: dict[str, type[Broker]] = {**KINDS, Kfake.name: Kfake}
GROUP_IDLE_S, QUICK_GROUP_IDLE_S = 20.0, 6.0


class Plan(NamedTuple):
    """The cases that are measured, on which brokers.

    Attributes:
        brokers: names.
        tools: cases of Kafka's own tools.
        loads: kinds of shapes of the Go load.
    """

    brokers: list[str]
    tools: list[str]
    loads: list[str]
    rounds: int
    seconds: int
    quick: bool


def plan_of(argv: list[str]) -> Plan:
    """Reads the command line; ends the process with a message if it cannot be understood."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="one round of smaller sizes")
    parser.add_argument("--rounds", type=int, help="rounds of each broker (default 3, quick 1)")
    parser.add_argument("--seconds", type=int, help="of each shape that lasts a time (default 5, quick 2)")
    parser.add_argument("--broker", action="append", choices=BROKERS, help="measure this one; may be repeated")
    parser.add_argument(
        "--peer", choices=list(BROKERS)[1:], default="kafka", help="measured beside ours (default kafka)"
    )
    cases = (*TOOL_CASES, *shapes.KINDS_OF_LOAD)
    parser.add_argument(
        "--only", action="append", choices=cases, help="Kafka's tools or a kind of shapes; may be repeated"
    )
    found = parser.parse_args(argv)
    only = found.only or list(cases)
    return Plan(
        found.broker or ["pykbroker", found.peer],
        [case for case in TOOL_CASES if case in only],
        [kind for kind in shapes.KINDS_OF_LOAD if kind in only],
        found.rounds or (1 if found.quick else 3),
        found.seconds or (2 if found.quick else 5),
        found.quick,
    )


def without_go(plan: Plan) -> Plan:
    """The part of a plan that can be measured where Go is not installed.

    Raises:
        BrokerFailedError: nothing is left, or kfake is asked for.
    """
    if Kfake.name in plan.brokers:
        raise BrokerFailedError("kfake is a Go program, and Go is not installed (no `go` on PATH)")
    if not plan.tools:
        raise BrokerFailedError(
            f"the load of {', '.join(plan.loads)} needs Go, which is not installed (no `go` on PATH)"
        )
    print(f"bench: Go is not installed: left out are {', '.join(plan.loads)}", file=sys.stderr)
    return plan._replace(loads=[])


def measure_tools(plan: Plan) -> None:
    """Kafka's own tools, round by round."""
    sizes = throughput.QUICK if plan.quick else throughput.FULL
    results: list[throughput.Result] = []
    for number in range(plan.rounds):
        for name in plan.brokers:
            print(f"round {number + 1}: {name}", file=sys.stderr, flush=True)
            with BROKERS[name]() as broker:
                results += throughput.round_of(broker, sizes, plan.tools)
    print(f"written to {throughput.report(results, sizes)}")


def measure_shapes(plan: Plan, load: Path) -> None:
    """The Go load's shapes, round by round."""
    chosen = shapes.chosen(plan.loads)
    runs: list[load_shapes.Run] = []
    for number in range(plan.rounds):
        for name in plan.brokers:
            print(f"round {number + 1}: {name}", file=sys.stderr, flush=True)
            with BROKERS[name](load_shapes.OVERRIDES) as broker:
                runs += load_shapes.measured(
                    load, broker, chosen, plan.seconds, quick=plan.quick, is_fake=name == Kfake.name
                )
    print(f"written to {load_shapes.report(runs, f'Shapes, franz-go, {sizes_text(plan)}')}")


def measure_groups(plan: Plan, load: Path) -> None:
    """The group, on a broker that has nothing else, round by round."""
    idle_s = QUICK_GROUP_IDLE_S if plan.quick else GROUP_IDLE_S
    runs = []
    for _ in range(plan.rounds):
        for name in plan.brokers:
            with BROKERS[name]() as broker:
                runs.append(group_shape.measure(load, broker, shapes.MEMBERS, idle_s, is_fake=name == Kfake.name))
    print(f"written to {group_shape.report(runs, f'Consumer group, franz-go, {sizes_text(plan)}')}")


def sizes_text(plan: Plan) -> str:
    """The sizes, for a title."""
    rounds = "1 round" if plan.rounds == 1 else f"medians of {plan.rounds} rounds"
    return f"{rounds}, {'small' if plan.quick else 'full'} sizes"


def main() -> int:
    """Measure, print, save."""
    plan = plan_of(sys.argv[1:])
    try:
        if not has_go():
            plan = without_go(plan)
        with tempfile.TemporaryDirectory(prefix="bench-load-") as folder:
            # One run's reports belong together: those of an earlier one would be kept or compared with them.
            for name in NAMES:
                (REPORTS / f"{name}.json").unlink(missing_ok=True)
            # Built first: a module that cannot be fetched must not show after half an hour.
            load = build("load", Path(folder)) if plan.loads else None
            if Kfake.name in plan.brokers:
                Kfake.program = build("kfake", Path(folder))
            if plan.tools:
                measure_tools(plan)
            if load and shapes.chosen(plan.loads):
                measure_shapes(plan, load)
            if load and shapes.GROUP in plan.loads:
                measure_groups(plan, load)
    except (BrokerFailedError, throughput.ToolFailedError, subprocess.TimeoutExpired) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
