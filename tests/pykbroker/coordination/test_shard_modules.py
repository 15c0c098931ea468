"""Import of a shard's modules, in a process of its own: those of this one are imported already."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pykbroker.coordination.partitioning import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from pykbroker.groups import coordinator as groups
from pykbroker.share_state import coordinator as share_state
from pykbroker.transactions import coordinator as transactions

NEW_MODULES = """
import json, sys
from pathlib import Path

import trio

import pykbroker.node.broker_server, pykbroker.handlers.find_coordinator
from pykbroker.coordination.partitioning import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from pykbroker.groups.coordinator import GroupCoordinator
from pykbroker.protocol.records.batch import frames_of
from pykbroker.share_state.coordinator import ShareCoordinator
from pykbroker.transactions.coordinator import TransactionCoordinator
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
        super().__init__(Path(folder), cluster_image(*topics))
        config, environment = self.services.config, self.environment()
        if name == OFFSETS_TOPIC:
            self.coordinator = GroupCoordinator(config, environment, None, None)
        elif name == SHARE_STATE_TOPIC:
            self.coordinator = ShareCoordinator(config, environment)
        else:
            self.coordinator = TransactionCoordinator(
                config, environment, next_producer_id=None, write_marker=None, connect=None
            )

    def under_test(self):
        return self.coordinator

async def main():
    topic = topic_image(name, 3)
    rig = Rig(topic) if case == "records" else Rig()
    assert last not in sys.modules
    if case == "records":
        from pykbroker.coordination.partition_writer import append_records

        for number in range(3):
            append_records(rig.partitions.get(name, number), frames_of([(b"!", None)]), 0, NOW_MS)
    rounds = Round()
    trio.lowlevel.add_instrument(rounds)
    async with rig.running():
        if case == "asked":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(rig.coordinator.runtime.import_shard)
                nursery.start_soon(rig.coordinator.runtime.import_shard)
        if case != "records":
            rig.change(topic)
        if case == "asked":
            assert len(rig.coordinator.runtime.shards) == 3
        while rig.coordinator.runtime.is_loading:
            await trio.lowlevel.checkpoint()
        assert len(rig.coordinator.runtime.shards) == 3
    assert last in sys.modules
    print(json.dumps(rounds.counts))

folder, name, case, last = sys.argv[1:]
trio.run(main, clock=ImportClock())
"""


@pytest.mark.parametrize("case", ["asked", "created", "records"])
@pytest.mark.parametrize(
    ("topic", "names"),
    [
        (OFFSETS_TOPIC, groups.SHARD_MODULES),
        (TRANSACTION_TOPIC, transactions.SHARD_MODULES),
        (SHARE_STATE_TOPIC, share_state.SHARD_MODULES),
    ],
)
def test_the_modules_of_a_shard_are_imported_in_steps(
    tmp_path: Path, topic: str, names: tuple[str, ...], case: str
) -> None:
    """By FindCoordinator, by new partitions, and by logs that are read; several at a time import no more in a step."""
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", NEW_MODULES, str(tmp_path), topic, case, names[-1]]
    answer = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    counts = json.loads(answer.stdout)
    # A log's load imports its own module first, with groups in a step of its own.
    assert len(counts) == len(names) + (topic == OFFSETS_TOPIC and case != "asked")
    assert max(counts) <= sum(counts) / 4
