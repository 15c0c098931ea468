"""JoinGroup: P-93 to P-99, P-103, P-105."""

from __future__ import annotations

import pytest

from pykbroker.groups.classic.group import COMPLETING, EMPTY, PREPARING, STABLE
from pykbroker.groups.classic.joins import NEW_MEMBER_JOIN_TIMEOUT_MS
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.join_group import JoinGroupResponseMember
from tests.pykbroker.groups.driver import DELAY_MS, START_MS, Driver, subscription

RANGE = ("range", subscription("t"))
STICKY = ("sticky", subscription("t"))


def test_a_new_dynamic_member_first_gets_an_id_p_93() -> None:
    """P-93: from version 4 on, "clientId-UUID"."""
    driver = Driver()
    parked = driver.join(client_id="app", version=4)
    assert parked.error is ErrorCode.MEMBER_ID_REQUIRED
    assert parked.join.member_id == "app-00000000-0000-0000-0000-000000000001"
    assert driver.state is EMPTY
    assert "app-00000000-0000-0000-0000-000000000001" in driver.group().members.pending_joins


def test_a_pending_member_id_lapses_after_a_session_timeout_p_93() -> None:
    """P-93."""
    driver = Driver()
    member_id = driver.join(session_ms=6_000).join.member_id
    driver.advance(5_999)
    assert driver.group().members.pending_joins
    driver.advance(1)
    assert not driver.group().members.pending_joins
    assert driver.join(member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [0, 3])
def test_below_version_4_a_member_is_added_at_once_p_93(version: int) -> None:
    """P-93."""
    driver = Driver()
    parked = driver.join(version=version)
    assert parked.response is None
    assert driver.state is PREPARING


def test_a_pending_member_is_waited_for_p_93() -> None:
    """P-93: a rebalance does not end while a given-out id is still to come."""
    driver = Driver()
    [leader] = driver.stable()
    driver.join()
    rejoined = driver.join(leader)
    assert driver.state is PREPARING
    assert rejoined.response is None
    driver.advance(10_000)
    assert rejoined.error is ErrorCode.NONE


def test_a_pending_member_has_no_instance_id() -> None:
    driver = Driver()
    member_id = driver.join().join.member_id
    assert driver.join(member_id, instance_id="i").error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_group_is_made_only_for_a_join_without_member_id() -> None:
    """P-101: a member id that nobody gave out."""
    driver = Driver()
    parked = driver.join("ghost")
    assert parked.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert parked.join.member_id == "ghost"
    assert not driver.shard.groups


def test_the_first_join_waits_for_others_p_94() -> None:
    """P-94: group.initial.rebalance.delay.ms after the first join."""
    driver = Driver()
    _, parked = driver.new_member()
    driver.advance(DELAY_MS - 1)
    assert parked.response is None
    driver.advance(1)
    assert parked.error is ErrorCode.NONE
    assert parked.join.generation_id == 1
    assert driver.state is COMPLETING


def test_the_initial_delay_is_extended_while_members_come_p_94() -> None:
    """P-94: by the same amount, up to the largest rebalance timeout in all."""
    driver = Driver()
    _, first = driver.new_member(rebalance_ms=7_000)
    for _ in range(2):
        driver.advance(DELAY_MS - 1)
        driver.new_member(rebalance_ms=7_000)
        driver.advance(1)
        assert first.response is None
    # 6 of 7 seconds have passed; the last extension is cut to what remains.
    driver.advance(DELAY_MS)
    assert first.error is ErrorCode.NONE
    assert driver.group().generation_id == 1


def test_no_delay_when_it_is_configured_away_p_94() -> None:
    """P-94 with group.initial.rebalance.delay.ms=0, as in test suites."""
    driver = Driver(initial_rebalance_delay_ms=0)
    _, parked = driver.new_member()
    driver.advance(0)
    assert parked.error is ErrorCode.NONE


