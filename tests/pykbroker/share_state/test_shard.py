"""The share coordinator's shard: requests, fencing, snapshots and updates, and replay."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from pykbroker.coordination.shard import CoordinatorResult, LoggedRecords
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.share_state_records import ShareSnapshotValue
from pykbroker.protocol.steps import finished
from pykbroker.share_state.records import decode_record, encode_record
from pykbroker.share_state.shard import RECORDS_PER_STEP, ShareStateShard
from pykbroker.share_state.state import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    PartitionState,
    Refusal,
    SharePartitionKey,
    StateBatch,
    WriteState,
)

TOPIC = b"t" * 16
KEY = SharePartitionKey("g", TOPIC, 0)
NOW_MS = 1_000_000


class Rig:
    """One shard over a topic of two partitions, and its log."""

    def __init__(self, updates_per_snapshot: int = 3) -> None:
        self.updates_per_snapshot = updates_per_snapshot
        self.partition_counts = {TOPIC: 2}
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = NOW_MS
        self.shard = self._make()

    def _make(self) -> ShareStateShard:
        return ShareStateShard(self.updates_per_snapshot, lambda topic_id: self.partition_counts.get(topic_id, 0))

    def do_all(self, results: Iterable[CoordinatorResult]) -> None:
        """Carries out results one after the other."""
        for result in results:
            self.do(result)

    def do(self, result: CoordinatorResult) -> object:
        """Appends the records of a result and gives its response."""
        if result.records:
            first_offset = len(self.log)
            self.log += [encode_record(record) for record in result.records]
            self.shard.stored(result, ErrorCode.NONE, self.now_ms, first_offset)
        return result.response

    def initialize(self, state_epoch: int = 1, start_offset: int = -1, key: SharePartitionKey = KEY) -> object:
        return self.do(self.shard.initialize(self.now_ms, key, state_epoch, start_offset))

    def write(
        self,
        *batches: tuple[int, int, int, int],
        start: int = -1,
        state_epoch: int = 1,
        leader_epoch: int = 0,
        key: SharePartitionKey = KEY,
    ) -> object:
        found = [StateBatch(*batch) for batch in batches]
        return self.do(self.shard.write(self.now_ms, key, WriteState(state_epoch, leader_epoch, start, 0, found)))

    def read(self, leader_epoch: int = 0) -> object:
        return self.do(self.shard.read(self.now_ms, KEY, leader_epoch))

    def state(self) -> PartitionState:
        found = self.read(-1)
        assert isinstance(found, PartitionState)
        return found

    def kinds(self) -> str:
        """One letter for each record: a snapshot, an update, a tombstone."""
        letters = []
        for key, value in self.log:
            record = decode_record(key, value)
            assert record is not None
            is_snapshot = isinstance(record.value, ShareSnapshotValue)
            letters.append("t" if record.value is None else "s" if is_snapshot else "u")
        return "".join(letters)

    def reloaded(self) -> ShareStateShard:
        """Another broker's shard that has read the log."""
        shard = self._make()
        every = [(key, value, offset) for offset, (key, value) in enumerate(self.log)]
        finished(shard.load(LoggedRecords({}, {}, {}, "log", every), self.now_ms))
        return shard


def test_a_state_is_initialized_written_and_read() -> None:
    rig = Rig()
    assert rig.initialize() is None
    assert rig.read() == PartitionState(1, -1, (), -1, 0)
    assert rig.write((10, 19, AVAILABLE, 1), start=10) is None
    assert rig.write((12, 13, ACKNOWLEDGED, 1)) is None
    batches = (
        StateBatch(10, 11, AVAILABLE, 1),
        StateBatch(12, 13, ACKNOWLEDGED, 1),
        StateBatch(14, 19, AVAILABLE, 1),
    )
    assert rig.read() == PartitionState(1, 10, batches, 0, 0)


def test_every_fourth_record_is_a_snapshot() -> None:
    rig = Rig(updates_per_snapshot=3)
    rig.initialize(start_offset=0)
    for offset in range(8):
        rig.write((offset, offset, ACKNOWLEDGED, 1))
    assert rig.kinds() == "suuusuuus"
    assert rig.state().batches == (StateBatch(0, 7, ACKNOWLEDGED, 1),)
    assert rig.shard.states[KEY].snapshot_epoch == 2


def test_the_start_offset_takes_earlier_batches_along() -> None:
    rig = Rig()
    rig.initialize(start_offset=0)
    rig.write((0, 9, ACKNOWLEDGED, 1), (10, 19, AVAILABLE, 2))
    rig.write(start=15)
    assert (rig.state().start_offset, rig.state().batches) == (15, (StateBatch(15, 19, AVAILABLE, 2),))


def test_an_initialization_replaces_the_state() -> None:
    rig = Rig()
    rig.initialize(start_offset=0)
    rig.write((0, 9, ACKNOWLEDGED, 1))
    rig.initialize(state_epoch=2, start_offset=100)
    assert rig.state() == PartitionState(2, 100, (), 0, 0)


