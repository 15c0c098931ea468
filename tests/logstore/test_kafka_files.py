"""Files that Apache Kafka wrote: the same batches give the same bytes here, and a log of Kafka's goes on here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pykbroker.logstore.filesystem import OsFileSystem
from pykbroker.logstore.partition_log import AppendOrigin
from pykbroker.protocol.records.control import ControlRecordType
from tests.logstore.support import NOW_MS, Place, append, batch, marker, offsets

GOLDEN = Path(__file__).parent / "kafka_4_3_1" / "golden-0"
WRITTEN_MS = 1_795_225_666_000


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "partition.metadata"}


def test_the_same_batches_give_the_same_files(tmp_path: Path) -> None:
    """P-57, P-165: log, both indexes, transaction index, producer snapshots, leader epochs."""
    log = Place(OsFileSystem(), str(tmp_path)).open(index_interval_bytes=150, now_ms=WRITTEN_MS)
    source = Place(OsFileSystem(), str(tmp_path / "source"))
    shutil.copytree(GOLDEN, tmp_path / "source" / "golden-0")
    for one in source.open(name="golden-0", is_clean=True, now_ms=WRITTEN_MS).iter_batches():
        log.append_as_follower(one.to_bytes(), WRITTEN_MS)
    log.close()
    assert files(tmp_path / "t-0") == files(GOLDEN)


@pytest.mark.parametrize("is_clean", [True, False])
def test_we_go_on_where_kafka_stopped(tmp_path: Path, is_clean: bool) -> None:
    """P-142, P-171: sequences and transactions are known; recovery makes the same files again."""
    shutil.copytree(GOLDEN, tmp_path / "golden-0")
    if not is_clean:
        for path in (tmp_path / "golden-0").glob("*index"):
            path.unlink()
        (tmp_path / "golden-0" / f"{85:020d}.snapshot").unlink()
    place = Place(OsFileSystem(), str(tmp_path))
    log = place.open(name="golden-0", is_clean=is_clean, index_interval_bytes=150, now_ms=WRITTEN_MS)
    assert (log.log_start_offset, log.log_end_offset) == (0, 85)
    log.close()
    assert files(tmp_path / "golden-0") == files(GOLDEN)
    [aborted] = log.aborted_transactions(0, 85)
    open_transaction = log.last_stable_offset(85)
    assert aborted.last_offset < open_transaction < 85
    [producer_id] = [
        key for key, entry in log.producers.producers.items() if entry.current_txn_first_offset == open_transaction
    ]
    epoch = log.producers.producers[producer_id].epoch
    end = marker(ControlRecordType.COMMIT, producer_id, epoch)
    log.append_as_leader(end, 0, WRITTEN_MS, AppendOrigin.COORDINATOR)
    assert log.last_stable_offset(86) == 86
    append(log, batch(2, timestamp=NOW_MS))
    assert log.log_end_offset == 88
    assert offsets(log)[-3:] == [85, 86, 87]
