"""Records of `__transaction_state`. That they are Kafka's is in test_as_kafka and test_kafka_reads_our_log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.steps import finished
from pykbroker.transactions.state_log import WRITTEN, decode_record, encode_key, encode_partitions, encode_value
from pykbroker.transactions.states import LoggedState, TransactionState

IDS = st.integers(-1, 2**63 - 1)
EPOCHS = st.integers(-1, 2**15 - 1)
STATES = st.builds(
    LoggedState,
    producer_id=IDS,
    previous_producer_id=IDS,
    next_producer_id=IDS,
    producer_epoch=EPOCHS,
    last_producer_epoch=st.just(-1),
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from(sorted(WRITTEN)),
    partitions=st.frozensets(st.tuples(st.text("abc", min_size=1, max_size=3), st.integers(0, 99)), max_size=6),
    start_ms=IDS,
    last_update_ms=IDS,
    client_version=st.sampled_from((0, 2)),
).map(lambda state: state._replace(partitions=frozenset()) if state.state is TransactionState.EMPTY else state)


@given(st.text(max_size=20), STATES, st.integers(0, 2))
def test_what_is_written_is_read(transactional_id: str, state: LoggedState, level: int) -> None:
    """Below level 1 without the fields of KIP-890."""
    read = decode_record(encode_key(transactional_id), encode_value(state, level))
    if level == 0:
        state = state._replace(previous_producer_id=-1, next_producer_id=-1, client_version=0)
    assert read == (transactional_id, state)


@given(STATES, st.integers(0, 2))
def test_partitions_may_be_encoded_before(state: LoggedState, level: int) -> None:
    encoded = finished(encode_partitions(state.partitions, level))
    if state.state is not TransactionState.EMPTY:
        assert encode_value(state, level, encoded) == encode_value(state, level)


def test_a_tombstone() -> None:
    assert decode_record(encode_key("x"), None) == ("x", None)


def test_other_types_of_keys_are_skipped() -> None:
    assert decode_record(b"\0\1\0\1x", b"\0\0") is None


@pytest.mark.parametrize("status", [6, 7, 8, -1])
def test_states_that_are_never_written(status: int) -> None:
    value = bytearray(encode_value(LoggedState(1), 0))
    value[2 + 8 + 2 + 4] = status & 0xFF
    with pytest.raises(ProtocolError, match="never written"):
        decode_record(encode_key("x"), bytes(value))


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\2", b"\0\1\0", b"\xff\xff"])
def test_values_that_cannot_be_read(value: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_record(encode_key("x"), value)
