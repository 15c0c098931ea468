"""Modern groups as readers see them while records are in flight: as the replicated records say (P-383)."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.groups import administration
from pykbroker.groups.committed import groups_of
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.offset_fetch import fetch
from pykbroker.groups.result import GroupResult, LogRecord
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.consumer_offsets import GroupMetadataKey
from pykbroker.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from pykbroker.protocol.steps import finished
from tests.pykbroker.groups.consumer.rig import Client, Rig
from tests.pykbroker.groups.consumer.test_migration import classic_group, join_request, subscription
from tests.pykbroker.groups.shard_rig import GROUP, ShardRig
from tests.pykbroker.groups.share.rig import ShareRig
from tests.pykbroker.groups.streams.rig import StreamsRig, Thread
from tests.pykbroker.groups.streams.topologies import stateless


def listed(rig: ShardRig) -> list[tuple[str, str]]:
    return [(group.group_type, group.group_state) for group in administration.listed(rig.shard, set(), set())]


def described(rig: ShardRig) -> tuple[str, int, int, list[str]]:
    group = rig.describe(GROUP)
    return group.group_state, group.group_epoch, group.assignment_epoch, [member.member_id for member in group.members]


def joined(rig: ShardRig, member_id: str) -> Any:
    """A member that sends one heartbeat; nothing for a share group, whose members are no clients."""
    if isinstance(rig, ShareRig):
        rig.beat(member_id, 0, "t")
        return None
    client: Any
    if isinstance(rig, Rig):
        client = Client(rig, member_id, ["t"])
    else:
        assert isinstance(rig, StreamsRig)
        client = Thread(rig, member_id, stateless("t"))
    client.beat()
    return client


@pytest.mark.parametrize("make_rig", [Rig, ShareRig, StreamsRig])
def test_p383_a_member_is_shown_when_it_is_replicated(make_rig: type[Any]) -> None:
    """P-383."""
    rig = make_rig({"t": 2})
    rig.is_replicated = True
    joined(rig, "a")
    assert listed(rig) == []
    with pytest.raises(GroupError, match="not found"):
        rig.describe(GROUP)
    rig.replicate()
    before = listed(rig), described(rig), str(rig.describe(GROUP))
    joined(rig, "b")
    joined(rig, "c")
    assert (listed(rig), described(rig), str(rig.describe(GROUP))) == before
    rig.replicate(1)
    assert sorted(described(rig)[3]) == ["a", "b"]
    rig.replicate()
    assert sorted(described(rig)[3]) == ["a", "b", "c"]
    assert described(rig)[1] == rig.groups.by_id[GROUP].epoch


def test_p383_a_preferred_assignor_is_shown_when_it_is_replicated() -> None:
    """P-383."""
    rig = Rig({"t": 2}, is_replicated=True)
    Client(rig, "a", ["t"], assignor="uniform").beat()
    rig.replicate()
    for member_id in "bc":
        Client(rig, member_id, ["t"], assignor="range").beat()
    assert rig.describe(GROUP).assignor_name == "uniform"
    rig.replicate()
    assert rig.describe(GROUP).assignor_name == "range"


def test_p383_an_empty_group_that_becomes_a_classic_one() -> None:
    """P-383."""
    rig = Rig({"t": 2})
    joined(rig, "a").leave()
    rig.is_replicated = True
    rig.join_classic(join_request("", subscription("t")))
    assert listed(rig) == [("consumer", "Empty")]
    assert described(rig)[0] == "Empty"
    assert administration.describe(rig.shard, GROUP, 6).error_message == "Group g is not a classic group."
    rig.replicate()
    assert listed(rig) == [("classic", "Empty")]
    assert administration.describe(rig.shard, GROUP, 6).group_state == "Empty"


def test_p383_a_classic_group_that_is_upgraded_and_downgraded() -> None:
    """P-383."""
    rig = Rig({"t": 2})
    classic = classic_group(rig)
    rig.is_replicated = True
    new = joined(rig, "new")
    assert listed(rig) == [("classic", "Stable")]
    assert [member.member_id for member in administration.describe(rig.shard, GROUP, 6).members] == [classic]
    rig.replicate()
    assert [group_type for group_type, _ in listed(rig)] == ["consumer"]
    new.leave()
    assert [group_type for group_type, _ in listed(rig)] == ["consumer"]
    assert sorted(described(rig)[3]) == sorted([classic, "new"])
    rig.replicate()
    assert [group_type for group_type, _ in listed(rig)] == ["classic"]


def test_p383_a_member_fetches_offsets_with_its_replicated_epoch() -> None:
    """P-383: but for `require_stable`, which Kafka handles as a write."""
    rig = Rig({"t": 2}, is_replicated=True)
    client = joined(rig, "a")
    rig.replicate()
    assert rig.group.members["a"].member_epoch == 2
    client.subscribe(["t", "u"])
    assert rig.group.members["a"].member_epoch == 3
    request = OffsetFetchRequestGroup(group_id=GROUP, member_id="a", member_epoch=2, topics=[])
    assert finished(fetch(rig.shard, request)).error_code == ErrorCode.NONE
    assert finished(fetch(rig.shard, request, require_stable=True)).error_code == ErrorCode.STALE_MEMBER_EPOCH
    rig.replicate()
    assert finished(fetch(rig.shard, request)).error_code == ErrorCode.STALE_MEMBER_EPOCH


def test_groups_of_a_result_keep_the_order_of_its_records() -> None:
    names = [f"group-{number * 7 % 40}" for number in range(40)]
    records = [LogRecord(GroupMetadataKey(group=name), None) for name in (*names, *names)]
    assert list(groups_of(GroupResult(records=records), ())) == names
