"""Long batches and logs of coordinators are read and replayed in steps, between which others are served."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from pykbroker.controller.turns import Turn
from pykbroker.coordination import coordinator_records
from pykbroker.coordination.loader import read_records
from pykbroker.coordination.shard import LoggedRecords
from pykbroker.protocol.codec import encode, encode_versioned
from pykbroker.protocol.log_messages.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from pykbroker.protocol.log_messages.share_state_records import ShareUpdateKey, ShareUpdateValue
from pykbroker.protocol.records.batch import build_batch, iter_batches
from pykbroker.protocol.records.record import Record
from pykbroker.share_state.shard import ShareStateShard
from pykbroker.transactions.shard import TransactionShard
from pykbroker.transactions.state_log import encode_key, encode_value
from pykbroker.transactions.states import LoggedState, TransactionState
from tests.pykbroker.groups.shards import make_shard

VALUE = encode_versioned(OffsetCommitValue(offset=42), 3)


def key(group_id: str) -> bytes:
    return b"\0\1" + encode(OffsetCommitKey(group=group_id, topic="t", partition=0), 0)


@pytest.mark.parametrize(("producer_id", "keeps_every"), [(-1, False), (-1, True), (7, False)])
def test_records_of_one_batch(monkeypatch: pytest.MonkeyPatch, producer_id: int, keeps_every: bool) -> None:
    """One look at the turn for the batch, and one for each piece of it."""
    looks = [0]

    async def look(self: Turn) -> None:
        looks[0] += 1

    monkeypatch.setattr(Turn, "end_if_over", look)
    monkeypatch.setattr("pykbroker.coordination.loader.PIECE", 1)
    data = build_batch([Record(number, 0, b"k%d" % number, b"v", ()) for number in range(3)], producer_id=producer_id)
    log: Any = SimpleNamespace(path="log", iter_batches=lambda: iter_batches(data))
    found = trio.run(partial(read_records, log, keeps_every=keeps_every))
    assert looks == [4]
    records = found.every if keeps_every else found.pending[7] if producer_id == 7 else found.last
    assert len(records) == 3


def test_offsets_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step for each committed, pending and aborted offset, and for the group that has no record of its own."""
    monkeypatch.setattr("pykbroker.groups.shard.PIECE", 1)
    shard = make_shard()
    logged = LoggedRecords({key("a"): (0, VALUE)}, {7: {key("b"): (1, VALUE)}}, {key("c"): (2, VALUE)}, "log")
    assert sum(1 for _ in shard.load(logged, 1000)) == 4
    assert {group_id for group_id in "abcd" if shard.any_group(group_id) is not None} >= {"a", "c"}


def test_share_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykbroker.share_state.shard.PIECE", 1)
    shard = ShareStateShard(500, lambda topic_id: 1)
    every = [
        (
            *coordinator_records.encode_record(ShareUpdateKey(group_id="g", partition=number), ShareUpdateValue(), 0),
            number,
        )
        for number in range(3)
    ]
    assert sum(1 for _ in shard.load(LoggedRecords({}, {}, {}, "log", every), 1000)) == 3


def test_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykbroker.transactions.shard.PIECE", 1)
    shard = TransactionShard(0, lambda: 2)
    state = LoggedState(producer_id=9, producer_epoch=1, state=TransactionState.EMPTY)
    last: dict[bytes, tuple[int, bytes | None]] = {
        encode_key(name): (number, encode_value(state, 2)) for number, name in enumerate("ab")
    }
    assert sum(1 for _ in shard.load(LoggedRecords(last, {}, {}, "log"), 1000)) == 2
    assert set(shard.transactions) == {"a", "b"}
