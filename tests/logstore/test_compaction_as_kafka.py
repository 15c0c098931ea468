"""Compaction beside Apache Kafka's own cleaner: the same logs, cleaned by both, must have the same bytes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pykbroker.logstore.compaction import plan_cleaning
from tests.logstore.support import NOW_MS
from tests.logstore.test_compaction_histories import DELETE_RETENTION_MS, History
from tests.support.compaction import compact
from tests.support.java_programs import ask

pytestmark = pytest.mark.java

HISTORIES = 40
ROUNDS = 5


def content(folder: Path) -> dict[str, bytes]:
    """Records and aborted transactions, by name of the file."""
    files = (path for path in folder.iterdir() if path.suffix in (".log", ".txnindex"))
    return {path.name: path.read_bytes() for path in files if path.stat().st_size}


def test_as_kafka(tmp_path: Path) -> None:
    """P-161 to P-163: keys, tombstones, empty batches and markers, in several cleanings one after another."""
    questions: list[dict[str, Any]] = []
    expected: list[tuple[list[int], dict[str, bytes]]] = []
    for seed in range(HISTORIES):
        history = History(seed, tmp_path / f"{seed}")
        for number in range(ROUNDS):
            for _ in range(history.chance.randrange(3, 15)):
                history.step()
            history.reopen()
            copy = tmp_path / f"copy-{seed}-{number}" / "t-0"
            log, now_ms = history.log, NOW_MS + number * 600
            history.place.settle()
            shutil.copytree(tmp_path / f"{seed}" / "t-0", copy)
            first_dirty = 0 if history.clean_to is None else history.clean_to
            question = {"directory": str(copy), "first_dirty": first_dirty, "now_ms": now_ms}
            questions.append(question | {"delete_retention_ms": DELETE_RETENTION_MS})
            stable_offset = log.last_stable_offset(log.log_end_offset)
            plan = plan_cleaning(log, history.clean_to, stable_offset, now_ms)
            history.clean_to = compact(log, history.clean_to, stable_offset, now_ms)
            history.place.settle()
            expected.append(([plan.clean_bytes, plan.dirty_bytes], content(tmp_path / f"{seed}" / "t-0")))
        history.log.close_files()
    sizes = ask("CompactionCheck", questions)
    differing = [
        (question["directory"], theirs, ours)
        for question, of_kafka, (plan_bytes, ours) in zip(questions, sizes, expected, strict=True)
        if (theirs := content(Path(question["directory"]))) != ours or of_kafka != plan_bytes
    ]
    assert differing == []
