"""A broker with two log directories: where replicas go, and what kafka-log-dirs and kafka-reassign-partitions say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from kafka import KafkaAdminClient

from interop_tests.brokers import BrokerProcess
from interop_tests.clients import (
    Message,
    confluent_consume,
    confluent_produce,
    create_topic,
    kafka_python_consume,
    wait_until,
)
from interop_tests.java_tools import LOG_DIRS, REASSIGN, JavaTools
from interop_tests.kill_load import ConfluentProducing, Part, wait_for_progress
from interop_tests.test_java_admin_tools import json_file, moves_of
from interop_tests.test_java_tools import numbered
from interop_tests.transaction_clients import transactional_producer
from interop_tests.wire import Connection, record_batch

pytestmark = [pytest.mark.java, pytest.mark.area("storage"), pytest.mark.client("Java tools"), pytest.mark.own_broker]

PARTITIONS = 6
KAFKA_STORAGE_ERROR = 56


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The two log directories."""
    folder = tmp_path_factory.mktemp("several")
    return folder / "first", folder / "second"


@pytest.fixture(scope="module")
def two_directories(start_broker: Callable[..., BrokerProcess], folders: tuple[Path, Path]) -> BrokerProcess:
    """A broker that has them."""
    settings = {"log.dirs": ",".join(map(str, folders)), "log.cleaner.backoff.ms": "300"}
    return start_broker("two-directories", settings)


Places = dict[tuple[str, int], str]
"""Log directory by topic and partition."""


def described(bootstrap: str) -> list[dict[str, Any]]:
    """The log directories of the broker, as kafka-python gets them."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        (broker,) = admin.describe_log_dirs()
        directories: list[dict[str, Any]] = broker["log_dirs"]
        return directories
    finally:
        admin.close()


def places_of(bootstrap: str, topics: list[str]) -> Places:
    """Directories of the replicas of some topics, without the copies of those that move."""
    return {
        (topic["name"], log["partition_index"]): directory["log_dir"]
        for directory in described(bootstrap)
        for topic in directory["topics"]
        if topic["name"] in topics
        for log in topic["partitions"]
        if not log["is_future_key"]
    }


def copies_of(bootstrap: str, name: str) -> dict[int, tuple[str, int]]:
    """Directory and lag of the copies of a topic's replicas that move, by partition."""
    return {
        log["partition_index"]: (directory["log_dir"], log["offset_lag"])
        for directory in described(bootstrap)
        for topic in directory["topics"]
        if topic["name"] == name
        for log in topic["partitions"]
        if log["is_future_key"]
    }


def are_at(bootstrap: str, goal: Places) -> bool:
    """True if all these replicas are in the directories to which they were to move."""
    return places_of(bootstrap, list({topic for topic, _ in goal})) == goal


