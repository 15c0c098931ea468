"""UpdateRaftVoter (key 82): a voter has new endpoints."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, int32, string, struct, uuid
from pykbroker.protocol.messages.add_raft_voter import Listener


class KRaftVersionFeature(Message):
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class UpdateRaftVoterRequest(Message, versions="0", flexible="0+", key=82):
    """UpdateRaftVoter request (API key 82): a voter has new endpoints."""

    cluster_id: str | None = string("0+", nullable="0+")
    current_leader_epoch: int = int32("0+")
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("0+")
    listeners: list[Listener] = array(Listener, "0+")
    kraft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature, "0+")


class CurrentLeader(Message):
    leader_id: int = int32("0+", default=-1)
    leader_epoch: int = int32("0+", default=-1)
    host: str = string("0+")
    port: int = int32("0+")


class UpdateRaftVoterResponse(Message, versions="0", flexible="0+", key=82):
    """UpdateRaftVoter response (API key 82)."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    current_leader: CurrentLeader = struct(CurrentLeader, "0+", tag=0, tagged="0+")
