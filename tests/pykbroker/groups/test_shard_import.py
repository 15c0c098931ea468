"""Import of a shard's modules, in a process of its own: those of this one are imported already."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pykbroker.groups.coordinator import SHARD_MODULES

NEW_MODULES = """
import json, sys
import pykbroker.node.broker_server, pykbroker.handlers.find_coordinator
from pykbroker.groups.coordinator import GroupCoordinator

def modules():
    return {name for name in sys.modules if name.startswith("pykbroker")}

counts, known = [], modules()
for _ in GroupCoordinator.import_shard():
    counts.append(len(modules() - known))
    known = modules()
import pykbroker.groups.assignors.streams.sticky, pykbroker.groups.consumer.groups, pykbroker.groups.shard
import pykbroker.groups.share.groups, pykbroker.groups.streams.groups
print(json.dumps({"counts": counts, "rest": sorted(modules() - known)}))
"""


def test_the_modules_of_a_shard_are_imported_in_steps() -> None:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", NEW_MODULES]
    answer = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    found = json.loads(answer.stdout)
    assert len(found["counts"]) == len(SHARD_MODULES)
    assert min(found["counts"]) > 0
    assert max(found["counts"]) < sum(found["counts"]) / 4
    assert found["rest"] == []
