"""The state of a transactional id as a record of `__transaction_state`, in exactly Kafka's formats, and back."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import Any

from pykbroker.coordination.coordinator_records import decode_record as decode_coordinator_record
from pykbroker.coordination.coordinator_records import encode_record, kinds_of
from pykbroker.protocol.codec import encode_element, encode_versioned
from pykbroker.protocol.errors import DecodeError
from pykbroker.protocol.log_messages import transaction_log
from pykbroker.protocol.log_messages.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from pykbroker.protocol.steps import PIECE, Steps
from pykbroker.protocol.topic_partition import TopicPartition, numbers_by_topic
from pykbroker.transactions.states import ENDED, ENDING, LoggedState, TransactionState

TRANSACTION_KINDS = kinds_of(transaction_log)
"""The one type of records of `__transaction_state`."""

FLEXIBLE_VALUE_LEVEL = 1
"""From this transaction.version on values are written in version 1, with the fields of KIP-890."""

WRITTEN = ENDED | ENDING | {TransactionState.ONGOING}
"""States that records have; the others exist in memory alone."""


def encode_key(transactional_id: str) -> bytes:
    """The key of a transactional id's records; with a null value the record is a tombstone."""
    key, _ = encode_record(TransactionLogKey(transactional_id=transactional_id), None, 0)
    return key


def encode_partitions(partitions: Iterable[TopicPartition], level: int) -> Steps[list[bytes]]:
    """The partitions of a transaction as `encode_value` takes them at a level, encoded in steps."""
    version = 0 if level < FLEXIBLE_VALUE_LEVEL else 1
    encoded = []
    ordered = sorted(partitions)
    yield
    for count, (topic, of_topic) in enumerate(groupby(ordered, key=itemgetter(0)), 1):
        schema = PartitionsSchema(topic=topic, partition_ids=[partition for _, partition in of_topic])
        encoded.append(encode_element(TransactionLogValue, schema, version))
        if not count % PIECE:
            yield
    return encoded


def encode_value(state: LoggedState, level: int, encoded: list[bytes] | None = None) -> bytes:
    """The value for a state, by the finalized transaction.version `level`; without KIP-890's fields below level 1.

    `encoded` are the partitions of the state at this level, if they were encoded beforehand.
    """
    partitions: Any = _partitions(state) if encoded is None else encoded
    value = TransactionLogValue(
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        transaction_timeout_ms=state.timeout_ms,
        transaction_status=state.state,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=state.last_update_ms,
        transaction_start_timestamp_ms=state.start_ms,
    )
    if level < FLEXIBLE_VALUE_LEVEL:
        return encode_versioned(value, 0)
    value.previous_producer_id = state.previous_producer_id
    value.next_producer_id = state.next_producer_id
    value.client_transaction_version = state.client_version
    return encode_versioned(value, 1)


def _partitions(state: LoggedState) -> list[PartitionsSchema] | None:
    if state.state is TransactionState.EMPTY:
        return None
    topics = numbers_by_topic(sorted(state.partitions))
    return [PartitionsSchema(topic=topic, partition_ids=numbers) for topic, numbers in topics.items()]


def decode_record(key: bytes, value: bytes | None) -> tuple[str, LoggedState | None] | None:
    """Transactional id and state, which is None for a tombstone; None in place of both for a key type to be skipped.

    Raises:
        DecodeError, UnsupportedVersion: the record cannot be read.
    """
    record = decode_coordinator_record(TRANSACTION_KINDS, key, value)
    if record is None:
        return None
    assert isinstance(record.key, TransactionLogKey)
    transactional_id = record.key.transactional_id
    read = record.value
    if read is None:
        return transactional_id, None
    assert isinstance(read, TransactionLogValue)
    if read.transaction_status not in WRITTEN:
        reason = f"a state of number {read.transaction_status} is never written"
        raise DecodeError("TransactionLogValue", 0, "transaction_status", 0, reason)
    state = TransactionState(read.transaction_status)
    partitions = frozenset(
        (schema.topic, partition)
        for schema in read.transaction_partitions or ()
        for partition in schema.partition_ids
        if state is not TransactionState.EMPTY
    )
    return transactional_id, LoggedState(
        producer_id=read.producer_id,
        previous_producer_id=read.previous_producer_id,
        next_producer_id=read.next_producer_id,
        producer_epoch=read.producer_epoch,
        timeout_ms=read.transaction_timeout_ms,
        state=state,
        partitions=partitions,
        start_ms=read.transaction_start_timestamp_ms,
        last_update_ms=read.transaction_last_update_timestamp_ms,
        client_version=read.client_transaction_version,
    )