def test_old_state_epochs_are_fenced() -> None:
    rig = Rig()
    rig.initialize(state_epoch=5)
    assert rig.initialize(state_epoch=4) == Refusal(ErrorCode.FENCED_STATE_EPOCH)
    assert rig.write((0, 0, AVAILABLE, 1), state_epoch=4) == Refusal(ErrorCode.FENCED_STATE_EPOCH)
    assert rig.write((0, 0, AVAILABLE, 1), state_epoch=-1) is None


def test_old_leader_epochs_are_fenced() -> None:
    rig = Rig()
    rig.initialize()
    rig.read(leader_epoch=7)
    assert rig.kinds() == "su"
    rig.read(leader_epoch=7)
    assert rig.kinds() == "su", "the leader epoch is stored once"
    assert rig.read(leader_epoch=6) == Refusal(ErrorCode.FENCED_LEADER_EPOCH)
    assert rig.write((0, 0, AVAILABLE, 1), leader_epoch=6) == Refusal(ErrorCode.FENCED_LEADER_EPOCH)
    assert rig.write((0, 0, AVAILABLE, 1), leader_epoch=7) is None


def test_a_state_that_is_not_there() -> None:
    rig = Rig()
    refused = rig.write((0, 0, AVAILABLE, 1))
    assert refused == Refusal(
        ErrorCode.INVALID_REQUEST, "Write operation on uninitialized share partition not allowed."
    )
    assert rig.read() == Refusal(
        ErrorCode.INVALID_REQUEST, "Read operation on uninitialized share partition not allowed."
    )
    assert rig.shard.read_summary(KEY) == PartitionState(0, -1, ())
    assert rig.do(rig.shard.delete(rig.now_ms, KEY)) is None
    assert rig.log == []


def test_topics_and_partitions_that_are_not_there() -> None:
    rig = Rig()
    unknown = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert rig.initialize(key=KEY._replace(partition=2)) == unknown
    assert rig.initialize(key=KEY._replace(topic_id=b"u" * 16)) == unknown
    negative = rig.initialize(key=KEY._replace(partition=-1))
    assert negative == Refusal(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")
    assert rig.shard.read_summary(KEY._replace(partition=2)) == unknown
    assert rig.shard.delete(rig.now_ms, KEY._replace(partition=2)).response == unknown


def test_a_deleted_state_is_gone_and_can_be_made_again() -> None:
    rig = Rig()
    rig.initialize(state_epoch=5)
    rig.read(leader_epoch=7)
    assert rig.do(rig.shard.delete(rig.now_ms, KEY)) is None
    assert rig.shard.states == {}
    assert rig.initialize(state_epoch=1) is None
    assert rig.read(leader_epoch=0) == PartitionState(1, -1, (), -1, 0)


def test_deleted_topics_take_their_states_along() -> None:
    rig = Rig()
    rig.initialize()
    rig.initialize(key=KEY._replace(partition=1))
    rig.do_all(rig.shard.delete_topics([TOPIC]))
    assert rig.shard.states == rig.reloaded().states == {}


def test_the_states_of_a_very_large_topic_are_deleted_in_several_results() -> None:
    rig = Rig()
    rig.partition_counts[TOPIC] = 3 * RECORDS_PER_STEP
    keys = [KEY._replace(partition=number) for number in range(2 * RECORDS_PER_STEP + 1)]
    for key in keys:
        rig.initialize(key=key)
    results = rig.shard.delete_topics([TOPIC])
    assert [[record.key for record in result.records] for result in results] == [
        keys[:RECORDS_PER_STEP],
        keys[RECORDS_PER_STEP : 2 * RECORDS_PER_STEP],
        keys[-1:],
    ]
    assert rig.shard.delete_topics([bytes(16)]) == []


def test_cold_partitions_get_a_snapshot() -> None:
    rig = Rig()
    rig.initialize(start_offset=0)
    rig.write((0, 4, AVAILABLE, 1))
    before = rig.state()
    rig.now_ms += 999
    assert [result.records for result in rig.shard.snapshot_cold(1000, rig.now_ms)] == [[]]
    rig.now_ms += 1
    rig.do_all(rig.shard.snapshot_cold(1000, rig.now_ms))
    assert rig.kinds() == "sus"
    assert rig.state() == before
    rig.now_ms += 1000
    assert list(rig.shard.snapshot_cold(1000, rig.now_ms)) == [], "nothing is consumed any more"


def test_snapshots_of_very_many_cold_partitions_are_made_in_several_results() -> None:
    """One that is written between two of them needs none, and one that is deleted gets none."""
    rig = Rig()
    rig.partition_counts[TOPIC] = 3 * RECORDS_PER_STEP
    keys = [KEY._replace(partition=number) for number in range(2 * RECORDS_PER_STEP)]
    for key in keys:
        rig.initialize(start_offset=0, key=key)
    rig.now_ms += 1000
    results = rig.shard.snapshot_cold(1000, rig.now_ms)
    first = next(results)
    assert [record.key for record in first.records] == keys[:RECORDS_PER_STEP]
    rig.do(first)
    rig.initialize(state_epoch=2, key=keys[-1])
    rig.do(rig.shard.delete(rig.now_ms, keys[-2]))
    (second,) = results
    assert [record.key for record in second.records] == keys[RECORDS_PER_STEP:-2]


def test_a_failed_append_changes_nothing() -> None:
    rig = Rig()
    rig.initialize()
    before = dict(rig.shard.states)
    result = rig.shard.write(rig.now_ms, KEY, WriteState(1, 0, 5, 0, [StateBatch(5, 5, ACKNOWLEDGED, 1)]))
    rig.shard.stored(result, ErrorCode.COORDINATOR_NOT_AVAILABLE, rig.now_ms, 1)
    assert rig.shard.states == before


operations = st.lists(
    st.one_of(
        st.tuples(st.just("initialize"), st.integers(0, 1), st.integers(0, 3), st.integers(-1, 20)),
        st.tuples(
            st.just("write"),
            st.integers(0, 1),
            st.lists(
                st.builds(
                    lambda first, length, state, count: (first, first + length, state, count),
                    st.integers(0, 30),
                    st.integers(0, 9),
                    st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVED]),
                    st.integers(1, 3),
                ),
                max_size=3,
            ),
            st.integers(-1, 25),
        ),
        st.tuples(st.just("read"), st.integers(0, 1), st.integers(-1, 5), st.none()),
        st.tuples(st.just("delete"), st.integers(0, 1), st.none(), st.none()),
        st.tuples(st.just("cold"), st.none(), st.integers(0, 2), st.none()),
    ),
    max_size=25,
)


