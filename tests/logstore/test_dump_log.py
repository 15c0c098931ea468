"""The stock kafka-dump-log reads every file that we write, live and after a clean stop."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Any

import pytest

from pykbroker.logstore.partition_log import AppendOrigin, PartitionLog
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.control import ControlRecordType
from pykbroker.protocol.records.record import Record
from tests.logstore.support import NOW_MS, Place, append, batch, marker
from tests.support.compaction import compact
from tests.support.kafka_jars import kafka_libs

pytestmark = pytest.mark.java

COMPLAINTS = re.compile(r"mismatch|corrupt|not found|exception|error|out of order|invalid", re.IGNORECASE)


def dump(folder: str, *options: str) -> str:
    """Output of kafka-dump-log for all files in a log's directory."""
    names = sorted(os.listdir(folder))
    files = [
        f"{folder}/{name}"
        for name in names
        if name.endswith((".log", ".index", ".timeindex", ".snapshot", ".txnindex"))
    ]
    command = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_libs()}/*"]
    command += ["org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(files), *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    output = result.stdout + result.stderr
    # The logging framework says on every run that it found no configuration.
    output = "\n".join(line for line in output.splitlines() if "log4j" not in line.lower() and "SLF4J" not in line)
    assert result.returncode == 0, output
    return output


def fill(log: PartitionLog) -> None:
    """Appends of all kinds over several segments and leader epochs."""
    sequence = 0
    for number in range(120):
        idempotent: dict[str, Any] = {
            "producer_id": 1000 + number % 3,
            "producer_epoch": 1,
            "base_sequence": number // 3 * 5,
        }
        append(
            log,
            batch(5, value_size=200, timestamp=NOW_MS + number * 10, codec=number % 5, **idempotent),
            epoch=number // 50,
        )
    transaction: dict[str, Any] = {"producer_id": 5000, "producer_epoch": 0, "is_transactional": True}
    for kind in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
        for _ in range(3):
            append(log, batch(2, base_sequence=sequence, **transaction), epoch=3)
            sequence += 2
        log.append_as_leader(marker(kind, 5000, 0, coordinator_epoch=2), 3, NOW_MS, AppendOrigin.COORDINATOR)


@pytest.mark.parametrize("is_closed", [False, True], ids=["live", "closed"])
def test_kafka_dump_log_reads_our_files(disk: Place, is_closed: bool) -> None:
    """P-57 (snapshots)."""
    log = disk.open(segment_bytes=8_000, index_interval_bytes=1000)
    fill(log)
    end_offset = log.log_end_offset
    folder = f"{disk.folder}/t-0"
    if is_closed:
        log.close()
    else:
        log.flush()
        disk.settle()  # as the broker does within a second of the last append
    assert len(log.segment_base_offsets) >= 3
    output = dump(folder, "--deep-iteration", "--print-data-log")
    assert not COMPLAINTS.search(output), output
    assert output.count("Dumping") == sum(name.endswith(("log", "index", "snapshot")) for name in os.listdir(folder))
    assert len(re.findall(r"^baseOffset: ", output, re.MULTILINE)) == 120 + 8
    assert f"lastOffset: {end_offset - 1} " in output
    assert "endTxnMarker: ABORT coordinatorEpoch: 2" in output
    assert re.search(r"producerId: 5000 firstOffset: \d+ lastOffset: \d+ lastStableOffset: \d+", output)
    assert re.search(r"producerId: 1001 producerEpoch: 1 coordinatorEpoch: -1", output)
    # The tool says this of the first batch of every segment but the first, in Kafka's own files too.
    assert len(re.findall(r"is followed by", output)) == len(
        re.findall(r"^  -1 is followed by \d+$", output, re.MULTILINE)
    )
    sane = dump(folder, "--index-sanity-check")
    assert not COMPLAINTS.search(sane.replace("passed sanity check", "")), sane
    assert sane.count("passed sanity check") == sum(
        name.endswith((".index", ".timeindex")) for name in os.listdir(folder)
    )
    verified = dump(folder, "--verify-index-only")
    assert not COMPLAINTS.search(verified), verified


def test_kafka_dump_log_reads_what_recovery_made(disk: Place) -> None:
    """P-171: indexes and snapshots that recovery has made again."""
    log = disk.open(segment_bytes=8_000, index_interval_bytes=1000)
    fill(log)
    for name in disk.names():
        if name.endswith(("index", "snapshot")):
            os.unlink(f"{disk.folder}/t-0/{name}")
    last = f"{log.segment_base_offsets[-1]:020d}.log"
    log.close_files()
    disk.overwrite(last, disk.content(last)[:-7])
    log = disk.open(segment_bytes=8_000, index_interval_bytes=1000)
    end_offset = log.log_end_offset
    log.close()
    output = dump(f"{disk.folder}/t-0", "--deep-iteration")
    assert not COMPLAINTS.search(output), output
    assert f"lastOffset: {end_offset - 1} " in output


def test_kafka_dump_log_reads_compacted_segments(disk: Place) -> None:
    """P-161 to P-163: partial and empty batches, delete horizons, a rebuilt index of aborted transactions."""
    log = disk.open(segment_bytes=2000, index_interval_bytes=200, cleanup_policy=frozenset({"compact"}))
    for number in range(60):
        records = [Record(0, NOW_MS + number, b"k%d" % (number % 7 + i), b"v" * 20) for i in range(3)]
        records.append(Record(0, NOW_MS + number, b"gone%d" % (number % 2), None if number > 30 else b"x"))
        append(log, build_batch(records, codec=number % 5, producer_id=7, producer_epoch=0, base_sequence=number * 4))
    for sequence, kind in ((0, ControlRecordType.ABORT), (2, ControlRecordType.COMMIT)):
        transactional = {"producer_id": 9, "producer_epoch": 0, "base_sequence": sequence, "is_transactional": True}
        append(log, batch(2, key=b"t", **transactional))
        log.append_as_leader(marker(kind, 9, 0), 0, NOW_MS, AppendOrigin.COORDINATOR)
    log.roll(NOW_MS)
    end_offset = log.log_end_offset
    checkpoint = compact(log, None, end_offset, NOW_MS)
    compact(log, checkpoint, end_offset, NOW_MS)
    log.close()
    log.delete_due_files(NOW_MS * 2)
    output = dump(f"{disk.folder}/t-0", "--deep-iteration", "--print-data-log")
    # Compaction leaves gaps; the tool reports each of them.
    assert not COMPLAINTS.search(output), output
    assert re.search(r"deleteHorizonMs: OptionalLong\[\d+\]", output)
    assert len(re.findall(r"^\| offset: ", output, re.MULTILINE)) < 60
    sane = dump(f"{disk.folder}/t-0", "--index-sanity-check")
    assert not COMPLAINTS.search(sane), sane
