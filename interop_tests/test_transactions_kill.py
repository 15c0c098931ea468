"""A consume-transform-produce loop, killed with kill -9 on both sides: what it leaves is exactly once.

Of Apache Kafka 4.3.1 only the copiers are killed. Its coordinator takes a partition whose leader it does not know, as
on a node that has just started, for deleted, and leaves out its marker: __transaction_state then says CompleteCommit or
CompleteAbort, and the partition keeps an open transaction, whose records are lost, or committed with the next ones of
the producer. With a killed broker most runs of the confluent-kafka test found that.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from interop_tests.brokers import BrokerProcess
from interop_tests.clients import create_topic, wait_until
from interop_tests.conftest import StartBroker
from interop_tests.copiers import Command, Copiers, SteadyProducing
from interop_tests.java_tools import JAVA_FLAGS
from interop_tests.kafka_jars import JAVA
from interop_tests.report import Tables
from interop_tests.transaction_clients import committed, read_decided, read_to_end

pytestmark = [pytest.mark.own_broker, pytest.mark.area("transactions")]

TRANSACTIONAL_MESSAGE_COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
PARTITIONS = 3
# kafka-python may wait for ever for a coordinator that was killed (3.0.12, send_offsets_to_transaction), whichever the
# broker. A copier ends itself then, after 40 s; and it may happen to both, one after the other.
PROGRESS_S = 150.0
# A copier that was killed shall not keep its partitions for the rest of the test.
SETTINGS = {"group.min.session.timeout.ms": "1000"}


@pytest.fixture
def copiers_of(tmp_path: Path) -> Iterator[Callable[[list[Command]], Copiers]]:
    """Makes copiers that are gone after the test."""
    made: list[Copiers] = []

    def make(commands: list[Command]) -> Copiers:
        made.append(Copiers(commands, tmp_path / "copiers.log"))
        return made[-1]

    yield make
    for copiers in made:
        copiers.kill_all()


class Loop:
    """The topics of a copy job, its input that grows all the time, and its kills: of copiers, and of the broker too."""

    def __init__(
        self,
        broker: BrokerProcess,
        unique: Callable[[str], str],
        client: str,
        *,
        kills_broker: bool,
        replicas: int = 1,
    ) -> None:
        self.broker = broker
        self.kills_broker = kills_broker
        names = unique(f"copy-in-{client}"), unique(f"copy-out-{client}")
        self.source = create_topic(broker.bootstrap, names[0], PARTITIONS, replicas=replicas)
        self.target = create_topic(broker.bootstrap, names[1], PARTITIONS, replicas=replicas, segment_bytes="1048576")
        self.group = unique(f"copy-group-{client}")
        self.producing = SteadyProducing(broker.bootstrap, self.source, PARTITIONS)
        self.broker_kills = self.copier_kills = 0

    def copied(self) -> int:
        """Number of records that the group has committed; 0 while no coordinator answers."""
        try:
            return sum(
                max(offset, 0) for offset in committed(self.broker.bootstrap, self.group, self.source, PARTITIONS)
            )
        except KafkaException:
            return 0

    def run(self, copiers: Copiers, kills: int) -> None:
        """Kills `kills` times, each time at a random moment after some progress, and lets the copy come to its end."""
        moments = random.Random(20261121)
        self.producing.start()
        wait_until(lambda: self.producing.progress > 0, "the first records")
        copiers.keep_up()
        for number in range(kills):
            self._wait_for(copiers, self.copied() + 100)
            time.sleep(moments.uniform(0.0, 0.3))
            if number % 3 != 1 or not self.kills_broker:
                copiers.kill(number)
                self.copier_kills += 1
            if number % 3 != 0 and self.kills_broker:
                self.broker.kill()
                self.broker_kills += 1
                self.broker.start()
        self._wait_for(copiers, self.copied() + 100)
        self.producing.finish()
        self._wait_for(copiers, self.producing.sent)
        copiers.kill_all()

    def _wait_for(self, copiers: Copiers, count: int) -> None:
        def is_done() -> bool:
            copiers.keep_up()
            return self.copied() >= count

        wait_until(is_done, f"{count} records to be copied", timeout_s=PROGRESS_S, pause_s=0.05)

    def check(self) -> int:
        """The output is the input, in order and once, for committed readers. Gives how many other records there are."""
        bootstrap = self.broker.bootstrap
        found = read_decided(bootstrap, self.target, PARTITIONS)
        self.producing.check_end({n: [int(value[:10]) for value in values] for n, values in found.items()})
        everything = read_to_end(bootstrap, self.target, "read_uncommitted", PARTITIONS)
        dropped = sum(map(len, everything.values())) - self.producing.sent
        assert dropped > 0, "some transactions were aborted on the way"
        return dropped

    def report(self, tables: Tables, target: str, client: str, copiers: Copiers, dropped: int) -> None:
        tables.texts.append(
            f"exactly once against {target} with {client}: copiers killed {self.copier_kills} times (started "
            f"{copiers.starts} times), broker killed {self.broker_kills} times; {self.producing.sent} records copied, "
            f"in order, once; {dropped} records of aborted transactions left out"
        )


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker("transactions-kill", SETTINGS)


@pytest.mark.parametrize(
    ("client", "count"),
    [
        pytest.param("confluent-kafka", 2, marks=pytest.mark.client("confluent-kafka")),
        pytest.param("kafka-python", 2, marks=pytest.mark.client("kafka-python 3")),
        pytest.param("aiokafka", 1, marks=pytest.mark.client("aiokafka")),
    ],
)
def test_exactly_once_over_kills(
    client: str,
    count: int,
    broker: BrokerProcess,
    copiers_of: Callable[[list[Command]], Copiers],
    summary_tables: Tables,
    target: str,
    unique: Callable[[str], str],
    kills: int,
) -> None:
    """Copied in transactions while processes and broker are killed: each record once (P-139, P-142)."""
    loop = Loop(broker, unique, client, kills_broker=target != "kafka")
    command = [sys.executable, "-m", "interop_tests.copier", client, broker.bootstrap, loop.source, loop.target]
    copiers = copiers_of([[*command, loop.group, f"{loop.group}-{number}"] for number in range(count)])
    loop.run(copiers, kills)
    loop.report(summary_tables, target, client, copiers, loop.check())


@pytest.mark.java
@pytest.mark.client("Java tools")
def test_message_copier_over_kills(
    broker: BrokerProcess,
    copiers_of: Callable[[list[Command]], Copiers],
    summary_tables: Tables,
    target: str,
    unique: Callable[[str], str],
    kills: int,
    java_libs: Path,
) -> None:
    """As above by TransactionalMessageCopier, Kafka's own test of this, with random aborts (P-136, P-137)."""
    loop = Loop(broker, unique, "java", kills_broker=target != "kafka")
    java = [JAVA, *JAVA_FLAGS, "-cp", f"{java_libs}/*", TRANSACTIONAL_MESSAGE_COPIER]
    job = ["--broker-list", broker.bootstrap, "--input-topic", loop.source, "--output-topic", loop.target]
    how = ["--input-partition", "0", "--group-mode", "--use-group-metadata", "--enable-random-aborts"]
    sizes = ["--transaction-size", "50", "--transaction-timeout", "60000"]
    who = ["--consumer-group", loop.group, "--transactional-id", loop.group]
    copiers = copiers_of([[*java, *job, *how, *sizes, *who]])
    loop.run(copiers, max(kills // 3, 2))
    loop.report(summary_tables, target, "TransactionalMessageCopier", copiers, loop.check())
