"""make bench-failover: how long nobody can write when a node of three goes, ours beside Apache Kafka's.

A prober writes to a partition with acks=all, one small batch after the other, and finds a new leader by asking the
other nodes for metadata every few milliseconds: what is measured is the cluster, not the patience of a client. "No
leader" is the longest time between two acknowledgements around the event. For the controller, which no producer waits
for, it is the longest time between two changes of a topic's settings.
"""

from __future__ import annotations

import argparse
import struct
import sys
import threading
import time
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from benchmarks.brokers import BrokerFailedError, median
from benchmarks.clusters import CASES, started
from benchmarks.reports import save, show
from interop_tests.clients import create_topic, wait_until
from interop_tests.cluster_view import NoAnswer, view_of
from interop_tests.wire import Connection, ConnectionClosed, record_batch, request_header, string

if TYPE_CHECKING:
    from collections.abc import Callable

    from interop_tests.cluster import Cluster

COLUMNS = ("event", "cluster", "no leader, median", "longest", "rounds")
GOAL_S = 1.5
PAUSE_S = 0.004
INCREMENTAL_ALTER_CONFIGS = 44
TOPIC = 2
EVENTS = ("leader killed", "controller killed", "leader and controller killed", "leader stopped in order")


class Prober:
    """Does something again and again at whichever node can do it now, and notes when it was done."""

    def __init__(self, cluster: Cluster, attempt: Callable[[Prober], None]) -> None:
        self.cluster = cluster
        self.done_at: list[float] = []
        self._attempt = attempt
        self._connections: dict[int, Connection] = {}
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def connection(self, node_id: int) -> Connection:
        """One to a node, made when there is none."""
        if node_id not in self._connections:
            self._connections[node_id] = Connection(self.cluster.nodes[node_id].bootstrap, 5.0)
        return self._connections[node_id]

    def forget(self) -> None:
        """Closes all connections: one of them has failed."""
        for connection in self._connections.values():
            connection.socket.close()
        self._connections.clear()

    def longest_gap_s(self, since: float) -> float:
        """The longest time between two successes, of those after `since` and the last before it."""
        times = [moment for moment in self.done_at if moment >= since]
        before = [moment for moment in self.done_at if moment < since][-1:]
        moments = before + times
        return max(after - moment for moment, after in pairwise(moments))

    def end(self) -> None:
        """Stops it."""
        self._is_ending = True
        self._thread.join()
        self.forget()

    def _run(self) -> None:
        while not self._is_ending:
            try:
                self._attempt(self)
            except (OSError, ConnectionClosed, NoAnswer, struct.error):
                self.forget()
            time.sleep(PAUSE_S)


