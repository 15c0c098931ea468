"""Conversion of raft's messages to KRaft's requests and responses, and back (KIP-595, KIP-853, KIP-996).

Pure. Fields that only the wire has (cluster id, topic, partition) are added and checked here, so that `RaftCore` gets
only messages that are meant for it.

On the wire a response belongs to its request; in `raft` an answer is a separate message. So the sender keeps a request
until its response comes, and passes both to `message_from_response`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pykbroker.controller.control_records import control_of
from pykbroker.controller.raft import messages as raft
from pykbroker.controller.raft.log_view import Diverging, OffsetAndEpoch
from pykbroker.controller.raft.quorum import ReplicaKey, VoterEndpoint
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode, answered_error
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.fields import response_class
from pykbroker.protocol.messages import (
    add_raft_voter,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from pykbroker.protocol.records.batch import iter_batches
from pykbroker.protocol.uuids import METADATA_TOPIC_ID

TOPIC = "__cluster_metadata"
PARTITION = 0

Request = raft.VoteRequest | raft.BeginQuorumEpochRequest | raft.EndQuorumEpochRequest | raft.FetchRequest
VoterRequest = raft.UpdateVoterRequest | raft.AddVoterRequest | raft.RemoveVoterRequest
"""Requests of a node to the leader about its own membership. Handlers answer them, by way of the state machine."""
Response = raft.VoteResponse | raft.BeginQuorumEpochResponse | raft.EndQuorumEpochResponse | raft.FetchResponse

ENDPOINTS_VERSION = {
    "FetchRequest": 17,
    "VoteRequest": 1,
    "BeginQuorumEpochRequest": 1,
    "EndQuorumEpochRequest": 1,
    "FetchSnapshotRequest": 1,
}
"""First version of each request whose response has the leader's address (KIP-853)."""

PRE_VOTE_VERSION = 2
"""First version of Vote with pre-votes (KIP-996)."""


class KnownLeader(NamedTuple):
    """Leader, epoch and log start that this node knows, -1 for unknown: for responses without the state machine."""

    leader_id: int
    epoch: int
    log_start: int = -1


class Refusal(Exception):
    """A request is refused without passing it to the state machine.

    Attributes:
        response: response with the error, of the class that belongs to the request.
    """

    def __init__(self, response: Any, why: str) -> None:
        super().__init__(why)
        self.response = response


# Requests, to the wire


def request_for_wire(
    message: Request | VoterRequest,
    cluster_id: str,
    endpoints: Sequence[VoterEndpoint] = (),
    *,
    change_timeout_ms: int = 2000,
) -> Any:
    """Kafka's request for a message to a node.

    Args:
        endpoints: listeners of this node, for followers that get their leader's address by this request.
        change_timeout_ms: time limit of a change of voters.
    """
    match message:
        case raft.UpdateVoterRequest() | raft.AddVoterRequest() | raft.RemoveVoterRequest():
            return _voter_request(message, cluster_id, change_timeout_ms)
        case raft.VoteRequest():
            return _vote_request(message, cluster_id)
        case raft.BeginQuorumEpochRequest():
            partition = begin_quorum_epoch.PartitionData(
                partition_index=PARTITION,
                voter_directory_id=message.voter.directory_id,
                leader_id=message.source,
                leader_epoch=message.epoch,
            )
            topic = begin_quorum_epoch.TopicData(topic_name=TOPIC, partitions=[partition])
            return begin_quorum_epoch.BeginQuorumEpochRequest(
                cluster_id=cluster_id,
                voter_id=message.voter.node_id,
                topics=[topic],
                leader_endpoints=_addresses(begin_quorum_epoch.LeaderEndpoint, endpoints),
            )
        case raft.EndQuorumEpochRequest():
            return _end_request(message, cluster_id, endpoints)
        case raft.FetchRequest():
            return _fetch_request(message, cluster_id)


def _addresses(kind: Any, endpoints: Iterable[VoterEndpoint]) -> list[Any]:
    return [kind(name=name, host=host, port=port) for name, host, port in endpoints]


def _vote_request(message: raft.VoteRequest, cluster_id: str) -> vote.VoteRequest:
    partition = vote.PartitionData(
        partition_index=PARTITION,
        replica_epoch=message.epoch,
        replica_id=message.candidate.node_id,
        replica_directory_id=message.candidate.directory_id,
        voter_directory_id=message.voter.directory_id,
        last_offset_epoch=message.log_end.epoch,
        last_offset=message.log_end.offset,
        pre_vote=message.is_pre_vote,
    )
    topic = vote.TopicData(topic_name=TOPIC, partitions=[partition])
    return vote.VoteRequest(cluster_id=cluster_id, voter_id=message.voter.node_id, topics=[topic])