def move(bootstrap: str, goal: Places) -> dict[tuple[str, int], str]:
    """Asks for moves; the name of the error of each."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        answers = admin.alter_replica_log_dirs({(topic, number, 1): path for (topic, number), path in goal.items()})
        return {(replica.topic, replica.partition): error.__name__ for replica, error in answers.items()}
    finally:
        admin.close()


def placement(tools: JavaTools, topic: str) -> dict[str, set[int]]:
    """Partitions of a topic by log directory, as kafka-log-dirs prints them."""
    output = tools.check(LOG_DIRS, "--describe", "--topic-list", topic)
    (line,) = [line for line in output.lines if line.startswith("{")]
    found: dict[str, Any] = json.loads(line)
    (broker,) = found["brokers"]
    assert [directory["error"] for directory in broker["logDirs"]] == [None, None]
    return {
        directory["logDir"]: {int(log["partition"].rpartition("-")[2]) for log in directory["partitions"]}
        for directory in broker["logDirs"]
    }


def test_replicas_are_spread(
    java_libs: Path, two_directories: BrokerProcess, folders: tuple[Path, Path], name: str
) -> None:
    """Each new replica goes to the directory with the fewest; a restart finds them where they are (P-275, P-277)."""
    tools = JavaTools(java_libs, two_directories.bootstrap)
    create_topic(two_directories.bootstrap, name, PARTITIONS)
    spread = placement(tools, name)
    assert set(spread) == set(map(str, folders))
    assert sorted(map(len, spread.values())) == [PARTITIONS // 2, PARTITIONS // 2]
    confluent_produce(two_directories.bootstrap, name, numbered(300))
    two_directories.stop()
    two_directories.start()
    assert placement(tools, name) == spread
    assert len(kafka_python_consume(two_directories.bootstrap, [name])) == 300


def test_a_replica_where_it_should_be(
    java_libs: Path, two_directories: BrokerProcess, name: str, tmp_path: Path
) -> None:
    """kafka-reassign-partitions that names the directories of now is done at once (P-278)."""
    tools = JavaTools(java_libs, two_directories.bootstrap)
    create_topic(two_directories.bootstrap, name, 2)
    places = {number: path for path, numbers in placement(tools, name).items() for number in numbers}
    plan = json_file(tmp_path, moves_of(name, *((number, [1], [path]) for number, path in places.items())))
    printed = tools.check(REASSIGN, "--reassignment-json-file", plan, "--execute").stdout
    for number, path in places.items():
        assert (
            f"Successfully started moving log directory to {path} for replica {name}-{number} with broker 1" in printed
        )
    verified = tools.check(REASSIGN, "--reassignment-json-file", plan, "--verify").stdout
    for number, path in places.items():
        assert f"Reassignment of replica {name}-{number}-1 completed successfully." in verified, (path, verified)


def swapped(places: Places, folders: tuple[Path, Path]) -> Places:
    """Each replica in the other one of the two directories."""
    first, second = map(str, folders)
    return {replica: second if path == first else first for replica, path in places.items()}


def test_replicas_move_by_the_tool(
    java_libs: Path, two_directories: BrokerProcess, folders: tuple[Path, Path], name: str, tmp_path: Path
) -> None:
    """kafka-reassign-partitions moves, slowly by its throttle, over a kill -9 of the broker, and says when it is done;
    kafka-log-dirs shows the copies meanwhile (P-300, P-301, P-303)."""
    bootstrap = two_directories.bootstrap
    tools = JavaTools(java_libs, bootstrap)
    create_topic(bootstrap, name, 2)
    messages = [Message(b"%d" % number, b"%010d" % number + b"." * 10_000) for number in range(600)]
    confluent_produce(bootstrap, name, messages)
    before = places_of(bootstrap, [name])
    goal = swapped(before, folders)
    plan = json_file(tmp_path, moves_of(name, *((number, [1], [goal[name, number]]) for number in range(2))))
    # 6 MB at 500 kB/s.
    slowly = ["--reassignment-json-file", plan, "--execute", "--replica-alter-log-dirs-throttle", "500000"]
    printed = tools.check(REASSIGN, *slowly).stdout
    for number in range(2):
        assert (
            f"Successfully started moving log directory to {goal[name, number]} for replica {name}-{number}" in printed
        )
    copies = copies_of(bootstrap, name)
    assert {number: path for number, (path, _) in copies.items()} == {
        number: goal[name, number] for number in range(2)
    }, copies
    assert all(lag > 0 for _, lag in copies.values()), copies
    assert places_of(bootstrap, [name]) == before
    verified = tools.check(REASSIGN, "--reassignment-json-file", plan, "--verify", "--preserve-throttles").stdout
    assert f"Reassignment of replica {name}-0-1 is still in progress." in verified, verified
    two_directories.kill()
    assert all(any(folder.glob(f"{name}-*-future")) for folder in folders)
    two_directories.start()
    confluent_produce(bootstrap, name, [Message(b"%d" % number, b"%010d" % number) for number in range(600, 620)])
    quickly = ["--reassignment-json-file", plan, "--execute", "--additional"]
    tools.check(REASSIGN, *quickly, "--replica-alter-log-dirs-throttle", "1000000000")
    wait_until(lambda: places_of(bootstrap, [name]) == goal and not copies_of(bootstrap, name), "the moves")
    verified = tools.check(REASSIGN, "--reassignment-json-file", plan, "--verify").stdout
    for number in range(2):
        assert f"Reassignment of replica {name}-{number}-1 completed successfully." in verified, verified
    assert placement(tools, name) == {
        path: {number for number in range(2) if goal[name, number] == path} for path in map(str, folders)
    }
    values = [int((message.value or b"")[:10]) for message in kafka_python_consume(bootstrap, [name])]
    assert sorted(values) == list(range(620))
    wait_until(lambda: not any(any(folder.glob("*-future")) for folder in folders), "the copies to be gone")


class Transactions(Part):
    """One transaction of five records after another, every third of which is aborted."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(bootstrap)
        self.topic = topic
        self.committed: list[int] = []
        self.refused = 0
        self._number = 0
        self._producer = transactional_producer("confluent-kafka", bootstrap, f"{topic}-id")
        self._producer.init()

    def work(self) -> None:
        number, self._number = self._number, self._number + 1
        self._producer.begin()
        for place in range(5):
            self._producer.send(self.topic, b"%010d" % (5 * number + place))
        self._producer.flush()
        if number % 3 == 2:
            self._producer.abort()
            self.progress += 1
            return
        try:
            self._producer.commit()
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self.refused += 1
            self._producer.abort()
            return
        self.committed += range(5 * number, 5 * number + 5)
        self.progress += 1

    def end(self) -> None:
        self._producer.close()


