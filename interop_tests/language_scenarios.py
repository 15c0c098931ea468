"""Scenarios that clients of every language go through; a test class takes those that its client can do.

A class of scenarios is no test by itself: `class TestSarama(Records, Groups)` with the client's name is one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from interop_tests.brokers import BrokerProcess
from interop_tests.clients import (
    CODECS,
    Message,
    confluent_produce,
    create_topic,
    position_of,
    wait_until,
)
from interop_tests.conftest import USERS
from interop_tests.language_client import LanguageClient, LanguageClientError, Line, Record, Running
from interop_tests.reading import TIMEOUT_S
from interop_tests.wire import RECENT_MS, Connection, batch_codecs

Unique = Callable[[str], str]
Command = Callable[[str], list[str]]

MESSAGE_TOO_LARGE = 10
# Position of the producer id in a batch of version 2.
PRODUCER_ID = 43


class Scenarios:
    """Base of all scenarios: `command` is a fixture of the module that takes the name of the client's program."""

    program: ClassVar[str]

    @pytest.fixture
    def codecs(self) -> Sequence[str]:
        """Codecs that the client has."""
        return CODECS

    @pytest.fixture
    def client(self, command: Command, bootstrap: str) -> LanguageClient:
        """The client pointed at the shared broker."""
        return LanguageClient(command(self.program), bootstrap)


def numbered(count: int, partitions: int = 1, text: str = "the same again and again") -> list[Record]:
    """Records that are told apart by their numbers, spread evenly."""
    return [
        Record(number % partitions, b"%d" % number, f"{number} {text}".encode(), (), RECENT_MS + number)
        for number in range(count)
    ]


def values(records: Sequence[Record]) -> list[bytes | None]:
    """Values alone, sorted."""
    return in_order(record.value for record in records)


def in_order(found: Iterable[bytes | None]) -> list[bytes | None]:
    """Sorted, with those that are null as if they were empty."""
    return sorted(found, key=lambda value: value or b"")


class Records(Scenarios):
    """Records, codecs, offsets and errors."""

    # A client may give the end of a partition where no record is as young as asked for; Kafka's answer is -1.
    offset_when_all_are_older = -1
    # A client may show an empty key or value as none.
    knows_empty = True

    def test_record_whole(self, client: LanguageClient, bootstrap: str, name: str) -> None:
        """Keys, values, nulls, headers and timestamps of all kinds go in and come out, byte by byte."""
        client.run("create_topic", topic=name, partitions=2)
        headers = (("a", b"1"), ("binary", bytes(range(256))), ("empty", b""))
        sent = [
            Record(0, b"key", b"value", headers, RECENT_MS),
            Record(0, b"tombstone", None, (), RECENT_MS + 1),
            Record(0, None, b"no key", (), RECENT_MS + 2),
            Record(0, *(b"", b"") if self.knows_empty else (b" ", b" "), (), RECENT_MS + 3),
            Record(1, bytes(range(256)), bytes(range(256)) * 400, (("unicode ü", "ü".encode()),), RECENT_MS + 4),
        ]
        assert client.produce(name, sent) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]
        assert client.consume(name) == sent
        assert seen_by_confluent(bootstrap, name, len(sent)) == sent

    @pytest.mark.area("codecs")
    @pytest.mark.parametrize("codec", CODECS)
    def test_codec(self, codec: str, codecs: Sequence[str], client: LanguageClient, bootstrap: str, name: str) -> None:
        """A batch that the client compresses is stored as sent and read by another client, and the other way round."""
        if codec not in codecs:
            pytest.skip(f"{self.program} has no codec {codec} here")
        create_topic(bootstrap, name)
        sent = numbered(300)
        client.produce(name, sent, codec=codec)
        with Connection(bootstrap) as connection:
            assert batch_codecs(connection.fetch(name, 0, 0)) == {CODECS.index(codec)}
        assert seen_by_confluent(bootstrap, name, len(sent)) == sent
        others = [Message(b"%d" % number, b"other %d" % number * 9) for number in range(300)]
        confluent_produce(bootstrap, name, others, codec)
        found = client.consume(name)
        assert found[: len(sent)] == sent
        assert [(one.key, one.value) for one in found[len(sent) :]] == [(one.key, one.value) for one in others]

    @pytest.mark.area("offsets")
    def test_offsets(self, client: LanguageClient, bootstrap: str, name: str) -> None:
        """Earliest and latest offsets, and the first one at or after a time."""
        create_topic(bootstrap, name, 2)
        client.produce(name, [Record(0, b"k", b"v", (), RECENT_MS + number * 1000) for number in range(10)])
        found = client.run("offsets", topic=name, timestamp_ms=RECENT_MS + 3500)
        assert sorted(found, key=lambda line: line["partition"]) == [
            {"partition": 0, "earliest": 0, "latest": 10, "by_time": 4},
            {"partition": 1, "earliest": 0, "latest": 0, "by_time": self.offset_when_all_are_older},
        ]

    @pytest.mark.area("errors")
    def test_unknown_topic(self, client: LanguageClient, name: str) -> None:
        """A topic that is not there is told as such, UNKNOWN_TOPIC_OR_PARTITION."""
        # Platformatic's client keeps the code to itself.
        with pytest.raises(LanguageClientError, match=r"code 3\)|Unknown topic"):
            client.run("describe_topic", topic=name)

    @pytest.mark.area("errors")
    def test_too_large(self, client: LanguageClient, bootstrap: str, name: str) -> None:
        """A batch above max.message.bytes is refused by its code, and nothing of it is stored."""
        create_topic(bootstrap, name, max_message_bytes="1000")
        with pytest.raises(LanguageClientError) as refused:
            client.produce(name, [Record(0, b"k", b"x" * 2000, (), RECENT_MS)])
        assert refused.value.code == MESSAGE_TOO_LARGE
        assert client.consume(name) == []