def play(rig: Rig, history: list[tuple[object, ...]]) -> None:
    """Carries out the operations one after the other."""
    for kind, partition, first, second in history:
        rig.now_ms += 1
        key = KEY._replace(partition=partition or 0)  # type: ignore[arg-type]
        if kind == "initialize":
            rig.initialize(first, second, key)  # type: ignore[arg-type]
        elif kind == "write":
            rig.write(*first, start=second, state_epoch=-1, leader_epoch=-1, key=key)  # type: ignore[misc, arg-type]
        elif kind == "read":
            rig.do(rig.shard.read(rig.now_ms, key, first))  # type: ignore[arg-type]
        elif kind == "delete":
            rig.do(rig.shard.delete(rig.now_ms, key))
        else:
            rig.do_all(rig.shard.snapshot_cold(first, rig.now_ms))  # type: ignore[arg-type]


@given(operations, st.integers(0, 4))
def test_a_reloaded_shard_is_the_same(history: list[tuple[object, ...]], updates_per_snapshot: int) -> None:
    rig = Rig(updates_per_snapshot)
    play(rig, history)
    other = rig.reloaded()
    assert other.states == rig.shard.states
    assert other._leader_epochs == rig.shard._leader_epochs
    assert other._state_epochs == rig.shard._state_epochs
    assert other._update_counts == rig.shard._update_counts
    assert other.redundant_offset == rig.shard.redundant_offset


@given(operations)
def test_records_before_the_redundant_offset_are_not_needed(history: list[tuple[object, ...]]) -> None:
    rig = Rig(updates_per_snapshot=2)
    play(rig, history)
    start = rig.shard.redundant_offset
    rig.log[:start] = [(b"\xff\xff", None)] * start
    assert rig.reloaded().states == rig.shard.states


def test_the_redundant_offset_is_that_of_the_oldest_snapshot() -> None:
    rig = Rig(updates_per_snapshot=1)
    other = KEY._replace(partition=1)
    rig.initialize()
    rig.initialize(key=other)
    assert rig.shard.redundant_offset == 0
    rig.write((0, 0, ACKNOWLEDGED, 1))
    rig.write((1, 1, ACKNOWLEDGED, 1))
    assert rig.kinds() == "ssus"
    assert rig.shard.redundant_offset == 1
    rig.do(rig.shard.delete(rig.now_ms, other))
    assert rig.shard.redundant_offset == 3
    rig.do(rig.shard.delete(rig.now_ms, KEY))
    assert rig.shard.redundant_offset == 5


def test_an_update_whose_snapshot_is_missing() -> None:
    """A log that was cut by hand: the update is the state, as nothing older is known."""
    rig = Rig()
    rig.initialize()
    rig.write((0, 4, ACKNOWLEDGED, 1), start=0)
    del rig.log[0]
    shard = rig.reloaded()
    state = shard.states[KEY]
    assert (state.start_offset, list(state.batches)) == (0, [StateBatch(0, 4, ACKNOWLEDGED, 1)])
