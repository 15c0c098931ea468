"""Addresses that nodes tell of each other: the same from every node, so that no client connects anew for a change."""

from __future__ import annotations

import json
import logging
import re
import socket
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

from interop_tests.brokers import CHECKOUT
from interop_tests.clients import create_topic, wait_until
from interop_tests.cluster import QUICK_CLUSTER, Cluster
from interop_tests.cluster_view import NoAnswer, coordinator_of, described_brokers, view_of
from interop_tests.conftest import StartCluster

pytestmark = [
    pytest.mark.own_broker,
    pytest.mark.area("several nodes"),
    pytest.mark.client("librdkafka"),
    pytest.mark.fault("none"),
]

QUIET_S = 2.0
LOOPBACK = "127.0.0.1"


def addresses_told(dialled: str) -> set[tuple[int, str]]:
    """(node id, host:port) of all that one node names in Metadata, DescribeCluster and FindCoordinator."""
    told = set(view_of(dialled).brokers.items()) | set(described_brokers(dialled).items())
    for group_id in ("a", "b", "c", "d", "e"):
        try:
            told.add(coordinator_of(dialled, group_id))
        except NoAnswer:
            continue
    return told


def told_by_all(cluster: Cluster) -> set[tuple[int, str]]:
    """Answers of the living nodes, each asked at the host of its listener and at 127.0.0.1."""
    told = set()
    for node in cluster.living:
        for dialled in {node.bootstrap, f"{LOOPBACK}:{node.bootstrap.rpartition(':')[2]}"}:
            told |= addresses_told(dialled)
    return told


def documented_example() -> dict[str, str]:
    """The `server.properties` of docs/operations.md, section "On several machines"."""
    page = CHECKOUT / "docs" / "operations.md"
    if not page.exists():
        pytest.skip("docs/operations.md, whose example this is about, is not beside this folder")
    blocks = re.findall(r"```properties\n(.*?)```", page.read_text(), re.DOTALL)
    (example,) = (block for block in blocks if "process.roles=broker,controller" in block)
    return dict(line.split("=", 1) for line in example.splitlines() if line)


def as_documented(cluster: Cluster) -> None:
    """Gives the nodes the settings of that example, with localhost for its hosts and with their own ports."""
    example = documented_example()
    voters = next(iter(cluster.nodes.values())).overrides["controller.quorum.voters"]
    places = {entry.partition("@")[0]: entry.partition("@")[2] for entry in voters.split(",")}
    names = dict(entry.split("@") for entry in example["controller.quorum.voters"].split(","))
    for node in cluster.nodes.values():
        own = str(node.node_id)
        changed = {
            "node.id": own,
            "controller.quorum.voters": voters,
            "listeners": example["listeners"]
            .replace(names["1"], places[own])
            .replace(names["1"].replace(":9093", ":9092"), node.bootstrap),
            "log.dirs": str(node.data_dir),
        }
        assert changed.keys() <= example.keys(), "docs/operations.md names another set of settings than before"
        node.overrides = {**QUICK_CLUSTER, **example, **changed}


