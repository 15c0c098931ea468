"""Records of `__consumer_offsets`, byte for byte (P-117), and replay (P-116)."""

from __future__ import annotations

import pytest

from pykbroker.groups.classic.group import EMPTY, STABLE
from pykbroker.groups.offset_log import decode_record, encode_record, group_tombstone, offset_record
from pykbroker.groups.offsets import CommittedOffset
from pykbroker.groups.result import LogRecord
from pykbroker.groups.shard import GroupShard
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.log_messages.consumer_offsets import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tests.pykbroker.groups.driver import DELAY_MS, START_MS, TOPIC_ID, Driver


def test_a_commit_as_kafka_writes_it_p_117() -> None:
    """P-117: key type 1, value version 4 with the topic id as tag 0."""
    committed = CommittedOffset(300, 5, "md", 1_700_000_000_000, None, TOPIC_ID)
    key, value = encode_record(offset_record("grp", "t", 2, committed))
    assert key.hex(" ") == "00 01 00 03 67 72 70 00 01 74 00 00 00 02"
    assert value is not None
    assert value.hex(" ") == (
        "00 04 00 00 00 00 00 00 01 2c 00 00 00 05 03 6d 64 00 00 01 8b cf e5 68 00 "
        "01 00 10 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 07"
    )


def test_a_commit_with_its_own_expiry_is_version_1_p_117() -> None:
    """P-117, P-114: the one version with an expire timestamp."""
    committed = CommittedOffset(300, -1, "", 5, 6, TOPIC_ID)
    _, value = encode_record(offset_record("grp", "t", 2, committed))
    assert value is not None
    assert value.hex(" ") == "00 01 00 00 00 00 00 00 01 2c 00 00 00 00 00 00 00 00 00 05 00 00 00 00 00 00 00 06"


def test_tombstones_p_117() -> None:
    """P-117."""
    assert encode_record(offset_record("grp", "t", 2, None)) == (b"\0\1\0\3grp\0\1t\0\0\0\2", None)
    assert encode_record(group_tombstone("grp")) == (b"\0\2\0\3grp", None)


def test_a_group_as_kafka_writes_it_p_117() -> None:
    """P-117: key type 2, value version 3."""
    driver = Driver()
    parked = driver.join(version=3, client_id="c", protocols=[("range", b"S")], session_ms=10_000, rebalance_ms=20_000)
    driver.advance(DELAY_MS)
    driver.sync(parked.join.member_id, 1, {parked.join.member_id: b"A"})
    key, value = driver.log[-1]
    assert key == b"\0\2\0\1g"
    timestamp = (START_MS + DELAY_MS).to_bytes(8, "big")
    member_id = b"\0\x26c-00000000-0000-0000-0000-000000000001"
    assert value == (
        b"\0\3\0\x08consumer\0\0\0\1\0\5range" + member_id + timestamp + b"\0\0\0\1" + member_id + b"\xff\xff"
        b"\0\1c\0\x0a/127.0.0.1\0\0\x4e\x20\0\0\x27\x10\0\0\0\1S\0\0\0\1A"
    )


def test_the_record_of_a_new_group_p_117() -> None:
    """P-117: Kafka writes one when a first member id is given out."""
    driver = Driver()
    driver.join()
    assert driver.log == [(b"\0\2\0\1g", b"\0\3\0\0\0\0\0\0\xff\xff\xff\xff" + START_MS.to_bytes(8, "big") + bytes(4))]


def test_other_kinds_of_records_are_skipped() -> None:
    assert decode_record(b"\0\x63\0\1g", b"\0\0") is None
    assert decode_record(b"\x7f\xff", None) is None


@pytest.mark.parametrize(
    ("key", "value"), [(b"\0\1\0\5g", None), (b"\0\1\0\1g\0\1t\0\0\0\0", b""), (b"\0\2\0\1g", b"\0\x09")]
)
def test_damaged_records_raise(key: bytes, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        decode_record(key, value)


def replay(*records: LogRecord) -> GroupShard:
    shard = Driver().shard
    for record in records:
        decoded = decode_record(*encode_record(record))
        assert decoded is not None
        shard.replay(decoded, START_MS)
    return shard


class TestReplay:
    """P-116."""

    def test_the_last_write_wins_and_tombstones_delete_p_116(self) -> None:
        """P-116."""
        records = [offset_record("g", "t", 0, CommittedOffset(n, -1, "", n)) for n in (1, 2)]
        assert replay(*records).offsets.get("g", "t", 0) == CommittedOffset(2, -1, "", 2)
        shard = replay(*records, offset_record("g", "t", 0, None))
        assert shard.offsets.get("g", "t", 0) is None
        assert "g" in shard.groups
        assert not replay(*records, offset_record("g", "t", 0, None), group_tombstone("g")).groups

    @pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
    def test_every_version_of_a_commit_p_117(self, version: int) -> None:
        """P-117: logs of older brokers."""
        key = OffsetCommitKey(group="g", topic="t", partition=0)
        value = OffsetCommitValue(offset=9, leader_epoch=3, metadata="m", commit_timestamp=4)
        epoch = 3 if version >= 3 else -1
        shard = replay(LogRecord(key, value, version))
        assert shard.offsets.get("g", "t", 0) == CommittedOffset(9, epoch, "m", 4)

    def test_the_oldest_key_type_p_117(self) -> None:
        """P-117: key type 0."""
        key = LegacyOffsetCommitKey(group="g", topic="t", partition=0)
        shard = replay(LogRecord(key, LegacyOffsetCommitValue(offset=9, metadata="m", commit_timestamp=4), 0))
        assert shard.offsets.get("g", "t", 0) == CommittedOffset(9, -1, "m", 4)

    def test_a_stable_group_goes_on_where_it_was_p_116(self) -> None:
        """P-116: members keep ids, generation and assignment; their sessions begin anew."""
        driver = Driver()
        leader, follower = driver.stable(2)
        driver.commit(7, generation_id=1, member_id=leader)
        driver.advance(9_000)
        driver.shard = driver.replayed()
        assert driver.state is STABLE
        driver.advance(9_999)
        assert driver.heartbeat(leader, 1) == driver.heartbeat(follower, 1) == 0
        assert driver.sync(follower, 1).sync.assignment == follower.encode()
        assert driver.fetch() == 7
        assert driver.group().members.leader_id == leader
        assert driver.group().subscribed_topics == {"t"}
        driver.advance(10_000)
        assert driver.state is EMPTY

    def test_sessions_begin_when_a_long_load_ends_p_116(self) -> None:
        """P-116: in Kafka `onLoaded` schedules them, so that a load may take longer than a session."""
        driver = Driver()
        leader, _ = driver.stable(2)
        shard = driver.replayed()
        driver.now_ms += 60_000
        shard.loaded(driver.now_ms)
        driver.shard = shard
        assert driver.heartbeat(leader, 1) == 0
        driver.advance(9_999)
        assert driver.state is STABLE

    def test_static_members_p_116(self) -> None:
        """P-116."""
        driver = Driver()
        ids = driver.stable_static("a", "b")
        driver.shard = driver.replayed()
        assert driver.group().members.static_ids == ids
        assert driver.heartbeat(ids["a"], 1, "a") == 0
