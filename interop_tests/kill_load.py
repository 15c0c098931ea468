"""Work for a broker that is killed meanwhile. Each part runs in a thread of its own and knows what was acknowledged.

A part's `check` compares that with what a broker says after a kill; `progress` counts up, so that a test can wait until
a part has got through again. What was sent and not answered may have happened or not, and is told by a look.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import confluent_kafka
import kafka
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic

from interop_tests.clients import Message, position_of, wait_until

RETRY_S = 0.05
REQUEST_TIMEOUT_S = 5.0
# By default librdkafka waits a minute for a broker that stands still.
SOCKET_TIMEOUT_MS = 10_000
LAST_RECORDS_S = 120.0
BEHIND_S = 10.0
WAITING_RECORDS = 500
"""With so many unacknowledged records kafka-python is given no more."""


class Part:
    """A thread that works until it is told to stop. `check` raises AssertionError; so does `finish` for the thread."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.progress = 0
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begins to work."""
        self._thread.start()

    def finish(self) -> None:
        """Ends the work, and says what went wrong in it."""
        self.stopping.set()
        self._thread.join(LAST_RECORDS_S + 30)
        assert not self._thread.is_alive(), f"{type(self).__name__} does not end"
        if self.failure is not None:
            raise self.failure

    def work(self) -> None:
        """Do one round of the work; called until `stopping` is set."""
        raise NotImplementedError

    def end(self) -> None:
        """Do what is needed after the last round. Nothing by default."""

    def mark(self) -> int:
        """Smallest value of `reached` that proves that work which began after this call has succeeded."""
        # One more: an acknowledgement may be on its way.
        return self.progress + 2

    @property
    def reached(self) -> int:
        """Progress so far, in the part's own unit, such as acknowledged records."""
        return self.progress

    def check(self) -> None:
        """Compares what was acknowledged with what the broker says."""

    def _run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.work()
            self.end()
        except BaseException as error:
            self.failure = error


class Producing(Part):
    """Sends numbers to the partitions of a topic by turns, with one idempotent producer.

    Attributes:
        sent: how many numbers were sent: number n to partition n modulo the number of partitions.
        acknowledged: for each partition the acknowledged numbers in the order of the acknowledgements.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(bootstrap)
        self.topic = topic
        self.partitions = partitions
        self.sent = 0
        self.acknowledged: dict[int, list[int]] = defaultdict(list)
        self.refused: list[object] = []
        self._padding = random.Random(7)

    def _next(self) -> tuple[bytes, int]:
        value = b"%010d" % self.sent + b"." * self._padding.randrange(200)
        self.sent += 1
        return value, (self.sent - 1) % self.partitions

    def _acknowledge(self, partition: int, number: int) -> None:
        self.acknowledged[partition].append(number)
        self.progress += 1

    def mark(self) -> int:
        """The next number: from it on there must be an acknowledged one in each partition."""
        return self.sent

    @property
    def reached(self) -> int:
        """The last acknowledged number of the partition that is furthest behind."""
        return min(numbers[-1] if (numbers := self.acknowledged[n]) else -1 for n in range(self.partitions))

    def expected(self, partition: int) -> list[int]:
        """Numbers of the records that were sent to a partition, in order."""
        return list(range(partition, self.sent, self.partitions))

    def check_stored(self, stored: Iterable[Message], is_other: Callable[[bytes], bool] = lambda _: False) -> None:
        """As `check_end`, of all records of the topic.

        Args:
            stored: read to the end of the topic, not to a number of records.
            is_other: True for the value of a record that somebody else has written.
        """
        found: dict[int, list[int]] = defaultdict(list)
        for message in stored:
            value = message.value or b""
            if not is_other(value):
                found[message.partition].append(int(value[:10]))
        self.check_end(found)

    def check_end(self, found: dict[int, list[int]]) -> None:
        """All that was sent is acknowledged, and there in order and once."""
        assert not self.refused, self.refused[:3]
        for partition in range(self.partitions):
            assert self.acknowledged[partition] == self.expected(partition), "acknowledged in the order sent"
            difference = _difference(found[partition], self.expected(partition))
            assert not difference, f"{self.topic}-{partition}: {difference}"


def _difference(found: list[int], expected: list[int]) -> str:
    """Difference between the stored and the sent records of a partition, in words; "" if there is none."""
    if found == expected:
        return ""
    missing = sorted(set(expected) - set(found))
    twice = sorted(number for number, count in Counter(found).items() if count > 1)
    place = next((n for n, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]), len(expected))
    return (
        f"{len(found)} stored of {len(expected)}, first difference at {place}; {len(missing)} missing {missing[:9]}, "
        f"{len(twice)} more than once {twice[:9]}, {len(set(found) - set(expected))} never sent"
    )


class ConfluentProducing(Producing):
    """librdkafka's producer."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(bootstrap, topic, partitions)
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 300_000,
                "socket.timeout.ms": SOCKET_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.refused.append(error)
        else:
            (_, partition), _ = position_of(message)
            self._acknowledge(partition, int((message.value() or b"")[:10]))

    def work(self) -> None:
        for _ in range(30):
            value, partition = self._next()
            try:
                self._producer.produce(self.topic, value, partition=partition, on_delivery=self._delivered)
            except BufferError:
                self.sent -= 1
                self._producer.poll(0.1)
                return
        self._producer.poll(0)
        time.sleep(0.005)

    def end(self) -> None:
        assert self._producer.flush(LAST_RECORDS_S) == 0, "records without an acknowledgement"