class Client:
    """A librdkafka consumer in a group and a producer, which ask for metadata ten times a second.

    Attributes:
        changes: log lines about a broker whose address has changed.
        errors: log lines of level error, and what `error_cb` got.
        disconnects: how often connections to each broker broke, by broker id.
    """

    def __init__(self, bootstrap: str, topic: str, group_id: str) -> None:
        self.changes: list[str] = []
        self.errors: list[str] = []
        self.disconnects: dict[int, int] = {}
        self._topic = topic
        self._log = logging.getLogger(f"librdkafka.{group_id}")
        self._log.propagate = False
        self._log.setLevel(logging.DEBUG)
        handler = logging.Handler()
        handler.emit = self._on_log  # type: ignore[method-assign]
        self._log.addHandler(handler)
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "topic.metadata.refresh.interval.ms": 100,
            "reconnect.backoff.ms": 10,
            "debug": "broker",
            "error_cb": lambda error: self.errors.append(str(error)),
            "statistics.interval.ms": 100,
            "stats_cb": self._on_stats,
            "logger": self._log,
        }
        self._producer = confluent_kafka.Producer({**settings, "acks": "all"})
        self._consumer = confluent_kafka.Consumer(
            {**settings, "group.id": group_id, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 100}
        )
        self._consumer.subscribe([topic])
        self._sent = 0
        self._read = 0

    def _on_log(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        # The group's coordinator is a connection of its own, which goes to another broker when the coordinator moves.
        if "nodename changed" in text.lower() and "GroupCoordinator" not in text:
            self.changes.append(text)
        if record.levelno >= logging.ERROR:
            self.errors.append(text)

    def _on_stats(self, text: str) -> None:
        for broker in json.loads(text)["brokers"].values():
            if broker["nodeid"] >= 0:
                seen = self.disconnects.get(broker["nodeid"], 0)
                self.disconnects[broker["nodeid"]] = max(seen, broker["disconnects"])

    def work(self) -> None:
        """Sends a record and reads what there is."""
        self._producer.produce(self._topic, b"%d" % self._sent)
        self._sent += 1
        self._producer.poll(0.01)
        message = self._consumer.poll(0.01)
        if message is not None and message.error() is None:
            self._read += 1

    def work_for(self, seconds: float) -> None:
        """As `work`, all the time, and until all that was sent has been read."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.work()

        def has_all() -> bool:
            self._producer.poll(0)
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self._read += 1
            return self._read >= self._sent

        wait_until(has_all, "all records to be read", timeout_s=60.0)

    def close(self) -> None:
        """Ends both clients.

        A producer ends with its last reference. Left to its callbacks, which refer to this object, it would look for
        the dead cluster a hundred times a second until the end of the run.
        """
        self._consumer.close()
        self._producer.flush(10)
        del self._consumer, self._producer


def check_that_no_address_changes(cluster: Cluster, unique: Callable[[str], str]) -> None:
    """A client works, quietly and then while leaders and coordinators move; what all nodes tell stays the same."""
    whole = told_by_all(cluster)
    assert len(whole) == len(cluster.nodes), f"one node has several addresses: {sorted(whole)}"
    topic = create_topic(cluster.bootstrap, unique("address"), 3, replicas=3)
    client = Client(cluster.bootstrap, topic, unique("group"))
    try:
        client.work_for(QUIET_S)
        assert (client.changes, client.errors) == ([], [])
        assert not any(client.disconnects.values()), client.disconnects
        assert set(client.disconnects) == set(cluster.nodes), "the client was connected to all"
        for stopped in {cluster.leader(topic), cluster.controller()}:
            cluster.nodes[stopped].stop()
            client.work_for(QUIET_S)
            assert told_by_all(cluster) < whole
            cluster.nodes[stopped].start()
            cluster.wait_until_whole()
            client.work_for(QUIET_S)
            assert told_by_all(cluster) == whole
        assert client.changes == []
    finally:
        client.close()


@pytest.mark.behaviour("nodes by one server.properties each, without advertised.listeners, tell the hosts of listeners")
def test_a_cluster_by_the_documentation(start_cluster: StartCluster, unique: Callable[[str], str]) -> None:
    """Each node is asked by name and by IP, and they tell the names that the settings have."""
    cluster = start_cluster("documented", host="localhost", is_advertised=False, prepare=as_documented)
    try:
        assert told_by_all(cluster) == {(node.node_id, node.bootstrap) for node in cluster.nodes.values()}
        check_that_no_address_changes(cluster, unique)
    finally:
        cluster.close()


def on_every_address(cluster: Cluster) -> None:
    """The nodes' listeners for clients have no host."""
    for node in cluster.nodes.values():
        port = node.bootstrap.rpartition(":")[2]
        listeners = node.overrides["listeners"]
        node.overrides = {
            **node.overrides,
            "listeners": re.sub(r"^PLAINTEXT://[^,]*", f"PLAINTEXT://:{port}", listeners),
        }


@pytest.mark.parametrize("is_advertised", [True, False], ids=["advertised", "not-advertised"])
@pytest.mark.behaviour("nodes on every address of their machine tell one address each, the same to all")
def test_a_cluster_on_every_address(start_cluster: StartCluster, is_advertised: bool) -> None:
    """Nodes tell the advertised host, else a name of the machine: other nodes cannot know what a client has dialled."""
    name = f"every-address-{is_advertised}"
    cluster = start_cluster(name, host="localhost", is_advertised=is_advertised, prepare=on_every_address)
    try:
        told = told_by_all(cluster)
        assert {node_id for node_id, _ in told} == set(cluster.nodes)
        assert len(told) == len(cluster.nodes), f"one node has several addresses: {sorted(told)}"
        if is_advertised:
            assert told == {(node.node_id, node.bootstrap) for node in cluster.nodes.values()}
        for _, address in told:
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), timeout=10).close()
    finally:
        cluster.close()


@pytest.mark.parametrize("host", ["localhost", LOOPBACK, "127.0.0.2"])
@pytest.mark.behaviour("a broker without advertised.listeners tells the host of listeners, whatever was dialled")
def test_a_broker_tells_the_host_of_its_listener(
    start_cluster: StartCluster, host: str, unique: Callable[[str], str]
) -> None:
    """And a client that is given that address uses no other, and logs nothing."""
    overrides = {"min.insync.replicas": "1", "default.replication.factor": "1", "offsets.topic.replication.factor": "1"}
    cluster = start_cluster(f"one-{host}", overrides, host=host, is_advertised=False, count=1)
    try:
        (node,) = cluster.nodes.values()
        for dialled in {node.bootstrap, node.bootstrap.replace("localhost", LOOPBACK)}:
            wait_until(lambda dialled=dialled: len(addresses_told(dialled)) > 0, "the broker to answer")  # type: ignore[misc]
            assert addresses_told(dialled) == {(1, node.bootstrap)}
        topic = create_topic(node.bootstrap, unique("address"))
        client = Client(node.bootstrap, topic, unique("group"))
        try:
            client.work_for(QUIET_S)
            assert (client.changes, client.errors, client.disconnects) == ([], [], {1: 0})
        finally:
            client.close()
    finally:
        cluster.close()
