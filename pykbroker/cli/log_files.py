"""Reads the files of a data directory into plain values, for `pykbroker dump-log`.

Reads only, locks nothing and trusts nothing: the file may be damaged, cut, or still being written by a broker.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any

from pykbroker.cli.errors import CliError
from pykbroker.controller.metadata.image import BROKER_RESOURCE
from pykbroker.controller.metadata.record_framing import decode_record as decode_metadata_record
from pykbroker.logstore.errors import CorruptFile
from pykbroker.logstore.producer_snapshot import decode_snapshot
from pykbroker.protocol.codec import decode, decode_versioned
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.fields import Field, Message
from pykbroker.protocol.log_messages import consumer_offsets, raft_records
from pykbroker.protocol.log_messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from pykbroker.protocol.records.batch import RecordBatch, codec_name, iter_batches
from pykbroker.protocol.records.control import ControlRecordType, control_record_type, end_transaction_coordinator_epoch
from pykbroker.protocol.records.errors import RecordError
from pykbroker.protocol.records.record import Record
from pykbroker.protocol.uuids import uuid_to_text

Item = dict[str, Any]
RecordDecoder = Callable[[Record], Item]

_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_ABORTED_ENTRY = Struct(">hqqqq")

HIDDEN = "[hidden]"

CONTENTS = ("text", "offsets", "metadata")
"""Formats in which records can be printed: any bytes, `__consumer_offsets`, `__cluster_metadata`."""


def find_files(path: str) -> list[str]:
    """Return the file itself, or the segments and snapshots of a partition's directory in the order of their offsets.

    Raises:
        CliError: there is nothing to read.
    """
    try:
        names = sorted(name for name in os.listdir(path) if name.endswith((".log", ".checkpoint")))
    except NotADirectoryError:
        return [path]
    except FileNotFoundError:
        raise CliError(f"{path}: no such file or directory") from None
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}") from None
    if not names:
        raise CliError(f"{path}: no .log files; give the directory of one partition, or a file")
    return [os.path.join(path, name) for name in names]


def contents_of(path: str) -> str:
    """Guess the format of a file's records, a member of `CONTENTS`, from its name and its directory's."""
    if path.endswith(".checkpoint"):
        return "metadata"
    directory = os.path.basename(os.path.dirname(os.path.abspath(path)))
    if directory.startswith("__consumer_offsets-"):
        return "offsets"
    return "metadata" if directory.startswith("__cluster_metadata-") else "text"


def read_file(path: str, contents: str | None, *, with_records: bool) -> Iterator[Item]:
    """Yield the batches or entries of a file, one item each; a problem is an item with the key "problem".

    Raises:
        CliError: the file cannot be opened, or is of no known kind.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}") from None
    name = os.path.basename(path)
    # A file that waits for its deletion keeps its kind.
    kind = os.path.splitext(name.removesuffix(".deleted").removesuffix(".cleaned").removesuffix(".swap"))[1]
    if kind in (".log", ".checkpoint"):
        decoder = _DECODERS[contents or contents_of(path)]
        return _batches(data, decoder if with_records else None)
    base_offset = int(name.partition(".")[0]) if name.partition(".")[0].isdecimal() else 0
    if kind == ".index":
        return _entries(data, _OFFSET_ENTRY, lambda entry: {"offset": base_offset + entry[0], "position": entry[1]})
    if kind == ".timeindex":
        return _entries(data, _TIME_ENTRY, lambda entry: {"timestamp": entry[0], "offset": base_offset + entry[1]})
    if kind == ".txnindex":
        keys = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
        return _entries(data, _ABORTED_ENTRY, lambda entry: dict(zip(keys, entry, strict=True)), keep_zero=True)
    if kind == ".snapshot":
        return _producers(data, path)
    raise CliError(f"{path}: not a .log, .index, .timeindex, .txnindex, .snapshot or .checkpoint file")


def _entries(
    data: bytes, layout: Struct, describe: Callable[[tuple[Any, ...]], Item], *, keep_zero: bool = False
) -> Iterator[Item]:
    whole = len(data) - len(data) % layout.size
    for number, entry in enumerate(layout.iter_unpack(data[:whole])):
        # The unused rest of a preallocated index is zeros; only the first entry can be a real one of zeros.
        if number and not keep_zero and not any(entry):
            return
        yield describe(entry)
    if whole != len(data):
        yield {"problem": f"{len(data) - whole} bytes at the end are not a whole entry"}


def _producers(data: bytes, path: str) -> Iterator[Item]:
    try:
        producers = decode_snapshot(data, path)
    except CorruptFile as error:
        yield {"problem": str(error)}
        return
    for producer_id, entry in producers:
        last = entry.batches[-1] if entry.batches else None
        yield {
            "producer_id": producer_id,
            "epoch": entry.epoch,
            "last_sequence": last.last_sequence if last else None,
            "last_offset": last.last_offset if last else None,
            "last_timestamp": entry.last_timestamp_ms,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_transaction_first_offset": entry.current_txn_first_offset,
        }