def _voter_request(message: VoterRequest, cluster_id: str, change_timeout_ms: int) -> Any:
    if isinstance(message, raft.RemoveVoterRequest):
        key = message.voter
        return remove_raft_voter.RemoveRaftVoterRequest(
            cluster_id=cluster_id, voter_id=key.node_id, voter_directory_id=key.directory_id
        )
    voter = message.voter
    if isinstance(message, raft.AddVoterRequest):
        return add_raft_voter.AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout_ms=change_timeout_ms,
            voter_id=voter.key.node_id,
            voter_directory_id=voter.key.directory_id,
            listeners=_addresses(add_raft_voter.Listener, voter.endpoints),
            ack_when_committed=False,
        )
    low, high = voter.kraft_versions
    return update_raft_voter.UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=message.epoch,
        voter_id=voter.key.node_id,
        voter_directory_id=voter.key.directory_id,
        listeners=_addresses(add_raft_voter.Listener, voter.endpoints),
        kraft_version_feature=update_raft_voter.KRaftVersionFeature(
            min_supported_version=low, max_supported_version=high
        ),
    )


def _end_request(
    message: raft.EndQuorumEpochRequest, cluster_id: str, endpoints: Sequence[VoterEndpoint]
) -> end_quorum_epoch.EndQuorumEpochRequest:
    partition = end_quorum_epoch.PartitionData(
        partition_index=PARTITION,
        leader_id=message.source,
        leader_epoch=message.epoch,
        preferred_candidates=[
            end_quorum_epoch.ReplicaInfo(candidate_id=node_id, candidate_directory_id=directory_id)
            for node_id, directory_id in message.successors
        ],
        preferred_successors=[key.node_id for key in message.successors],
    )
    topic = end_quorum_epoch.TopicData(topic_name=TOPIC, partitions=[partition])
    return end_quorum_epoch.EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[topic],
        leader_endpoints=_addresses(begin_quorum_epoch.LeaderEndpoint, endpoints),
    )


