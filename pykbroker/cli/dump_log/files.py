"""Reads the files of a data directory into plain values, for `pykbroker dump-log`.

Reads only, locks nothing and trusts nothing: the file may be damaged, cut, or still being written by a broker.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any

from pykbroker.cli.dump_log.records import (
    CONTENTS_OF_TOPICS,
    DECODERS,
    Item,
    RecordDecoder,
    decode_control_record,
    decode_text_record,
    text_of,
)
from pykbroker.cli.errors import CliError
from pykbroker.logstore.errors import CorruptFile
from pykbroker.logstore.partition_metadata import FILE_NAME as PARTITION_METADATA
from pykbroker.logstore.producer_snapshot import decode_snapshot
from pykbroker.protocol.errors import ProtocolError
from pykbroker.protocol.records.batch import RecordBatch, codec_name, iter_batches
from pykbroker.protocol.records.errors import RecordError
from pykbroker.protocol.records.record import Record

_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_ABORTED_ENTRY = Struct(">hqqqq")


def find_files(path: str) -> list[str]:
    """Returns the file itself, or the segments and snapshots of a partition's directory in the order of their offsets.

    A partition that nothing was written to has none.

    Raises:
        CliError: there is nothing to read.
    """
    try:
        present = os.listdir(path)
    except NotADirectoryError:
        return [path]
    except FileNotFoundError:
        raise CliError(f"{path}: no such file or directory") from None
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}") from None
    names = sorted(name for name in present if name.endswith((".log", ".checkpoint")))
    if not names and PARTITION_METADATA not in present:
        raise CliError(f"{path}: no .log files; give the directory of one partition, or a file")
    return [os.path.join(path, name) for name in names]


def contents_of(path: str) -> str:
    """The format of a file's records, a key of `DECODERS`, by its name and its directory's."""
    if path.endswith(".checkpoint"):
        return "metadata"
    directory = os.path.basename(os.path.dirname(os.path.abspath(path)))
    return CONTENTS_OF_TOPICS.get(directory.rpartition("-")[0], "text")


def read_file(path: str, contents: str | None, *, with_records: bool) -> Iterator[Item]:
    """Yields the batches or entries of a file, one item each; a problem is an item with the key "problem".

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
        decoder = DECODERS[contents or contents_of(path)]
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
