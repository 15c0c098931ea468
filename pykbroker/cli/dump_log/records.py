"""Decodes records of the logs that a broker and a controller write for themselves, for `pykbroker dump-log`."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from pykbroker.controller.metadata.image import BROKER_RESOURCE
from pykbroker.controller.metadata.record_framing import decode_record as decode_metadata_record
from pykbroker.coordination.coordinator_records import Kinds
from pykbroker.coordination.coordinator_records import decode_record as decode_coordinator_record
from pykbroker.coordination.partitioning import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from pykbroker.groups.offset_log import OFFSETS_KINDS
from pykbroker.logstore.log_directory import METADATA_TOPIC
from pykbroker.protocol.codec import decode, decode_versioned
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.fields import Field, Message
from pykbroker.protocol.log_messages import consumer_offsets, raft_records
from pykbroker.protocol.log_messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from pykbroker.protocol.log_messages.transaction_log import TransactionLogValue
from pykbroker.protocol.records.control import ControlRecordType, control_record_type, end_transaction_coordinator_epoch
from pykbroker.protocol.records.record import Record
from pykbroker.protocol.uuids import uuid_to_text
from pykbroker.share_state.records import SHARE_STATE_KINDS
from pykbroker.transactions.state_log import TRANSACTION_KINDS
from pykbroker.transactions.states import TransactionState

Item = dict[str, Any]
RecordDecoder = Callable[[Record], Item]

HIDDEN = "[hidden]"


def decode_text_record(record: Record) -> Item:
    """Shows key and value as text, where they are text."""
    return {"key": text_of(record.key), "value": text_of(record.value)}


def decode_metadata(record: Record) -> Item:
    """Shows a record of `__cluster_metadata`, without salts, keys of passwords, and values of secret settings."""
    message = decode_metadata_record(record.value)
    name, value = type(message).__name__, as_json(message)
    if name == "UserScramCredentialRecord":
        value |= dict.fromkeys(("salt", "stored_key", "server_key"), HIDDEN)
    elif name == "ConfigRecord" and value["resource_type"] == BROKER_RESOURCE and value["value"] is not None:
        from pykbroker.config.broker_config import shown_value

        value["value"] = shown_value(value["name"], value["value"])
    return {"type": name, "value": value}


def decode_offsets_record(record: Record) -> Item:
    """Shows a record of `__consumer_offsets`."""
    item, value = _coordinator_record(OFFSETS_KINDS, OFFSETS_TOPIC, record)
    if isinstance(value, consumer_offsets.GroupMetadataValue) and value.protocol_type == "consumer":
        for member, shown in zip(value.members, item["value"]["members"], strict=True):
            shown["subscription"] = _embedded(ConsumerProtocolSubscription, member.subscription)
            shown["assignment"] = _embedded(ConsumerProtocolAssignment, member.assignment)
    return item


def decode_transaction_record(record: Record) -> Item:
    """Shows a record of `__transaction_state`, with the name of the transaction's state."""
    item, value = _coordinator_record(TRANSACTION_KINDS, TRANSACTION_TOPIC, record)
    if isinstance(value, TransactionLogValue):
        item["value"]["transaction_status"] = TransactionState(value.transaction_status).title
    return item


def decode_share_state_record(record: Record) -> Item:
    """Shows a record of `__share_group_state`."""
    return _coordinator_record(SHARE_STATE_KINDS, SHARE_STATE_TOPIC, record)[0]


def _coordinator_record(kinds: Kinds, topic: str, record: Record) -> tuple[Item, Message | None]:
    if record.key is None or len(record.key) < 2:
        raise ValueError(f"a record of {topic} without a key")
    decoded = decode_coordinator_record(kinds, record.key, record.value)
    if decoded is None:
        # A later version of Kafka may write other types.
        return {"type": int.from_bytes(record.key[:2], "big", signed=True), **decode_text_record(record)}, None
    name = type(decoded.key).__name__.removesuffix("Key")
    value = None if decoded.value is None else as_json(decoded.value)
    return {"type": name, "key": as_json(decoded.key), "value": value}, decoded.value


def decode_control_record(record: Record) -> Item:
    """Shows a control record: a transaction's end or an entry of the Raft layer."""
    kind = control_record_type(record.key)
    item: Item = {"type": kind.name}
    if kind in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
        item["coordinator_epoch"] = end_transaction_coordinator_epoch(record.value)
    elif kind in _CONTROL_KINDS and record.value is not None:
        # The first field of these messages is their version.
        message_type = _CONTROL_KINDS[kind]
        version = min(int.from_bytes(record.value[:2], "big"), message_type.VERSIONS.highest)
        item["value"] = as_json(decode(message_type, version, record.value))
    else:
        item["value"] = text_of(record.value)
    return item


def _embedded(message_type: type[Message], data: bytes) -> Any:
    try:
        return as_json(decode_versioned(message_type, data)) if data else None
    except ProtocolError:
        return text_of(data)


def as_json(message: Message) -> Item:
    """Returns a message's fields as JSON values; ids in Kafka's text form, bytes as text or base64."""
    return {field.name: _json_of(field, getattr(message, field.name)) for field in message.FIELDS}


def _json_of(field: Field, value: Any) -> Any:
    if value is None:
        return None
    if field.kind == "array":
        return [_json_of(field.element, element) for element in value]
    if field.kind == "struct":
        return as_json(value)
    if field.kind == "uuid":
        return uuid_to_text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return text_of(bytes(value))
    return value


def text_of(data: bytes | None) -> str | None:
    """Returns bytes as text where they are printable UTF-8, else as `base64:...`."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if all(character.isprintable() or character in "\t\n\r" for character in text):
        return text
    return "base64:" + base64.b64encode(data).decode()


DECODERS: dict[str, RecordDecoder] = {
    "text": decode_text_record,
    "offsets": decode_offsets_record,
    "transactions": decode_transaction_record,
    "share-state": decode_share_state_record,
    "metadata": decode_metadata,
}
"""Formats in which records can be printed."""

CONTENTS_OF_TOPICS = {
    OFFSETS_TOPIC: "offsets",
    TRANSACTION_TOPIC: "transactions",
    SHARE_STATE_TOPIC: "share-state",
    METADATA_TOPIC: "metadata",
}
"""Formats of the records of internal topics."""

_CONTROL_KINDS: dict[ControlRecordType, type[Message]] = {
    ControlRecordType.LEADER_CHANGE: raft_records.LeaderChangeMessage,
    ControlRecordType.SNAPSHOT_HEADER: raft_records.SnapshotHeaderRecord,
    ControlRecordType.SNAPSHOT_FOOTER: raft_records.SnapshotFooterRecord,
    ControlRecordType.KRAFT_VERSION: raft_records.KRaftVersionRecord,
    ControlRecordType.KRAFT_VOTERS: raft_records.VotersRecord,
}