class Groups(Scenarios):
    """Classic consumer groups; a member commits each record before it prints it."""

    @pytest.mark.area("groups")
    def test_group_shares_and_goes_on(self, client: LanguageClient, bootstrap: str, name: str, unique: Unique) -> None:
        """Two members share the partitions, and the next member goes on where they committed."""
        group = unique("group")
        create_topic(bootstrap, name, 4)
        joining = {"topic": name, "group": group, "partitions": 4}
        with ExitStack() as members:
            both = [members.enter_context(client.running("member", **joining)) for _ in range(2)]
            wait_until(lambda: shares(bootstrap, group, name) == [2, 2], f"two members of {group} with two partitions")
            # A fetch that a member sent when it had all partitions returns with the first records of each.
            confluent_produce(bootstrap, name, [Message(b"%d" % number, b"first") for number in range(60)])
            wait_until(lambda: len({one.key for member in both for one in member.records}) == 60, "60 records")
            confluent_produce(bootstrap, name, [Message(b"%d" % number, b"%d" % number) for number in range(60)])
            wait_until(lambda: sum(len(found) for found in second_records(both)) >= 60, "60 more records")
        owned = [{record.partition for record in found} for found in second_records(both)]
        assert owned[0] | owned[1] == {0, 1, 2, 3}
        assert not owned[0] & owned[1], "each reads partitions of its own"
        assert values([record for found in second_records(both) for record in found]) == sorted(
            b"%d" % number for number in range(60)
        )
        confluent_produce(bootstrap, name, [Message(b"%d" % number, b"later") for number in range(20)])
        with client.running("member", **joining) as third:
            wait_until(lambda: len(third.records) >= 20, "20 records", timeout_s=TIMEOUT_S * 2)
        assert values(third.records) == [b"later"] * 20


class Admin(Scenarios):
    """Topics, configs and groups through the client's administrator."""

    @pytest.mark.area("admin")
    def test_topic(self, client: LanguageClient, bootstrap: str, name: str) -> None:
        """A topic is created with configs, described, altered and deleted."""
        client.run("create_topic", topic=name, partitions=3, config={"retention.ms": "3600000"})
        described = sorted(client.run("describe_topic", topic=name), key=lambda line: line["partition"])
        assert [line["partition"] for line in described] == [0, 1, 2]
        assert all(line["replicas"] == [line["leader"]] for line in described)
        assert configs_of(client, name)["retention.ms"] == "3600000"
        # kafkajs replaces all configs of a topic (AlterConfigs), the others change the named ones.
        client.run("alter_config", topic=name, config={"cleanup.policy": "compact", "retention.ms": "3600000"})
        wait_until(lambda: configs_of(client, name)["cleanup.policy"] == "compact", "the altered config")
        assert configs_of(client, name)["retention.ms"] == "3600000"
        client.run("delete_topic", topic=name)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        wait_until(lambda: name not in admin.list_topics(timeout=TIMEOUT_S).topics, f"{name} to be gone")

    @pytest.mark.area("admin")
    def test_group(self, client: LanguageClient, bootstrap: str, name: str, unique: Unique) -> None:
        """A group is listed, its committed offsets are told, and it is deleted."""
        group = unique("group")
        create_topic(bootstrap, name)
        commit_by_confluent(bootstrap, group, name, 7)
        assert {"group": group} in client.run("list_groups")
        assert client.run("group_offsets", group=group, topic=name) == [{"partition": 0, "offset": 7}]
        client.run("delete_group", group=group)
        assert {"group": group} not in client.run("list_groups")


