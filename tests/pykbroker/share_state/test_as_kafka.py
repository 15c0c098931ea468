"""Kafka's own classes beside ours: its combination of state batches, and its tool on our log."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from pykbroker.share_state.batches import combine_batches
from pykbroker.share_state.state import ACKNOWLEDGED, ARCHIVED, AVAILABLE, StateBatch
from tests.pykbroker.share_state.test_coordinator import KEY, Rig
from tests.support.dump_log import dumped
from tests.support.kafka_jars import kafka_libs

pytestmark = pytest.mark.java

CASES = 3_000

COMBINE = """
import java.io.*;
import java.util.*;
import org.apache.kafka.coordinator.share.PersisterStateBatchCombiner;
import org.apache.kafka.server.share.persister.PersisterStateBatch;

public class Combine {
    static List<PersisterStateBatch> batches(String text) {
        List<PersisterStateBatch> found = new ArrayList<>();
        for (String item : text.trim().split(" ")) {
            if (item.isEmpty()) continue;
            String[] n = item.split(",");
            found.add(new PersisterStateBatch(
                Long.parseLong(n[0]), Long.parseLong(n[1]), Byte.parseByte(n[2]), Short.parseShort(n[3])));
        }
        return found;
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(";", -1);
            long start = Long.parseLong(parts[2]);
            var combined = new PersisterStateBatchCombiner(batches(parts[0]), batches(parts[1]), start);
            StringJoiner joiner = new StringJoiner(" ");
            for (PersisterStateBatch b : combined.combineStateBatches())
                joiner.add(b.firstOffset() + "," + b.lastOffset() + "," + b.deliveryState() + "," + b.deliveryCount());
            out.append(joiner).append('\\n');
        }
        System.out.print(out);
    }
}
"""


def text_of(batches: list[StateBatch]) -> str:
    return " ".join(",".join(map(str, batch)) for batch in batches)


def test_batches_are_combined_as_kafka_does(tmp_path: Path) -> None:
    """Batch for batch, in Kafka's order: snapshots have the same bytes."""
    jars = f"{kafka_libs()}/*"
    source = tmp_path / "Combine.java"
    source.write_text(COMBINE)
    generator = random.Random(20261124)

    def some(count: int) -> list[StateBatch]:
        batches = []
        for _ in range(count):
            first = generator.randrange(25)
            state = generator.choice([AVAILABLE, ACKNOWLEDGED, ARCHIVED])
            batches.append(StateBatch(first, first + generator.randrange(8), state, generator.randint(1, 3)))
        return batches

    cases = [
        (some(generator.randrange(6)), some(generator.randrange(6)), generator.randint(-1, 12)) for _ in range(CASES)
    ]
    lines = "".join(f"{text_of(old)};{text_of(new)};{start}\n" for old, new, start in cases)
    run = subprocess.run(
        ["java", "-cp", jars, str(source)], input=lines, capture_output=True, text=True, check=False, timeout=120
    )
    assert run.returncode == 0, run.stderr
    kafkas = run.stdout.split("\n")[:CASES]
    for case, expected in zip(cases, kafkas, strict=True):
        assert text_of(combine_batches(*case)) == expected, case


def written(root: Path) -> list[Path]:
    """The partitions of `__share_group_state` that have records."""
    folders = sorted(root.glob("__share_group_state-*"))
    return [folder for folder in folders if any(path.stat().st_size for path in folder.glob("*.log"))]


async def test_dump_log_decodes_share_group_state(tmp_path: Path) -> None:
    """A snapshot, updates, a snapshot after five of them, and a tombstone."""
    kafka_libs()
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.coordinator.initialize(KEY, 3, 0)
        for offset in range(6):
            await rig.write_at(offset, state_epoch=3)
        await rig.coordinator.delete(KEY)
    entries = [entry for folder in written(tmp_path) for entry in dumped(folder, "--share-group-state-decoder")]
    assert [key["type"] for key, _ in entries] == ["0", "1", "1", "1", "1", "1", "0", "0"]
    assert {(key["data"]["groupId"], key["data"]["partition"]) for key, _ in entries} == {("g", 1)}
    assert entries[-1][1] is None
    snapshot = entries[-2][1]
    assert snapshot is not None
    assert snapshot["data"]["stateBatches"] == [
        {"firstOffset": 0, "lastOffset": 5, "deliveryState": ACKNOWLEDGED, "deliveryCount": 1}
    ]
    assert (snapshot["data"]["snapshotEpoch"], snapshot["data"]["stateEpoch"]) == (1, 3)
