"""The two brokers that are compared, with the same settings, each a process that ends with the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interop_tests.brokers import ApacheKafkaProcess, PykbrokerProcess
from interop_tests.java_tools import JavaTools
from tests.differential.runner import Pair

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "metadata.max.idle.interval.ms": "500",
    "controller.quorum.append.linger.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # An assignment is computed at once, not when some time has passed.
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    # The scripts' records bear a date of their own, which is long ago some day.
    "log.retention.ms": "-1",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@contextmanager
def brokers(folder: Path, libs: Path) -> Iterator[tuple[ApacheKafkaProcess, PykbrokerProcess]]:
    """Apache Kafka and pykbroker, started."""
    kafka = ApacheKafkaProcess(folder / "kafka", folder / "kafka.log", SETTINGS, JavaTools(libs))
    ours = PykbrokerProcess(folder / "pykbroker", folder / "pykbroker.log", SETTINGS)
    try:
        kafka.start()
        ours.start()
        yield kafka, ours
    finally:
        kafka.stop()
        ours.stop()


@contextmanager
def pair(folder: Path, libs: Path) -> Iterator[Pair]:
    """Both brokers, ready to be asked."""
    with brokers(folder, libs) as (kafka, ours), pair_of(kafka, ours) as both:
        yield both


@contextmanager
def pair_of(kafka: ApacheKafkaProcess, ours: PykbrokerProcess) -> Iterator[Pair]:
    """Both of these brokers, ready to be asked."""
    both = Pair(kafka.address, ours.address)
    both.prepare()
    try:
        yield both
    finally:
        for world in both.worlds:
            world.close()
