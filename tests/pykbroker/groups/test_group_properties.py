"""Random sequences of events never break what a group promises; what was written says what is."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pykbroker.groups.classic.group import COMPLETING, EMPTY, PREPARING, STABLE, Group
from pykbroker.protocol.error_codes import ErrorCode
from tests.pykbroker.groups.driver import Driver, Parked, subscription

PROTOCOLS = st.sampled_from(
    [
        [("range", subscription("t"))],
        [("range", subscription("t")), ("sticky", subscription("t"))],
        [("sticky", subscription("u")), ("range", subscription("t", "u"))],
        [("sticky", subscription("u"))],
    ]
)
SESSIONS = st.sampled_from([6_000, 10_000, 600_000])
REBALANCES = st.sampled_from([0, 5_000, 60_000])
INSTANCES = st.sampled_from([None, None, "a", "b"])


class GroupEvents(RuleBasedStateMachine):
    """One group, a few members, time and failing appends."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(max_size=4)
        self.known: list[tuple[str, str | None]] = []
        self.joins: list[tuple[str | None, Parked]] = []
        self.waiting: list[Parked] = []
        self.group: Group | None = None
        self.generation_id = 0
        self.committed = -1
        self.is_written = True

    def member(self, data: st.DataObject) -> tuple[str, str | None]:
        return data.draw(st.sampled_from(self.known))

    @rule(version=st.sampled_from([0, 3, 5, 9]), instance=INSTANCES, protocols=PROTOCOLS, s=SESSIONS, r=REBALANCES)
    def join_new(self, version: int, instance: str | None, protocols: list[tuple[str, bytes]], s: int, r: int) -> None:
        parked = self.driver.join(
            version=version, instance_id=instance, protocols=protocols, session_ms=s, rebalance_ms=r
        )
        self.note_join(instance, parked)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), protocols=PROTOCOLS, s=SESSIONS, r=REBALANCES)
    def join_again(self, data: st.DataObject, protocols: list[tuple[str, bytes]], s: int, r: int) -> None:
        member_id, instance = self.member(data)
        parked = self.driver.join(member_id, instance_id=instance, protocols=protocols, session_ms=s, rebalance_ms=r)
        self.note_join(instance, parked)

    def note_join(self, instance: str | None, parked: Parked) -> None:
        self.waiting.append(parked)
        self.joins.append((instance, parked))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), is_old=st.booleans())
    def sync(self, data: st.DataObject, is_old: bool) -> None:
        member_id, instance = self.member(data)
        generation_id = self.generation_id - is_old
        assignments = {m: f"{m} in {generation_id}".encode() for m, _ in self.known}
        self.waiting.append(
            self.driver.sync(
                member_id, generation_id, assignments, instance_id=instance, protocol_type=None, protocol_name=None
            )
        )

    @precondition(lambda self: self.group is not None and self.group.state is COMPLETING)
    @rule()
    def the_leader_syncs(self) -> None:
        """By chance alone no run gets to a stable group."""
        assert self.group is not None
        leader = self.group.members.by_id[self.group.members.leader_id or ""]
        assignments = {m.member_id: f"{m.member_id} in {self.generation_id}".encode() for m in self.group.members}
        synced = self.driver.sync(
            leader.member_id,
            self.generation_id,
            assignments,
            instance_id=leader.group_instance_id,
            protocol_type=None,
            protocol_name=None,
        )
        self.waiting.append(synced)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        member_id, instance = self.member(data)
        self.driver.heartbeat(member_id, self.generation_id, instance)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member_id, instance = self.member(data)
        self.driver.leave((member_id, instance))

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        member_id, instance = self.member(data)
        error = self.driver.commit(
            self.committed + 1, generation_id=self.generation_id, member_id=member_id, instance_id=instance
        )
        if error is ErrorCode.NONE:
            self.committed += 1

    @rule(duration_ms=st.sampled_from([1, 1_000, 3_000, 6_000, 60_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.driver.advance(duration_ms)

    @rule(fails=st.booleans())
    def disk(self, fails: bool) -> None:
        self.driver.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE if fails else ErrorCode.NONE
        self.is_written = self.is_written and not fails

    @rule()
    def offsets_expire(self) -> None:
        self.driver.expire()

    @invariant()
    def members_are_consistent(self) -> None:
        self.take_answers()
        group = self.driver.shard.groups.get("g")
        if group is None:
            return
        members = group.members
        if group is not self.group:  # the former one had nothing left and was deleted
            self.group, self.generation_id = group, 0
        assert group.generation_id >= self.generation_id
        self.generation_id = group.generation_id
        # Static members that have not joined keep their place beyond the limit, as in Kafka.
        assert sum(not m.is_static for m in members) <= 4 or group.state is PREPARING
        assert (members.leader_id is None) == (len(members) == 0)
        assert members.leader_id is None or members.leader_id in members
        assert members.awaiting_join_count == sum(m.join_waiter is not None for m in members)
        assert set(members.static_ids.values()) == {m.member_id for m in members if m.is_static}
        assert members.pending_syncs <= set(members.by_id)
        assert not (set(members.pending_joins) & set(members.by_id))
        if group.state is EMPTY:
            assert not members
        if group.state in (COMPLETING, STABLE):
            assert members
            assert group.protocol_name is not None
            assert all(dict(m.protocols).get(group.protocol_name) is not None for m in members)
            assert members.awaiting_join_count == 0
        if group.state is STABLE:
            assert all(m.sync_waiter is None for m in members)
        if group.state is PREPARING:
            assert all(m.sync_waiter is None for m in members)

    @invariant()
    def everyone_who_waits_is_waited_for(self) -> None:
        group = self.driver.shard.groups.get("g")
        parked = {id(w) for m in group.members for w in (m.join_waiter, m.sync_waiter) if w} if group else set()
        assert {id(w) for w in self.waiting if w.response is None} == parked

    @invariant()
    def offsets_do_not_go_back(self) -> None:
        if "g" in self.driver.shard.groups:
            assert self.driver.fetch() == self.committed
            assert self.driver.replayed().offsets == self.driver.shard.offsets

    @invariant()
    def what_is_written_is_what_is(self) -> None:
        group = self.driver.shard.groups.get("g")
        if group is None or not self.is_written or group.state not in (EMPTY, STABLE):
            return
        replayed = self.driver.replayed().groups["g"]
        assert (replayed.state, replayed.generation_id) == (group.state, group.generation_id)
        assert replayed.protocol_name == group.protocol_name
        assert replayed.members.leader_id == group.members.leader_id
        assert replayed.members.static_ids == group.members.static_ids
        assert {m.member_id: m.assignment for m in replayed.members} == {
            m.member_id: m.assignment for m in group.members
        }

    def take_answers(self) -> None:
        for instance, parked in self.joins:
            if parked.response is not None and parked.join.member_id:
                entry = (parked.join.member_id, instance)
                if entry not in self.known:
                    self.known.append(entry)
        self.joins = [entry for entry in self.joins if entry[1].response is None]
        self.known = self.known[-6:]

    def teardown(self) -> None:
        self.driver.append_error = ErrorCode.NONE
        self.driver.advance(1_900_000)
        assert all(parked.response is not None for parked in self.waiting)


GroupEvents.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestGroupEvents = GroupEvents.TestCase