class Compacted(Part):
    """Numbers under fifty keys in a compacted topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(bootstrap)
        self.topic = topic
        self.sent = 0

    def work(self) -> None:
        numbers = range(self.sent, self.sent + 500)
        messages = [Message(b"%d" % (number % 50), b"%010d" % number + b"." * 1000) for number in numbers]
        confluent_produce(self.bootstrap, self.topic, messages)
        self.sent += 500
        self.progress += 1

    def latest(self) -> dict[bytes, int]:
        """The last number of each key."""
        return {b"%d" % (number % 50): number for number in range(self.sent - 50, self.sent)}


def test_moves_under_load(two_directories: BrokerProcess, folders: tuple[Path, Path], name: str, target: str) -> None:
    """Back and forth, with the coordinator's topic, and twice with a kill -9 in between: what was acknowledged is there
    once, transactions are whole, and the last value of each key stays (P-300, P-303).

    Apache Kafka is not killed: its coordinator may leave out markers then (test_transactions_kill.py), and its two
    renames may leave two logs of a partition, with which it does not start.
    """
    kills = () if target == "kafka" else (1, 3)
    bootstrap = two_directories.bootstrap
    plain = create_topic(bootstrap, f"{name}-plain", 2, segment_bytes="1048576")
    decided = create_topic(bootstrap, f"{name}-decided", segment_bytes="1048576")
    compacted = create_topic(
        bootstrap,
        f"{name}-compacted",
        segment_bytes="1048576",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.1",
    )
    producing = ConfluentProducing(bootstrap, plain, 2)
    transactions = Transactions(bootstrap, decided)
    keyed = Compacted(bootstrap, compacted)
    parts: list[Part] = [producing, transactions, keyed]
    for part in parts:
        part.start()
    topics = [plain, decided, compacted, "__transaction_state"]
    for number in range(4):
        wait_for_progress(parts)
        goal = swapped(places_of(bootstrap, topics), folders)
        assert set(move(bootstrap, goal).values()) == {"NoError"}
        if number in kills:
            two_directories.kill()
            two_directories.start()
            wait_for_progress(parts)
        # Moves that the kill found on their way go on by themselves.
        wait_until(partial(are_at, bootstrap, goal), "the moves", timeout_s=60)
    wait_for_progress(parts)
    for part in parts:
        part.finish()
    producing.check_stored(confluent_consume(bootstrap, [plain]))
    found = [
        int(message.value or b"") for message in confluent_consume(bootstrap, [decided], isolation="read_committed")
    ]
    assert found == transactions.committed
    # Apache Kafka forgets at the end of a move that the coordinator has verified a transaction (KIP-890), and refuses
    # its first batch with INVALID_TXN_STATE.
    assert transactions.refused == 0 or target == "kafka"
    stored: dict[bytes, int] = {}
    for message in kafka_python_consume(bootstrap, [compacted]):
        stored[message.key or b""] = int((message.value or b"")[:10])
    assert stored == keyed.latest()


def test_a_foreign_directory_ends_the_start(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    """P-480: a directory that is no log, in either of the log directories, is named; then the process ends with 1."""
    folders = tmp_path / "first", tmp_path / "second"
    broker = start_broker("foreign-directory", {"log.dirs": ",".join(map(str, folders))})
    for folder in folders:
        broker.stop()
        (folder / "lost+found").mkdir()
        with pytest.raises(RuntimeError, match="ended with code 1 at its start"):
            broker.start()
        assert f"{folder}/lost+found" in broker.log_text()
        (folder / "lost+found").rmdir()
        (folder / "remote-log-index-cache").mkdir()
        (folder / "a-file").touch()
        broker.start()


def test_a_directory_that_is_gone_gets_no_more_records(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """P-672: appends to files that are open still succeed, until the next checkpoint of the high watermarks."""
    settings = {
        "log.dirs": f"{tmp_path / 'first'},{tmp_path / 'second'}",
        "metadata.log.dir": str(tmp_path / "metadata"),
        "replica.high.watermark.checkpoint.interval.ms": "500",
    }
    broker = start_broker("gone-directory", settings)
    create_topic(broker.bootstrap, "gone")
    (place,) = places_of(broker.bootstrap, ["gone"]).values()
    with Connection(broker.bootstrap) as connection:
        assert connection.produce("gone", 0, record_batch([b"before"])) == (0, 0)
        shutil.rmtree(place)
        Path(place).touch()

        def is_refused() -> bool:
            return connection.produce("gone", 0, record_batch([b"after"]))[0] == KAFKA_STORAGE_ERROR

        wait_until(is_refused, "the directory to be offline")
    assert {each["log_dir"]: each["error_code"] for each in described(broker.bootstrap)}[place] == KAFKA_STORAGE_ERROR