class KafkaPythonProducing(Producing):
    """kafka-python's producer, with a bound on unacknowledged records and metadata that is renewed every second.

    Both are for a leader that only clients still reach; it names itself as leader in its metadata.

    - kafka-python sends a metadata request to a broker without a request in flight. Under constant load that is
      always the broker to which it has just reconnected. The bound lets the other connections become idle.
    - After REQUEST_TIMED_OUT from a broker (as opposed to a timeout of its own, which closes the connection) it
      sends the batch to the same broker again and renews no metadata. Both timeouts are `request_timeout_ms` long,
      and on a busy machine the broker's answer comes first. By default metadata is then kept for five minutes.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(bootstrap, topic, partitions)
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            acks="all",
            linger_ms=2,
            delivery_timeout_ms=300_000,
            request_timeout_ms=int(REQUEST_TIMEOUT_S * 1000),
            reconnect_backoff_max_ms=500,
            metadata_max_age_ms=1000,
        )

    def work(self) -> None:
        time.sleep(0.01)
        if self.sent - self.progress > WAITING_RECORDS:
            return
        for _ in range(5):
            value, partition = self._next()
            number = self.sent - 1
            future = self._producer.send(self.topic, value, partition=partition)
            future.add_callback(lambda _, p=partition, n=number: self._acknowledge(p, n))
            future.add_errback(self.refused.append)

    def end(self) -> None:
        self._producer.flush(timeout=LAST_RECORDS_S)
        self._producer.close()


class Consuming(Part):
    """A member of a group that reads a topic and commits, one batch after the other.

    Attributes:
        committed: for each partition the highest offset whose commit was acknowledged.
        tried: the highest offset that was ever sent in a commit.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, group: str) -> None:
        super().__init__(bootstrap)
        self.topic = topic
        self.group = group
        self.partitions = partitions
        self.committed: dict[int, int] = defaultdict(int)
        self.tried: dict[int, int] = defaultdict(int)
        self._next: dict[int, int] = {}
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000,
                "socket.timeout.ms": SOCKET_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic], on_assign=lambda *_: self._next.clear())

    def mark(self) -> int:
        """One more than the commit that may be on its way."""
        return self.progress + self.partitions + 1

    def work(self) -> None:
        for message in self._consumer.consume(200, 0.05):
            if message.error() is None:
                (_, partition), offset = position_of(message)
                if partition not in self._next:
                    # Behind every commit that was tried nobody has read yet: it would be passed over.
                    assert offset <= self.tried[partition], (
                        f"{self.topic}-{partition}: begins at {offset}, at most {self.tried[partition]} was committed"
                    )
                first = self._next.setdefault(partition, offset)
                assert offset == first, f"{self.topic}-{partition}: {offset} was given after {first - 1}"
                assert offset >= self.committed[partition], f"{self.topic}-{partition}: the group went back"
                self._next[partition] = offset + 1
        ready = {partition: offset for partition, offset in self._next.items() if offset > self.committed[partition]}
        if ready:
            self._commit(ready)

    def _commit(self, ready: dict[int, int]) -> None:
        offsets = [confluent_kafka.TopicPartition(self.topic, number, offset) for number, offset in ready.items()]
        for number, offset in ready.items():
            self.tried[number] = max(self.tried[number], offset)
        try:
            done = self._consumer.commit(offsets=offsets, asynchronous=False)
        except confluent_kafka.KafkaException:
            # The broker is away, or the group is forming: not acknowledged, and the records come again if it must be.
            return
        for one in done:
            if one.error is None:
                self.committed[one.partition] = max(self.committed[one.partition], one.offset)
                self.progress += 1

    def check(self) -> None:
        """No committed offset is below one that was acknowledged, or above all that were sent."""
        before = dict(self.committed)
        reader = confluent_kafka.Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group})
        asked = [confluent_kafka.TopicPartition(self.topic, number) for number in range(self.partitions)]
        stored: dict[int, int] = {}

        def is_answered() -> bool:
            # Apache Kafka answers NOT_COORDINATOR before its coordinator has read its log; what else it says, it says
            # until the time is over.
            with suppress(confluent_kafka.KafkaException):
                stored.update((one.partition, one.offset) for one in reader.committed(asked, timeout=30))
            return bool(stored)

        try:
            wait_until(is_answered, "the committed offsets")
        finally:
            reader.close()
        for number, offset in before.items():
            if offset:
                assert offset <= stored[number] <= self.tried[number], (number, offset, stored[number])

    def end(self) -> None:
        self._consumer.close()


