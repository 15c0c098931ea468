"""Raft's messages over KRaft's requests and responses: there and back, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.controller.raft import messages as raft
from pykbroker.controller.raft.log_view import Diverging, OffsetAndEpoch
from pykbroker.controller.raft.quorum import ReplicaKey
from pykbroker.controller.raft_wire import (
    FetchLimits,
    Refusal,
    end_response_for_wire,
    message_from_request,
    message_from_response,
    request_for_wire,
    response_for_wire,
)
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.messages.end_quorum_epoch import EndQuorumEpochResponse
from pykbroker.protocol.messages.fetch import FetchRequest
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.record import Record

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
OWN_ID = 2
LIMITS = FetchLimits()
NO_DIRECTORY = bytes(16)

ids = st.integers(0, 5)
epochs = st.integers(0, 2**31 - 1)
offsets = st.integers(0, 2**62)
directories = st.sampled_from([NO_DIRECTORY, b"d" * 16])
keys = st.builds(ReplicaKey, ids, directories)


@st.composite
def vote_requests(draw: st.DrawFn) -> raft.VoteRequest:
    candidate, is_pre_vote = draw(keys), draw(st.booleans())
    epoch = draw(st.integers(1, 2**31 - 1))
    last_epoch = draw(st.integers(0, epoch if is_pre_vote else epoch - 1))
    voter = ReplicaKey(OWN_ID, draw(directories))
    end = OffsetAndEpoch(draw(offsets), last_epoch)
    return raft.VoteRequest(candidate.node_id, epoch, candidate, voter, end, is_pre_vote)


@st.composite
def fetch_requests(draw: st.DrawFn) -> raft.FetchRequest:
    replica, epoch = draw(keys), draw(epochs)
    end = OffsetAndEpoch(draw(offsets), draw(st.integers(0, epoch)))
    return raft.FetchRequest(replica.node_id, epoch, replica, end, draw(st.integers(-1, 2**62)))


requests = st.one_of(
    vote_requests(),
    fetch_requests(),
    st.builds(raft.BeginQuorumEpochRequest, ids, epochs),
    st.builds(
        raft.EndQuorumEpochRequest,
        ids,
        epochs,
        st.lists(keys, max_size=4).map(tuple),
    ),
)


def over_the_wire(message: Any, version: int) -> Any:
    """What the other side decodes."""
    return decode(type(message), version, encode(message, version))


def wire_request(message: Any, version: int | None = None) -> Any:
    request = request_for_wire(message, OWN_ID, NO_DIRECTORY, CLUSTER, LIMITS)
    return over_the_wire(request, request.VERSIONS.highest if version is None else version)


@given(message=requests)
def test_a_request_means_on_arrival_what_was_meant(message: Any) -> None:
    assert message_from_request(wire_request(message), OWN_ID, CLUSTER) == message


@pytest.mark.parametrize("version", [0, 1])
def test_older_versions_carry_votes_without_what_they_do_not_know(version: int) -> None:
    """A node of the static quorum (version 0) neither knows directories nor is told which voter is meant."""
    key = ReplicaKey(1, NO_DIRECTORY)
    sent = raft.VoteRequest(1, 5, key, ReplicaKey(OWN_ID), OffsetAndEpoch(7, 4), False)
    assert message_from_request(wire_request(sent, version), OWN_ID, CLUSTER) == sent


def batch_at(offset: int, epoch: int, count: int = 2) -> bytes:
    records = [Record(index, 1, None, b"v%d" % index) for index in range(count)]
    return build_batch(records, base_offset=offset, leader_epoch=epoch)


@st.composite
def answers(draw: st.DrawFn) -> tuple[Any, Any]:
    """A request and an answer of node 3 to it."""
    asked = draw(requests.filter(lambda message: not isinstance(message, raft.EndQuorumEpochRequest)))
    epoch = draw(st.integers(asked.epoch, 2**31 - 1))
    leader_id = draw(st.sampled_from([-1, 1, 3]))
    if isinstance(asked, raft.VoteRequest):
        is_granted = epoch == asked.epoch and draw(st.booleans())
        return asked, raft.VoteResponse(3, epoch, leader_id, is_granted, asked.is_pre_vote)
    if isinstance(asked, raft.BeginQuorumEpochRequest):
        return asked, raft.BeginQuorumEpochResponse(3, epoch, leader_id)
    if leader_id != 3 or epoch > asked.epoch:
        return asked, raft.FetchResponse(3, epoch, leader_id)
    end = asked.log_end.offset
    answer = raft.FetchResponse(3, epoch, 3, draw(st.integers(-1, 2**62)), end)
    kind = draw(st.sampled_from(["empty", "records", "diverging", "snapshot"]))
    if kind == "diverging":
        answer = answer._replace(diverging=Diverging(draw(epochs), draw(offsets)))
    elif kind == "snapshot":
        answer = answer._replace(snapshot=OffsetAndEpoch(draw(offsets), draw(epochs)))
    elif kind == "records":
        entries = [raft.Entries(end + 2 * n, epoch, 2, batch_at(end + 2 * n, epoch)) for n in range(3)]
        answer = answer._replace(entries=entries)
    return asked, answer


@given(pair=answers())
def test_an_answer_means_on_arrival_what_was_meant(pair: tuple[Any, Any]) -> None:
    asked, answer = pair
    request = wire_request(asked)
    response = response_for_wire(request, asked, answer)
    assert message_from_response(asked, 3, over_the_wire(response, response.VERSIONS.highest)) == answer


def test_an_end_of_the_epoch_is_answered_with_what_is_known() -> None:
    request = wire_request(raft.EndQuorumEpochRequest(1, 4, (ReplicaKey(2), ReplicaKey(3))))
    response = over_the_wire(end_response_for_wire(request, 5, 3), 1)
    assert isinstance(response, EndQuorumEpochResponse)
    (partition,) = response.topics[0].partitions
    assert (partition.leader_epoch, partition.leader_id, partition.error_code) == (5, 3, 0)
    assert message_from_response(raft.EndQuorumEpochRequest(1, 4, (ReplicaKey(2), ReplicaKey(3))), 3, response) is None


@given(message=requests)
def test_a_request_for_another_cluster_is_refused(message: Any) -> None:
    with pytest.raises(Refusal, match="cluster") as caught:
        message_from_request(wire_request(message), OWN_ID, "another")
    assert caught.value.response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


@given(message=requests)
def test_a_request_about_another_log_is_refused(message: Any) -> None:
    request = wire_request(message)
    if isinstance(request, FetchRequest):
        request.topics[0].topic_id = b"x" * 16
    else:
        request.topics[0].topic_name = "t"
    with pytest.raises(Refusal, match="__cluster_metadata") as caught:
        message_from_request(request, OWN_ID, CLUSTER)
    assert caught.value.response.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "message",
    [
        raft.VoteRequest(1, 5, ReplicaKey(1), ReplicaKey(2), OffsetAndEpoch(7, 5), False),
        raft.VoteRequest(1, 5, ReplicaKey(1), ReplicaKey(2), OffsetAndEpoch(7, 6), True),
        raft.VoteRequest(1, 5, ReplicaKey(-1), ReplicaKey(2), OffsetAndEpoch(7, 4), False),
        raft.VoteRequest(1, 5, ReplicaKey(1), ReplicaKey(2), OffsetAndEpoch(-1, 4), False),
        raft.BeginQuorumEpochRequest(-1, 5),
        raft.EndQuorumEpochRequest(-1, 5, ()),
        raft.FetchRequest(1, 5, ReplicaKey(1), OffsetAndEpoch(7, 6), 0),
        raft.FetchRequest(1, 5, ReplicaKey(1), OffsetAndEpoch(-1, 5), 0),
    ],
)
def test_what_cannot_be_is_refused_as_kafka_does(message: Any) -> None:
    """INVALID_REQUEST on the partition: a log that knows more than the epoch, ids and offsets below zero."""
    with pytest.raises(Refusal) as caught:
        message_from_request(wire_request(message), OWN_ID, CLUSTER)
    response = caught.value.response
    topics = response.responses if hasattr(response, "responses") else response.topics
    assert topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST


def test_errors_say_nothing_to_the_state_machine() -> None:
    asked = raft.FetchRequest(2, 5, ReplicaKey(2), OffsetAndEpoch(7, 5), 0)
    request = wire_request(asked)
    response = response_for_wire(request, asked, raft.FetchResponse(3, 5, 3, 7, 7))
    response.responses[0].partitions[0].error_code = ErrorCode.UNKNOWN_LEADER_EPOCH
    assert message_from_response(asked, 3, response) is None
    response.error_code = ErrorCode.INCONSISTENT_CLUSTER_ID
    assert message_from_response(asked, 3, response) is None
    response.error_code = ErrorCode.NONE
    response.responses[0].topic = "t"
    assert message_from_response(asked, 3, response) is None


def fetched(records: bytes) -> Any:
    asked = raft.FetchRequest(2, 5, ReplicaKey(2), OffsetAndEpoch(10, 5), 0)
    response = response_for_wire(wire_request(asked), asked, raft.FetchResponse(3, 5, 3, 7, 10))
    response.responses[0].partitions[0].records = records
    message = message_from_response(asked, 3, response)
    assert isinstance(message, raft.FetchResponse)
    return message.entries


def test_batches_known_here_and_a_tail_that_is_cut_off_are_left_out() -> None:
    whole = batch_at(8, 5) + batch_at(10, 5) + batch_at(12, 5)
    assert [entries.base_offset for entries in fetched(whole[:-1])] == [10]


def test_records_that_do_not_follow_or_are_damaged_are_refused() -> None:
    with pytest.raises(ProtocolError, match="does not follow 10"):
        fetched(batch_at(11, 5))
    damaged = bytearray(batch_at(10, 5))
    damaged[-1] ^= 1
    with pytest.raises(ProtocolError, match="damaged"):
        fetched(bytes(damaged))
