"""Copiers that copy exactly once, on three nodes whose coordinators are killed: `test_transactions_kill` over brokers.

Each kill hits the leader of a partition of `__transaction_state` or `__consumer_offsets`, and of copied partitions.
Markers and questions about transactions go between brokers all the time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop_tests.brokers import BrokerProcess
from interop_tests.cluster import Cluster
from interop_tests.conftest import StartCluster
from interop_tests.copiers import Command, Copiers
from interop_tests.java_tools import JAVA_FLAGS
from interop_tests.kafka_jars import JAVA
from interop_tests.report import Tables
from interop_tests.test_transactions_kill import SETTINGS, TRANSACTIONAL_MESSAGE_COPIER, Loop, copiers_of

pytestmark = [
    pytest.mark.own_broker,
    pytest.mark.area("several nodes"),
    pytest.mark.fault("kill -9 of coordinators of transactions"),
]

__all__ = ["copiers_of"]

KILLS = 4
DOWN_S = 2.0
"""Seconds that a killed node stays down: long enough for its partitions to get other leaders."""

INTERNAL_TOPICS = ("__transaction_state", "__consumer_offsets")
FEW_PARTITIONS = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}


class Coordinators(BrokerProcess):
    """A cluster in the place of the one broker of `Loop`: what is killed is a coordinator."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap
        self._kills = 0
        self._victim = 1

    def kill(self) -> None:
        """kill -9 of the leader of the next partition of an internal topic."""
        self._victim = self.cluster.leader(INTERNAL_TOPICS[self._kills % 2], self._kills // 2 % 3)
        self._kills += 1
        self.cluster.nodes[self._victim].kill()

    def start(self) -> None:
        """The others have taken over when the node comes back."""
        time.sleep(DOWN_S)
        self.cluster.nodes[self._victim].start()


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    cluster: Cluster = start_cluster("cluster-transactions", {**SETTINGS, **FEW_PARTITIONS})
    yield cluster
    cluster.close()


@pytest.mark.parametrize(
    ("client", "count"),
    [
        pytest.param("confluent-kafka", 2, marks=[pytest.mark.client("confluent-kafka"), pytest.mark.sample]),
        pytest.param("kafka-python", 2, marks=pytest.mark.client("kafka-python 3")),
    ],
)
def test_exactly_once_over_killed_coordinators(
    client: str,
    count: int,
    cluster: Cluster,
    copiers_of: Callable[[list[Command]], Copiers],
    summary_tables: Tables,
    target: str,
    unique: Callable[[str], str],
    pytestconfig: pytest.Config,
) -> None:
    """Each record once, whoever of copiers and coordinators is killed."""
    cluster.wait_until_whole()
    loop = Loop(Coordinators(cluster), unique, client, kills_broker=True, replicas=3)
    command = [sys.executable, "-m", "interop_tests.copier", client, cluster.bootstrap, loop.source, loop.target]
    copiers = copiers_of([[*command, loop.group, f"{loop.group}-{number}"] for number in range(count)])
    loop.run(copiers, pytestconfig.getoption("--kills") or KILLS)
    loop.report(summary_tables, f"three nodes of {target}", client, copiers, loop.check())


@pytest.mark.java
@pytest.mark.client("Java tools")
def test_message_copier_over_killed_coordinators(
    cluster: Cluster,
    copiers_of: Callable[[list[Command]], Copiers],
    summary_tables: Tables,
    target: str,
    unique: Callable[[str], str],
    java_libs: Path,
) -> None:
    """As above by TransactionalMessageCopier, Kafka's own test of this, with random aborts."""
    cluster.wait_until_whole()
    loop = Loop(Coordinators(cluster), unique, "java", kills_broker=True, replicas=3)
    java = [JAVA, *JAVA_FLAGS, "-cp", f"{java_libs}/*", TRANSACTIONAL_MESSAGE_COPIER]
    job = ["--broker-list", cluster.bootstrap, "--input-topic", loop.source, "--output-topic", loop.target]
    how = ["--input-partition", "0", "--group-mode", "--use-group-metadata", "--enable-random-aborts"]
    sizes = ["--transaction-size", "50", "--transaction-timeout", "60000"]
    who = ["--consumer-group", loop.group, "--transactional-id", loop.group]
    copiers = copiers_of([[*java, *job, *how, *sizes, *who]])
    loop.run(copiers, KILLS)
    loop.report(summary_tables, f"three nodes of {target}", "TransactionalMessageCopier", copiers, loop.check())
