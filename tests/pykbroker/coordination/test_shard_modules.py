"""Import of a shard's modules, in a process of its own: those of this one are imported already."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pykbroker.groups.coordinator import SHARD_MODULES

NEW_MODULES = """
import json, sys
from pathlib import Path

import trio

import pykbroker.node.broker_server, pykbroker.handlers.find_coordinator
from pykbroker.coordination.partition_writer import append_records
from pykbroker.coordination.partitioning import OFFSETS_TOPIC
from pykbroker.groups.coordinator import GroupCoordinator
from pykbroker.protocol.records.batch import frames_of
from tests.support.coordinator_rig import CoordinatorRig
from tests.support.data_path import NOW_MS, cluster_image, topic_image

def modules():
    return {name for name in sys.modules if name.startswith("pykbroker")}

class Round(trio.abc.Instrument):
    # The steps of all tasks that are ready, before anything is read from a socket again.
    def __init__(self):
        self.counts, self.known = [], modules()

    def before_io_wait(self, timeout):
        if new := modules() - self.known:
            self.counts.append(len(new))
            self.known |= new

class ImportClock(trio.abc.Clock):
    # An import takes a second for each module, anything else no time.
    def start_clock(self):
        pass

    def current_time(self):
        return float(len(sys.modules))

    def deadline_to_sleep_time(self, deadline):
        return max(deadline - self.current_time(), 0.0)

class Rig(CoordinatorRig):
    def __init__(self, *topics):
        super().__init__(Path(sys.argv[1]), cluster_image(*topics))
        self.groups = GroupCoordinator(self.services.config, self.environment(), None, None)

    def under_test(self):
        return self.groups

async def main(case):
    topic = topic_image(OFFSETS_TOPIC, 3)
    rig = Rig(topic) if case == "records" else Rig()
    if case == "records":
        for number in range(3):
            append_records(rig.partitions.get(OFFSETS_TOPIC, number), frames_of([(b"!", None)]), 0, NOW_MS)
    assert "pykbroker.groups.shard" not in sys.modules
    rounds = Round()
    trio.lowlevel.add_instrument(rounds)
    async with rig.running():
        if case == "asked":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(rig.groups.runtime.import_shard)
                nursery.start_soon(rig.groups.runtime.import_shard)
        if case != "records":
            rig.change(topic)
        if case == "asked":
            assert len(rig.groups.runtime.shards) == 3
        while rig.groups.runtime.is_loading:
            await trio.lowlevel.checkpoint()
        assert len(rig.groups.runtime.shards) == 3
    print(json.dumps(rounds.counts))

trio.run(main, sys.argv[2], clock=ImportClock())
"""


@pytest.mark.parametrize("case", ["asked", "created", "records"])
def test_the_modules_of_a_shard_are_imported_in_steps(tmp_path: Path, case: str) -> None:
    """By FindCoordinator, by new partitions, and by logs that are read; several at a time import no more in a step."""
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", NEW_MODULES, str(tmp_path), case]
    answer = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    counts = json.loads(answer.stdout)
    assert len(counts) == len(SHARD_MODULES) + (case != "asked")  # a log's load imports its own module first
    assert max(counts) < sum(counts) / 4
