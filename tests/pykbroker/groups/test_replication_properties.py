"""Random sequences of events on a log whose tail may be lost: what is told is what the replicated part of it says."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pykbroker.groups import administration, offset_cleanup
from pykbroker.groups.classic.group import GroupState
from pykbroker.groups.offset_log import decode_record, encode_record
from pykbroker.groups.result import GroupResult
from pykbroker.groups.shard import GroupShard
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.steps import finished
from tests.pykbroker.groups.driver import DELAY_MS, Driver, Parked
from tests.pykbroker.groups.shards import make_shard


class ReplicatedDriver(Driver):
    """A driver whose appends take effect when `replicate` says so; `crash` loses the others."""

    def __init__(self) -> None:
        super().__init__(max_size=4)
        self.high_watermark = 0
        self.queue: list[tuple[GroupResult, int, int]] = []
        self.late_count = 0

    def carry_out(self, result: GroupResult | None) -> ErrorCode:
        if result is None:
            return ErrorCode.NONE
        for waiter, response in result.replies:
            assert isinstance(waiter, Parked)
            assert waiter.response is None, f"{waiter.name} answered twice"
            waiter.response = response
        if result.records:
            first_offset = len(self.log)
            self.log += [encode_record(record) for record in result.records]
            self.shard.appended(result, 0, 0)
            self.queue.append((result, first_offset, len(self.log)))
        return ErrorCode.NONE

    def replicate(self, count: int) -> None:
        for _ in range(min(count, len(self.queue))):
            result, first_offset, self.high_watermark = self.queue.pop(0)
            self.late_count = max(self.late_count - 1, 0)
            self.carry_out(self.shard.replicated(result, self.now_ms, first_offset))

    def give_up_first(self) -> None:
        """The first one that waits is late."""
        if self.late_count < len(self.queue):
            result = self.queue[self.late_count][0]
            self.late_count += 1
            self.carry_out(self.shard.late(result, ErrorCode.COORDINATOR_NOT_AVAILABLE, self.now_ms))

    def crash(self) -> None:
        """Another broker reads what was replicated; who waits is sent away."""
        self.carry_out(self.shard.unload(self.now_ms))
        del self.log[self.high_watermark :]
        self.queue.clear()
        self.late_count = 0
        self.shard = self.replicated_part()

    def replicated_part(self) -> GroupShard:
        shard = make_shard(self.config)
        for offset, (key, value) in enumerate(self.log[: self.high_watermark]):
            record = decode_record(key, value)
            assert record is not None
            shard.replay(record, self.now_ms, offset)
        finished(shard.create_missing_groups(self.now_ms))
        shard.loaded(self.now_ms)
        return shard


class Events(RuleBasedStateMachine):
    """A group of members, and commits, deletions and expiry beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = ReplicatedDriver()
        self.known: list[tuple[str, str | None]] = []
        self.joins: list[tuple[str | None, Parked]] = []
        self.waiting: list[Parked] = []
        self.offset = 0

    def generation_id(self) -> int:
        group = self.driver.shard.groups.get("g")
        return -1 if group is None else group.generation_id

    @rule(version=st.sampled_from([0, 3, 5, 9]), instance=st.sampled_from([None, None, "a"]))
    def join_new(self, version: int, instance: str | None) -> None:
        self.joins.append((instance, self.driver.join(version=version, instance_id=instance)))
        self.waiting.append(self.joins[-1][1])

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def join_again(self, data: st.DataObject) -> None:
        member_id, instance = data.draw(st.sampled_from(self.known))
        self.joins.append((instance, self.driver.join(member_id, instance_id=instance)))
        self.waiting.append(self.joins[-1][1])

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        member_id, instance = data.draw(st.sampled_from(self.known))
        given = {member: b"x" for member, _ in self.known}
        parked = self.driver.sync(
            member_id,
            self.generation_id(),
            given,
            instance_id=instance,
            protocol_type=None,
            protocol_name=None,
        )
        self.waiting.append(parked)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.driver.leave(data.draw(st.sampled_from(self.known)))

    @rule(data=st.data(), is_member=st.booleans(), partition=st.integers(0, 1))
    def commit(self, data: st.DataObject, is_member: bool, partition: int) -> None:
        self.offset += 1
        member_id, instance = data.draw(st.sampled_from(self.known)) if is_member and self.known else ("", None)
        generation_id = self.generation_id() if is_member else -1
        self.driver.commit(
            self.offset,
            generation_id=generation_id,
            member_id=member_id,
            instance_id=instance,
            partition=partition,
        )

    @rule()
    def delete(self) -> None:
        result = administration.delete(self.driver.shard, 0, "g")
        self.driver.carry_out(result)

    @rule()
    def delete_topic(self) -> None:
        for result in offset_cleanup.delete_topics(self.driver.shard, {"t": bytes(15) + b"\x07"}):
            self.driver.carry_out(result)

    @rule(duration_ms=st.sampled_from([1, 3_000, 60_000, 8 * 24 * 3_600_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.driver.advance(duration_ms)
        self.driver.expire()

    @rule(count=st.integers(1, 4))
    def replicate(self, count: int) -> None:
        self.driver.replicate(count)

    @rule()
    def give_up_first(self) -> None:
        self.driver.give_up_first()

    @rule()
    def crash(self) -> None:
        self.driver.crash()

    @invariant()
    def what_is_told_is_replicated(self) -> None:
        for instance, parked in self.joins:
            if parked.response is not None and parked.join.member_id:
                self.known.append((parked.join.member_id, instance))
        self.joins = [entry for entry in self.joins if entry[1].response is None]
        self.known = list(dict.fromkeys(self.known))[-5:]
        shard, replicated = self.driver.shard, self.driver.replicated_part()
        assert shard.offsets == replicated.offsets
        assert {group.group_id for group in administration.listed(shard, set(), set())} == set(replicated.groups)

    @invariant()
    def everyone_who_waits_is_waited_for(self) -> None:
        shard = self.driver.shard
        parked = {
            id(waiter)
            for group in shard.groups.values()
            for member in group.members
            for waiter in (member.join_waiter, member.sync_waiter)
            if waiter is not None
        }
        assert {id(waiter) for waiter in self.waiting if waiter.response is None} <= parked

    def teardown(self) -> None:
        for _ in range(3):
            self.driver.replicate(1000)
            self.driver.advance(1_900_000)
        assert all(parked.response is not None for parked in self.waiting)


Events.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestEvents = Events.TestCase


def test_a_late_first_record_leaves_the_group_and_the_id_that_was_given_out() -> None:
    """P-391."""
    driver = ReplicatedDriver()
    first = driver.join()
    driver.give_up_first()
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    second = driver.join(first.join.member_id)
    driver.advance(DELAY_MS)
    assert second.error is ErrorCode.NONE
    assert administration.listed(driver.shard, set(), set()) == []
    driver.replicate(1)
    assert [group.group_id for group in administration.listed(driver.shard, set(), set())] == ["g"]


def test_a_member_whose_join_is_answered_late_counts_as_joined() -> None:
    """P-391: it is the leader, as in Kafka, until its session expires; nobody is told so."""
    driver = ReplicatedDriver()
    first = driver.join(version=0, session_ms=10_000)
    driver.give_up_first()
    assert (first.error, first.join.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    second = driver.join(version=0, session_ms=60_000)
    driver.advance(DELAY_MS * 2)
    assert second.error is ErrorCode.NONE
    assert second.join.leader != second.join.member_id
    assert second.join.leader in driver.group().members
    driver.advance(10_000)
    assert list(driver.group().members.by_id) == [second.join.member_id]
    assert driver.state is GroupState.PREPARING_REBALANCE


def test_a_static_member_that_comes_back_after_a_late_join_takes_its_place() -> None:
    """P-391."""
    driver = ReplicatedDriver()
    first = driver.join(instance_id="a")
    driver.give_up_first()
    assert first.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    second = driver.join(instance_id="a")
    driver.advance(DELAY_MS)
    assert second.error is ErrorCode.NONE
    assert second.join.leader == second.join.member_id
    assert len(driver.group().members) == 1


def test_a_first_record_that_cannot_be_appended_takes_the_group_away() -> None:
    driver = Driver()
    driver.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    first = driver.join(version=0)
    assert (first.error, first.join.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    assert driver.shard.groups == {}
