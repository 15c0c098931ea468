"""A replica that is copied under a throttle, on three nodes of ours and of Apache Kafka, in one run.

    python -m benchmarks.replication_quotas     # both in turn;  --broker pykbroker for one of them

A topic of one replica gets a second one while `leader.replication.throttled.rate` is 2 MB/s, another one while
`follower.replication.throttled.rate` is. The size of the copy is asked five times a second (DescribeLogDirs); the rate
is that from 2 s after its first bytes to its end, so that the first second, in which nothing was measured yet, does not
count.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import pairwise

from confluent_kafka import Producer
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from benchmarks.brokers import BrokerFailedError
from benchmarks.clusters import started
from benchmarks.reports import save, show
from interop_tests.clients import create_topic

KINDS = ("pykbroker", "kafka")
SIDES = ("leader", "follower")
COLUMNS = ("cluster", "throttle of the", "kB/s", "of the limit", "largest in one second", "seconds")
LIMIT = 2_000_000
RECORD_SIZE = 10_000
RECORDS = 4_000
SAMPLE_S = 0.2
WARM_UP_S = 2.0
COPY_TIMEOUT_S = 90.0

Sample = tuple[float, int]
"""Seconds since the first bytes, and bytes of the copy."""


def measure(kind: str) -> list[list[str]]:
    """Both throttles on one cluster."""
    with started(kind) as cluster:
        admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        try:
            rows = []
            for side in SIDES:
                topic = create_topic(cluster.bootstrap, f"copied-{side}")
                fill(cluster.bootstrap, topic)
                leader = cluster.leader(topic)
                rows.append(row_of(kind, side, copy(admin, topic, leader, leader % len(cluster.nodes) + 1, side)))
            return rows
        finally:
            admin.close()


def fill(bootstrap: str, topic: str) -> None:
    """Records that cannot be compressed into less, all acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for _ in range(RECORDS):
        producer.produce(topic, bytes(RECORD_SIZE))
        producer.poll(0)
    if producer.flush(60):
        raise BrokerFailedError(f"{topic} could not be filled")


def copy(admin: KafkaAdminClient, topic: str, leader: int, follower: int, side: str) -> list[Sample]:
    """Adds the replica `follower` under the throttle of one side; the sizes of its log until it is whole."""
    node = leader if side == "leader" else follower
    configure(admin, ConfigResourceType.BROKER, str(node), f"{side}.replication.throttled.rate", str(LIMIT))
    configure(admin, ConfigResourceType.TOPIC, topic, f"{side}.replication.throttled.replicas", "*")
    admin.alter_partition_reassignments({TopicPartition(topic, 0): [leader, follower]})
    whole = size_of(admin, topic, leader)
    samples: list[Sample] = []
    began, deadline = 0.0, time.monotonic() + COPY_TIMEOUT_S
    while not samples or samples[-1][1] < whole:
        if time.monotonic() > deadline:
            raise BrokerFailedError(f"{topic} was not copied within {COPY_TIMEOUT_S:.0f} s")
        size, now = size_of(admin, topic, follower), time.monotonic()
        if size:
            began = began or now
            samples.append((now - began, size))
        time.sleep(SAMPLE_S)
    return samples


def configure(admin: KafkaAdminClient, kind: ConfigResourceType, name: str, key: str, value: str) -> None:
    """Sets one dynamic setting."""
    # DescribeConfigs knows no throttles, not Kafka's either.
    admin.alter_configs([ConfigResource(kind, name, {key: value})], raise_on_unknown=False)


def size_of(admin: KafkaAdminClient, topic: str, node: int) -> int:
    """Bytes of the partition's log on a node."""
    return sum(
        partition["partition_size"]
        for broker in admin.describe_log_dirs({topic: [0]}, [node])
        for directory in broker["log_dirs"]
        for found in directory["topics"]
        for partition in found["partitions"]
    )


def row_of(kind: str, side: str, samples: list[Sample]) -> list[str]:
    """A line of the table."""
    # The copy grows by a fetch of up to 1 MB at a time, so that only the moments after a fetch are compared.
    grew = [new for old, new in pairwise(samples) if new[1] > old[1]]
    steady = [sample for sample in grew if sample[0] >= WARM_UP_S]
    if len(steady) < 2:
        raise BrokerFailedError(f"{kind}: the copy took {samples[-1][0]:.1f} s, as if there were no throttle")
    (first_s, first), (last_s, last) = steady[0], steady[-1]
    rate = (last - first) / (last_s - first_s)
    seconds: dict[int, int] = {}
    for at_s, size in samples:
        seconds[int(at_s)] = size
    grown = [seconds[second] - seconds.get(second - 1, 0) for second in seconds]
    return [
        kind,
        side,
        f"{rate / 1000:.0f}",
        f"{100 * rate / LIMIT:.1f} %",
        f"{max(grown) / 1000:.0f} kB",
        f"{samples[-1][0]:.1f}",
    ]


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replication_quotas", description="Throttled replicas")
    parser.add_argument("--broker", choices=KINDS, help="one of the two; by default both")
    arguments = parser.parse_args()
    rows: list[list[str]] = []
    try:
        for kind in [arguments.broker] if arguments.broker else KINDS:
            rows += measure(kind)
    except BrokerFailedError as error:
        print(f"replication quotas: {error}", file=sys.stderr)
        return 2
    title = f"A replica copied under a throttle of {LIMIT / 1000:.0f} kB/s"
    show(title, COLUMNS, rows)
    print(f"written to {save('replication-quotas', title, COLUMNS, rows, rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
