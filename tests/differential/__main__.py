"""`python -m tests.differential --seeds 200`: scripts made by chance on both brokers, and what differs.

Needs Java and, in PYKBROKER_KAFKA_LIBS, the folder of Apache Kafka's jars (`python -m interop_tests.kafka_jars` says
where they are). With `--kafka` and `--ours` brokers that run already are compared.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from tests.differential.brokers import pair
from tests.differential.generator import THEMES, Generator
from tests.differential.runner import Pair, minimised


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many scripts (default 100)")
    parser.add_argument("--first-seed", type=int, default=1, help="seed of the first script")
    parser.add_argument("--length", type=int, default=40, help="requests in a script")
    parser.add_argument("--theme", choices=list(THEMES), help="only scripts about this")
    parser.add_argument("--kafka", help="host:port of an Apache Kafka that runs")
    parser.add_argument("--ours", help="host:port of a pykbroker that runs")
    parser.add_argument("--no-minimise", action="store_true", help="do not make failing scripts shorter")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.kafka and arguments.ours:
            both = Pair(_address(arguments.kafka), _address(arguments.ours))
            both.prepare()
            context = nullcontext(both)
        else:
            context = pair(Path(folder), Path(os.environ["PYKBROKER_KAFKA_LIBS"]))  # type: ignore[assignment]
        with context as both:
            return _compare(both, arguments)


def _compare(both: Pair, arguments: argparse.Namespace) -> int:
    seen: dict[str, int] = {}
    requests = 0
    started = time.monotonic()
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        generator = Generator(seed, arguments.theme)
        script = generator.script(arguments.length)
        requests += len(script)
        found = both.run(script)
        if found and seen.get(found[0].kind, 0) == 0:
            found = both.run(script)  # what is a matter of time does not come twice
        if not found:
            continue
        first = found[0]
        seen[first.kind] = seen.get(first.kind, 0) + 1
        if seen[first.kind] > 1:
            continue
        print(f"\n== seed {seed}, {generator.theme}: {first}", flush=True)
        if not arguments.no_minimise:
            print("   shortest script:")
            for step in minimised(both, script[: first.number + 1], first.kind):
                print(f"     {step}")
    print(f"\n{requests} requests in {time.monotonic() - started:.0f} s; {sum(seen.values())} scripts differ")
    for kind, count in sorted(seen.items(), key=lambda item: -item[1]):
        print(f"{count:4} {kind}")
    for reason, count in both.explained.items():
        print(f"{count:4} explained: {reason}")
    return 1 if seen else 0


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    sys.exit(main())
