"""Partitions of large transactions that a shard encodes before their records are written."""

from __future__ import annotations

from pykbroker.protocol.steps import finished
from pykbroker.transactions.shard import LARGE, EncodedPartitions, TransactionShard
from pykbroker.transactions.state_log import encode_key, encode_value
from pykbroker.transactions.states import LoggedState, TransactionState

PARTITIONS = frozenset((f"t{number}", 0) for number in range(LARGE + 1))
ONGOING = LoggedState(producer_id=9, producer_epoch=1, state=TransactionState.ONGOING, partitions=PARTITIONS)


def prepared() -> TransactionShard:
    """A shard with an id without a transaction, to which partitions are about to be added."""
    shard = TransactionShard(0, lambda: 2)
    shard.replay("x", LoggedState(producer_id=9, producer_epoch=1, state=TransactionState.EMPTY))
    assert shard.must_prepare("x", PARTITIONS)
    finished(shard.prepare_partitions("x", PARTITIONS))
    return shard


def kept(shard: TransactionShard) -> list[EncodedPartitions]:
    """Encoded partitions that the shard keeps."""
    tables = [found for found in vars(shard).values() if isinstance(found, dict)]
    return [value for table in tables for value in table.values() if isinstance(value, EncodedPartitions)]


def test_the_record_is_the_same_with_partitions_encoded_before() -> None:
    shard = prepared()
    assert len(kept(shard)) == 1
    assert shard.encode(("x", ONGOING)) == (encode_key("x"), encode_value(ONGOING, 2))
    assert len(kept(shard)) == 1, "its next records have the same partitions"


def test_partitions_are_forgotten_with_their_id() -> None:
    """A refused request leaves them encoded, and the id may expire before it has another transaction."""
    shard = prepared()
    assert shard.encode(("x", None)) == (encode_key("x"), None)
    assert not kept(shard)


def test_partitions_are_forgotten_with_the_end_of_the_transaction() -> None:
    shard = prepared()
    ended = ONGOING._replace(state=TransactionState.COMPLETE_COMMIT, partitions=frozenset())
    assert shard.encode(("x", ended)) == (encode_key("x"), encode_value(ended, 2))
    assert not kept(shard)
