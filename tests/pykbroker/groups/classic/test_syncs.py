"""SyncGroup, Heartbeat, LeaveGroup and sessions: P-96, P-100 to P-104, P-110."""

from __future__ import annotations

import pytest

from pykbroker.groups.classic.group import COMPLETING, EMPTY, PREPARING, STABLE
from pykbroker.protocol.error_codes import ErrorCode
from tests.pykbroker.groups.driver import DELAY_MS, Driver, subscription


def completing(driver: Driver, count: int = 2, **options: object) -> list[str]:
    """A group whose members have joined and not synced; the first leads."""
    ids = [driver.new_member(**options)[0] for _ in range(count)]
    driver.advance(count * DELAY_MS)
    assert driver.state is COMPLETING
    return ids


def test_followers_wait_for_the_leader_p_100() -> None:
    """P-100: CompletingRebalance waits."""
    driver = Driver()
    leader, follower = completing(driver)
    waiting = driver.sync(follower, 1)
    assert waiting.response is None
    led = driver.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert (led.sync.assignment, waiting.sync.assignment) == (b"L", b"F")
    assert (led.sync.protocol_type, led.sync.protocol_name) == ("consumer", "range")
    assert driver.state is STABLE


def test_a_stable_group_answers_at_once_p_100() -> None:
    """P-100."""
    driver = Driver()
    leader, follower = completing(driver)
    driver.sync(leader, 1, {follower: b"F"})
    assert driver.state is STABLE
    assert driver.sync(follower, 1).sync.assignment == b"F"
    assert driver.sync(leader, 1).sync.assignment == b""


