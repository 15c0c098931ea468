"""AlterReplicaLogDirs on a broker with one log directory: a move is none, or impossible."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from pykbroker.handlers.alter_replica_log_dirs import handle_alter_replica_log_dirs
from pykbroker.logstore.errors import StorageError
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from pykbroker.replication.partition import Partition
from tests.support.data_path import DataPath, cluster_image, topic_image

LONGEST_NAME = "n" * 249


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    elsewhere = topic_image("elsewhere", leader=7)
    data_path = DataPath(tmp_path, cluster_image(topic_image("t", 2), topic_image(LONGEST_NAME), elsewhere))
    yield data_path
    data_path.close()


def move(path: DataPath, *moves: tuple[str, str, list[int]], version: int = 2) -> dict[str, dict[int, ErrorCode]]:
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(path=folder, topics=[AlterReplicaLogDirTopic(name=topic, partitions=partitions)])
            for folder, topic, partitions in moves
        ]
    )
    response = trio.run(path.call, handle_alter_replica_log_dirs, request, version)
    return {
        topic.topic_name: {result.partition_index: ErrorCode(result.error_code) for result in topic.partitions}
        for topic in response.results
    }


@pytest.mark.parametrize("version", [1, 2])
def test_a_move_to_where_it_is_succeeds(path: DataPath, version: int) -> None:
    here = path.directory.path
    assert move(path, (here, "t", [0, 1]), version=version) == {"t": {0: ErrorCode.NONE, 1: ErrorCode.NONE}}


@pytest.mark.parametrize("folder", ["/nowhere", "", "data", "{here}/"])
def test_any_other_folder_is_unknown_as_text(path: DataPath, folder: str) -> None:
    folder = folder.format(here=path.directory.path)
    assert move(path, (folder, "t", [0]), (folder, "no", [0])) == {
        "t": {0: ErrorCode.LOG_DIR_NOT_FOUND},
        "no": {0: ErrorCode.LOG_DIR_NOT_FOUND},
    }


def test_partitions_that_are_not_here(path: DataPath) -> None:
    here = path.directory.path
    assert move(path, (here, "t", [2, -1]), (here, "no", [0]), (here, "elsewhere", [0])) == {
        "t": {2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        "no": {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        "elsewhere": {0: ErrorCode.REPLICA_NOT_AVAILABLE},
    }


def test_a_topic_whose_folder_could_not_be_named_while_it_moves(path: DataPath) -> None:
    """KAFKA-4893: judged before the folder is."""
    for folder in (path.directory.path, "/nowhere"):
        assert move(path, (folder, LONGEST_NAME, [0])) == {LONGEST_NAME: {0: ErrorCode.INVALID_TOPIC_EXCEPTION}}
    assert move(path, ("/nowhere", "n" * 213, [0])) == {"n" * 213: {0: ErrorCode.LOG_DIR_NOT_FOUND}}
    assert move(path, ("/nowhere", "n" * 213, [10])) == {"n" * 213: {10: ErrorCode.INVALID_TOPIC_EXCEPTION}}


def test_of_a_partition_named_twice_the_last_folder_counts(path: DataPath) -> None:
    here = path.directory.path
    assert move(path, (here, "t", [0]), ("/x", "t", [0])) == {"t": {0: ErrorCode.LOG_DIR_NOT_FOUND}}
    assert move(path, ("/x", "t", [0]), (here, "t", [0])) == {"t": {0: ErrorCode.NONE}}


def test_a_partition_whose_log_could_not_be_opened(tmp_path: Path) -> None:
    (tmp_path / "t-0").write_text("no folder")
    path = DataPath(tmp_path, cluster_image(topic_image("t", 2)))
    here = path.directory.path
    assert move(path, (here, "t", [0, 1])) == {"t": {0: ErrorCode.KAFKA_STORAGE_ERROR, 1: ErrorCode.NONE}}
    path.close()


def test_a_move_that_cannot_begin(path: DataPath, caplog: pytest.LogCaptureFixture) -> None:
    """The other partitions move; the reason is in the log."""

    class Moves:
        def begin(self, partition: Partition, directory_id: bytes) -> None:
            if partition.partition == 0:
                raise StorageError(str(partition), "no room")

    path.services = path.services.replaced(directory_moves=Moves())
    here = path.directory.path
    assert move(path, (here, "t", [0, 1])) == {"t": {0: ErrorCode.KAFKA_STORAGE_ERROR, 1: ErrorCode.NONE}}
    assert "cannot be moved to" in caplog.text
    assert "no room" in caplog.text
