"""Kafka's own tool reads what the coordinator wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from pykbroker.coordination.partitioning import TRANSACTION_TOPIC, coordinator_partition
from tests.pykbroker.transactions.rig import FIRST_PRODUCER_ID, PARTITIONS, Rig
from tests.support.dump_log import dumped
from tests.support.kafka_jars import kafka_libs

pytestmark = pytest.mark.java


@pytest.mark.parametrize(("level", "version"), [(0, 0), (2, 1)])
async def test_dump_log_decodes_transactions_p_142(tmp_path: Path, level: int, version: int) -> None:
    """P-142: both versions of the value, and a tombstone."""
    kafka_libs()
    rig = Rig(tmp_path, {"transactional.id.expiration.ms": "1000"}, level=level)
    async with rig.running():
        known = await rig.begin()
        await rig.add(known, 0, 2)
        await rig.end(known, version=5 if level else 4)
        await trio.sleep(3601)
    folder = tmp_path / f"{TRANSACTION_TOPIC}-{coordinator_partition('x', PARTITIONS)}"
    entries = dumped(folder, "--transaction-log-decoder")
    assert [key for key, _ in entries] == [{"type": "0", "data": {"transactionalId": "x"}}] * 5
    values = [value for _, value in entries]
    assert values[-1] is None
    states = [value["data"] for value in values if value is not None]
    assert {value["version"] for value in values if value is not None} == {str(version)}
    assert [state["transactionStatus"] for state in states] == [0, 1, 2, 4]
    assert [state["producerId"] for state in states] == [FIRST_PRODUCER_ID] * 4
    assert [state["producerEpoch"] for state in states] == ([0, 0, 1, 1] if level else [0, 0, 0, 0])
    assert [state["transactionPartitions"] for state in states] == [
        None,
        [{"topic": "t", "partitionIds": [0, 2]}],
        [{"topic": "t", "partitionIds": [0, 2]}],
        [],
    ]
