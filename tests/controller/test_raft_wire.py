"""Raft's messages as KRaft's requests and responses, and back; requests that are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.controller.raft import messages as raft
from pykbroker.controller.raft.log_view import Diverging, OffsetAndEpoch
from pykbroker.controller.raft.quorum import ReplicaKey
from pykbroker.controller.raft_wire import (
    KnownLeader,
    Refusal,
    error_of_response,
    message_from_request,
    message_from_response,
    request_for_wire,
    response_for_wire,
)
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.messages.fetch import FetchRequest
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.record import Record

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
OWN_ID = 2
KNOWN = KnownLeader(leader_id=3, epoch=7, log_start=20)
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
    limits = draw(st.integers(0, 2**31 - 1)), draw(st.integers(0, 2**31 - 1))
    return raft.FetchRequest(replica.node_id, epoch, replica, end, draw(st.integers(-1, 2**62)), *limits)


requests = st.one_of(
    vote_requests(),
    fetch_requests(),
    st.builds(raft.BeginQuorumEpochRequest, ids, epochs, st.builds(ReplicaKey, ids, directories)),
    st.builds(
        raft.EndQuorumEpochRequest,
        ids,
        epochs,
        st.lists(keys, max_size=4).map(tuple),
    ),
)


def over_the_wire(message: Any, version: int) -> Any:
    """The message as the receiver decodes it."""
    return decode(type(message), version, encode(message, version))


def wire_request(message: Any, version: int | None = None) -> Any:
    request = request_for_wire(message, CLUSTER)
    return over_the_wire(request, request.VERSIONS.highest if version is None else version)


def read(request: Any, cluster_id: str = CLUSTER) -> Any:
    return message_from_request(request, OWN_ID, cluster_id, KNOWN)


@given(message=requests)
def test_a_request_means_on_arrival_what_was_meant(message: Any) -> None:
    assert read(wire_request(message)) == message


@pytest.mark.parametrize("version", [0, 1])
def test_older_versions_carry_votes_without_what_they_do_not_know(version: int) -> None:
    """A node of a static quorum (version 0) has no directory ids, and is not told which voter the request is for."""
    key = ReplicaKey(1, NO_DIRECTORY)
    sent = raft.VoteRequest(1, 5, key, ReplicaKey(OWN_ID), OffsetAndEpoch(7, 4), False)
    assert read(wire_request(sent, version)) == sent


@pytest.mark.parametrize("version", [0, 1])
def test_who_is_not_told_which_voter_is_meant_takes_it_for_itself(version: int) -> None:
    sent = raft.BeginQuorumEpochRequest(1, 5, ReplicaKey(OWN_ID if version == 0 else 4))
    assert read(wire_request(sent, version)) == sent


def batch_at(offset: int, epoch: int, count: int = 2) -> bytes:
    records = [Record(index, 1, None, b"v%d" % index) for index in range(count)]
    return build_batch(records, base_offset=offset, leader_epoch=epoch)


errors = st.sampled_from(
    [
        ErrorCode.NONE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_VOTER_KEY,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ]
)


@st.composite
def answers(draw: st.DrawFn) -> tuple[Any, Any]:
    """A request and an answer of node 3 to it."""
    asked = draw(requests)
    epoch, leader_id, error = draw(epochs), draw(st.sampled_from([-1, 1, 3])), draw(errors)
    if isinstance(asked, raft.VoteRequest):
        is_granted = not error and draw(st.booleans())
        return asked, raft.VoteResponse(3, epoch, leader_id, is_granted, asked.is_pre_vote, error)
    if isinstance(asked, raft.BeginQuorumEpochRequest):
        return asked, raft.BeginQuorumEpochResponse(3, epoch, leader_id, error)
    if isinstance(asked, raft.EndQuorumEpochRequest):
        return asked, raft.EndQuorumEpochResponse(3, epoch, leader_id, error)
    if error:
        return asked, raft.FetchResponse(3, epoch, leader_id, log_start=draw(offsets), error=error)
    end = asked.log_end.offset
    answer = raft.FetchResponse(3, epoch, 3, draw(st.integers(-1, 2**62)), end, entries=[], log_start=draw(offsets))
    kind = draw(st.sampled_from(["empty", "records", "diverging", "snapshot"]))
    if kind == "diverging":
        answer = answer._replace(diverging=Diverging(draw(epochs), draw(offsets)), entries=())
    elif kind == "snapshot":
        answer = answer._replace(snapshot=OffsetAndEpoch(draw(offsets), draw(epochs)), entries=())
    elif kind == "records":
        entries = [raft.Entries(end + 2 * n, epoch, 2, batch_at(end + 2 * n, epoch)) for n in range(3)]
        answer = answer._replace(entries=entries)
    return asked, answer


@given(pair=answers())
def test_an_answer_means_on_arrival_what_was_meant(pair: tuple[Any, Any]) -> None:
    asked, answer = pair
    request = wire_request(asked)
    response = response_for_wire(request, answer)
    assert error_of_response(response) == answer.error
    assert message_from_response(asked, 3, over_the_wire(response, response.VERSIONS.highest)) == answer


@given(message=requests)
def test_a_request_for_another_cluster_is_refused(message: Any) -> None:
    with pytest.raises(Refusal, match="cluster") as caught:
        read(wire_request(message), "another")
    assert caught.value.response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


@given(message=requests)
def test_a_request_about_another_log_is_refused(message: Any) -> None:
    request = wire_request(message)
    if isinstance(request, FetchRequest):
        request.topics[0].topic_id = b"x" * 16
    else:
        request.topics[0].topic_name = "t"
    with pytest.raises(Refusal, match="__cluster_metadata") as caught:
        read(request)
    assert caught.value.response.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "message",
    [
        raft.VoteRequest(1, 5, ReplicaKey(1), ReplicaKey(2), OffsetAndEpoch(7, 5), False),
        raft.VoteRequest(1, 5, ReplicaKey(1), ReplicaKey(2), OffsetAndEpoch(7, 6), True),
        raft.VoteRequest(-1, 7, ReplicaKey(-1), ReplicaKey(2), OffsetAndEpoch(7, 4), False),
        raft.VoteRequest(1, 5, ReplicaKey(1), ReplicaKey(2), OffsetAndEpoch(-1, 4), False),
        raft.BeginQuorumEpochRequest(-1, 7, ReplicaKey(OWN_ID)),
        raft.EndQuorumEpochRequest(-1, 7, ()),
        raft.FetchRequest(1, 5, ReplicaKey(1), OffsetAndEpoch(7, 6), 0),
        raft.FetchRequest(1, 5, ReplicaKey(1), OffsetAndEpoch(-1, 5), 0),
    ],
)
def test_what_cannot_be_is_refused_as_kafka_does(message: Any) -> None:
    """INVALID_REQUEST on the partition: a log that knows more than the epoch, ids and offsets below zero. The answer
    names the leader all the same."""
    with pytest.raises(Refusal) as caught:
        read(wire_request(message))
    response = caught.value.response
    assert response.error_code == ErrorCode.NONE
    assert error_of_response(response) == ErrorCode.INVALID_REQUEST
    if hasattr(response, "responses"):
        partition = response.responses[0].partitions[0]
        assert partition.log_start_offset == 20
        partition = partition.current_leader
    else:
        partition = response.topics[0].partitions[0]
    assert (partition.leader_id, partition.leader_epoch) == (3, 7)


@pytest.mark.parametrize(
    "message",
    [
        raft.VoteRequest(-1, 6, ReplicaKey(-1), ReplicaKey(2), OffsetAndEpoch(7, 4), False),
        raft.BeginQuorumEpochRequest(-1, 6, ReplicaKey(OWN_ID)),
        raft.EndQuorumEpochRequest(-1, 6, ()),
    ],
)
def test_an_epoch_that_is_over_comes_before_a_node_that_cannot_be(message: Any) -> None:
    with pytest.raises(Refusal) as caught:
        read(wire_request(message))
    assert error_of_response(caught.value.response) == ErrorCode.FENCED_LEADER_EPOCH


def test_errors_of_the_whole_request_say_nothing_to_the_state_machine() -> None:
    asked = raft.FetchRequest(2, 5, ReplicaKey(2), OffsetAndEpoch(7, 5), 0)
    request = wire_request(asked)
    response = response_for_wire(request, raft.FetchResponse(3, 5, 3, 7, 7))
    response.error_code = ErrorCode.INCONSISTENT_CLUSTER_ID
    assert message_from_response(asked, 3, response) is None
    response.error_code = ErrorCode.NONE
    response.responses[0].topic_id = b"x" * 16
    assert message_from_response(asked, 3, response) is None


def fetched(records: bytes) -> Any:
    asked = raft.FetchRequest(2, 5, ReplicaKey(2), OffsetAndEpoch(10, 5), 0)
    response = response_for_wire(wire_request(asked), raft.FetchResponse(3, 5, 3, 7, 10))
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