def _batches(data: bytes, decoder: RecordDecoder | None) -> Iterator[Item]:
    position = 0
    try:
        for batch in iter_batches(data):
            position = batch.position + batch.size_bytes
            yield _batch(batch, decoder)
    except RecordError as error:
        yield {"problem": str(error)}
        return
    if position != len(data):
        yield {"problem": f"{len(data) - position} bytes from position {position} on are not a whole batch"}


def _batch(batch: RecordBatch, decoder: RecordDecoder | None) -> Item:
    item: Item = {
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "position": batch.position,
        "size_bytes": batch.size_bytes,
        "record_count": batch.record_count,
        "leader_epoch": batch.partition_leader_epoch,
        "compression": codec_name(batch.compression_codec),
        "timestamp_type": "LogAppendTime" if batch.is_log_append_time else "CreateTime",
        "max_timestamp": batch.max_timestamp,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "crc": batch.crc,
    }
    if not batch.verify_crc():
        item["problem"] = f"the CRC of the batch at position {batch.position} does not fit its bytes"
    elif decoder is not None:
        describe = decode_control_record if batch.is_control else decoder
        try:
            item["records"] = [_record(record, describe) for record in batch.records()]
        except RecordError as error:
            item["problem"] = str(error)
    return item


def _record(record: Record, describe: RecordDecoder) -> Item:
    item: Item = {"offset": record.offset, "timestamp": record.timestamp}
    try:
        item |= describe(record)
    except (ProtocolError, ValueError) as error:
        item |= decode_text_record(record)
        item["problem"] = str(error)
    if record.headers:
        item["headers"] = [{"key": key, "value": text_of(value)} for key, value in record.headers]
    return item


def decode_text_record(record: Record) -> Item:
    """Show key and value as text, where they are text."""
    return {"key": text_of(record.key), "value": text_of(record.value)}


def decode_metadata(record: Record) -> Item:
    """Show a record of `__cluster_metadata`, without salts, keys of passwords, and values of secret settings."""
    return _without_secrets(_named(decode_metadata_record(record.value)))


def _without_secrets(item: Item) -> Item:
    value = item["value"]
    if item["type"] == "UserScramCredentialRecord":
        value |= dict.fromkeys(("salt", "stored_key", "server_key"), HIDDEN)
    elif item["type"] == "ConfigRecord" and value["resource_type"] == BROKER_RESOURCE and value["value"] is not None:
        from pykbroker.config.broker_config import shown_value

        value["value"] = shown_value(value["name"], value["value"])
    return item


def decode_offsets_record(record: Record) -> Item:
    """Show a record of `__consumer_offsets`; its key begins with its type as int16."""
    if record.key is None or len(record.key) < 2:
        raise ValueError("a record of __consumer_offsets without a key")
    key_type = int.from_bytes(record.key[:2], "big", signed=True)
    kinds = _OFFSETS_KINDS.get(key_type)
    if kinds is None:
        # Groups of the newer protocols write types of their own.
        return {"type": key_type, **decode_text_record(record)}
    key = decode(kinds[0], 0, record.key[2:])
    item: Item = {"type": type(key).__name__.removesuffix("Key"), "key": as_json(key), "value": None}
    if record.value is not None:
        value = decode_versioned(kinds[1], record.value)
        item["value"] = as_json(value)
        if isinstance(value, consumer_offsets.GroupMetadataValue) and value.protocol_type == "consumer":
            for member, shown in zip(value.members, item["value"]["members"], strict=True):
                shown["subscription"] = _embedded(ConsumerProtocolSubscription, member.subscription)
                shown["assignment"] = _embedded(ConsumerProtocolAssignment, member.assignment)
    return item


def decode_control_record(record: Record) -> Item:
    """Show a control record: a transaction's end or an entry of the Raft layer."""
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


def _named(message: Message) -> Item:
    return {"type": type(message).__name__, "value": as_json(message)}


def as_json(message: Message) -> Item:
    """Return a message's fields as JSON values; ids in Kafka's text form, bytes as text or base64."""
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
    """Return bytes as text where they are printable UTF-8, else as `base64:...`."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if all(character.isprintable() or character in "\t\n\r" for character in text):
        return text
    return "base64:" + base64.b64encode(data).decode()


_DECODERS: dict[str, RecordDecoder] = {
    "text": decode_text_record,
    "offsets": decode_offsets_record,
    "metadata": decode_metadata,
}

_OFFSETS_KINDS: dict[int, tuple[type[Message], type[Message]]] = {
    0: (consumer_offsets.LegacyOffsetCommitKey, consumer_offsets.LegacyOffsetCommitValue),
    1: (consumer_offsets.OffsetCommitKey, consumer_offsets.OffsetCommitValue),
    2: (consumer_offsets.GroupMetadataKey, consumer_offsets.GroupMetadataValue),
}

_CONTROL_KINDS: dict[ControlRecordType, type[Message]] = {
    ControlRecordType.LEADER_CHANGE: raft_records.LeaderChangeMessage,
    ControlRecordType.SNAPSHOT_HEADER: raft_records.SnapshotHeaderRecord,
    ControlRecordType.SNAPSHOT_FOOTER: raft_records.SnapshotFooterRecord,
    ControlRecordType.KRAFT_VERSION: raft_records.KRaftVersionRecord,
    ControlRecordType.KRAFT_VOTERS: raft_records.VotersRecord,
}
