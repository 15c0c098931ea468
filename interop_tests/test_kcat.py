"""kcat, unchanged: Debian's package, with the librdkafka of that release."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from interop_tests.clients import CODECS, Message, confluent_produce, create_topic, wait_until
from interop_tests.kcat_package import Kcat, find_kcat
from interop_tests.made_once import or_skip
from interop_tests.wire import RECENT_MS, Connection, batch_codecs

pytestmark = [pytest.mark.area("records"), pytest.mark.client("kcat")]

Unique = Callable[[str], str]

PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def installed() -> Kcat:
    """kcat, wherever it comes from."""
    return or_skip(find_kcat)


class At:
    """kcat pointed at the broker under test."""

    def __init__(self, kcat: Kcat, bootstrap: str) -> None:
        self.kcat = kcat
        self.bootstrap = bootstrap

    def check(self, *arguments: str, stdin: str = "") -> list[str]:
        """Runs it; the lines it printed. A failure is an AssertionError with what it said."""
        done = self.kcat.run("-b", self.bootstrap, *arguments, stdin=stdin.encode())
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().splitlines()

    def fails(self, *arguments: str, stdin: str = "") -> str:
        """Runs it and expects a failure: what it said."""
        done = self.kcat.run("-b", self.bootstrap, *arguments, stdin=stdin.encode())
        assert done.returncode != 0, done.stdout.decode()
        return done.stderr.decode()

    def records(self, topic: str, *arguments: str, form: str = "%s") -> list[str]:
        """Records of a topic up to its end, one line each, as a kcat consumer without a group prints them."""
        return self.check("-C", "-t", topic, "-e", "-q", "-f", form + "\n", *arguments)

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """One that goes on until the end of the block, or until whoever reads from it has waited too long."""
        process = self.kcat.start("-b", self.bootstrap, *arguments)
        patience = threading.Timer(PATIENCE_S, process.kill)
        patience.start()
        try:
            yield process
        finally:
            patience.cancel()
            process.terminate()
            process.communicate(timeout=30)


@pytest.fixture
def kcat(installed: Kcat, bootstrap: str) -> At:
    """kcat pointed at the broker under test."""
    return At(installed, bootstrap)


def test_record_whole(kcat: At, bootstrap: str, name: str) -> None:
    """Key, value, headers and nulls go in and come out; offsets and timestamps are told."""
    topic = create_topic(bootstrap, name, 2)
    kcat.check("-P", "-t", topic, "-p", "1", "-K", ":", "-Z", "-H", "a=1", "-H", "b=2", stdin="k:v\ntombstone:\n")
    found = kcat.records(topic, "-Z", "-o", "beginning", form="%p %o %k %s %h %S")
    assert found == ["1 0 k v a=1,b=2 1", "1 1 tombstone NULL a=1,b=2 -1"]
    (stamp, _) = kcat.records(topic, "-o", "beginning", form="%T")
    assert int(stamp) > RECENT_MS


@pytest.mark.area("codecs")
@pytest.mark.parametrize("codec", CODECS)
def test_codecs(codec: str, kcat: At, bootstrap: str, name: str) -> None:
    """Batches that kcat compresses are stored with their codec and read by kcat."""
    topic = create_topic(bootstrap, name)
    lines = [f"{number} the same again and again and again" for number in range(50)]
    kcat.check("-P", "-t", topic, "-z", codec, "-X", "linger.ms=50", stdin="\n".join(lines) + "\n")
    with Connection(bootstrap) as connection:
        assert batch_codecs(connection.fetch(topic, 0, 0)) == {CODECS.index(codec)}
    assert kcat.records(topic, "-o", "beginning") == lines


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(acks: str, kcat: At, bootstrap: str, name: str) -> None:
    """acks 0, 1 and all: a thousand lines are stored once each, in order."""
    topic = create_topic(bootstrap, name)
    lines = [str(number) for number in range(1000)]
    kcat.check("-P", "-t", topic, "-X", f"acks={acks}", stdin="\n".join(lines) + "\n")
    wait_until(lambda: kcat.records(topic, "-o", "beginning") == lines, "a thousand lines")


def test_idempotent_producer(kcat: At, bootstrap: str, name: str) -> None:
    """An idempotent producer's records are stored once, in order."""
    topic = create_topic(bootstrap, name)
    lines = [str(number) for number in range(1000)]
    kcat.check("-P", "-t", topic, "-X", "enable.idempotence=true", stdin="\n".join(lines) + "\n")
    assert kcat.records(topic, "-o", "beginning") == lines


