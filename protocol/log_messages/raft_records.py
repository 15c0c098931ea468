"""Control record values of the metadata log, and the content of `quorum-state`."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, int32, int64, string, struct, uint16, uuid


class Voter(Message):
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("1+")


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """Value of a control record."""

    version: int = int16("0+")
    leader_id: int = int32("0+")
    voters: list[Voter] = array(Voter, "0+")
    granting_voters: list[Voter] = array(Voter, "0+")


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """Value of a control record."""

    version: int = int16("0+")
    last_contained_log_timestamp: int = int64("0+")


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """Value of a control record."""

    version: int = int16("0+")


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """Value of a control record."""

    version: int = int16("0+")
    kraft_version: int = int16("0+")


class Endpoint(Message):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")


class KRaftVersionFeature(Message):
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class VotersRecordVoter(Message):
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("0+")
    endpoints: list[Endpoint] = array(Endpoint, "0+")
    kraft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature, "0+")


class VotersRecord(Message, versions="0", flexible="0+"):
    """Value of a control record."""

    version: int = int16("0+")
    voters: list[VotersRecordVoter] = array(VotersRecordVoter, "0+")


class QuorumStateVoter(Message):
    voter_id: int = int32("0")


class QuorumStateData(Message, versions="0-1", flexible="0+"):
    """Content of the quorum-state file."""

    cluster_id: str = string("0")
    leader_id: int = int32("0+", default=-1)
    leader_epoch: int = int32("0+", default=-1)
    voted_id: int = int32("0+", default=-1)
    voted_directory_id: bytes = uuid("1+")
    applied_offset: int = int64("0")
    current_voters: list[QuorumStateVoter] | None = array(QuorumStateVoter, "0", nullable="0")
