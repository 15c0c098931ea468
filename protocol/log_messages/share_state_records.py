"""Keys and values of the `__share_group_state` records (KIP-932); `key` is the key type."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int8, int16, int32, int64, string, uuid


class ShareSnapshotKey(Message, versions="0", flexible="none", key=0):
    """Key of a record with key type 0."""

    group_id: str = string("0")
    topic_id: bytes = uuid("0")
    partition: int = int32("0")


class StateBatch(Message):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_state: int = int8("0+")
    delivery_count: int = int16("0+")


class ShareSnapshotValue(Message, versions="0", flexible="0+", key=0):
    """Value of a record with key type 0."""

    snapshot_epoch: int = int32("0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", default=-1, tag=0, tagged="0+")
    create_timestamp: int = int64("0+")
    write_timestamp: int = int64("0+")
    state_batches: list[StateBatch] = array(StateBatch, "0+")


class ShareUpdateKey(Message, versions="0", flexible="none", key=1):
    """Key of a record with key type 1."""

    group_id: str = string("0")
    topic_id: bytes = uuid("0")
    partition: int = int32("0")


class ShareUpdateValue(Message, versions="0", flexible="0+", key=1):
    """Value of a record with key type 1."""

    snapshot_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", default=-1, tag=0, tagged="0+")
    state_batches: list[StateBatch] = array(StateBatch, "0+")