class Idempotence(Scenarios):
    """Producers with an id."""

    @pytest.mark.area("idempotence")
    def test_idempotent_producer(self, client: LanguageClient, bootstrap: str, name: str) -> None:
        """An idempotent producer gets an id, and its batches carry it."""
        create_topic(bootstrap, name)
        batches = [numbered(20), numbered(20)]
        client.produce(name, *batches, idempotent=True)
        assert client.consume(name) == batches[0] + batches[1]
        with Connection(bootstrap) as connection:
            (producer_id,) = struct.unpack_from(">q", connection.fetch(name, 0, 0), PRODUCER_ID)
        assert producer_id >= 0


class Transactions(Scenarios):
    """Transactional producers."""

    reads_committed = True
    # kafkajs fails where the coordinator of a new id is still loading.
    waits_for_coordinator = True

    @pytest.mark.area("transactions")
    def test_commit_and_abort(self, client: LanguageClient, bootstrap: str, name: str, unique: Unique) -> None:
        """Committed readers see what was committed and nothing that was aborted; others see both."""
        create_topic(bootstrap, name, 2)
        rounds = [(f"{number}", number % 3 != 1) for number in range(6)]
        sent = {text: numbered(10, 2, text) for text, _ in rounds}
        lines: list[Line] = [
            {"records": [record.as_line() for record in sent[text]], "commit": commit} for text, commit in rounds
        ]
        transactional_id = unique("id")
        if not self.waits_for_coordinator:
            load_coordinator(bootstrap, transactional_id)
        done = client.run("transact", lines, topic=name, transactional_id=transactional_id)
        assert [line["committed"] for line in done] == [commit for _, commit in rounds]
        # The last offset is one that every reader is given: markers are not.
        client.produce(name, [Record(0, None, b"end"), Record(1, None, b"end")])
        committed = [record for text, commit in rounds if commit for record in sent[text]]
        everything = [record for text, _ in rounds for record in sent[text]]
        ends = [b"end"] * 2
        if self.reads_committed:
            assert values(client.consume(name, committed=True)) == in_order([*values(committed), *ends])
        seen = seen_by_confluent(bootstrap, name, len(committed) + len(ends))
        assert values(seen) == in_order([*values(committed), *ends])
        assert values(client.consume(name)) == in_order([*values(everything), *ends])


class Copies(Scenarios):
    """Consume, transform and produce in transactions."""

    @pytest.mark.area("transactions")
    def test_copy_exactly_once(self, client: LanguageClient, bootstrap: str, name: str, unique: Unique) -> None:
        """Records are copied in transactions that commit the group's offsets; a second copier goes on there."""
        source, copy = create_topic(bootstrap, name + "-source", 2), create_topic(bootstrap, name + "-copy", 2)
        ids: dict[str, Any] = {"source": source, "topic": copy, "group": unique("group")}
        ids["transactional_id"] = unique("id")
        load_coordinator(bootstrap, ids["transactional_id"])
        client.produce(source, numbered(40, 2, "first"))
        client.run("copy", count=40, **ids)
        client.produce(source, numbered(40, 2, "second"))
        client.run("copy", count=40, **ids)
        client.produce(copy, [Record(0, None, b"end"), Record(1, None, b"end")])
        copied = values(client.consume(copy, committed=True))
        assert copied == in_order([*values(client.consume(source)), b"end", b"end"])


