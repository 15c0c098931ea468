"""A consumer group of KIP-848 of many members: from the first heartbeat until everybody has their partitions.

    python -m benchmarks.consumer_group                      # pykbroker and Apache Kafka, one after the other

Every member has a connection of its own, all in this process, and speaks the protocol itself: it acknowledges a new
assignment at once, and beats again after the interval that the broker gives. In the second case it beats again at once
whatever the answer, so that the broker alone sets the pace. Measured: the time until every partition has one owner, no
member has more than its share and all have the same epoch; the broker's processor time until then; its processor time
while the group stays as it is.
"""

from __future__ import annotations

import argparse
import heapq
import selectors
import socket
import struct
import sys
import time
from collections import Counter
from typing import Any

from benchmarks.brokers import KINDS, Broker, BrokerFailedError, median
from benchmarks.metadata import create_topics, exchange
from benchmarks.reports import save, show
from pykbroker.protocol.codec import decode_from, encode
from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from pykbroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

COLUMNS = ("broker", "case", "stable s", "CPU s of that", "heartbeats", "CPU % idle")
TOPIC = "metadata-0"
"""The name that `create_topics` gives."""
GROUP = "benchmark"
VERSION = 1
RETRIABLE = (14, 15, 16)
TIMEOUT_S = 180.0
CASES = ("in intervals", "at once")


def framed(request: Message, version: int) -> bytes:
    """The request behind its size and a flexible header."""
    head = struct.pack(">hhih5sb", request.KEY, version, 7, 5, b"bench", 0)
    body = encode(request, version)
    return struct.pack(">i", len(head) + len(body)) + head + body


class Member:
    """One member: its connection, its epoch, its partitions."""

    def __init__(self, number: int, port: int) -> None:
        self.member_id = f"member-{number:05d}"
        self.epoch = 0
        self.owned: list[TopicPartitions] = []
        self.received = bytearray()
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._must_acknowledge = False

    def beat(self) -> None:
        """Sends a heartbeat, whole at first and when it acknowledges partitions."""
        is_first = self.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000 if is_first else -1,
            subscribed_topic_names=[TOPIC] if is_first else None,
            topic_partitions=self.owned if is_first or self._must_acknowledge else None,
        )
        self.socket.sendall(framed(request, VERSION))

    def read(self) -> ConsumerGroupHeartbeatResponse | None:
        """The answer, None while it is not whole."""
        self.received += self.socket.recv(65536)
        if len(self.received) < 4:
            return None
        (size,) = struct.unpack_from(">i", self.received)
        if len(self.received) < 4 + size:
            return None
        response, _ = decode_from(ConsumerGroupHeartbeatResponse, VERSION, bytes(self.received[4 : 4 + size]), 5)
        self.received.clear()
        return response

    @property
    def state(self) -> tuple[int, list[int]]:
        """Its epoch and its partitions."""
        return self.epoch, [number for topic in self.owned for number in topic.partitions]

    def take(self, response: ConsumerGroupHeartbeatResponse) -> bool:
        """True if the answer has an assignment, which is to be acknowledged."""
        if response.error_code in RETRIABLE:
            return True
        if response.error_code:
            raise BrokerFailedError(f"heartbeat: error {response.error_code} {response.error_message}")
        self.epoch = response.member_epoch
        self._must_acknowledge = response.assignment is not None
        if response.assignment is not None:
            self.owned = response.assignment.topic_partitions
        return self._must_acknowledge


