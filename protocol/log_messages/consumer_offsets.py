"""Keys and values of the `__consumer_offsets` records of classic groups; `key` is the key type."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, byte_string, int32, int64, string, uuid


class LegacyOffsetCommitKey(Message, versions="0", flexible="none", key=0):
    """Key of a record with key type 0."""

    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


class LegacyOffsetCommitValue(Message, versions="0", flexible="none", key=0):
    """Value of a record with key type 0."""

    offset: int = int64("0")
    metadata: str = string("0")
    commit_timestamp: int = int64("0")


class OffsetCommitKey(Message, versions="0", flexible="none", key=1):
    """Key of a record with key type 1."""

    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


class OffsetCommitValue(Message, versions="0-4", flexible="4+", key=1):
    """Value of a record with key type 1."""

    offset: int = int64("0+")
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string("0+")
    commit_timestamp: int = int64("0+")
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: bytes = uuid("4+", tag=0, tagged="4+", ignorable=True)


class GroupMetadataKey(Message, versions="0", flexible="none", key=2):
    """Key of a record with key type 2."""

    group: str = string("0")


class MemberMetadata(Message):
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", default=None, nullable="3+", ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32("0+")
    subscription: bytes = byte_string("0+")
    assignment: bytes = byte_string("0+")


class GroupMetadataValue(Message, versions="0-4", flexible="4+", key=2):
    """Value of a record with key type 2."""

    protocol_type: str = string("0+")
    generation: int = int32("0+")
    protocol: str | None = string("0+", nullable="0+")
    leader: str | None = string("0+", nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata, "0+")