class Writing:
    """Attempts of a Prober to write to one partition with acks=all."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic, self.partition = topic, partition
        self._leader = -1
        self._batch = record_batch([b"probe"])

    def __call__(self, prober: Prober) -> None:
        if self._leader < 0:
            self._leader = self._find(prober)
            return
        leader, self._leader = self._leader, -1
        error, _ = prober.connection(leader).produce(self.topic, self.partition, self._batch)
        if error == 0:
            prober.done_at.append(time.monotonic())
            self._leader = leader

    def _find(self, prober: Prober) -> int:
        for node in prober.cluster.living:
            try:
                view = view_of(node.bootstrap)
            except NoAnswer:
                continue
            partition = view.partitions.get((self.topic, self.partition))
            if partition is not None and partition.leader in view.brokers:
                return partition.leader
        return -1


class Changing:
    """Attempts of a Prober to change a setting of a topic, which takes the active controller."""

    def __init__(self, topic: str, victim: int) -> None:
        self._topic = topic
        self._victim = victim
        self._count = 0

    def __call__(self, prober: Prober) -> None:
        # The one that will die passes requests on as well as any other, but not afterwards.
        node = next(node for node in prober.cluster.nodes.values() if node.node_id != self._victim)
        self._count += 1
        value = str(100_000_000 + self._count)
        setting = struct.pack(">i", 1) + string("retention.ms") + b"\0" + string(value)
        resource = struct.pack(">ib", 1, TOPIC) + string(self._topic) + setting
        request = request_header(INCREMENTAL_ALTER_CONFIGS, 0) + resource + b"\0"
        reply = prober.connection(node.node_id).exchange(request)
        # correlation id, throttle time, count, error
        if struct.unpack_from(">h", reply, 12) == (0,):
            prober.done_at.append(time.monotonic())


def measure(cluster: Cluster, event: str, topic: str) -> float:
    """The longest pause around one event, in seconds."""
    cluster.wait_until_whole()
    controller = cluster.controller()
    partitions = {cluster.leader(topic, number): number for number in range(3)}
    if event == "controller killed":
        victim = controller
        attempt: Callable[[Prober], None] = Changing(topic, victim)
    elif event == "leader and controller killed":
        victim = controller
        attempt = Writing(topic, partitions[victim])
    else:
        victim = next(node_id for node_id in partitions if node_id != controller)
        attempt = Writing(topic, partitions[victim])
    prober = Prober(cluster, attempt)
    try:
        wait_until(lambda: len(prober.done_at) > 20, "the prober to get going")
        began = time.monotonic()
        if event == "leader stopped in order":
            cluster.nodes[victim].stop()
        else:
            cluster.nodes[victim].kill()
        ended = time.monotonic()
        wait_until(lambda: sum(moment > ended for moment in prober.done_at) > 20, "a new leader", timeout_s=60)
        gap = prober.longest_gap_s(began)
    finally:
        prober.end()
    cluster.nodes[victim].start()
    return gap


def spread_leaders(cluster: Cluster, topic: str) -> None:
    """Each node leads one partition again, the preferred one."""
    from confluent_kafka import ElectionType, TopicPartition
    from confluent_kafka.admin import AdminClient

    cluster.wait_until_whole()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    partitions = [TopicPartition(topic, number) for number in range(3)]
    admin.elect_leaders(ElectionType.PREFERRED, partitions).result(30)
    wait_until(lambda: len({cluster.leader(topic, number) for number in range(3)}) == 3, "each node to lead one")


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="make bench-failover ARGS=...", description="Time without a leader")
    parser.add_argument("--rounds", type=int, default=5, help="of each event (default %(default)s)")
    parser.add_argument("--cluster", choices=CASES, action="append", help="measure this one; may be given again")
    arguments = parser.parse_args()
    results: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    try:
        for case in arguments.cluster or CASES:
            with started(case) as cluster:
                create_topic(cluster.bootstrap, "probed", 3, replicas=3)
                for number in range(arguments.rounds):
                    for event in EVENTS:
                        spread_leaders(cluster, "probed")
                        gap = measure(cluster, event, "probed")
                        results[event][case].append(gap)
                        print(f"  {case} round {number + 1}: {event}: {gap:.2f} s", file=sys.stderr, flush=True)
    except BrokerFailedError as error:
        print(f"bench-failover: {error}", file=sys.stderr)
        return 2
    rows = [
        [event, case, f"{median(gaps):.2f} s", f"{max(gaps):.2f} s", str(len(gaps))]
        for event, by_case in results.items()
        for case, gaps in by_case.items()
    ]
    title = "Three nodes: time without a leader"
    show(title, COLUMNS, rows)
    path = save("failover", title, COLUMNS, rows, {event: dict(by_case) for event, by_case in results.items()})
    for event, by_case in results.items():
        ours = by_case.get("pykbroker, --nodes", [])
        if ours:
            print(f"{event}: longest {max(ours):.2f} s, goal {GOAL_S} s: {'met' if max(ours) <= GOAL_S else 'MISSED'}")
        equal, kafka = by_case.get("pykbroker", []), by_case.get("kafka", [])
        if equal and kafka:
            verdict = "met" if median(equal) <= median(kafka) else "MISSED"
            print(f"{event}: at equal settings {median(equal):.2f} s, kafka {median(kafka):.2f} s: {verdict}")
    print(f"written to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