def test_a_member_in_its_first_join_has_five_minutes_p_95() -> None:
    """P-95: whatever its timeouts say, since it cannot heartbeat."""
    driver = Driver()
    [leader] = driver.stable(rebalance_ms=1_800_000, session_ms=1_800_000)
    _, parked = driver.new_member(rebalance_ms=1_800_000, session_ms=6_000)
    driver.advance(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
    assert parked.response is None
    driver.advance(1)
    assert parked.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert parked.join.member_id == ""
    assert list(driver.group().members.by_id) == [leader]


def test_the_rebalance_timeout_is_the_largest_of_all_p_95() -> None:
    """P-95."""
    driver = Driver()
    driver.new_member(rebalance_ms=20_000)
    driver.new_member(rebalance_ms=50_000)
    driver.new_member(rebalance_ms=10_000)
    assert driver.group().members.rebalance_timeout_ms == 50_000


def test_who_does_not_rejoin_in_time_is_dropped_p_96() -> None:
    """P-96."""
    driver = Driver()
    leader, slow = driver.stable(2, session_ms=1_000_000)
    _, new = driver.new_member(session_ms=1_000_000)
    rejoined = driver.join(leader, session_ms=1_000_000)
    driver.advance(59_999)
    assert new.response is None
    driver.advance(1)
    assert rejoined.error is ErrorCode.NONE
    assert new.error is ErrorCode.NONE
    assert slow not in driver.group().members
    assert any(slow in note and "has not joined" in note for note in driver.notes)


def test_a_static_member_that_does_not_rejoin_stays_p_96() -> None:
    """P-96, and P-100: it is dropped when it does not sync either."""
    driver = Driver()
    ids = driver.stable_static("a", "b", session_ms=1_000_000)
    rejoined = driver.join(ids["a"], instance_id="a", session_ms=1_000_000)
    driver.advance(60_000)
    assert rejoined.error is ErrorCode.NONE
    assert ids["b"] in driver.group().members
    driver.sync(ids["a"], 2, {ids["a"]: b"x"}, instance_id="a")
    driver.advance(60_000)
    assert ids["b"] not in driver.group().members
    assert driver.state is PREPARING


def test_a_rebalance_of_static_members_that_nobody_joins_waits_for_their_sessions() -> None:
    driver = Driver()
    ids = driver.stable_static("a", "b", session_ms=100_000, rebalance_ms=10_000)
    driver.advance(1)
    driver.leave(("", "a"))
    driver.advance(50_000)
    assert driver.state is PREPARING
    assert list(driver.group().members.by_id) == [ids["b"]]
    driver.advance(60_000)
    assert driver.state is EMPTY


def test_the_first_joiner_leads_and_only_it_sees_the_members_p_97() -> None:
    """P-97."""
    driver = Driver()
    first_id, first = driver.new_member(protocols=[("range", b"one")])
    second_id, second = driver.new_member(protocols=[("range", b"two")])
    driver.advance(2 * DELAY_MS)
    assert first.join.leader == second.join.leader == first_id
    assert first.join.members == [
        JoinGroupResponseMember(member_id=first_id, metadata=b"one"),
        JoinGroupResponseMember(member_id=second_id, metadata=b"two"),
    ]
    assert second.join.members == []


def test_the_leader_stays_while_it_rejoins_p_97() -> None:
    """P-97."""
    driver = Driver()
    leader, other = driver.stable(2)
    driver.join(other, protocols=[("range", subscription("t", "u"))])
    assert driver.state is PREPARING
    rejoined = driver.join(leader)
    assert rejoined.join.leader == leader


def test_a_leader_that_does_not_rejoin_is_replaced_p_97() -> None:
    """P-97."""
    driver = Driver()
    leader, other = driver.stable(2, session_ms=1_000_000)
    driver.new_member(session_ms=1_000_000)
    rejoined = driver.join(other, session_ms=1_000_000)
    driver.advance(60_000)
    assert leader not in driver.group().members
    assert rejoined.join.leader == other
    assert rejoined.join.members


@pytest.mark.parametrize(
    ("preferences", "chosen"),
    [
        ([[RANGE]], "range"),
        ([[RANGE, STICKY], [STICKY, RANGE], [STICKY, RANGE]], "sticky"),
        ([[RANGE, STICKY], [RANGE, STICKY], [STICKY]], "sticky"),
        # A tie: the order of Java's hash table.
        ([[RANGE, STICKY], [STICKY, RANGE]], "sticky"),
        ([[STICKY, RANGE], [RANGE, STICKY]], "sticky"),
    ],
)
def test_the_protocol_with_most_votes_wins_p_98(preferences: list[list[tuple[str, bytes]]], chosen: str) -> None:
    """P-98: each votes for the first of its protocols that all support."""
    driver = Driver()
    joins = [driver.new_member(protocols=protocols)[1] for protocols in preferences]
    driver.advance(len(preferences) * DELAY_MS)
    assert {parked.join.protocol_name for parked in joins} == {chosen}


def test_no_common_protocol_p_98() -> None:
    """P-98."""
    driver = Driver()
    driver.new_member(protocols=[RANGE])
    assert driver.join(protocols=[STICKY]).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.join(protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("options", [{"protocol_type": ""}, {"protocols": []}])
def test_a_group_does_not_begin_without_a_protocol_p_98(options: dict[str, object]) -> None:
    """P-98."""
    driver = Driver()
    assert driver.join(**options).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[arg-type]
    assert driver.state is EMPTY


def test_a_protocol_that_is_listed_twice_counts_once() -> None:
    driver = Driver()
    _, parked = driver.new_member(protocols=[RANGE, RANGE])
    driver.advance(DELAY_MS)
    assert parked.join.protocol_name == "range"


def test_a_follower_that_rejoins_unchanged_gets_the_current_generation_p_99() -> None:
    """P-99."""
    driver = Driver()
    leader, follower = driver.stable(2)
    again = driver.join(follower)
    assert again.error is ErrorCode.NONE
    assert (again.join.generation_id, again.join.leader, again.join.members) == (1, leader, [])
    assert driver.state is STABLE


@pytest.mark.parametrize("who", [0, 1])
def test_changed_metadata_or_a_rejoining_leader_rebalances_p_99(who: int) -> None:
    """P-99: the leader with the same metadata, or a follower with other."""
    driver = Driver()
    members = driver.stable(2)
    protocols = [RANGE] if who == 0 else [("range", subscription("u"))]
    assert driver.join(members[who], protocols=protocols).response is None
    assert driver.state is PREPARING


def test_a_join_that_is_repeated_before_the_sync_gets_the_same_answer_p_99() -> None:
    """P-99 in CompletingRebalance: the first answer may have been lost."""
    driver = Driver()
    member_id, parked = driver.new_member()
    driver.advance(DELAY_MS)
    assert driver.join(member_id).join == parked.join
    assert driver.state is COMPLETING
    assert driver.join(member_id, protocols=[("range", b"\0\0\0\0\0\0")]).join.generation_id == 2


def test_a_join_that_is_repeated_while_it_is_parked_supersedes_the_first() -> None:
    driver = Driver()
    member_id, first = driver.new_member()
    second = driver.join(member_id)
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.advance(DELAY_MS)
    assert second.error is ErrorCode.NONE


def test_the_reason_of_the_client_is_noted() -> None:
    """KIP-800."""
    driver = Driver()
    driver.join(version=3, reason="rebalance was forced")
    assert any("rebalance was forced" in detail for detail in driver.details)
    driver.advance(DELAY_MS)
    (generation,) = driver.notes
    assert "generation 1 begins with 1 member(s)" in generation
    assert "rebalance was forced" in generation


def test_an_operator_gets_a_line_for_each_generation_and_for_each_member_that_is_lost() -> None:
    """Not for each step of a rebalance: those were most of the lines of a node that only groups keep busy."""
    driver = Driver()
    driver.stable(2)
    assert len(driver.notes) == 1
    assert "generation 1 begins with 2 member(s)" in driver.notes[0]
    driver.advance(10_000)
    assert driver.state is EMPTY
    assert ["has not sent a heartbeat" in note for note in driver.notes[1:]] == [True, True], "empty is a detail"
    assert len(driver.details) > len(driver.notes)


class TestStaticMembers:
    """P-103, P-101."""

    def test_it_comes_back_without_a_rebalance_p_103(self) -> None:
        """P-103: a new member id, the old assignment, the same generation."""
        driver = Driver()
        ids = driver.stable_static("a", "b")
        back = driver.join(instance_id="b")
        assert back.error is ErrorCode.NONE
        assert back.join.member_id != ids["b"]
        assert (back.join.generation_id, back.join.leader, back.join.skip_assignment) == (1, ids["a"], False)
        assert driver.state is STABLE
        assert driver.sync(back.join.member_id, 1, instance_id="b").sync.assignment == ids["b"].encode()
        stored = driver.replayed().groups["g"].members.by_id
        assert sorted(stored) == sorted([ids["a"], back.join.member_id])

    def test_a_leader_that_comes_back_is_told_not_to_assign_p_103(self) -> None:
        """P-103: skip_assignment from version 9 on (KIP-814)."""
        driver = Driver()
        ids = driver.stable_static("a", "b")
        back = driver.join(instance_id="a")
        assert back.join.skip_assignment
        assert back.join.leader == back.join.member_id
        assert {member.member_id for member in back.join.members} == {back.join.member_id, ids["b"]}

    def test_an_old_client_that_led_takes_itself_for_a_follower_p_103(self) -> None:
        """P-103 below version 9: the answer names the old id as leader."""
        driver = Driver()
        ids = driver.stable_static("a", "b", version=8)
        back = driver.join(instance_id="a", version=8)
        assert (back.join.leader, back.join.skip_assignment, back.join.members) == (ids["a"], False, [])
        assert driver.state is STABLE

    def test_the_replaced_one_is_fenced_p_101(self) -> None:
        """P-101: whatever it does under its old id."""
        driver = Driver()
        ids = driver.stable_static("a")
        driver.join(instance_id="a")
        assert driver.heartbeat(ids["a"], 1, "a") is ErrorCode.FENCED_INSTANCE_ID
        assert driver.sync(ids["a"], 1, instance_id="a").error is ErrorCode.FENCED_INSTANCE_ID
        assert driver.join(ids["a"], instance_id="a").error is ErrorCode.FENCED_INSTANCE_ID
        assert driver.leave((ids["a"], "a")) == [ErrorCode.FENCED_INSTANCE_ID]
        error = driver.commit(1, generation_id=1, member_id=ids["a"], instance_id="a")
        assert error is ErrorCode.FENCED_INSTANCE_ID
        assert driver.heartbeat(ids["a"], 1) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_parked_join_of_the_replaced_one_is_fenced_p_101(self) -> None:
        """P-101."""
        driver = Driver()
        first = driver.join(instance_id="a")
        second = driver.join(instance_id="a")
        assert first.error is ErrorCode.FENCED_INSTANCE_ID
        assert second.response is None
        driver.advance(2 * DELAY_MS)
        assert second.error is ErrorCode.NONE
        assert len(driver.group().members) == 1

    def test_during_the_sync_phase_its_return_rebalances_p_103(self) -> None:
        """P-103: the leader may be assigning to the old id."""
        driver = Driver()
        first = driver.join(instance_id="a")
        driver.join(instance_id="b")
        driver.advance(2 * DELAY_MS)
        parked_sync = driver.sync(first.join.leader, 99)
        assert parked_sync.error is ErrorCode.ILLEGAL_GENERATION
        assert driver.state is COMPLETING
        driver.join(instance_id="b")
        assert driver.state is PREPARING

    def test_a_change_of_the_chosen_protocol_rebalances_p_103(self) -> None:
        """P-103."""
        driver = Driver()
        driver.stable_static("a", protocols=[RANGE, STICKY])
        back = driver.join(instance_id="a", protocols=[STICKY])
        assert back.join.generation_id == 2
        assert driver.state is COMPLETING

    def test_if_the_new_id_cannot_be_stored_the_old_one_stays_p_115(self) -> None:
        """P-115."""
        driver = Driver()
        ids = driver.stable_static("a", "b")
        driver.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert driver.join(instance_id="b").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert driver.heartbeat(ids["b"], 1, "b") is ErrorCode.NONE
        assert driver.group().members.awaiting_join_count == 0

    def test_an_unknown_instance_id_with_a_member_id_p_101(self) -> None:
        """P-101."""
        driver = Driver()
        [member_id] = driver.stable()
        assert driver.join(member_id, instance_id="zzz").error is ErrorCode.UNKNOWN_MEMBER_ID


class TestGroupMaxSize:
    """P-105."""

    def test_a_full_group_refuses_p_105(self) -> None:
        """P-105 in Stable and CompletingRebalance."""
        driver = Driver(max_size=2)
        members = driver.stable(2)
        refused = driver.join()
        assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert refused.join.member_id == ""
        assert driver.join(members[1]).error is ErrorCode.NONE

    def test_while_joining_those_who_wait_count_p_105(self) -> None:
        """P-105 in PreparingRebalance."""
        driver = Driver(max_size=2)
        ids = [driver.join().join.member_id for _ in range(3)]
        parked = [driver.join(member_id) for member_id in ids]
        assert parked[2].error is ErrorCode.GROUP_MAX_SIZE_REACHED
        driver.advance(2 * DELAY_MS)
        assert [p.error for p in parked[:2]] == [ErrorCode.NONE] * 2

    def test_a_lowered_limit_drops_the_last_to_rejoin_p_105(self) -> None:
        """P-105, P-116: a replayed group that is too large rebalances."""
        driver = Driver()
        members = driver.stable(3)
        small = Driver(max_size=2)
        small.log = driver.log
        small.shard = small.replayed()
        small.carry_out(small.shard.loaded(START_MS))
        assert small.state is PREPARING
        parked = [small.join(member_id) for member_id in members]
        assert parked[2].error is ErrorCode.GROUP_MAX_SIZE_REACHED
        small.advance(60_000)
        assert [p.error for p in parked[:2]] == [ErrorCode.NONE] * 2


def test_the_record_of_a_new_group_cannot_be_stored_p_115() -> None:
    """P-115: the join is refused and the group is gone again."""
    driver = Driver()
    driver.append_error = ErrorCode.NOT_COORDINATOR
    parked = driver.join(version=3)
    assert parked.error is ErrorCode.NOT_COORDINATOR
    assert not driver.shard.groups


def test_a_group_that_is_unloaded_sends_members_to_another_coordinator_p_90() -> None:
    driver = Driver()
    [member_id] = driver.stable()
    driver.group().unload(driver.now_ms)
    assert driver.join(member_id).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
