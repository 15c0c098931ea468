"""A consumer group of many members, all in one process of Go: how soon it stands, and what it costs to keep.

Each member has a client of its own and two partitions. Measured: from the start of all members until each partition has
one owner; the broker's processor time while nothing is written (a heartbeat of each member every three seconds, and a
fetch that waits five); from a member's leaving until the others own its partitions. The others learn of it by their
next heartbeat, so that this time is anything up to three seconds and the processor time says more. The broker's own
delay of a new group's first rebalance (group.initial.rebalance.delay.ms) is its default.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmarks.brokers import Broker, BrokerFailedError
from benchmarks.load_shapes import create_topic
from benchmarks.reports import figure, save, show
from benchmarks.summaries import medians, missing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COLUMNS = ("group", "broker", "assigned s", "CPU s of that", "rebalance s", "CPU s of that", "CPU % idle")
TOPIC = "group"


@dataclass(frozen=True, slots=True)
class GroupRun:
    """One group on one broker; None everywhere, and a reason in `missing`, if the broker cannot do it."""

    case: str
    broker: str
    assigned_s: float | None = None
    assigned_cpu_s: float | None = None
    rebalance_s: float | None = None
    rebalance_cpu_s: float | None = None
    idle_cpu_percent: float | None = None
    missing: str = ""


FIGURES = ("assigned_s", "assigned_cpu_s", "rebalance_s", "rebalance_cpu_s", "idle_cpu_percent")


def measure(load: Path, broker: Broker, members: int, idle_s: float, *, is_fake: bool) -> GroupRun:
    """Members come, stay for a while, and one leaves.

    Raises:
        BrokerFailedError: it failed, and the broker is no fake.
    """
    case = f"{members} members"
    try:
        run = replace(GroupRun(case, broker.name), **_measure(load, broker, members, idle_s))
    except BrokerFailedError as error:
        if not is_fake:
            raise
        run = GroupRun(case, broker.name, missing=str(error))
    print(f"  {run}", file=sys.stderr, flush=True)
    return run


def _measure(load: Path, broker: Broker, members: int, idle_s: float) -> dict[str, Any]:
    create_topic(broker, TOPIC, 2 * members)
    command = [str(load), "group", "-brokers", broker.bootstrap_servers, "-topic", TOPIC, "-clients", str(members)]
    start_s = broker.cpu_s()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            # The program ends by itself where the group does not settle.
            assigned = json.loads(process.stdout.readline() or "{}")
            assigned_cpu_s = broker.cpu_s() - start_s
            idle_percent = broker.idle_cpu_percent(idle_s) if assigned else 0.0
            before_s = broker.cpu_s()
            last, _ = process.communicate("\n" if assigned else None, timeout=400)
            rebalance_cpu_s = broker.cpu_s() - before_s
        finally:
            process.kill()
    if process.returncode != 0 or not assigned:
        raise BrokerFailedError(f"the group of {members} failed on {broker.name}, see above")
    return {
        "assigned_s": assigned["assigned_s"],
        "assigned_cpu_s": assigned_cpu_s,
        "rebalance_s": json.loads(last)["rebalance_s"],
        "rebalance_cpu_s": rebalance_cpu_s,
        "idle_cpu_percent": idle_percent,
    }


def report(runs: Sequence[GroupRun], title: str) -> Path:
    """Prints the table and keeps it; the path."""
    results = [asdict(run) for run in runs]
    rows = [
        [case, broker, *(figure(values.get(name)) for name in FIGURES)]
        for (case, broker), values in medians(results).items()
    ]
    show(title, COLUMNS, rows)
    notes = [f"missing: {text}" for text in missing(results)]
    for note in notes:
        print(note)
    return save("group", title, COLUMNS, rows, results, notes)
