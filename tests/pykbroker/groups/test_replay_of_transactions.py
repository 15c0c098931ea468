"""Replay reads only the last record of each key, and must come to what reading all of them gives (P-116, P-142)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import trio
from hypothesis import example, given
from hypothesis import strategies as st

from pykbroker.coordination.loader import read_records
from pykbroker.coordination.transaction_marker import TransactionMarker
from pykbroker.groups.offset_log import encode_record, group_tombstone, offset_record
from pykbroker.groups.offsets import CommittedOffset
from pykbroker.groups.result import LogRecord
from pykbroker.protocol.records.batch import NO_PRODUCER_ID, RecordBatch, build_batch
from pykbroker.protocol.records.record import Record
from pykbroker.protocol.steps import finished
from pykbroker.replication.transaction_markers import marker_batch
from tests.pykbroker.groups.shards import make_shard

NOW_MS = 1_700_000_000_000


class Commit:
    """Offsets for some partitions of a group; of a transaction if there is a producer."""

    def __init__(self, producer_id: int, group_id: str, partitions: dict[int, int | None]) -> None:
        self.producer_id = producer_id
        self.records = [
            offset_record(group_id, "t", partition, None if offset is None else CommittedOffset(offset, -1, "", 5))
            for partition, offset in partitions.items()
        ]

    def __repr__(self) -> str:
        values = [(r.key, r.value) for r in self.records]
        return f"Commit({self.producer_id}, {values})"


GROUPS = st.sampled_from(["g", "h"])
PLACES = st.integers(0, 2)
PRODUCERS = st.integers(7, 9)
OFFSETS = st.integers(0, 99)
EVENTS = st.one_of(
    st.builds(Commit, st.just(NO_PRODUCER_ID), GROUPS, st.dictionaries(PLACES, OFFSETS | st.none(), min_size=1)),
    st.builds(Commit, PRODUCERS, GROUPS, st.dictionaries(PLACES, OFFSETS, min_size=1)),
    st.builds(TransactionMarker, PRODUCERS, st.just(0), st.just(0), st.booleans(), st.just(1)),
    st.builds(group_tombstone, GROUPS),
)


class Log:
    """Batches in memory, as a shard's log has them."""

    path = "__consumer_offsets-0"

    def __init__(self) -> None:
        self._batches: list[bytes] = []
        self.end_offset = 0

    def append(self, records: list[LogRecord], producer_id: int) -> int:
        """Gives the first offset."""
        pairs = [encode_record(record) for record in records]
        batch = build_batch(
            [Record(number, NOW_MS, key, value) for number, (key, value) in enumerate(pairs)],
            producer_id=producer_id,
            is_transactional=producer_id != NO_PRODUCER_ID,
        )
        return self.append_batch(batch, len(records))

    def append_batch(self, data: bytes, count: int = 1) -> int:
        self._batches.append(self.end_offset.to_bytes(8, "big") + data[8:])
        self.end_offset += count
        return self.end_offset - count

    def iter_batches(self) -> Iterator[RecordBatch]:
        yield from map(RecordBatch, self._batches)


ABORTED_AFTER_A_TOMBSTONE = [
    Commit(NO_PRODUCER_ID, "g", {0: 0}),
    group_tombstone("g"),
    Commit(7, "g", {0: 0}),
    TransactionMarker(7, 0, 0, False, 1),
]


@example(ABORTED_AFTER_A_TOMBSTONE)
@given(st.lists(EVENTS, max_size=30))
def test_replay_comes_to_what_the_shard_had(events: list[Any]) -> None:
    """Commits, transactions of three producers, markers and tombstones in any order."""
    log, shard = Log(), make_shard()
    for event in events:
        if isinstance(event, TransactionMarker):
            log.append_batch(marker_batch(event, NOW_MS))
            shard.end_transaction(event.producer_id, event.is_commit)
            continue
        producer_id = event.producer_id if isinstance(event, Commit) else NO_PRODUCER_ID
        records = event.records if isinstance(event, Commit) else [event]
        first_offset = log.append(records, producer_id)
        for offset, record in enumerate(records, first_offset):
            shard.replay(record, NOW_MS, offset, producer_id)

    replayed = make_shard()
    partition_log: Any = log
    finished(replayed.load(trio.run(partial(read_records, keeps_every=False), partition_log), NOW_MS))
    assert replayed.offsets == shard.offsets
    assert replayed.pending == shard.pending
    for group_id in ("g", "h"):
        assert set(replayed.pending.of_group(group_id)) == set(shard.pending.of_group(group_id))
        if shard.offsets.of_group(group_id):
            assert group_id in replayed.groups
