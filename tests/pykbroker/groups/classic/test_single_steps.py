"""Single steps of classic groups that came too late: what they were for is over, and nothing changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pykbroker.groups.classic.group import COMPLETING, PREPARING, STABLE, Group
from pykbroker.groups.classic.joins import static_member_stored
from pykbroker.groups.classic.members import Members
from pykbroker.groups.classic.subscription import subscribed_topics
from pykbroker.groups.classic.syncs import assignment_stored
from pykbroker.groups.result import GroupResult
from pykbroker.protocol.error_codes import ErrorCode


def fake(**attributes: Any) -> Any:
    return SimpleNamespace(**attributes)


def test_a_session_of_a_member_that_was_replaced() -> None:
    old, new = fake(member_id="m", session_deadline_ms=5), fake(member_id="m", session_deadline_ms=9)
    Group._expire_session(fake(members=fake(by_id={"m": new})), old, 6, GroupResult())
    assert (old.session_deadline_ms, new.session_deadline_ms) == (5, 9)


def test_syncs_that_are_late_in_a_group_that_rebalances_again() -> None:
    """None of the members is dismissed, which the fake group could not do."""
    group = fake(members=fake(pending_syncs={"m"}), state=PREPARING, _sync_deadline_ms=5)
    Group._expire_sync(group, 6, GroupResult())
    assert group._sync_deadline_ms is None


def test_records_that_are_stored_too_late() -> None:
    for group in (fake(state=STABLE, generation_id=3), fake(state=COMPLETING, generation_id=4)):
        late = assignment_stored(group, fake(generation_id=3), ErrorCode.NONE, 0)
        assert (late.records, late.replies) == ([], [])
    member = fake(join_waiter="another")
    for members in ({}, {"new": member}):
        event = fake(new_member_id="new", waiter="this")
        late = static_member_stored(fake(members=fake(by_id=members)), event, ErrorCode.NONE, 0)
        assert (late.records, late.replies) == ([], [])


def test_a_leader_that_has_not_joined_is_replaced_by_one_who_has() -> None:
    away, here = fake(member_id="a", join_waiter=None), fake(member_id="b", join_waiter="waits")
    members = fake(leader_id="a", by_id={"a": away, "b": here})
    assert Members.elect_joined_leader(members)
    assert members.leader_id == "b"
    members = fake(leader_id="a", by_id={"a": away})
    assert not Members.elect_joined_leader(members)
    assert members.leader_id == "a"


def test_members_without_a_protocol_have_no_topics() -> None:
    assert subscribed_topics("consumer", None, [fake()]) is None
    assert subscribed_topics("consumer", None, []) == frozenset()
