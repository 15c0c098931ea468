"""RemoveRaftVoter (key 81): remove a voter from the quorum."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, int16, int32, string, uuid


class RemoveRaftVoterRequest(Message, versions="0", flexible="0+", key=81):
    """RemoveRaftVoter request (API key 81): remove a voter from the quorum."""

    cluster_id: str | None = string("0+", nullable="0+")
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("0+")


class RemoveRaftVoterResponse(Message, versions="0", flexible="0+", key=81):
    """RemoveRaftVoter response (API key 81)."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", ignorable=True)
