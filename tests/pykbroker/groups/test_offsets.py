"""Committed offsets: P-107 to P-112, P-114, P-115; group administration: P-106, P-107."""

from __future__ import annotations

import random

import pytest

from pykbroker.coordination.shard import NO_PRODUCER, TransactionalProducer
from pykbroker.groups import administration, offset_cleanup, offset_commit, offset_delete, offset_fetch
from pykbroker.groups.classic.group import COMPLETING, EMPTY, PREPARING
from pykbroker.groups.offset_log import encode_record
from pykbroker.groups.offsets import CommittedOffset, CommittedOffsets
from pykbroker.groups.pending_offsets import PendingOffsets
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from pykbroker.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from pykbroker.protocol.records.batch import frames_of
from pykbroker.protocol.steps import PIECE, finished
from tests.pykbroker.groups.driver import DELAY_MS, START_MS, TOPIC_ID, Driver, subscription

WEEK_MS = 7 * 24 * 60 * 60 * 1000


class TestCommit:
    """P-108 to P-111."""

    @pytest.mark.parametrize("producer", [NO_PRODUCER, TransactionalProducer(7, 0)])
    def test_records_that_were_made_before_are_the_same(self, producer: TransactionalProducer) -> None:
        """Also where one partition is refused, and with a retention of the request's own."""
        request = OffsetCommitRequest(
            group_id="g",
            retention_time_ms=60_000,
            topics=[
                OffsetCommitRequestTopic(
                    name=name,
                    topic_id=TOPIC_ID,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=number,
                            committed_offset=number,
                            committed_metadata="m" * 5000 if number == 3 else None,
                        )
                        for number in range(offset_commit.FEW + 1)
                    ],
                )
                for name in ("t", "u")
            ],
        )
        assert offset_commit.is_large(request)
        driver = Driver()
        prepared = finished(offset_commit.prepare_commit(request, START_MS, producer, 4096))
        result = offset_commit.commit(driver.shard, START_MS, request, 4, producer, prepared)
        expected = offset_commit.commit(driver.shard, START_MS, request, 4, producer)
        assert result.records == expected.records
        assert result.frames == frames_of(map(encode_record, expected.records))
        assert expected.frames is None
        assert len(result.records) == 2 * offset_commit.FEW
        assert result.response == expected.response

    @pytest.mark.parametrize("has_others", [False, True])
    @pytest.mark.parametrize("is_replicated", [False, True])
    @pytest.mark.parametrize("producer", [NO_PRODUCER, TransactionalProducer(7, 0)])
    def test_offsets_that_were_made_before_are_those_of_the_records(
        self, producer: TransactionalProducer, is_replicated: bool, has_others: bool
    ) -> None:
        """Also if the group has others and open transactions, and the request names topics and partitions twice.

        The records get their place in the log when they are appended, some time after the offsets were made.
        """
        count = offset_commit.FEW + 1
        request = OffsetCommitRequest(
            group_id="g",
            topics=[
                OffsetCommitRequestTopic(
                    name=name,
                    topic_id=TOPIC_ID,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=number % count,
                            committed_offset=first + number,
                            committed_metadata="m" * 5000 if name == "refused" or number == 3 else None,
                        )
                        for number in range(count + 2)
                    ],
                )
                for name, first in (("t", 0), ("refused", 0), ("u", 10), ("t", 1000))
            ],
        )
        shards = []
        for is_prepared in (False, True):
            driver = Driver()
            shard = driver.shard
            steps = offset_commit.prepare_commit(request, START_MS, producer, 4096)
            next(steps)
            for topic in ("t", "z") if has_others else ():
                driver.commit(7, topic=topic, partition=5)
            for producer_id in (7, 8) if has_others else ():
                shard.pending.put(producer_id, ("g", "u", 1), CommittedOffset(9, -1, "", START_MS, record_offset=2))
            prepared = finished(steps) if is_prepared else None
            result = offset_commit.commit(shard, START_MS, request, 8, producer, prepared)
            assert (result.offsets is not None) == is_prepared
            if is_replicated:
                shard.appended(result, START_MS, 50)
                assert shard.replicated(result, START_MS, 50) is None
            else:
                assert shard.stored(result, ErrorCode.NONE, START_MS, 50) is None
            shards.append(shard)
        plain, made_before = shards
        assert made_before.pending == plain.pending
        for end in (lambda shard: None, lambda shard: shard.end_transaction(7, is_commit=True)):
            for shard in shards:
                end(shard)
            found, expected = ([*shard.offsets.of_group("g").items()] for shard in (made_before, plain))
            assert [name for name, _ in found] == [name for name, _ in expected]
            for (_, partitions), (_, wanted) in zip(found, expected, strict=True):
                assert [(number, *of) for number, of in partitions.items()] == [(n, *of) for n, of in wanted.items()]
        assert {name: len(partitions) for name, partitions in found} == {
            "t": count - 1,
            "u": count - 1,
            **({"z": 1} if has_others else {}),
        }
        assert made_before.unstable_offsets("g") == plain.unstable_offsets("g")

    def test_a_prepared_commit_is_refused_as_any_other(self) -> None:
        """The group has got members while it was prepared."""
        driver = Driver()
        request = OffsetCommitRequest(
            group_id="g",
            topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=0)])],
        )
        prepared = finished(offset_commit.prepare_commit(request, START_MS, NO_PRODUCER, 4096))
        driver.stable()
        result = offset_commit.commit(driver.shard, START_MS, request, 8, NO_PRODUCER, prepared)
        assert result.records == []
        assert result.response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID

    def test_small_commits_need_no_preparation(self) -> None:
        topic = OffsetCommitRequestTopic(partitions=[OffsetCommitRequestPartition()] * offset_commit.FEW)
        assert not offset_commit.is_large(OffsetCommitRequest(topics=[topic] * offset_commit.FEW))
        assert offset_commit.is_large(OffsetCommitRequest(topics=[topic] * (offset_commit.FEW + 1)))

    def test_by_hand_makes_a_simple_group_p_108(self) -> None:
        """P-108: generation -1 and no member id."""
        driver = Driver()
        assert driver.commit(7) is ErrorCode.NONE
        assert driver.fetch() == 7
        assert driver.state is EMPTY
        assert driver.group().protocol_type is None

    def test_by_hand_into_a_group_with_members_is_refused_p_108(self) -> None:
        """P-108."""
        driver = Driver()
        driver.stable()
        assert driver.commit(7) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_by_hand_into_an_emptied_group_p_108(self) -> None:
        """P-108: whatever the member id."""
        driver = Driver()
        [member_id] = driver.stable()
        driver.leave((member_id, None))
        assert driver.commit(7, member_id="someone") is ErrorCode.NONE

    @pytest.mark.parametrize(
        ("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
    )
    def test_with_a_generation_into_a_missing_group_p_109(self, version: int, error: ErrorCode) -> None:
        """P-109."""
        driver = Driver()
        assert driver.commit(7, generation_id=3, member_id="m", version=version) is error
        assert not driver.shard.groups

    def test_member_and_generation_must_match_p_109(self) -> None:
        """P-109."""
        driver = Driver()
        [member_id] = driver.stable()
        assert driver.commit(7, generation_id=1, member_id=member_id) is ErrorCode.NONE
        assert driver.commit(8, generation_id=2, member_id=member_id) is ErrorCode.ILLEGAL_GENERATION
        assert driver.commit(8, generation_id=1, member_id="m") is ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.commit(8, generation_id=-1, member_id=member_id) is ErrorCode.ILLEGAL_GENERATION
        assert driver.commit(8, instance_id="i") is ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.fetch() == 7

    def test_during_a_rebalance_p_109(self) -> None:
        """P-109: the current generation may still commit while members join, nobody while they sync."""
        driver = Driver()
        leader, follower = driver.stable(2)
        driver.join(leader)
        assert driver.state is PREPARING
        assert driver.commit(7, generation_id=1, member_id=follower) is ErrorCode.NONE
        driver.join(follower)
        assert driver.state is COMPLETING
        assert driver.commit(8, generation_id=2, member_id=follower) is ErrorCode.REBALANCE_IN_PROGRESS

    def test_counts_as_a_heartbeat_p_110(self) -> None:
        """P-110."""
        driver = Driver()
        [member_id] = driver.stable()
        for _ in range(3):
            driver.advance(9_999)
            assert driver.commit(7, generation_id=1, member_id=member_id) is ErrorCode.NONE
        driver.advance(10_000)
        assert driver.state is EMPTY

    @pytest.mark.parametrize(
        ("metadata", "error"),
        [
            ("x" * 4096, ErrorCode.NONE),
            ("x" * 4097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
            ("\N{EURO SIGN}" * 4096, ErrorCode.NONE),
            ("\N{GRINNING FACE}" * 2049, ErrorCode.OFFSET_METADATA_TOO_LARGE),
            (None, ErrorCode.NONE),
        ],
    )
    def test_metadata_is_limited_p_111(self, metadata: str | None, error: ErrorCode) -> None:
        """P-111: in characters as Java counts them."""
        driver = Driver()
        assert driver.commit(7, metadata=metadata) is error
        assert driver.fetch() == (7 if error is ErrorCode.NONE else -1)

    def test_that_cannot_be_stored_does_not_count_p_115(self) -> None:
        """P-115."""
        driver = Driver()
        driver.commit(7)
        driver.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert driver.commit(8) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert driver.fetch() == 7


class TestFetch:
    """P-112."""

    def test_nothing_committed_p_112(self) -> None:
        """P-112: offset -1, epoch -1, empty metadata, no error; the same for a missing group."""
        driver = Driver()
        driver.commit(7)
        assert driver.fetch(partition=1) == driver.fetch("u") == driver.fetch(group_id="none") == -1

    def test_all_topics_p_112(self) -> None:
        """P-112."""
        driver = Driver()
        driver.commit(7, leader_epoch=4, metadata="m")
        driver.commit(8, topic="u", partition=3)
        response = finished(offset_fetch.fetch(driver.shard, OffsetFetchRequestGroup(group_id="g", topics=None)))
        assert [(t.name, p.partition_index, p.committed_offset) for t in response.topics for p in t.partitions] == [
            ("u", 3, 8),
            ("t", 0, 7),
        ]
        first = response.topics[1].partitions[0]
        assert (first.committed_leader_epoch, first.metadata, first.error_code) == (4, "m", 0)

    def test_all_topics_come_in_kafkas_order(self) -> None:
        """P-652: the order that Apache Kafka gave for these commits."""
        driver = Driver()
        numbers = {"omi": [0, 2, 3, 1]}
        for name in ["omi", "la", "zeta", "gamma", "kappa", "beta", "eta", "sig", "pi", "delta", "tau"]:
            for number in numbers.get(name, [2, 0, 3, 1]):
                driver.commit(3, topic=f"topic-{name}", partition=number)
        response = finished(offset_fetch.fetch(driver.shard, OffsetFetchRequestGroup(group_id="g", topics=None)))
        found = {topic.name: [partition.partition_index for partition in topic.partitions] for topic in response.topics}
        names = ["gamma", "pi", "beta", "sig", "eta", "delta", "la", "omi", "tau", "zeta", "kappa"]
        assert list(found) == [f"topic-{name}" for name in names]
        assert found.pop("topic-omi") == [2, 0, 1, 3]
        assert list(found.values()) == [[0, 2, 1, 3]] * 10

    def test_a_commit_for_an_earlier_topic_of_the_same_name_is_not_shown(self) -> None:
        driver = Driver()
        driver.commit(7)
        assert driver.fetch(topic_id=TOPIC_ID) == 7
        assert driver.fetch(topic_id=bytes(15) + b"\x08") == -1


def delete_offsets(driver: Driver, topic: str = "t") -> tuple[ErrorCode, list[int]]:
    """Error of the group, errors of partitions 0 and 1."""
    partitions = [OffsetDeleteRequestPartition(partition_index=p) for p in (0, 1)]
    topics = [OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
    request = OffsetDeleteRequest(group_id="g", topics=topics)
    result = offset_delete.delete(driver.shard, driver.now_ms, request)
    driver.carry_out(result)
    response = result.response
    return ErrorCode(response.error_code), [p.error_code for t in response.topics for p in t.partitions]


@pytest.mark.parametrize("seed", range(10))
def test_a_deletion_that_was_prepared_is_that_of_its_moment(seed: int) -> None:
    """P-107: commits, deletions, transactions and members may come between the steps in which it was prepared."""
    chooser = random.Random(seed)
    driver = Driver()
    names = [f"t{number}" for number in range(2 * PIECE)]
    consumed = chooser.random() < 0.5
    for name in names:
        driver.commit(7, topic=name, partition=chooser.randrange(2))
    topics = [
        OffsetDeleteRequestTopic(
            name=chooser.choice(names),
            partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in chooser.choices((0, 1), k=3)],
        )
        for _ in range(4 * PIECE)
    ]
    request = OffsetDeleteRequest(group_id="g", topics=topics)
    taken = 0
    for _ in range(8):
        steps = offset_delete.prepare_deletion(driver.shard, request)
        for _ in range(chooser.randrange(4)):
            next(steps)
        change = chooser.choice(("none", "commit", "delete", "pending", "join"))
        name = chooser.choice(topics).name
        if change == "commit":
            driver.commit(8, topic=name, partition=chooser.randrange(2))
        elif change == "delete":
            delete_offsets(driver, name)
        elif change == "pending":
            committed = CommittedOffset(9, -1, "", START_MS)
            driver.shard.pending.put(3, ("g", name, chooser.randrange(2)), committed)
        elif change == "join" and consumed and driver.state is EMPTY:
            driver.stable(protocols=[("range", subscription(name))])
        prepared = finished(steps)
        found = offset_delete.delete(driver.shard, START_MS, request, prepared)
        plain = offset_delete.delete(driver.shard, START_MS, request)
        assert (found.records, found.response) == (plain.records, plain.response)
        if found.frames is not None:
            taken += 1
            assert found.frames == frames_of(map(encode_record, plain.records))
    assert taken or driver.state is not EMPTY


class TestOffsetDelete:
    """P-107."""

    def test_a_missing_group_p_107(self) -> None:
        """P-107."""
        assert delete_offsets(Driver()) == (ErrorCode.GROUP_ID_NOT_FOUND, [])

    def test_an_empty_group_p_107(self) -> None:
        """P-107."""
        driver = Driver()
        driver.commit(7)
        assert delete_offsets(driver) == (ErrorCode.NONE, [0, 0])
        assert driver.fetch() == driver.replayed().offsets.of_group("g").get("t", -1) == -1

    def test_a_topic_that_is_consumed_p_107(self) -> None:
        """P-107: GROUP_SUBSCRIBED_TO_TOPIC; others can go."""
        driver = Driver()
        [member_id] = driver.stable()
        for topic in ("t", "u"):
            assert driver.commit(7, generation_id=1, member_id=member_id, topic=topic) is ErrorCode.NONE
        assert delete_offsets(driver) == (ErrorCode.NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * 2)
        assert delete_offsets(driver, "u") == (ErrorCode.NONE, [0, 0])
        assert (driver.fetch("t"), driver.fetch("u")) == (7, -1)

    def test_a_live_group_of_something_else_than_consumers_p_107(self) -> None:
        """P-107."""
        driver = Driver()
        parked = driver.join(version=3, protocol_type="connect")
        driver.advance(DELAY_MS)
        assert parked.error is ErrorCode.NONE
        assert delete_offsets(driver) == (ErrorCode.NON_EMPTY_GROUP, [])


class TestExpiry:
    """P-114."""

    def test_a_simple_group_p_114(self) -> None:
        """P-114: after the commit; the group goes with its last offset."""
        driver = Driver()
        driver.commit(7)
        driver.advance(1_000)
        driver.commit(8, partition=1)
        driver.advance(WEEK_MS - 1_001)
        driver.expire()
        assert driver.fetch() == 7
        driver.advance(1)
        driver.expire()
        assert (driver.fetch(), driver.fetch(partition=1)) == (-1, 8)
        driver.advance(1_000)
        driver.expire()
        assert not driver.shard.groups
        assert not driver.replayed().groups

    def test_an_emptied_group_p_114(self) -> None:
        """P-114: after it became Empty, whenever the commit was."""
        driver = Driver()
        [member_id] = driver.stable(session_ms=1_800_000)
        driver.commit(7, generation_id=1, member_id=member_id)
        driver.advance(1_000_000)
        driver.leave((member_id, None))
        driver.advance(WEEK_MS - 1)
        driver.expire()
        assert driver.fetch() == 7
        driver.advance(1)
        driver.expire()
        assert driver.fetch() == -1
        assert not driver.shard.groups

    def test_unsubscribed_topics_of_a_live_group_p_114(self) -> None:
        """P-114: after the commit; what is consumed stays."""
        driver = Driver()
        [member_id] = driver.stable(protocols=[("range", subscription("t"))], session_ms=1_800_000)
        for topic in ("t", "u"):
            driver.commit(7, generation_id=1, member_id=member_id, topic=topic)
        driver.now_ms += WEEK_MS
        driver.expire()
        assert (driver.fetch("t"), driver.fetch("u")) == (7, -1)

    def test_nothing_expires_while_a_group_rebalances_or_its_topics_are_unknown_p_114(self) -> None:
        """P-114."""
        rebalancing = Driver()
        [member_id] = rebalancing.stable()
        rebalancing.commit(7, generation_id=1, member_id=member_id, topic="u")
        rebalancing.join()
        rebalancing.join(member_id)
        other = Driver()
        other.commit(7, topic="u")
        other.stable(protocol_type="connect")
        for driver in (rebalancing, other):
            driver.now_ms += WEEK_MS
            driver.expire()
            assert driver.fetch("u") == 7

    def test_a_retention_of_its_own_p_114(self) -> None:
        """P-114: retention_time_ms of versions 2 to 4."""
        driver = Driver()
        driver.commit(7, retention_ms=60_000, version=2)
        driver.commit(8, partition=1)
        driver.advance(59_999)
        driver.expire()
        assert driver.fetch() == 7
        driver.advance(1)
        driver.expire()
        assert (driver.fetch(), driver.fetch(partition=1)) == (-1, 8)

    def test_a_retention_beyond_all_time_has_ended_p_114(self) -> None:
        """P-114: the sum of now and the retention overflows, as Java's does, to a time in the past."""
        driver = Driver()
        retention_ms = 2**63 - 1 - driver.now_ms
        assert driver.commit(7, retention_ms=retention_ms, version=2) is ErrorCode.NONE
        assert driver.commit(8, retention_ms=retention_ms + 1, version=2, partition=1) is ErrorCode.NONE
        assert driver.commit(9, retention_ms=2**63 - 1, version=2, partition=2) is ErrorCode.NONE
        assert [driver.fetch(partition=number) for number in range(3)] == [7, 8, 9]
        driver.expire()
        assert [driver.fetch(partition=number) for number in range(3)] == [7, -1, -1]

    def test_a_group_without_offsets_or_members_goes_at_once_p_114(self) -> None:
        """P-114."""
        driver = Driver()
        [member_id] = driver.stable()
        driver.expire()
        assert driver.shard.groups
        driver.leave((member_id, None))
        driver.expire()
        assert not driver.shard.groups

    def test_the_offsets_of_a_deleted_topic_go(self) -> None:
        driver = Driver()
        driver.commit(7)
        driver.commit(8, topic="u")
        driver.commit(9, group_id="h", topic_id=bytes(16))
        driver.commit(9, group_id="i", topic_id=bytes(15) + b"\x09")
        for result in offset_cleanup.delete_topics(driver.shard, {"t": TOPIC_ID}):
            driver.carry_out(result)
        assert (driver.fetch(), driver.fetch("u"), driver.fetch(group_id="h")) == (-1, 8, -1)
        assert driver.fetch(group_id="i") == 9


class TestAdministration:
    """P-106, P-107."""

    def test_describe_a_missing_group_p_106(self) -> None:
        """P-106."""
        driver = Driver()
        old = administration.describe(driver.shard, "none", 5)
        assert (old.group_state, old.error_code, old.error_message) == ("Dead", 0, None)
        new = administration.describe(driver.shard, "none", 6)
        assert (new.group_state, new.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
        assert new.error_message == "Group none not found."

    def test_describe_shows_subscriptions_only_when_stable_p_106(self) -> None:
        """P-106."""
        driver = Driver()
        [member_id] = driver.stable(protocols=[("range", b"meta")])
        group = administration.describe(driver.shard, "g", 6)
        assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
        member = group.members[0]
        assert (member.member_id, member.client_id, member.client_host) == (member_id, "c", "/127.0.0.1")
        assert (member.member_metadata, member.member_assignment) == (b"meta", member_id.encode())
        driver.join()
        driver.join(member_id, protocols=[("range", b"other")])
        group = administration.describe(driver.shard, "g", 6)
        assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
        assert group.members[0].member_metadata == b""

    def test_list_filters_p_106(self) -> None:
        """P-106: lower-case names in, Kafka's names out."""
        driver = Driver()
        driver.stable()
        driver.commit(7, group_id="simple")
        listed = {
            g.group_id: (g.protocol_type, g.group_state, g.group_type)
            for g in administration.listed(driver.shard, set(), set())
        }
        assert listed == {"g": ("consumer", "Stable", "classic"), "simple": ("", "Empty", "classic")}
        assert [g.group_id for g in administration.listed(driver.shard, {"stable"}, set())] == ["g"]
        assert [g.group_id for g in administration.listed(driver.shard, {"empty", "dead"}, {"classic"})] == ["simple"]
        assert administration.listed(driver.shard, set(), {"consumer"}) == []

    def test_delete_groups_p_107(self) -> None:
        """P-107."""
        driver = Driver()
        [member_id] = driver.stable()
        driver.commit(7, generation_id=1, member_id=member_id)
        assert administration.delete(driver.shard, 0, "none").response is ErrorCode.GROUP_ID_NOT_FOUND
        assert administration.delete(driver.shard, 0, "g").response is ErrorCode.NON_EMPTY_GROUP
        driver.leave((member_id, None))
        result = administration.delete(driver.shard, 0, "g")
        driver.carry_out(result)
        assert result.response is ErrorCode.NONE
        assert driver.fetch() == -1
        assert not driver.shard.groups
        assert not driver.replayed().groups


@pytest.mark.parametrize("seed", range(10))
def test_a_deletion_that_was_prepared_removes_the_same_offsets(seed: int) -> None:
    """Committed and pending ones; those of other groups and partitions stay."""
    drivers = Driver(), Driver()
    names = [f"t{number}" for number in range(2 * PIECE)]
    for driver in drivers:
        chooser = random.Random(seed)
        for name in names:
            driver.commit(7, topic=name, partition=chooser.randrange(2))
            if chooser.random() < 0.3:
                committed = CommittedOffset(9, -1, "", START_MS)
                driver.shard.pending.put(3, (chooser.choice("gh"), name, chooser.randrange(2)), committed)
        topics = [
            OffsetDeleteRequestTopic(
                name=name,
                partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in chooser.choices((0, 1), k=2)],
            )
            for name in (names if seed % 2 else chooser.sample(names, PIECE))
        ]
        request = OffsetDeleteRequest(group_id="g", topics=topics)
        prepared = finished(offset_delete.prepare_deletion(driver.shard, request)) if driver is drivers[0] else None
        result = offset_delete.delete(driver.shard, START_MS, request, prepared)
        assert (result.offsets is not None) == (driver is drivers[0])
        driver.carry_out(result)
    assert drivers[0].shard.offsets == drivers[1].shard.offsets
    assert drivers[0].shard.pending == drivers[1].shard.pending


def test_the_offsets_of_many_topics_are_captured_in_steps() -> None:
    driver = Driver()
    names = [f"t{number}" for number in range(2 * PIECE)]
    for name in names:
        driver.commit(7, topic=name)
    steps = offset_fetch.fetch(driver.shard, OffsetFetchRequestGroup(group_id="g", topics=None))
    next(steps)
    driver.commit(8, topic=names[0])
    response = finished(steps)
    assert {topic.name: topic.partitions[0].committed_offset for topic in response.topics} == dict.fromkeys(names, 7)


def test_a_deletion_of_unknown_offsets_is_not_prepared() -> None:
    driver = Driver()
    driver.commit(7)
    topics = [
        OffsetDeleteRequestTopic(name=f"t{number}", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        for number in range(2 * PIECE)
    ]
    request = OffsetDeleteRequest(group_id="g", topics=topics)
    assert finished(offset_delete.prepare_deletion(driver.shard, request)) is None
    assert offset_delete.delete(driver.shard, START_MS, request).records == []


@pytest.mark.parametrize("seed", range(20))
def test_the_pending_offsets_of_a_producer_end_as_if_one_after_the_other(seed: int) -> None:
    chance = random.Random(seed)
    keys = [(group, topic, number) for group in "gh" for topic in "ab" for number in range(2)]
    pending, expected = PendingOffsets(), PendingOffsets()
    committed, expected_committed = CommittedOffsets(), CommittedOffsets()
    for record_offset in range(30):
        offset = CommittedOffset(chance.randrange(9), -1, "", 0, record_offset=record_offset)
        key, producer_id = chance.choice(keys), chance.randrange(4)
        if producer_id == 0:
            committed.put(*key, offset)
            expected_committed.put(*key, offset)
        else:
            pending.put(producer_id, key, offset)
            if producer_id != 1:
                expected.put(producer_id, key, offset)
    ended = pending.end(1)
    for group, topics in ended.items():
        for topic, partitions in topics.items():
            for number, offset in partitions.items():
                known = expected_committed.get(group, topic, number)
                if known is None or known.record_offset < offset.record_offset:
                    expected_committed.put(group, topic, number, offset)
        committed.put_newer(group, topics)
    assert committed == expected_committed
    assert pending == expected
    assert [key in pending for key in keys] == [key in expected for key in keys]
    assert [set(pending.of_group(group)) for group in "gh"] == [set(expected.of_group(group)) for group in "gh"]
    for producer_id in (2, 3):
        pending.end(producer_id)
    assert not pending
    assert not any(pending.of_group(group) for group in "gh")


class Counted:
    """Number of times that a `Topic` or `Partition` was looked up in a dictionary or set."""

    look_ups = 0


class Topic(str):
    """The name of a topic, which counts its look-ups."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        Counted.look_ups += 1
        return str.__hash__(self)


class Partition(int):
    """The number of a partition, which counts its look-ups."""

    def __eq__(self, other: object) -> bool:
        return int.__eq__(self, other)

    def __hash__(self) -> int:
        Counted.look_ups += 1
        return int.__hash__(self)


@pytest.mark.parametrize("is_commit", [False, True])
@pytest.mark.parametrize("has_earlier", [False, True])
@pytest.mark.parametrize("has_other_producer", [False, True])
def test_the_end_of_a_large_transaction_does_not_look_up_each_offset(
    is_commit: bool, has_earlier: bool, has_other_producer: bool
) -> None:
    """Unless another producer has pending offsets of the group; then each is looked up for that producer."""
    count = 500
    shard, topic, numbers = Driver().shard, Topic("t"), [Partition(number) for number in range(count)]
    if has_earlier:
        for number in numbers:
            shard.offsets.put("g", topic, number, CommittedOffset(1, -1, "", 0, record_offset=number))
    for number in numbers:
        shard.pending.put(7, ("g", topic, number), CommittedOffset(2, -1, "", 0, record_offset=count + number))
    if has_other_producer:
        shard.pending.put(8, ("g", "other", 0), CommittedOffset(3, -1, "", 0, record_offset=2 * count))
    before = Counted.look_ups
    shard.end_transaction(7, is_commit)
    assert (Counted.look_ups - before >= count) == has_other_producer
    if not has_other_producer:
        assert Counted.look_ups - before < 5
    expected = 2 if is_commit else 1 if has_earlier else None
    for number in numbers:
        committed = shard.offsets.get("g", "t", number)
        assert (None if committed is None else committed.offset) == expected
    assert shard.pending.of_group("g") == ([("other", 0)] if has_other_producer else [])


@pytest.mark.parametrize("others", [0, 10, 1000])
def test_a_later_commit_outside_of_a_transaction_stays_whatever_else_there_is(others: int) -> None:
    shard = Driver().shard
    for number in range(10):
        shard.pending.put(7, ("g", "t", number), CommittedOffset(2, -1, "", 0, record_offset=10 + number))
    for number in range(10, 10 + others):
        shard.offsets.put("g", "t", number, CommittedOffset(3, -1, "", 0, record_offset=1))
    for number, record_offset in ((4, 13), (5, 16)):
        shard.offsets.put("g", "t", number, CommittedOffset(1, -1, "", 0, record_offset=record_offset))
    shard.end_transaction(7, is_commit=True)
    found = {number: committed.offset for number, committed in shard.offsets.of_group("g")["t"].items()}
    wanted = {**dict.fromkeys(range(10), 2), 5: 1, **dict.fromkeys(range(10, 10 + others), 3)}
    assert found == wanted


def test_tombstones_remove_the_pending_offsets_of_their_partitions_and_no_others() -> None:
    keys = [("g", "t", 0), ("g", "t", 1), ("g", "u", 0), ("h", "t", 0)]
    pending, left = PendingOffsets(), list(keys)
    for producer_id in (7, 8):
        for key in keys:
            pending.put(producer_id, key, CommittedOffset(2, -1, "", 0))
    for key in keys:
        assert {found for found, _ in pending.of_topics(("u",))} == {other for other in left if other[1] == "u"}
        pending.discard(key)
        pending.discard(key)
        left.remove(key)
        assert [other for other in keys if other in pending] == left
        expected = PendingOffsets()
        for producer_id in (7, 8):
            for other in left:
                expected.put(producer_id, other, CommittedOffset(2, -1, "", 0))
        assert pending == expected
    assert not pending