class Restarts(Scenarios):
    """The broker is stopped and started again, with its address and data."""

    can_join = True

    @pytest.mark.own_broker
    @pytest.mark.area("restart")
    def test_goes_on_after_a_restart(
        self, command: Command, restartable_broker: BrokerProcess, name: str, unique: Unique
    ) -> None:
        """A producer and a member of a group that run go on after a restart of the broker, without a gap."""
        create_topic(restartable_broker.bootstrap, name)
        client = LanguageClient(command(self.program), restartable_broker.bootstrap)
        with ExitStack() as stack:
            producer = stack.enter_context(client.running("produce", topic=name))
            member: Running | None = None
            if self.can_join:
                joining = {"topic": name, "group": unique("group"), "partitions": 1}
                member = stack.enter_context(client.running("member", **joining))
            sent = numbered(20)
            producer.send(*(record.as_line() for record in sent[:10]), None)
            producer.wait_for_lines(10)
            if member is not None:
                member.wait_for_lines(10)
            restartable_broker.stop()
            restartable_broker.start()
            producer.send(*(record.as_line() for record in sent[10:]), None)
            producer.wait_for_lines(20)
            if member is not None:
                # What was given and not yet committed when the broker went is given again.
                everything = [record.key for record in sent]
                given = member
                wait_until(
                    lambda: {record.key for record in given.records} == set(everything),
                    "all records",
                    timeout_s=TIMEOUT_S * 3,
                )
                assert list(dict.fromkeys(record.key for record in member.records)) == everything
        stored = seen_by_confluent(restartable_broker.bootstrap, name, 20)
        assert [record.key for record in stored] == [record.key for record in sent]


class Logins(Scenarios):
    """SASL/PLAIN."""

    @pytest.mark.own_broker
    @pytest.mark.area("login")
    def test_login(self, command: Command, broker_with_users: BrokerProcess, name: str) -> None:
        """The right password lets the client in, a wrong one is refused as such."""
        user, password = next(iter(USERS.items()))
        client = LanguageClient(command(self.program), broker_with_users.bootstrap, user=user, password=password)
        client.run("create_topic", topic=name, partitions=1)
        sent = numbered(3)
        client.produce(name, sent)
        assert client.consume(name) == sent
        stranger = LanguageClient(command(self.program), broker_with_users.bootstrap, user=user, password="wrong")
        with pytest.raises(LanguageClientError, match=r"(?i)auth|code 58"):
            stranger.run("describe_topic", topic=name)


def _headers(message: confluent_kafka.Message) -> Any:
    """A consumer gets them as a list; the stubs of the library allow more, as a producer takes more."""
    return message.headers() or ()


def seen_by_confluent(bootstrap: str, topic: str, count: int) -> list[Record]:
    """All records of a topic as librdkafka sees them, which reads what is committed, by partition."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        partitions = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in partitions])
        found: list[confluent_kafka.Message] = []

        def have_come() -> bool:
            found.extend(consumer.consume(count, 0.2))
            return len(found) >= count

        wait_until(
            have_come,
            f"{count} records, {{}} so far".format,
            found,
        )
    finally:
        consumer.close()
    found.sort(key=position_of)
    return [
        Record(
            position_of(message)[0][1],
            message.key(),
            message.value(),
            tuple(sorted(_headers(message))),
            message.timestamp()[1],
        )
        for message in found
    ]


def load_coordinator(bootstrap: str, transactional_id: str) -> None:
    """Waits until the coordinator of a transactional id has loaded."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
    confluent_kafka.Producer(settings).init_transactions(TIMEOUT_S)


def commit_by_confluent(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """Commits an offset of partition 0 for a group without members."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def second_records(members: Sequence[Running]) -> list[list[Record]]:
    """Records of each member without those whose value is ``first``."""
    return [[record for record in member.records if record.value != b"first"] for member in members]


def shares(bootstrap: str, group: str, topic: str) -> list[int]:
    """Numbers of a topic's partitions that the members of a group have, ascending, from DescribeGroups."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    return sorted(
        sum(partition.topic == topic for partition in member.assignment.topic_partitions)
        for member in described.members
    )


def configs_of(client: LanguageClient, topic: str) -> dict[str, str]:
    """Configs of a topic as the client describes them."""
    return {line["name"]: line["value"] for line in client.run("describe_configs", topic=topic)}
