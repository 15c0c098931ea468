"""Records of an internal topic, as the stock kafka-dump-log decodes them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.kafka_jars import kafka_libs


def dumped(folder: Path, decoder: str) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Key and value of each record of a partition; the value is None for a tombstone.

    Args:
        decoder: the tool's option, such as `--transaction-log-decoder`.
    """
    files = ",".join(str(path) for path in sorted(folder.glob("*.log")))
    tool = ["org.apache.kafka.tools.DumpLogSegments", decoder, "--files", files]
    run = subprocess.run(
        ["java", "-cp", f"{kafka_libs()}/*", *tool], capture_output=True, text=True, check=False, timeout=120
    )
    assert run.returncode == 0, run.stderr
    assert "isvalid: false" not in run.stdout
    found = []
    for line in run.stdout.splitlines():
        _, _, rest = line.partition(" key: ")
        if rest:
            key, _, payload = rest.partition(" payload: ")
            found.append((json.loads(key), None if payload == "<DELETE>" else json.loads(payload)))
    return found
