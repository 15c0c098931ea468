"""Groups and committed offsets as records of `__consumer_offsets`, in exactly Kafka's formats (P-117), and back.

`coordination/coordinator_records.py` has the frame of the records.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykbroker.config.values import GroupValues
from pykbroker.coordination import coordinator_records
from pykbroker.coordination.coordinator_records import kinds_of
from pykbroker.groups.classic.group import STABLE, Group
from pykbroker.groups.classic.members import Member
from pykbroker.groups.classic.subscription import subscribed_topics
from pykbroker.groups.offsets import CommittedOffset, OffsetKey
from pykbroker.groups.result import LogRecord, Tombstones
from pykbroker.protocol.log_messages import (
    consumer_group_records,
    consumer_offsets,
    share_group_records,
    streams_group_records,
)
from pykbroker.protocol.log_messages.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from pykbroker.protocol.records.batch import frames_in_steps
from pykbroker.protocol.steps import Steps, list_in_steps

OFFSET_COMMIT_VALUE_VERSION = 4
"""Version that Kafka 4.3 writes: the first one with a topic id."""

OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY = 1
"""The only version with an expiry timestamp; used for commits that ask for one."""


_new_tuple = tuple.__new__  # a NamedTuple's own constructor costs as much as all of the rest


def offset_record(group_id: str, topic: str, partition: int, committed: CommittedOffset | None) -> LogRecord:
    """The record of a committed offset, or its tombstone for None."""
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    if committed is None:
        return LogRecord(key, None)
    has_expiry = committed.expire_timestamp_ms is not None
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=-1 if committed.expire_timestamp_ms is None else committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    version = OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY if has_expiry else OFFSET_COMMIT_VALUE_VERSION
    return LogRecord(key, value, version)


def offset_tombstones(offsets: Iterable[OffsetKey]) -> list[LogRecord]:
    """The records that delete some offsets."""
    return [offset_record(*key, None) for key in offsets]


def tombstones_in_steps(offsets: list[OffsetKey]) -> Steps[Tombstones]:
    """As `offset_tombstones`, encoded."""
    records = yield from list_in_steps(offset_record(*key, None) for key in offsets)
    frames = yield from frames_in_steps(map(encode_record, records))
    return Tombstones(offsets, records, frames)


def group_tombstone(group_id: str) -> LogRecord:
    return LogRecord(GroupMetadataKey(group=group_id), None)


def encode_record(record: LogRecord) -> tuple[bytes, bytes | None]:
    """Key and value as bytes."""
    return coordinator_records.encode_record(record.key, record.value, record.value_version)


def encode_record_in_steps(record: LogRecord) -> Steps[tuple[bytes, bytes | None]]:
    """As `encode_record`, in steps, for a record with thousands of topics."""
    if record.value is None:
        return encode_record(record)
    return (yield from coordinator_records.encode_record_in_steps(record.key, record.value, record.value_version))


def decode_record(key: bytes, value: bytes | None) -> LogRecord | None:
    """Decodes what `encode_record` encoded; None for an unknown key type, to be skipped.

    Raises:
        DecodeError, UnsupportedVersion: the record is of a known type and cannot be read.
    """
    record = coordinator_records.decode_record(OFFSETS_KINDS, key, value)
    return None if record is None else LogRecord(*record)


OFFSETS_KINDS = kinds_of(consumer_offsets, consumer_group_records, share_group_records, streams_group_records)
"""The types of records of `__consumer_offsets`: classic groups and offsets, and modern groups."""


def committed_offset_from(value: OffsetCommitValue | LegacyOffsetCommitValue, record_offset: int) -> CommittedOffset:
    """Committed offset from the value of a record, which is at `record_offset` in the log."""
    if isinstance(value, LegacyOffsetCommitValue):
        return CommittedOffset(value.offset, -1, value.metadata, value.commit_timestamp, record_offset=record_offset)
    expires = None if value.expire_timestamp == -1 else value.expire_timestamp
    fields = (
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        expires,
        value.topic_id,
        record_offset,
    )
    return _new_tuple(CommittedOffset, fields)


def group_from(group_id: str, value: GroupMetadataValue, settings: GroupValues, now_ms: int) -> Group:
    """Group from the value of a record: Empty without members, else Stable, with every session beginning now."""
    group = Group(group_id, settings, now_ms)
    group.generation_id = value.generation
    group.state_timestamp_ms = None if value.current_state_timestamp == -1 else value.current_state_timestamp
    for stored in value.members:
        rebalance_timeout_ms = stored.session_timeout if stored.rebalance_timeout == -1 else stored.rebalance_timeout
        member = Member(
            stored.member_id,
            stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            rebalance_timeout_ms=rebalance_timeout_ms,
            session_timeout_ms=stored.session_timeout,
            protocol_type=value.protocol_type,
            protocols=((value.protocol or "", bytes(stored.subscription)),),
            assignment=bytes(stored.assignment),
        )
        group.members.add(member, None)
        group.schedule_session(member, now_ms)
    if group.members:
        group.state = STABLE
    group.members.leader_id = value.leader
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.subscribed_topics = subscribed_topics(group.protocol_type, group.protocol_name, group.members)
    return group