class Ownership:
    """Epochs and partitions of all members, counted as answers come.

    To look at every member after each answer would take the client longer than the broker needs for the answer: then
    the client would set the pace, and more so for a broker that answers one by one than for one that does so in bursts.
    """

    def __init__(self, members: int, partitions: int) -> None:
        self._partitions = partitions
        self._share = -(-partitions // members)
        self._epochs = Counter({0: members})
        self._owners: Counter[int] = Counter()
        self._owned_count = 0
        self._above_share = 0

    def change(self, before: tuple[int, list[int]], after: tuple[int, list[int]]) -> None:
        """Counts a member with another epoch or other partitions."""
        (old_epoch, old), (epoch, new) = before, after
        if epoch != old_epoch:
            self._epochs[epoch] += 1
            self._epochs[old_epoch] -= 1
            if not self._epochs[old_epoch]:
                del self._epochs[old_epoch]
        if new != old:
            self._owners.subtract(old)
            self._owners.update(new)
            for number in old:
                if not self._owners[number]:
                    del self._owners[number]
            self._owned_count += len(new) - len(old)
            self._above_share += (len(new) > self._share) - (len(old) > self._share)

    @property
    def is_stable(self) -> bool:
        """True if all have one epoch, every partition has one owner, and nobody has more than their share."""
        if len(self._epochs) != 1 or 0 in self._epochs or self._above_share:
            return False
        return self._owned_count == len(self._owners) == self._partitions


class Group:
    """All members, until the group is stable."""

    def __init__(self, broker: Broker, members: int, partitions: int, *, is_eager: bool) -> None:
        self._members = [Member(number, broker.port) for number in range(members)]
        self._ownership = Ownership(members, partitions)
        self._is_eager = is_eager
        self._due: list[tuple[float, int]] = []
        self._selector = selectors.DefaultSelector()
        for number, member in enumerate(self._members):
            self._selector.register(member.socket, selectors.EVENT_READ, number)
        self.heartbeats = 0

    def run(self, seconds: float, *, until_stable: bool) -> float:
        """Beats until the group is stable, or for so long; the seconds that it took."""
        began = time.perf_counter()
        if not self.heartbeats:
            for number in range(len(self._members)):
                self._beat(number)
        while (now := time.perf_counter()) - began < seconds:
            while self._due and self._due[0][0] <= now:
                self._beat(heapq.heappop(self._due)[1])
            wait_s = max(0.0, self._due[0][0] - now) if self._due else 0.1
            for key, _ in self._selector.select(min(wait_s, seconds - (now - began))):
                self._answered(key.data)
            if until_stable and self._ownership.is_stable:
                return time.perf_counter() - began
        if until_stable:
            raise BrokerFailedError(f"the group is not stable after {seconds:.0f} s")
        return seconds

    def _beat(self, number: int) -> None:
        self.heartbeats += 1
        self._members[number].beat()

    def _answered(self, number: int) -> None:
        member = self._members[number]
        response = member.read()
        if response is None:
            return
        before = member.state
        must_acknowledge = member.take(response)
        self._ownership.change(before, member.state)
        if must_acknowledge or self._is_eager:
            self._beat(number)
        else:
            heapq.heappush(self._due, (time.perf_counter() + response.heartbeat_interval_ms / 1000, number))

    def calm(self) -> None:
        """From now on members beat in the broker's interval."""
        self._is_eager = False

    def close(self) -> None:
        """Ends the connections."""
        self._selector.close()
        for member in self._members:
            member.socket.close()


def wait_for_coordinator(broker: Broker) -> None:
    """Returns when the group has a coordinator."""
    frame, room = framed(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 4), bytearray(1 << 16)
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as connection:
        while True:
            size = exchange(connection, frame, room)
            answer, _ = decode_from(FindCoordinatorResponse, 4, bytes(room[4:size]), 5)
            if not answer.coordinators[0].error_code:
                return
            time.sleep(0.05)


def measure(kind: type[Broker], case: str, members: int, partitions: int, idle_s: float) -> dict[str, Any]:
    """One group on a new broker."""
    with kind() as broker:
        create_topics(broker, 1, partitions)
        wait_for_coordinator(broker)
        time.sleep(2)
        group = Group(broker, members, partitions, is_eager=case == "at once")
        try:
            before_s = broker.cpu_s()
            stable_s = group.run(TIMEOUT_S, until_stable=True)
            cpu_s, heartbeats = broker.cpu_s() - before_s, group.heartbeats
            group.calm()
            group.run(1.0, until_stable=False)
            before_s = broker.cpu_s()
            group.run(idle_s, until_stable=False)
            idle = 100 * (broker.cpu_s() - before_s) / idle_s
        finally:
            group.close()
    run = {"broker": kind.name, "case": case, "stable_s": stable_s, "cpu_s": cpu_s}
    run |= {"heartbeats": heartbeats, "idle_cpu_percent": idle}
    print(f"  {run}", file=sys.stderr, flush=True)
    return run


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.consumer_group", description="Large consumer groups")
    parser.add_argument("--brokers", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3, help="the median counts")
    parser.add_argument("--idle", type=float, default=10.0, help="seconds that a stable group is watched")
    arguments = parser.parse_args()
    results: list[dict[str, Any]] = []
    try:
        for _ in range(arguments.rounds):
            results += [
                measure(KINDS[name], case, arguments.members, arguments.partitions, arguments.idle)
                for name in arguments.brokers
                for case in CASES
            ]
    except BrokerFailedError as error:
        print(f"consumer_group: {error}", file=sys.stderr)
        return 2
    rows = []
    for name in arguments.brokers:
        for case in CASES:
            runs = [run for run in results if (run["broker"], run["case"]) == (name, case)]
            figures = [median([run[key] for run in runs]) for key in ("stable_s", "cpu_s", "heartbeats")]
            idle = median([run["idle_cpu_percent"] for run in runs])
            rows.append([name, case, *(f"{figure:.2f}" for figure in figures[:2]), f"{figures[2]:.0f}", f"{idle:.1f}"])
    title = f"A consumer group of {arguments.members} members, {arguments.partitions} partitions, median"
    show(title, COLUMNS, rows)
    print(f"written to {save('consumer_group', title, COLUMNS, rows, results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
