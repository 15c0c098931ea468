"""Small files with wrong content: the error names the file and what is wrong in it."""

from __future__ import annotations

import pytest

from pykbroker.logstore.errors import CorruptFile
from pykbroker.logstore.leader_epochs import LeaderEpochs
from pykbroker.logstore.partition_metadata import read_topic_id
from pykbroker.logstore.producer_snapshot import decode_snapshot
from pykbroker.protocol.records.checksum import crc32c
from tests.support.fake_filesystem import FakeFileSystem


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", "version '1' where '0' was expected"),
        (b"topic_id: AAECAwQFBgcICQoLDA0ODw", "version None where '0' was expected"),
        (b"version: 0", "no valid topic_id"),
        (b"version: 0\ntopic_id: short", "no valid topic_id"),
    ],
)
def test_partition_metadata(content: bytes, reason: str) -> None:
    filesystem = FakeFileSystem()
    filesystem.make_directory("/t-0")
    filesystem.write_file("/t-0/partition.metadata", content)
    with pytest.raises(CorruptFile, match=reason):
        read_topic_id(filesystem, "/t-0")


@pytest.mark.parametrize("line", ["1", "1 2 3", "one 2"])
def test_leader_epochs(line: str) -> None:
    filesystem = FakeFileSystem()
    filesystem.write_file("/epochs", f"0\n2\n0 0\n{line}\n".encode())
    with pytest.raises(CorruptFile, match=f"line '{line}' is not 'epoch start_offset'"):
        LeaderEpochs(filesystem, "/epochs")


def test_a_producer_snapshot_with_fewer_entries_than_it_says() -> None:
    body = (2).to_bytes(4, "big") + bytes(46)
    content = (1).to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body
    with pytest.raises(CorruptFile, match="holds 1 of 2 entries"):
        decode_snapshot(content, "0.snapshot")