def test_while_members_join_a_sync_is_sent_to_join_p_100() -> None:
    """P-100: PreparingRebalance."""
    driver = Driver()
    leader, follower = driver.stable(2)
    driver.join(leader)
    assert driver.sync(follower, 1).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_who_does_not_sync_in_time_is_evicted_p_100() -> None:
    """P-100: after the rebalance timeout, though it heartbeats."""
    driver = Driver()
    leader, silent = completing(driver, rebalance_ms=20_000)
    driver.sync(leader, 1, {})
    for _ in range(4):
        driver.advance(4_999)
        assert driver.heartbeat(silent, 1) is ErrorCode.NONE
        assert driver.heartbeat(leader, 1) is ErrorCode.NONE
    driver.advance(5)
    assert driver.heartbeat(silent, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.state is PREPARING


def test_a_silent_leader_holds_up_a_generation_for_the_rebalance_timeout_p_100() -> None:
    """P-100: those who wait for it have to join again."""
    driver = Driver()
    leader, follower = completing(driver, session_ms=1_000_000)
    waiting = driver.sync(follower, 1)
    driver.advance(60_000)
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert leader not in driver.group().members
    assert driver.group().members.leader_id == follower


@pytest.mark.parametrize(("protocol_type", "protocol_name"), [("connect", "range"), ("consumer", "sticky")])
def test_protocol_type_and_name_must_match_p_100(protocol_type: str, protocol_name: str) -> None:
    """P-100: version 5 and later."""
    driver = Driver()
    [leader] = completing(driver, 1)
    parked = driver.sync(leader, 1, protocol_type=protocol_type, protocol_name=protocol_name)
    assert parked.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.sync(leader, 1, protocol_type=None, protocol_name=None).error is ErrorCode.NONE


def test_unknown_members_and_old_generations_p_101() -> None:
    """P-101."""
    driver = Driver()
    assert driver.sync("m", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat("m", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    [leader] = driver.stable()
    assert driver.sync("m", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.sync(leader, 0).error is ErrorCode.ILLEGAL_GENERATION
    assert driver.heartbeat("m", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(leader, 2) is ErrorCode.ILLEGAL_GENERATION
    assert driver.heartbeat(leader, 1, "zzz") is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_emptied_group_knows_nobody() -> None:
    driver = Driver()
    [leader] = driver.stable()
    driver.leave((leader, None))
    assert driver.state is EMPTY
    assert driver.sync(leader, 2).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_repeated_sync_supersedes_the_first() -> None:
    driver = Driver()
    leader, follower = completing(driver)
    first = driver.sync(follower, 1)
    second = driver.sync(follower, 1)
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.sync(leader, 1, {follower: b"F"})
    assert second.sync.assignment == b"F"


def test_heartbeats_tell_of_a_rebalance_and_keep_the_session_p_102() -> None:
    """P-102: 27 in PreparingRebalance, and the session begins anew; none in CompletingRebalance."""
    driver = Driver()
    leader, follower = driver.stable(2)
    driver.join(leader)
    for _ in range(3):
        driver.advance(9_999)
        assert driver.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(follower)
    assert driver.state is COMPLETING
    assert driver.heartbeat(follower, 2) is ErrorCode.NONE


def test_a_session_that_ends_rebalances_the_others() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    driver.advance(9_999)
    assert driver.heartbeat(leader, 1) is ErrorCode.NONE
    driver.advance(1)
    assert follower not in driver.group().members
    assert driver.state is PREPARING
    assert driver.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_who_waits_in_a_join_or_a_sync_has_no_session() -> None:
    driver = Driver()
    leader, follower = driver.stable(2, rebalance_ms=30_000)
    parked = driver.join(leader, rebalance_ms=30_000)
    for _ in range(4):
        driver.advance(7_499)
        driver.heartbeat(follower, 1)
    driver.advance(4)
    assert parked.error is ErrorCode.NONE
    assert list(driver.group().members.by_id) == [leader]


def test_after_the_sync_a_session_that_ran_out_unseen_begins_anew() -> None:
    driver = Driver()
    leader, follower = completing(driver, rebalance_ms=60_000)
    waiting = driver.sync(follower, 1)
    driver.advance(9_000)
    driver.heartbeat(leader, 1)
    driver.advance(9_000)
    driver.sync(leader, 1, {})
    assert waiting.error is ErrorCode.NONE
    driver.advance(9_999)
    assert follower in driver.group().members
    driver.advance(1)
    assert follower not in driver.group().members


def test_the_last_member_that_goes_leaves_an_empty_group_with_a_new_generation() -> None:
    driver = Driver()
    driver.stable()
    driver.advance(10_000)
    assert driver.state is EMPTY
    assert driver.group().generation_id == 2
    assert driver.group().protocol_name is None
    assert driver.replayed().groups["g"].state is EMPTY
    assert driver.replayed().groups["g"].generation_id == 2


class TestLeave:
    """P-104."""

    def test_several_with_an_error_each_p_104(self) -> None:
        """P-104."""
        driver = Driver()
        first, second, third = driver.stable(3)
        assert driver.leave((first, None), ("ghost", None), (second, None)) == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.NONE,
        ]
        assert driver.state is PREPARING
        assert driver.heartbeat(third, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        assert any("tired" in detail for detail in driver.details)

    def test_a_static_member_by_its_instance_id_p_104(self) -> None:
        """P-104: by an administrator, who does not know member ids."""
        driver = Driver()
        driver.stable_static("a", "b")
        assert driver.leave(("", "a"), ("", "zzz"), ("", None)) == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ]
        assert list(driver.group().members.static_ids) == ["b"]

    def test_a_pending_member_p_104(self) -> None:
        """P-104."""
        driver = Driver()
        member_id = driver.join().join.member_id
        assert driver.leave((member_id, None)) == [ErrorCode.NONE]
        assert driver.join(member_id).error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_the_last_one_that_was_waited_for_p_104(self) -> None:
        """P-104: the join phase ends."""
        driver = Driver()
        leader, other = driver.stable(2)
        parked = driver.join(leader)
        driver.leave((other, None))
        assert parked.error is ErrorCode.NONE

    def test_whoever_is_parked_for_the_one_that_leaves_is_told(self) -> None:
        driver = Driver()
        leader, follower = completing(driver)
        parked_sync = driver.sync(follower, 1)
        driver.leave((follower, None))
        assert parked_sync.error is ErrorCode.UNKNOWN_MEMBER_ID
        parked_join = driver.join(leader)
        assert parked_join.error is ErrorCode.NONE
        _, joining = driver.new_member()
        driver.leave((driver.group().members.static_ids.get("", leader), None))
        assert joining.error is ErrorCode.NONE

    def test_nobody_left_during_the_initial_delay(self) -> None:
        driver = Driver()
        member_id, parked = driver.new_member()
        driver.leave((member_id, None))
        assert parked.error is ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.state is PREPARING
        driver.advance(DELAY_MS)
        assert driver.state is EMPTY

    def test_a_missing_group_knows_none_of_them(self) -> None:
        assert Driver().leave(("m", None)) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_if_the_assignment_cannot_be_stored_everyone_joins_again_p_115() -> None:
    """P-115."""
    driver = Driver()
    leader, follower = completing(driver)
    waiting = driver.sync(follower, 1)
    driver.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    led = driver.sync(leader, 1, {leader: b"L"})
    assert led.error is waiting.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.state is PREPARING


def test_unloading_sends_everyone_away_p_90() -> None:
    """P-90: NOT_COORDINATOR for whoever is parked."""
    driver = Driver()
    _, follower = completing(driver)
    syncing = driver.sync(follower, 1)
    joining = driver.join(group_id="other", version=3)
    driver.carry_out(driver.shard.unload(driver.now_ms))
    assert syncing.error is joining.error is ErrorCode.NOT_COORDINATOR
    assert all(group.wake_ms is None for group in driver.shard.groups.values())


def test_an_unparsable_subscription_leaves_the_topics_unknown() -> None:
    driver = Driver()
    driver.stable(protocols=[("range", b"\x00\x01\x00")])
    assert driver.group().subscribed_topics is None
    assert driver.group().is_subscribed_to("anything")


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_topics_are_read_from_any_version_of_a_subscription(version: int) -> None:
    driver = Driver()
    driver.stable(2, protocols=[("range", subscription("t", "u", version=version))])
    assert driver.group().subscribed_topics == {"t", "u"}