def _fetch_request(message: raft.FetchRequest, cluster_id: str) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=message.epoch,
        fetch_offset=message.log_end.offset,
        last_fetched_epoch=message.log_end.epoch,
        partition_max_bytes=message.max_bytes,
        replica_directory_id=message.replica.directory_id,
        high_watermark=message.high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch.ReplicaState(replica_id=message.source),
        max_wait_ms=message.max_wait_ms,
        max_bytes=message.max_bytes,
        topics=[fetch.FetchTopic(topic=TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


# Requests, from the wire


def message_from_request(request: Any, node_id: int, cluster_id: str, known: KnownLeader) -> Request:
    """Message for this node's state machine from a request.

    Raises:
        Refusal: the request is for another cluster or another log, or its fields contradict one another.
    """
    response_type = response_class(type(request))
    if request.cluster_id is not None and request.cluster_id != cluster_id:
        refused = response_type(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        raise Refusal(refused, f"the request is for cluster {request.cluster_id}, this is {cluster_id}")
    partition = _only_partition(request)
    if partition is None:
        refused = response_type(error_code=ErrorCode.INVALID_REQUEST)
        raise Refusal(refused, f"the request is not about the one partition of {TOPIC}")
    message: Request | None = _READERS[type(request)](request, partition, node_id)
    if message is None:
        refused = _response(request, ErrorCode.INVALID_REQUEST, known)
        raise Refusal(refused, "the request has an invalid offset or epoch")
    if message.source < 0 and not isinstance(message, raft.FetchRequest):
        is_late = message.epoch < known.epoch
        refused = _response(request, ErrorCode.FENCED_LEADER_EPOCH if is_late else ErrorCode.INVALID_REQUEST, known)
        raise Refusal(refused, "the request has an invalid node id")
    return message


def _only_partition(request: Any) -> Any:
    """The partition in a request or response about the metadata log; None if its topics are different."""
    is_fetch = isinstance(request, fetch.FetchRequest | fetch.FetchResponse)
    topics: Any = request.responses if isinstance(request, fetch.FetchResponse) else request.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    # By topic id alone, as in Kafka: nodes of a quorum send no Fetch below version 13.
    is_ours = topics[0].topic_id == METADATA_TOPIC_ID if is_fetch else topics[0].topic_name == TOPIC
    partition = topics[0].partitions[0]
    index = partition.partition if isinstance(partition, fetch.FetchPartition) else partition.partition_index
    return partition if is_ours and index == PARTITION else None


def _read_vote(request: vote.VoteRequest, partition: vote.PartitionData, node_id: int) -> raft.VoteRequest | None:
    end = OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch)
    # A candidate's epoch is above all epochs in its log; for a pre-vote the epoch is not raised yet.
    epoch_max = partition.replica_epoch if partition.pre_vote else partition.replica_epoch - 1
    if end.offset < 0 or not 0 <= end.epoch <= epoch_max:
        return None
    voter_id = node_id if request.voter_id < 0 else request.voter_id
    return raft.VoteRequest(
        partition.replica_id,
        partition.replica_epoch,
        ReplicaKey(partition.replica_id, partition.replica_directory_id),
        ReplicaKey(voter_id, partition.voter_directory_id),
        end,
        partition.pre_vote,
    )


def _read_begin(
    request: begin_quorum_epoch.BeginQuorumEpochRequest, partition: begin_quorum_epoch.PartitionData, node_id: int
) -> raft.BeginQuorumEpochRequest | None:
    voter_id = node_id if request.voter_id < 0 else request.voter_id
    voter = ReplicaKey(voter_id, partition.voter_directory_id)
    return raft.BeginQuorumEpochRequest(partition.leader_id, partition.leader_epoch, voter)


def _read_end(
    request: end_quorum_epoch.EndQuorumEpochRequest, partition: end_quorum_epoch.PartitionData, node_id: int
) -> raft.EndQuorumEpochRequest | None:
    candidates = [ReplicaKey(each.candidate_id, each.candidate_directory_id) for each in partition.preferred_candidates]
    successors = candidates or map(ReplicaKey, partition.preferred_successors)
    return raft.EndQuorumEpochRequest(partition.leader_id, partition.leader_epoch, tuple(successors))


def _read_fetch(request: fetch.FetchRequest, partition: fetch.FetchPartition, node_id: int) -> raft.FetchRequest | None:
    replica_id = request.replica_state.replica_id if request.replica_id < 0 else request.replica_id
    end = OffsetAndEpoch(partition.fetch_offset, partition.last_fetched_epoch)
    if end.offset < 0 or not 0 <= end.epoch <= partition.current_leader_epoch or request.max_wait_ms < 0:
        return None
    key = ReplicaKey(replica_id, partition.replica_directory_id)
    return raft.FetchRequest(
        replica_id,
        partition.current_leader_epoch,
        key,
        end,
        partition.high_watermark,
        request.max_wait_ms,
        max(request.max_bytes, 0),
    )


_READERS: dict[type, Any] = {
    vote.VoteRequest: _read_vote,
    begin_quorum_epoch.BeginQuorumEpochRequest: _read_begin,
    end_quorum_epoch.EndQuorumEpochRequest: _read_end,
    fetch.FetchRequest: _read_fetch,
}

# Responses, to the wire


def response_for_wire(request: Any, answer: Response) -> Any:
    """Kafka's response to `request` from the state machine's answer."""
    log_start = answer.log_start if isinstance(answer, raft.FetchResponse) else -1
    response = _response(request, answer.error, KnownLeader(answer.leader_id, answer.epoch, log_start))
    partition = _only_partition(response)
    if isinstance(answer, raft.VoteResponse):
        partition.vote_granted = answer.is_granted
    if isinstance(answer, raft.FetchResponse) and answer.error is ErrorCode.NONE:
        partition.high_watermark = answer.high_watermark
        if answer.diverging is not None:
            diverging = answer.diverging
            partition.diverging_epoch = fetch.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.end_offset)
        if answer.snapshot is not None:
            snapshot = answer.snapshot
            partition.snapshot_id = fetch.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch)
        partition.records = b"".join(batch.payload for batch in answer.entries)
    return response


def leader_of_response(response: Any) -> int:
    """Leader id in a response of this node, -1 for none."""
    partition = _only_partition(response)
    if partition is None:
        return raft.NO_LEADER
    leader_id: int = partition.current_leader.leader_id if hasattr(partition, "current_leader") else partition.leader_id
    return leader_id


def add_leader_endpoint(response: Any, leader_id: int, host: str, port: int) -> None:
    """Adds the leader's address to a response; its version must have ENDPOINTS_VERSION."""
    module = fetch if isinstance(response, fetch.FetchResponse) else begin_quorum_epoch
    response.node_endpoints = [module.NodeEndpoint(node_id=leader_id, host=host, port=port)]


