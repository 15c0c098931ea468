"""Single steps of classic groups that came too late: what they were for is over, and nothing changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pykbroker.groups.classic import subscription
from pykbroker.groups.classic.group import COMPLETING, PREPARING, STABLE, Group
from pykbroker.groups.classic.joins import static_member_stored
from pykbroker.groups.classic.members import Members
from pykbroker.groups.classic.subscription import subscribed_topics
from pykbroker.groups.classic.syncs import assignment_stored
from pykbroker.groups.result import GroupResult
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.consumer_protocol import ConsumerProtocolSubscription
from pykbroker.protocol.steps import PIECE


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


NAMES = [f"topic-{number}" for number in range(2 * PIECE)]


def metadata_of(topics: list[str], behind: bytes = b"\xff\xff\xff\xff") -> bytes:
    """A subscription in version 3 with these bytes behind its topics."""
    return b"\0\3" + encode(ConsumerProtocolSubscription(topics=topics, user_data=None), 0)[:-4] + behind


def subscribers(*metadata: bytes) -> list[Any]:
    return [SimpleNamespace(metadata=lambda protocol, given=given: given) for given in metadata]


def test_the_topics_of_members_with_the_same_subscription_are_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []

    def counted(kind: Any, version: int, data: Any) -> Any:
        decoded.append(len(data))
        return decode(kind, version, data)

    monkeypatch.setattr(subscription, "decode", counted)
    same = [metadata_of(NAMES, b"\0\0\0\3abc" + bytes(number)) for number in range(5)]
    other = metadata_of(NAMES[::-1])
    members = subscribers(*same, other, metadata_of(["one"]), *same, other)
    assert subscribed_topics("consumer", "range", members) == {*NAMES, "one"}
    assert sum(size > 500 for size in decoded) == 2
    assert len(decoded) == len(members)


@pytest.mark.parametrize("behind", [b"", b"\0\0\0\3ab", b"\xff\xff"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_subscription_that_ends_too_early_behind_its_topics(behind: bytes, is_first: bool) -> None:
    """The topics of the group are unknown, as if each subscription were decoded."""
    damaged, whole = metadata_of(NAMES, behind), metadata_of(NAMES)
    members = subscribers(damaged, whole) if is_first else subscribers(whole, damaged)
    assert subscribed_topics("consumer", "range", members) is None
    assert subscribed_topics("consumer", "range", subscribers(whole, whole)) == set(NAMES)


def test_subscriptions_that_begin_alike_have_topics_of_their_own() -> None:
    members = subscribers(metadata_of(NAMES), metadata_of([*NAMES, "last"]), metadata_of([*NAMES[:-1], "other"]))
    assert subscribed_topics("consumer", "range", members) == {*NAMES, "last", "other"}
