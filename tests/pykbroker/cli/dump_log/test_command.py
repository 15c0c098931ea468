from __future__ import annotations

import errno
import json
import os
import struct
from pathlib import Path
from typing import Any

import crc32c
import pytest

from pykbroker.controller.metadata.record_framing import encode_record
from pykbroker.coordination import coordinator_records
from pykbroker.logstore.producer_snapshot import encode_snapshot
from pykbroker.logstore.producer_state import CachedBatch, ProducerEntry
from pykbroker.protocol.codec import encode, encode_versioned
from pykbroker.protocol.log_messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from pykbroker.protocol.log_messages.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from pykbroker.protocol.log_messages.consumer_protocol import ConsumerProtocolSubscription
from pykbroker.protocol.log_messages.metadata_records import (
    ConfigRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from pykbroker.protocol.log_messages.raft_records import LeaderChangeMessage
from pykbroker.protocol.log_messages.share_group_records import ShareGroupMetadataKey, ShareGroupMetadataValue
from pykbroker.protocol.log_messages.share_state_records import ShareUpdateKey, ShareUpdateValue, StateBatch
from pykbroker.protocol.log_messages.streams_group_records import StreamsGroupTopologyKey
from pykbroker.protocol.log_messages.transaction_log import TransactionLogValue
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.control import ControlRecordType, control_record_key, end_transaction_value
from pykbroker.protocol.records.record import Record
from pykbroker.transactions.state_log import encode_key, encode_value
from pykbroker.transactions.states import LoggedState, TransactionState
from tests.pykbroker.cli.conftest import Run

LOG = "00000000000000000000.log"


def record(offset: int, key: bytes | None, value: bytes | None) -> Record:
    return Record(offset, 1000 + offset, key, value, [])


def write(folder: Path, name: str, data: bytes) -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    return str(folder / name)


def dump(run: Run, *words: str) -> list[dict[str, Any]]:
    code, output, _ = run("dump-log", "--json", *words)
    assert code == 0
    return [json.loads(line) for line in output.splitlines()]


def test_batches_and_records(run: Run, tmp_path: Path) -> None:
    data = build_batch([record(0, b"k", "wörd".encode()), record(1, None, None)], codec=4, producer_id=7)
    data += build_batch([record(2, None, b"\xff\x00")], base_offset=2)
    path = write(tmp_path / "t-0", LOG, data)
    first, second = dump(run, str(tmp_path / "t-0"))
    assert (first["file"], first["base_offset"], first["last_offset"], first["record_count"]) == (path, 0, 1, 2)
    assert (first["compression"], first["producer_id"]) == ("zstd", 7)
    assert first["records"][0] == {"offset": 0, "timestamp": 1000, "key": "k", "value": "wörd"}
    assert second["records"][0]["value"] == "base64:/wA="
    assert "records" not in dump(run, path, "--batches")[0]
    text = run("dump-log", path)[1]
    assert "batch 0..1, at byte 0" in text
    assert '0  1970-01-01T00:00:01.000Z  key "k"  value "wörd"' in text


def test_a_partition_that_nothing_was_written_to(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "t-0", "partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    written = write(tmp_path / "t-1", LOG, build_batch([record(0, None, b"v")]))
    code, output, errors = run("dump-log", "--json", str(tmp_path / "t-0"), str(tmp_path / "t-1"))
    assert (code, errors) == (0, f"pykbroker: {tmp_path}/t-0: nothing was written to this partition\n")
    assert [json.loads(line)["file"] for line in output.splitlines()] == [written]


def test_segments_of_a_folder_come_in_order(run: Run, tmp_path: Path) -> None:
    for base in (20, 3, 100):
        write(tmp_path / "t-0", f"{base:020}.log", build_batch([record(base, None, b"v")], base_offset=base))
    assert [item["base_offset"] for item in dump(run, str(tmp_path / "t-0"))] == [3, 20, 100]


def test_damage_is_named_and_ends_in_exit_code_1(run: Run, tmp_path: Path) -> None:
    data = bytearray(build_batch([record(0, None, b"v")]))
    data[-2] ^= 1
    path = write(tmp_path / "t-0", LOG, bytes(data) + b"tail")
    code, output, errors = run("dump-log", path)
    assert (code, errors) == (1, "pykbroker: 2 problems found\n")
    assert "PROBLEM: the CRC of the batch at position 0 does not fit its bytes" in output
    assert "PROBLEM: 4 bytes from position" in output


def test_offsets_records_are_decoded_by_the_folder_name(run: Run, tmp_path: Path) -> None:
    commit = record(
        0,
        b"\0\1" + encode(OffsetCommitKey(group="g", topic="t", partition=3), 0),
        encode_versioned(OffsetCommitValue(offset=42, metadata="m"), 3),
    )
    member = MemberMetadata(
        member_id="m", subscription=encode_versioned(ConsumerProtocolSubscription(topics=["t"]), 0), assignment=b""
    )
    group = record(
        1,
        b"\0\2" + encode(GroupMetadataKey(group="g"), 0),
        encode_versioned(GroupMetadataValue(protocol_type="consumer", generation=1, members=[member]), 3),
    )
    tombstone = record(2, commit.key, None)
    unknown = record(3, b"\0\x63rest", b"v")
    write(tmp_path / "__consumer_offsets-7", LOG, build_batch([commit, group, tombstone, unknown]))
    [batch] = dump(run, str(tmp_path / "__consumer_offsets-7"))
    first, second, third, fourth = batch["records"]
    assert first["type"] == "OffsetCommit"
    assert first["key"] == {"group": "g", "topic": "t", "partition": 3}
    assert first["value"]["offset"] == 42
    assert second["value"]["members"][0]["subscription"]["topics"] == ["t"]
    assert third["value"] is None
    assert fourth["type"] == 99


def test_records_of_modern_groups_are_decoded(run: Run, tmp_path: Path) -> None:
    pairs = [
        (
            ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
            ConsumerGroupCurrentMemberAssignmentValue(member_epoch=3, previous_member_epoch=2, state=0),
        ),
        (ShareGroupMetadataKey(group_id="s"), ShareGroupMetadataValue(epoch=5, metadata_hash=7)),
        (StreamsGroupTopologyKey(group_id="k"), None),
    ]
    keys = [coordinator_records.encode_record(key, value, 0) for key, value in pairs]
    records = [record(number, key, value) for number, (key, value) in enumerate(keys)]
    write(tmp_path / "__consumer_offsets-7", LOG, build_batch(records))
    [batch] = dump(run, str(tmp_path / "__consumer_offsets-7"))
    assert [(each["type"], each["key"]) for each in batch["records"]] == [
        ("ConsumerGroupCurrentMemberAssignment", {"group_id": "g", "member_id": "m"}),
        ("ShareGroupMetadata", {"group_id": "s"}),
        ("StreamsGroupTopology", {"group_id": "k"}),
    ]
    values = [each["value"] for each in batch["records"]]
    assert values[0]["member_epoch"] == 3
    assert values[1:] == [{"epoch": 5, "metadata_hash": 7}, None]


def test_transactions_are_decoded(run: Run, tmp_path: Path) -> None:
    state = LoggedState(
        producer_id=9, producer_epoch=1, state=TransactionState.ONGOING, partitions=frozenset({("t", 3)})
    )
    records = [
        record(0, encode_key("id"), encode_value(state, 2)),
        record(1, encode_key("id"), None),
        record(2, encode_key("id"), encode_versioned(TransactionLogValue(transaction_status=99), 1)),
    ]
    write(tmp_path / "__transaction_state-1", LOG, build_batch(records))
    code, output, _ = run("dump-log", "--json", str(tmp_path / "__transaction_state-1"))
    [first, tombstone, wrong] = json.loads(output)["records"]
    assert (first["type"], first["key"]) == ("TransactionLog", {"transactional_id": "id"})
    assert (first["value"]["producer_id"], first["value"]["transaction_status"]) == (9, "Ongoing")
    assert first["value"]["transaction_partitions"] == [{"topic": "t", "partition_ids": [3]}]
    assert (tombstone["key"], tombstone["value"]) == (first["key"], None)
    assert (code, wrong["problem"]) == (1, "99 is not a valid TransactionState")


def test_share_state_is_decoded(run: Run, tmp_path: Path) -> None:
    key, value = coordinator_records.encode_record(
        ShareUpdateKey(group_id="g", topic_id=bytes(15) + b"\1", partition=2),
        ShareUpdateValue(
            snapshot_epoch=1,
            start_offset=5,
            state_batches=[StateBatch(first_offset=5, last_offset=9, delivery_state=2, delivery_count=1)],
        ),
        0,
    )
    path = write(tmp_path / "copied", LOG, build_batch([record(0, key, value)]))
    [batch] = dump(run, path, "--as", "share-state")
    [update] = batch["records"]
    assert update["type"] == "ShareUpdate"
    assert update["key"] == {"group_id": "g", "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ", "partition": 2}
    assert update["value"]["state_batches"] == [
        {"first_offset": 5, "last_offset": 9, "delivery_state": 2, "delivery_count": 1}
    ]


def test_metadata_records_are_decoded(run: Run, tmp_path: Path) -> None:
    change = encode(LeaderChangeMessage(leader_id=1), 0)
    data = build_batch(
        [record(0, control_record_key(ControlRecordType.LEADER_CHANGE), change)], is_control=True, leader_epoch=1
    )
    data += build_batch([record(1, None, encode_record(TopicRecord(name="t", topic_id=bytes(15) + b"\1"), 30))])
    write(tmp_path / "__cluster_metadata-0", LOG, data)
    leader, topic = dump(run, str(tmp_path / "__cluster_metadata-0"))
    assert (leader["records"][0]["type"], leader["records"][0]["value"]["leader_id"]) == ("LEADER_CHANGE", 1)
    assert topic["records"][0]["type"] == "TopicRecord"
    assert topic["records"][0]["value"] == {"name": "t", "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ"}


def test_secrets_of_the_metadata_are_hidden(run: Run, tmp_path: Path) -> None:
    records = [
        UserScramCredentialRecord(name="alice", salt=b"SECRET", stored_key=b"SECRET", server_key=b"SECRET"),
        ConfigRecord(resource_type=4, resource_name="1", name="listener.name.x.plain.sasl.jaas.config", value="SECRET"),
        ConfigRecord(resource_type=4, resource_name="1", name="num.io.threads", value="7"),
    ]
    values = [record(number, None, encode_record(each, 30)) for number, each in enumerate(records)]
    write(tmp_path / "__cluster_metadata-0", LOG, build_batch(values))
    (batch,) = dump(run, str(tmp_path / "__cluster_metadata-0"))
    assert "SECRET" not in str(batch)
    assert batch["records"][0]["value"]["name"] == "alice"
    assert [each["value"]["value"] for each in batch["records"][1:]] == ["[hidden]", "7"]


def test_a_record_that_is_not_what_the_folder_says(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "__cluster_metadata-0", LOG, build_batch([record(0, None, b"plain")]))
    code, output, _ = run("dump-log", path)
    assert code == 1
    assert "PROBLEM" in output
    assert '"plain"' in output
    assert run("dump-log", path, "--as", "text")[0] == 0


def test_transaction_markers(run: Run, tmp_path: Path) -> None:
    marker = record(0, control_record_key(ControlRecordType.ABORT), end_transaction_value(5))
    data = build_batch([marker], is_control=True, is_transactional=True, producer_id=1, producer_epoch=0)
    write(tmp_path / "t-0", LOG, data)
    [batch] = dump(run, str(tmp_path / "t-0"))
    assert batch["is_transactional"]
    assert batch["records"][0]["type"] == "ABORT"
    assert batch["records"][0]["coordinator_epoch"] == 5


def test_indexes_and_snapshots(run: Run, tmp_path: Path) -> None:
    base = "00000000000000000100"
    index = struct.pack(">iiii", 5, 4096, 9, 8192) + bytes(16)
    assert [(item["offset"], item["position"]) for item in dump(run, write(tmp_path, f"{base}.index", index))] == [
        (105, 4096),
        (109, 8192),
    ]
    times = struct.pack(">qi", 1234, 5)
    [entry] = dump(run, write(tmp_path, f"{base}.timeindex", times))
    assert (entry["timestamp"], entry["offset"]) == (1234, 105)
    [entry] = dump(run, write(tmp_path, f"{base}.txnindex", struct.pack(">hqqqq", 0, 1, 2, 3, 4)))
    assert (entry["producer_id"], entry["first_offset"], entry["last_stable_offset"]) == (1, 2, 4)
    producer = ProducerEntry(3, -1, 99, -1)
    producer.batches.append(CachedBatch(0, 4, 104, 4, 99))
    path = write(tmp_path, f"{base}.snapshot", encode_snapshot({7: producer}))
    [entry] = dump(run, path)
    assert (entry["producer_id"], entry["epoch"], entry["last_sequence"], entry["last_offset"]) == (7, 3, 4, 104)
    write(tmp_path, f"{base}.snapshot", b"\0\1\0\0\0\0\0\0\0\0")
    assert run("dump-log", path)[0] == 1
    code, output, _ = run("dump-log", write(tmp_path, f"{base}.index", index[:13]))
    assert (code, "PROBLEM: 5 bytes at the end" in output) == (1, True)


def test_what_cannot_be_read(run: Run, tmp_path: Path) -> None:
    assert run("dump-log", str(tmp_path / "nope"))[2].endswith("nope: no such file or directory\n")
    assert "no .log files" in run("dump-log", str(tmp_path))[2]
    assert "not a .log" in run("dump-log", write(tmp_path, "meta.properties", b""))[2]


def test_a_directory_that_may_not_be_read(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may run as a user that may read everything."""

    def listdir(path: str) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "listdir", listdir)
    assert run("dump-log", str(tmp_path))[::2] == (1, f"pykbroker: {tmp_path}: Permission denied\n")


def test_a_batch_that_is_damaged(run: Run, tmp_path: Path) -> None:
    """Batches before it are shown, and the header of a batch whose records cannot be read."""
    good = build_batch([record(0, b"k", b"v")])
    bad = bytearray(good)
    bad[16] = 1
    path = write(tmp_path / "t-0", LOG, good + bytes(bad))
    code, output, _ = run("dump-log", "--json", path)
    first, second = (json.loads(line) for line in output.splitlines())
    assert code == 1
    assert first["records"][0]["key"] == "k"
    assert second["problem"].startswith(f"The record batch at byte {len(good)} has message format 1")
    cut = bytearray(build_batch([record(0, b"k", b"v")]))
    cut[61] = 0x7E
    code, output, _ = run("dump-log", "--json", write(tmp_path / "u-0", LOG, bytes(cut)))
    [item] = (json.loads(line) for line in output.splitlines())
    assert (code, item["base_offset"], "problem" in item) == (1, 0, True)


def test_headers_and_times_as_text(run: Run, tmp_path: Path) -> None:
    """A client may send any 64 bits as its timestamp, and -1 for none."""
    records = [
        Record(0, -1, b"k", None, [("h", b"1"), ("h", None)]),
        Record(1, 1 << 60, b"k", None, []),
    ]
    code, output, _ = run("dump-log", write(tmp_path / "t-0", LOG, build_batch(records)))
    assert code == 0
    assert "headers h:1,h:None" in output
    assert "no time" in output
    assert f"{1 << 60} ms" in output


def test_a_type_of_record_that_a_later_release_writes(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "__consumer_offsets-0", LOG, build_batch([record(0, b"\0\x7f", b"new")]))
    code, output, _ = run("dump-log", path)
    assert code == 0
    assert "127" in output


def test_a_coordinators_record_without_a_key(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "__share_group_state-0", LOG, build_batch([record(0, None, b"v")]))
    [batch] = (json.loads(line) for line in run("dump-log", "--json", path)[1].splitlines())
    assert batch["records"][0]["problem"] == "a record of __share_group_state without a key"


def test_control_records_of_unknown_content(run: Run, tmp_path: Path) -> None:
    """A snapshot's file is read as metadata, whatever its directory's name."""
    marker = record(0, control_record_key(ControlRecordType.LEADER_CHANGE), None)
    data = build_batch([marker], is_control=True)
    [batch] = dump(run, write(tmp_path / "x", "00000000000000000010-0000000001.checkpoint", data))
    assert (batch["records"][0]["type"], batch["records"][0]["value"]) == ("LEADER_CHANGE", None)


def test_a_file_that_may_not_be_read(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may run as a user that may read everything."""
    path = write(tmp_path / "t-0", LOG, b"")

    def refuse(*_: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr("pykbroker.cli.dump_log.files.open", refuse, raising=False)
    assert run("dump-log", path)[::2] == (1, f"pykbroker: {path}: Permission denied\n")


def test_records_that_are_damaged_under_a_right_crc(run: Run, tmp_path: Path) -> None:
    """Kafka's tools would fail: the batch is what its writer sent."""
    data = bytearray(build_batch([record(0, b"k", b"v")]))
    data[61] = 0x7E
    data[17:21] = crc32c.crc32c(bytes(data[21:])).to_bytes(4, "big")
    code, output, errors = run("dump-log", "--json", write(tmp_path / "t-0", LOG, bytes(data)))
    [item] = (json.loads(line) for line in output.splitlines())
    assert (code, errors) == (1, "pykbroker: 1 problem found\n")
    assert "CRC" not in item["problem"]
    assert "records" not in item


def test_a_subscription_that_cannot_be_decoded(run: Run, tmp_path: Path) -> None:
    """A client may use the protocol type of consumers with metadata of its own."""
    member = MemberMetadata(member_id="m", subscription=b"\0\0\0\0\0\5", assignment=b"")
    value = GroupMetadataValue(protocol_type="consumer", generation=1, members=[member])
    group = record(0, b"\0\2" + encode(GroupMetadataKey(group="g"), 0), encode_versioned(value, 3))
    write(tmp_path / "__consumer_offsets-7", LOG, build_batch([group]))
    [batch] = dump(run, str(tmp_path / "__consumer_offsets-7"))
    [shown] = batch["records"][0]["value"]["members"]
    assert (shown["subscription"], shown["assignment"]) == ("base64:AAAAAAAF", None)