def _response(request: Any, error: ErrorCode, known: KnownLeader) -> Any:
    leader_id, epoch = known.leader_id, known.epoch
    if isinstance(request, fetch.FetchRequest):
        fetched = fetch.PartitionData(
            partition_index=PARTITION,
            error_code=error,
            high_watermark=-1,
            log_start_offset=known.log_start,
            current_leader=fetch.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch),
            records=b"",
        )
        topic = fetch.FetchableTopicResponse(topic=TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[fetched])
        return fetch.FetchResponse(responses=[topic])
    module = vote if isinstance(request, vote.VoteRequest) else begin_quorum_epoch
    partition = module.PartitionDataResponse(
        partition_index=PARTITION, error_code=error, leader_id=leader_id, leader_epoch=epoch
    )
    topics = [module.TopicDataResponse(topic_name=TOPIC, partitions=[partition])]
    return response_class(type(request))(topics=topics)


# Responses, from the wire


def address_in_response(response: Any) -> tuple[int, str, int] | None:
    """(leader id, host, port) in a response; None if it has no address."""
    endpoints = getattr(response, "node_endpoints", None)
    if endpoints:
        return endpoints[0].node_id, endpoints[0].host, endpoints[0].port
    leader = getattr(response, "current_leader", None)
    if leader is not None and leader.leader_id >= 0 and leader.host:
        return leader.leader_id, leader.host, leader.port
    return None


def message_from_voter_response(asked: VoterRequest, source: int, response: Any) -> raft.UpdateVoterResponse | None:
    """Message from the leader's response to a request about this node; None if there is none."""
    if not isinstance(asked, raft.UpdateVoterRequest):
        return None
    leader = response.current_leader
    if leader.leader_epoch < 0 or response.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH:
        return None
    is_done = response.error_code in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION)
    return raft.UpdateVoterResponse(source, leader.leader_epoch, leader.leader_id, is_done)


def message_from_response(asked: Request, source: int, response: Any) -> Response | None:
    """Message from the response of node `source`; None if it has nothing for the state machine.

    Raises:
        ProtocolError: the leader's records are not complete batches.
    """
    if response.error_code != ErrorCode.NONE:
        return None
    partition = _only_partition(response)
    if partition is None:
        return None
    error = answered_error(partition.error_code)
    if isinstance(asked, raft.FetchRequest):
        return _read_fetch_response(asked, source, partition, error)
    known = source, partition.leader_epoch, partition.leader_id
    if isinstance(asked, raft.VoteRequest):
        return raft.VoteResponse(*known, partition.vote_granted and not error, asked.is_pre_vote, error)
    if isinstance(asked, raft.BeginQuorumEpochRequest):
        return raft.BeginQuorumEpochResponse(*known, error)
    return raft.EndQuorumEpochResponse(*known, error)


def error_of_response(response: Any) -> ErrorCode:
    """Error code of a response, at the top level or of its partition; NONE without one."""
    if response.error_code:
        return answered_error(response.error_code)
    is_about_voters = not hasattr(response, "topics") and not hasattr(response, "responses")
    partition = None if is_about_voters else _only_partition(response)
    return ErrorCode.NONE if partition is None else answered_error(partition.error_code)


def _read_fetch_response(
    asked: raft.FetchRequest, source: int, partition: fetch.PartitionData, error: ErrorCode
) -> raft.FetchResponse:
    leader = partition.current_leader
    answer = raft.FetchResponse(
        source, leader.leader_epoch, leader.leader_id, log_start=partition.log_start_offset, error=error
    )
    if error is not ErrorCode.NONE:
        return answer
    answer = answer._replace(high_watermark=partition.high_watermark, offset=asked.log_end.offset)
    diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
    if diverging.epoch >= 0:
        return answer._replace(diverging=Diverging(diverging.epoch, diverging.end_offset))
    if snapshot.epoch >= 0 and snapshot.end_offset >= 0:
        return answer._replace(snapshot=OffsetAndEpoch(snapshot.end_offset, snapshot.epoch))
    return answer._replace(entries=_entries(partition.records or b"", asked.log_end.offset))


def _entries(records: Any, offset: int) -> list[raft.Entries]:
    """Complete batches that follow `offset` without a gap; an incomplete last one is fetched again."""
    found = []
    for batch in iter_batches(records):
        if batch.next_offset <= offset:
            continue  # leaders send complete batches: the first one may be in the log already
        if batch.base_offset != offset or not batch.verify_crc():
            raise ProtocolError(f"the leader's batch at {batch.base_offset} is damaged, or does not follow {offset}")
        count = batch.last_offset_delta + 1
        control = control_of(batch) if batch.is_control else ()
        found.append(raft.Entries(offset, batch.partition_leader_epoch, count, batch.to_bytes(), control))
        offset = batch.next_offset
    return found
