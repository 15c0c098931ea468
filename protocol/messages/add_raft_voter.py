"""AddRaftVoter (key 80): add a voter to the quorum."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, boolean, int16, int32, string, uint16, uuid


class Listener(Message):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")


class AddRaftVoterRequest(Message, versions="0-1", flexible="0+", key=80):
    """AddRaftVoter request (API key 80): add a voter to the quorum."""

    cluster_id: str | None = string("0+", nullable="0+")
    timeout_ms: int = int32("0+")
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("0+")
    listeners: list[Listener] = array(Listener, "0+")
    ack_when_committed: bool = boolean("1+", default=True)


class AddRaftVoterResponse(Message, versions="0-1", flexible="0+", key=80):
    """AddRaftVoter response (API key 80)."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", ignorable=True)