def test_topic_made_by_first_use(kcat: At, name: str) -> None:
    """auto.create.topics.enable: the first record to a topic makes it."""
    kcat.check("-P", "-t", name, stdin="first\n")
    assert kcat.records(name, "-o", "beginning") == ["first"]


@pytest.fixture
def timed(bootstrap: str, name: str) -> str:
    """A topic of ten records, a second apart."""
    from confluent_kafka import Producer

    topic = create_topic(bootstrap, name)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(topic, b"%d" % number, timestamp=RECENT_MS + 1000 * number)
    assert producer.flush(30) == 0
    return topic


@pytest.mark.area("offsets")
def test_offsets_by_time(kcat: At, timed: str) -> None:
    """Offsets by time, beginning and end, asked for and consumed from."""
    query = {f"{timed}:0:{RECENT_MS + 3500}": 4, f"{timed}:0:-2": 0, f"{timed}:0:-1": 10}
    for asked, offset in query.items():
        assert kcat.check("-Q", "-t", asked) == [f"{timed} [0] offset {offset}"]
    assert kcat.records(timed, "-o", f"s@{RECENT_MS + 7000}") == ["7", "8", "9"]
    assert kcat.records(timed, "-o", f"s@{RECENT_MS + 2000}", "-o", f"e@{RECENT_MS + 4000}") == ["2", "3"]


@pytest.mark.area("offsets")
def test_positions(kcat: At, timed: str) -> None:
    """From the beginning, from an offset, the last few, only so many."""
    assert kcat.records(timed, "-o", "8") == ["8", "9"]
    assert kcat.records(timed, "-o", "-3") == ["7", "8", "9"]
    assert kcat.records(timed, "-o", "beginning", "-c", "2") == ["0", "1"]
    assert kcat.records(timed, "-o", "end") == []


@pytest.mark.area("admin")
def test_metadata(kcat: At, bootstrap: str, name: str) -> None:
    """The list of brokers, topics, partitions, leaders and replicas, as JSON."""
    topic = create_topic(bootstrap, name, 3)
    listed: dict[str, Any] = json.loads("".join(kcat.check("-L", "-J", "-t", topic)))
    nodes = {broker["id"] for broker in listed["brokers"]}
    assert listed["controllerid"] in nodes
    (described,) = listed["topics"]
    assert described["topic"] == topic
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2]
    assert {partition["leader"] for partition in described["partitions"]} <= nodes
    assert topic in {one["topic"] for one in json.loads("".join(kcat.check("-L", "-J")))["topics"]}


@pytest.mark.area("groups")
def test_group_shares_and_goes_on(kcat: At, bootstrap: str, name: str, unique: Unique) -> None:
    """Two members of a group share the partitions; what the group read is not read again."""
    topic, group = create_topic(bootstrap, name, 4), unique("group")
    joining = ("-G", group, "-X", "heartbeat.interval.ms=200", "-X", "auto.offset.reset=earliest", "-f", "%p %s\n")
    with kcat.running(*joining, "-u", topic) as first, kcat.running(*joining, "-u", topic) as second:
        for member in (first, second):
            assert member.stderr is not None
            share: set[str] = set()
            while len(share) != 2:  # it says what it is assigned at each rebalance
                line = member.stderr.readline().decode()
                assert line, "kcat ended"
                if "assigned:" in line:
                    share = set(line.partition("assigned:")[2].strip().split(", "))
        # Spread by their keys: those without may all go into the partition that librdkafka sticks to for a while.
        keyed = [Message(b"%d" % number, b"%d" % number) for number in range(400)]
        confluent_produce(bootstrap, topic, keyed)
        got: list[str] = []
        for member in (first, second):
            assert member.stdout is not None
            got.append(member.stdout.readline().decode().split()[0])
        assert len(set(got)) == 2, "each reads partitions of its own"
    confluent_produce(bootstrap, topic, [Message(None, b"last")])
    rest = kcat.check("-q", "-e", *joining, topic)
    assert [line for line in rest if line.endswith(" last")]


@pytest.mark.area("errors")
def test_errors(kcat: At, bootstrap: str, name: str) -> None:
    """A topic that is not there, a partition that is not there and a record that is too large are told as such."""
    assert "Unknown topic or partition" in kcat.fails("-C", "-t", name, "-e", "-X", "allow.auto.create.topics=false")
    topic = create_topic(bootstrap, name + "-there", max_message_bytes="1000")
    assert "Unknown partition" in kcat.fails("-P", "-t", topic, "-p", "9", stdin="v\n")
    assert "Message size too large" in kcat.fails("-P", "-t", topic, stdin="x" * 2000 + "\n")
    assert kcat.records(topic, "-o", "beginning") == []
