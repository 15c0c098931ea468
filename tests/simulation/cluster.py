"""Shape of a simulated cluster: its machines and their settings, by seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import NamedTuple

from tests.simulation.client import PORT

CONTROLLER_PORT = 9093
MIXED = {"three": 12, "one": 1, "five": 1, "apart": 1}
"""Kinds that plain seeds have, and how often."""
KINDS = (*MIXED, "voters", "sole")

LOG_DIRECTORIES = ("/data", "/more", "/third")
"""Log directories of machines with several; the first one has the metadata log."""

SETTINGS = {
    "log.dirs": "/data",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "600",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.assignment.interval.ms": "200",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "600",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "3000",
    "group.share.assignment.interval.ms": "200",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "600",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": "3000",
    "group.streams.assignment.interval.ms": "200",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.num.standby.replicas": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "1500",
    "replica.lag.time.max.ms": "1500",
    "replica.fetch.wait.max.ms": "500",
    "replica.fetch.backoff.ms": "100",
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.fetch.timeout.ms": "600",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.request.timeout.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "log.initial.task.delay.ms": "1000",
    "metadata.log.max.record.bytes.between.snapshots": "6000",
    "metadata.max.idle.interval.ms": "0",
}


class Shape(NamedTuple):
    """Machines of a cluster, and the kinds of losses they suffer.

    Attributes:
        settings: of each machine, by name.
        brokers: node ids of brokers to their machines' names.
        may_lose_power: every append is synced, so that any machine may lose power at any time.
        controllers: node ids of those that may vote in the quorum.
        first_voters: who votes at first where the log says so, and others may be added; none where the settings say it.
        has_streams: a Streams group is among the clients.
        has_directories: each machine has several log directories, of which one may fail.
    """

    settings: dict[str, Mapping[str, str]]
    brokers: dict[int, str]
    may_lose_power: bool
    controllers: list[int]
    first_voters: list[int]
    has_streams: bool
    has_directories: bool


def shape_of(seed: str) -> Shape:
    """Three nodes that are both broker and controller, mostly; one, five, or separate controllers at times.

    A seed that begins with a kind and a dash, such as ``one-7`` or ``power-7``, gets that kind. Only those of the kind
    ``voters`` have three nodes and two controllers more, of which an administrator makes voters and takes the votes.
    Those of the kind ``sole`` have three brokers, of which the first is the only controller. A quarter of the seeds,
    and those that begin with ``streams``, have a Streams group. Those that begin with ``directories`` have several log
    directories on each machine.
    """
    chance = random.Random(f"{seed} shape")
    kind = chance.choices(tuple(MIXED), tuple(MIXED.values()))[0]
    asked = seed.split("-")[:-1]
    kind = next((word for word in asked if word in KINDS), kind)
    if kind == "apart":
        controllers, brokers = [101, 102, 103], [1, 2, 3]
    elif kind == "sole":
        controllers, brokers = [1], [1, 2, 3]
    elif kind == "voters":
        controllers, brokers = [1, 2, 3, 101, 102], [1, 2, 3]
    else:
        brokers = list(range(1, {"one": 2, "three": 4, "five": 6}[kind]))
        controllers = brokers
    may_lose_power = chance.random() < 0.4 or "power" in asked
    common = dict(SETTINGS)
    has_directories = "directories" in asked and kind != "voters"
    if has_directories:
        common["log.dirs"] = ",".join(LOG_DIRECTORIES)
    if kind == "voters":
        common["controller.quorum.bootstrap.servers"] = ",".join(f"n{n}:{CONTROLLER_PORT}" for n in controllers[:4])
        common["controller.quorum.auto.join.enable"] = chance.choice(("false", "false", "true"))
    else:
        common["controller.quorum.voters"] = ",".join(f"{n}@n{n}:{CONTROLLER_PORT}" for n in controllers)
    if kind == "one":
        common.update({key: "1" for key, value in SETTINGS.items() if value in ("2", "3") and "partitions" not in key})
    if may_lose_power:
        common["log.flush.interval.messages"] = "1"
    if chance.random() < 0.5:
        common["log.roll.ms"] = str(chance.choice((500, 2000, 5000)))
    settings: dict[str, Mapping[str, str]] = {}
    for node_id in sorted({*controllers, *brokers}):
        roles, listeners = [], []
        if node_id in brokers:
            roles.append("broker")
            listeners.append(f"PLAINTEXT://n{node_id}:{PORT}")
        if node_id in controllers:
            roles.append("controller")
            listeners.append(f"CONTROLLER://n{node_id}:{CONTROLLER_PORT}")
        settings[f"n{node_id}"] = {
            **common,
            "node.id": str(node_id),
            "process.roles": ",".join(roles),
            "listeners": ",".join(listeners),
            "broker.rack": f"rack{node_id % 3}",
        }
    first_voters = chance.choice(([1, 2, 3], [1, 2, 3], [2], [1, 101, 102])) if kind == "voters" else []
    has_streams = "streams" in asked or random.Random(f"{seed} streams").random() < 0.25
    names = {node_id: f"n{node_id}" for node_id in brokers}
    return Shape(settings, names, may_lose_power, controllers, first_voters, has_streams, has_directories)
