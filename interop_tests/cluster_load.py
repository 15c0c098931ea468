"""All clients at work on a cluster while its nodes are killed, paused, cut off and restarted.

What each of them does and checks is in `kill_load.py`; here the Java clients join them, and all are one load.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from interop_tests.clients import Message, confluent_consume, create_topic, wait_until
from interop_tests.cluster import NODES, Cluster
from interop_tests.copiers import SteadyProducing
from interop_tests.kill_load import (
    Administering,
    Consuming,
    KafkaPythonProducing,
    Part,
    Producing,
    wait_for_progress,
)
from interop_tests.report import Tables
from interop_tests.verifiable import Consumer, Tool

PARTITIONS = 3
RECOVERY_S = 75.0
START_S = 180.0
JAVA_RECORDS_PER_S = "200"
# Between changes of topics. For each deleted topic that it hears of, Apache Kafka 4.3 writes to all partitions of
# __consumer_offsets, and its broker takes in no more metadata until that is acknowledged, or for 5 s. While a node is
# gone and still in sync nothing is acknowledged; and of what would mend that a broker hears after all these deletions.
KAFKA_PAUSE_S = 0.5


class JavaProducing(Part):
    """VerifiableProducer: idempotent, acks=all, 200 records a second."""

    def __init__(self, libs: Path, bootstrap: str, topic: str) -> None:
        super().__init__(bootstrap)
        self.topic = topic
        with tempfile.NamedTemporaryFile("w", suffix=".properties", delete=False) as file:
            # The tool's own setting is not to try again.
            file.write("retries=2147483647\nenable.idempotence=true\n")
        self._config = Path(file.name)
        arguments = ("--topic", topic, "--throughput", JAVA_RECORDS_PER_S, "--acks", "-1")
        self._tool = Tool(libs, "VerifiableProducer", bootstrap, *arguments, "--command-config", file.name)

    def work(self) -> None:
        self.progress = len(self._tool.named("producer_send_success"))
        assert self._tool.process.poll() is None, "VerifiableProducer has ended"
        self.stopping.wait(0.1)

    def end(self) -> None:
        self._tool.stop()
        self._config.unlink(missing_ok=True)
        assert not self._tool.named("producer_send_error"), self._tool.named("producer_send_error")[:3]

    def kill(self) -> None:
        """kill -9, where it still runs."""
        self._tool.kill()
        self._config.unlink(missing_ok=True)

    def acknowledged(self) -> dict[tuple[int, int], str]:
        """The value at each place (partition and offset) that was acknowledged."""
        events = self._tool.named("producer_send_success")
        return {(event["partition"], event["offset"]): event["value"] for event in events}


class JavaConsuming(Part):
    """VerifiableConsumer: a member of a group that reads what JavaProducing writes, and commits."""

    def __init__(self, libs: Path, bootstrap: str, topic: str, group: str) -> None:
        super().__init__(bootstrap)
        self._tool = Consumer(
            libs,
            "VerifiableConsumer",
            bootstrap,
            *("--topic", topic, "--group-id", group, "--reset-policy", "earliest", "--verbose"),
            *("--session-timeout", "10000"),
        )

    def work(self) -> None:
        self.progress = len(self._tool.named("record_data"))
        assert self._tool.process.poll() is None, "VerifiableConsumer has ended"
        self.stopping.wait(0.1)

    def read(self) -> set[str]:
        """All values that it was given."""
        return set(self._tool.values)

    def end(self) -> None:
        self._tool.stop()

    def kill(self) -> None:
        """kill -9, where it still runs."""
        self._tool.kill()


class Load:
    """Producers and group members of three libraries, and an administrator; topics with three replicas.

    Args:
        note: receives one line on each run that has ended well.
        kafka_comes: nodes of Apache Kafka take the place of others, in a cluster that may have none at first.

    Attributes:
        recovery_s: by part, the longest time that it stood still after `disturbed`.
    """

    def __init__(
        self,
        cluster: Cluster,
        unique: Callable[[str], str],
        java_libs: Path | None,
        note: Callable[[str], None],
        *,
        kafka_comes: bool,
    ) -> None:
        # A warning for each of the thousand retries would hide what went wrong.
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        bootstrap = cluster.bootstrap
        self.cluster = cluster
        self._note = note
        self.topics = [
            create_topic(bootstrap, unique(f"load-{number}"), PARTITIONS, replicas=NODES) for number in range(3)
        ]
        self.producers: list[Producing] = [
            SteadyProducing(bootstrap, self.topics[0], PARTITIONS),
            KafkaPythonProducing(bootstrap, self.topics[1], PARTITIONS),
        ]
        self.readers = [
            Consuming(bootstrap, topic, PARTITIONS, unique("load-group")) for topic in (self.topics[0], self.topics[1])
        ]
        # One less than there are nodes: no topic can have more replicas than brokers that live.
        pause_s = KAFKA_PAUSE_S if cluster.tools is not None or kafka_comes else 0.0
        self.administering = Administering(bootstrap, unique("load-topic"), NODES - 1, pause_s)
        self.parts: list[Part] = [*self.producers, *self.readers, self.administering]
        self.java_producing: JavaProducing | None = None
        if java_libs is not None:
            self.java_producing = JavaProducing(java_libs, bootstrap, self.topics[2])
            self.java_consuming = JavaConsuming(java_libs, bootstrap, self.topics[2], unique("load-group"))
            self.parts += [self.java_producing, self.java_consuming]
        self.recovery_s: dict[str, float] = defaultdict(float)
        for part in self.parts:
            part.start()

    def wait_for_progress(self) -> None:
        """Until every client has got through once more; those of Java may have to start first."""
        wait_for_progress(self.parts, START_S)

    def recover(self) -> None:
        """Until every client has got through again after what was just done to the cluster; notes how long it took."""
        began = time.monotonic()
        goals = [part.mark() for part in self.parts]
        waiting = dict(enumerate(self.parts))

        def all_went_on() -> bool:
            for number, part in list(waiting.items()):
                if part.failure is not None:
                    raise part.failure
                if part.reached >= goals[number]:
                    del waiting[number]
                    name = type(part).__name__
                    self.recovery_s[name] = max(self.recovery_s[name], time.monotonic() - began)
            return not waiting

        try:
            wait_until(all_went_on, "recovery", timeout_s=RECOVERY_S)
        except AssertionError:
            names = ", ".join(f"{type(part).__name__} of {vars(part).get('topic')}" for part in waiting.values())
            view = self.cluster.view()
            state = {place: partition for place, partition in view.partitions.items() if place[0] in self.topics}
            raise AssertionError(
                f"not recovered after {RECOVERY_S:.0f} s: {names}; alive are {sorted(view.brokers)}, {state}"
            ) from None

    def close(self) -> None:
        """Leaves nothing behind, whatever has failed."""
        for part in self.parts:
            part.stopping.set()
        if self.java_producing is not None:
            self.java_producing.kill()
            self.java_consuming.kill()

    def check(self) -> None:
        """Check the commits and changes of metadata that were acknowledged so far. Raises AssertionError for a lost
        one."""
        for part in self.parts:
            part.check()

    def finish(self, event: str) -> None:
        """Ends the work; every record that was acknowledged is there, in order, once. `event` was done to the nodes."""
        bootstrap = self.cluster.bootstrap
        for part in self.parts:
            if part is not self.parts[-1] or self.java_producing is None:
                part.finish()
        for producing in self.producers:
            producing.check_stored(confluent_consume(bootstrap, [producing.topic]))
        if self.java_producing is not None:
            acknowledged = self.java_producing.acknowledged()
            topic = self.java_producing.topic
            check_places(topic, acknowledged, confluent_consume(bootstrap, [topic]))
            wait_until(
                lambda: set(acknowledged.values()) <= self.java_consuming.read(),
                "the Java consumer to have read everything",
                timeout_s=RECOVERY_S,
            )
            self.java_consuming.finish()
        for part in self.parts:
            part.check()
        self._note(f"{event}: {self.summary()}")

    def summary(self) -> str:
        """Totals of the load, for the end of the run: records, commits, changes of metadata, longest standstills in
        seconds."""
        acknowledged = sum(one.sent for one in self.producers)
        if self.java_producing is not None:
            acknowledged += len(self.java_producing.acknowledged())
        times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in sorted(self.recovery_s.items()))
        return (
            f"{acknowledged} records acknowledged, all there, in order, once; "
            f"{sum(one.progress for one in self.readers)} commits, none went back; "
            f"{self.administering.progress} changes of metadata, all there; longest standstill: {times}"
        )


def check_places(topic: str, acknowledged: dict[tuple[int, int], str], messages: Iterable[Message]) -> None:
    """Each acknowledged value is at its place (partition and offset), and the topic has its numbers in order, once.

    Args:
        topic: for the message of what is wrong.
        acknowledged: the value at each place, as the producer was told.
        messages: all records of the topic. Some may be there that were not acknowledged.
    """
    stored = {(m.partition, m.offset): (m.value or b"").decode() for m in messages}
    lost = {place: value for place, value in acknowledged.items() if stored.get(place) != value}
    assert not lost, f"{topic}: {len(lost)} acknowledged records are lost: {list(lost.items())[:3]}"
    twice = [value for value, count in Counter(stored.values()).items() if count > 1]
    assert not twice, f"{topic}: {len(twice)} records are stored more than once: {twice[:3]}"
    for partition in sorted({number for number, _ in stored}):
        values = [int(value) for (number, _), value in sorted(stored.items()) if number == partition]
        assert values == sorted(values), f"{topic}-{partition} is out of order"


@contextmanager
def clients_at_work(
    cluster: Cluster,
    unique: Callable[[str], str],
    java_libs: Path | None,
    target: str,
    tables: Tables,
    *,
    kafka_comes: bool = False,
) -> Iterator[Load]:
    """A load on a whole cluster, every part of which has begun; its summary goes to the tables of the run."""

    def note(text: str) -> None:
        tables.texts.append(f"three nodes of {target}, {text}")

    cluster.wait_until_whole()
    load = Load(cluster, unique, java_libs, note, kafka_comes=kafka_comes)
    try:
        load.wait_for_progress()
        yield load
    finally:
        load.close()
