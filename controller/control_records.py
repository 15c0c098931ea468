"""Encoding of raft's control records in log and snapshots: LeaderChange, KRaftVersion, Voters (KIP-853)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterEndpoint, VoterSet
from pykbroker.controller.raft.voter_history import ControlRecord, KRaftVersion, LeaderChange
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.log_messages import raft_records
from pykbroker.protocol.records.batch import RecordBatch
from pykbroker.protocol.records.control import ControlRecordType, control_record_key, control_record_type
from pykbroker.protocol.records.record import Record


def records_of(control: Iterable[ControlRecord | None], now_ms: int) -> list[Record]:
    """The records of a control batch."""
    encoded = (_encode(record) for record in control if record is not None)
    return [Record(0, now_ms, control_record_key(kind), value) for kind, value in encoded]


def _encode(record: ControlRecord) -> tuple[ControlRecordType, bytes]:
    match record:
        case LeaderChange():
            # Version 1 has directory ids, but Kafka does not write it and reads it wrongly.
            message = raft_records.LeaderChangeMessage(
                leader_id=record.leader_id,
                voters=[raft_records.Voter(voter_id=key.node_id) for key in record.voters],
                granting_voters=[raft_records.Voter(voter_id=key.node_id) for key in record.granting_voters],
            )
            return ControlRecordType.LEADER_CHANGE, encode(message, 0)
        case KRaftVersion():
            level = raft_records.KRaftVersionRecord(kraft_version=record.level)
            return ControlRecordType.KRAFT_VERSION, encode(level, 0)
        case VoterSet():
            voters = raft_records.VotersRecord(voters=[_voter(voter) for voter in record.voters])
            return ControlRecordType.KRAFT_VOTERS, encode(voters, 0)


def _voter(voter: Voter) -> raft_records.VotersRecordVoter:
    low, high = voter.kraft_versions
    return raft_records.VotersRecordVoter(
        voter_id=voter.key.node_id,
        voter_directory_id=voter.key.directory_id,
        endpoints=[raft_records.Endpoint(name=name, host=host, port=port) for name, host, port in voter.endpoints],
        kraft_version_feature=raft_records.KRaftVersionFeature(min_supported_version=low, max_supported_version=high),
    )


def control_values(batch: RecordBatch) -> Iterator[tuple[ControlRecordType, bytes]]:
    """Kind and value of each record of a control batch."""
    for record in batch.records():
        yield control_record_type(record.key), record.value or b""


def control_of(batch: RecordBatch) -> tuple[ControlRecord | None, ...]:
    """Control records of a batch; None in place of each record that raft does not use.

    Raises:
        ProtocolError: the records cannot be decoded.
    """
    return tuple(read_control(kind, value) for kind, value in control_values(batch))


def read_control(kind: ControlRecordType, value: bytes) -> ControlRecord | None:
    """Decodes a control record; None for a kind that raft does not use."""
    if kind is ControlRecordType.KRAFT_VERSION:
        return KRaftVersion(decode(raft_records.KRaftVersionRecord, 0, value).kraft_version)
    if kind is ControlRecordType.KRAFT_VOTERS:
        voters = decode(raft_records.VotersRecord, 0, value).voters
        return VoterSet(_read_voter(voter) for voter in voters)
    return None


def _read_voter(voter: raft_records.VotersRecordVoter) -> Voter:
    feature = voter.kraft_version_feature
    return Voter(
        ReplicaKey(voter.voter_id, voter.voter_directory_id),
        tuple(VoterEndpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in voter.endpoints),
        (feature.min_supported_version, feature.max_supported_version),
    )