class Administering(Part):
    """Creates topics, changes their settings and partitions, and deletes them; a few remain at any time.

    Args:
        pause_s: between one change and the next.

    Attributes:
        topics: name to (retention.ms, partitions) as acknowledged; None for one that was deleted.
        uncertain: names with a request that was not answered.
    """

    def __init__(self, bootstrap: str, prefix: str, replicas: int = 1, pause_s: float = 0.0) -> None:
        super().__init__(bootstrap)
        self.replicas = replicas
        self._pause_s = pause_s
        self.topics: dict[str, tuple[str, int] | None] = {}
        self.uncertain: set[str] = set()
        self._lock = threading.Lock()
        self._prefix = prefix
        self._count = 0
        self._chance = random.Random(11)
        self._admin = self._client()

    def _client(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "reconnect.backoff.max.ms": 500, "log_level": 0})

    def _ask(self, name: str, call: Callable[[], dict[Any, Any]], outcome: tuple[str, int] | None) -> None:
        """Sends one request, and notes what is certain then. Another one waits for a check meanwhile."""
        with self._lock:
            self.uncertain.add(name)
            try:
                for future in call().values():
                    future.result(REQUEST_TIMEOUT_S + 1)
            except (confluent_kafka.KafkaException, TimeoutError):
                self.stopping.wait(RETRY_S)
                # librdkafka's administrator asks for ever the broker that it once learned to be the controller (2.16).
                self._admin = self._client()
                return
            self.topics[name] = outcome
            self.uncertain.discard(name)
            self.progress += 1

    def work(self) -> None:
        self.stopping.wait(self._pause_s)
        certain = {name: is_now for name, is_now in self.topics.items() if name not in self.uncertain}
        living = [name for name, is_now in certain.items() if is_now is not None]
        what = self._chance.randrange(4)
        timeout = {"request_timeout": REQUEST_TIMEOUT_S}
        if what == 0 or len(living) < 3:
            self._count += 1
            new, retention = f"{self._prefix}-{self._count}", str(3_600_000 + self._count)
            topic = NewTopic(new, 2, self.replicas, config={"retention.ms": retention})
            self._ask(new, lambda: self._admin.create_topics([topic], **timeout), (retention, 2))
            return
        name = self._chance.choice(living)
        state = certain[name]
        assert state is not None
        retention, partitions = state
        if what == 1:
            retention = str(int(retention) + 1000)
            entry = ConfigEntry("retention.ms", retention, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
            outcome = (retention, partitions)
            self._ask(name, lambda: self._admin.incremental_alter_configs([resource], **timeout), outcome)
        elif what == 2 and partitions < 6:
            more = NewPartitions(name, partitions + 1)
            self._ask(name, lambda: self._admin.create_partitions([more], **timeout), (retention, partitions + 1))
        elif len(living) > 6:
            self._ask(name, lambda: self._admin.delete_topics([name], **timeout), None)

    def check(self) -> None:
        """Every acknowledged change is visible. A topic with an unanswered request may have either state, and is not
        used again."""
        # The node that is asked may be a moment behind the controller; in Apache Kafka also when it is both.
        deadline = time.monotonic() + BEHIND_S
        with self._lock:
            while True:
                try:
                    self._compare()
                except (AssertionError, confluent_kafka.KafkaException):
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(RETRY_S)
                else:
                    return

    def _compare(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        known = admin.list_topics(timeout=30).topics
        certain = {name: state for name, state in self.topics.items() if name not in self.uncertain}
        resources = [
            ConfigResource(ConfigResource.Type.TOPIC, name) for name, state in certain.items() if state is not None
        ]
        described = admin.describe_configs(resources, request_timeout=30) if resources else {}
        for resource, future in described.items():
            state = certain[resource.name]
            assert state is not None
            found = known.get(resource.name)
            assert found is not None, f"{resource.name} was created and is gone"
            assert len(found.partitions) == state[1], f"{resource.name}: partitions"
            assert future.result(30)["retention.ms"].value == state[0], f"{resource.name}: retention.ms"
        for name, state in certain.items():
            assert state is not None or name not in known, f"{name} was deleted and is back"


def wait_for_progress(parts: list[Part], timeout_s: float = 60.0) -> None:
    """Until each part has got through once more; a part that failed raises what it failed with."""
    before = [part.progress for part in parts]

    def all_went_on() -> bool:
        for part in parts:
            if part.failure is not None:
                raise part.failure
        return all(part.progress > start for part, start in zip(parts, before, strict=True))

    wait_until(
        all_went_on,
        lambda _: (
            "progress of "
            + ", ".join(
                type(part).__name__ for part, start in zip(parts, before, strict=True) if part.progress <= start
            )
        ),
        timeout_s=timeout_s,
    )
