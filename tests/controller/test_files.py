"""Checkpoint and quorum-state files: they are read as they were written, and damage is an error."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker.controller.quorum_state_file import read_quorum_state, write_quorum_state
from pykbroker.controller.raft.log_view import OffsetAndEpoch
from pykbroker.controller.raft.output import QuorumState
from pykbroker.controller.raft.quorum import NO_DIRECTORY_ID, ReplicaKey, VoterSet
from pykbroker.controller.snapshot_file import (
    RECORDS_PER_BATCH,
    list_snapshots,
    read_snapshot,
    snapshot_content,
    snapshot_name,
    write_snapshot,
)
from pykbroker.logstore.errors import CorruptFile
from tests.support.fake_filesystem import FakeFileSystem

FOLDER = "/data"
SNAPSHOT = OffsetAndEpoch(12345, 6)
VOTERS = VoterSet([ReplicaKey(3), ReplicaKey(1), ReplicaKey(2)])


def folder() -> FakeFileSystem:
    filesystem = FakeFileSystem()
    filesystem.make_directory(FOLDER)
    return filesystem


def written(values: list[bytes]) -> tuple[FakeFileSystem, bytes]:
    filesystem = folder()
    made = snapshot_content(SNAPSHOT.epoch, values, log_timestamp_ms=77, now_ms=99)
    write_snapshot(filesystem, FOLDER, SNAPSHOT, made)
    content = filesystem.read_file(f"{FOLDER}/{snapshot_name(SNAPSHOT)}")
    assert content is not None
    return filesystem, content


@pytest.mark.parametrize("count", [0, 1, RECORDS_PER_BATCH, RECORDS_PER_BATCH + 1])
def test_a_checkpoint_is_read_back(count: int) -> None:
    values = [number.to_bytes(4, "big") for number in range(count)]
    filesystem, _ = written(values)
    assert read_snapshot(filesystem, FOLDER, SNAPSHOT) == (77, values, ())
    assert snapshot_name(SNAPSHOT) == "00000000000000012345-0000000006.checkpoint"


def test_other_files_are_no_checkpoints() -> None:
    filesystem, _ = written([])
    for name in ("x.checkpoint", "00000000000000000001.log", "bootstrap.checkpoint", "1-2.checkpoint.deleted"):
        filesystem.write_file(f"{FOLDER}/{name}", b"")
    assert list_snapshots(filesystem, FOLDER) == [SNAPSHOT]


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_checkpoint_is_told(data: st.DataObject) -> None:
    """Any bytes are what was written, or CorruptFile. (Offset and epoch of a batch lie outside of its CRC.)"""
    values = [b"one", b"two", b"three"]
    filesystem, content = written(values)
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(damaged))) or len(damaged) :]
    filesystem.write_file(f"{FOLDER}/{snapshot_name(SNAPSHOT)}", bytes(damaged))
    with suppress(CorruptFile):
        assert read_snapshot(filesystem, FOLDER, SNAPSHOT) == (77, values, ())


@pytest.mark.parametrize(
    ("kraft_version", "state", "text"),
    [
        (
            0,
            QuorumState(4, 1),
            (
                b'{"clusterId":"","leaderId":1,"leaderEpoch":4,"votedId":-1,"appliedOffset":0,"currentVoters":'
                b'[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0}'
            ),
        ),
        (
            0,
            QuorumState(4, -1, ReplicaKey(2)),
            (
                b'{"clusterId":"","leaderId":-1,"leaderEpoch":4,"votedId":2,"appliedOffset":0,"currentVoters":'
                b'[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0}'
            ),
        ),
        (
            1,
            QuorumState(9, -1, ReplicaKey(2, bytes(range(16)))),
            b'{"leaderId":-1,"leaderEpoch":9,"votedId":2,"votedDirectoryId":"AAECAwQFBgcICQoLDA0ODw","data_version":1}',
        ),
        (
            1,
            QuorumState(9, 3),
            b'{"leaderId":3,"leaderEpoch":9,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        ),
    ],
)
def test_quorum_state_is_written_as_kafka_does(kraft_version: int, state: QuorumState, text: bytes) -> None:
    filesystem = folder()
    write_quorum_state(filesystem, FOLDER, state, VOTERS, kraft_version)
    assert filesystem.read_file(f"{FOLDER}/quorum-state") == text
    assert read_quorum_state(filesystem, FOLDER) == state


def test_quorum_state_with_white_space_is_read_too() -> None:
    filesystem = folder()
    filesystem.write_file(
        f"{FOLDER}/quorum-state", b'{ "data_version" : 0,\n "leaderId" : -1, "leaderEpoch" : 5, "votedId" : 7 }'
    )
    assert read_quorum_state(filesystem, FOLDER) == QuorumState(5, -1, ReplicaKey(7, NO_DIRECTORY_ID))


def test_no_quorum_state() -> None:
    assert read_quorum_state(folder(), FOLDER) is None


@given(st.binary(max_size=80))
def test_any_quorum_state_is_a_state_or_told(content: bytes) -> None:
    filesystem = folder()
    filesystem.write_file(f"{FOLDER}/quorum-state", content)
    with pytest.raises(CorruptFile):
        read_quorum_state(filesystem, FOLDER)
