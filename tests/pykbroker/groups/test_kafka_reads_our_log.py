"""Kafka's own tool reads what the coordinator wrote: P-117."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pykbroker.coordination.partitioning import OFFSETS_TOPIC, coordinator_partition
from pykbroker.groups import offset_cleanup
from pykbroker.protocol.error_codes import ErrorCode
from tests.pykbroker.groups.rig import Rig
from tests.support.data_path import topic_id
from tests.support.kafka_jars import kafka_libs

pytestmark = pytest.mark.java


async def test_dump_log_decodes_groups_and_offsets_p_117(tmp_path: Path) -> None:
    """P-117: kafka-dump-log --offsets-decoder, on commits, a group with a member, an emptied group and tombstones."""
    libs = kafka_libs()
    rig = Rig(tmp_path)
    async with rig.running():
        member_id = await rig.stable()
        assert await rig.commit(7, member_id=member_id, generation_id_or_member_epoch=1) == ErrorCode.NONE
        assert await rig.commit(8, partition=1, member_id=member_id, generation_id_or_member_epoch=1) == ErrorCode.NONE
        [shard] = [shard for shard in rig.groups.runtime.shards.values() if shard.groups]
        [result] = offset_cleanup.delete_topics(shard, {"clicks": topic_id("clicks")})
        rig.groups.runtime.carry_out_in_batches(coordinator_partition("g", 5), shard, result)
    folder = tmp_path / f"{OFFSETS_TOPIC}-{coordinator_partition('g', 5)}"
    files = ",".join(str(path) for path in sorted(folder.glob("*.log")))
    run = subprocess.run(  # noqa: ASYNC221 - nothing else runs
        ["java", "-cp", f"{libs}/*", "org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", files],
        capture_output=True,
        text=True,
        check=False,
    )
    print(run.stdout, run.stderr)
    assert run.returncode == 0
    assert run.stdout.count('"type":"1"') + run.stdout.count('"type":1') >= 2
    assert member_id in run.stdout
    assert "isvalid: true" in run.stdout
    assert "isvalid: false" not in run.stdout
