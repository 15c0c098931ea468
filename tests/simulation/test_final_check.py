"""The rules for the logs at the end find what is lost, surplus or at another place."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykbroker.protocol.records.batch import iter_batches
from tests.simulation.history import History, Sent
from tests.simulation.logs import FinalCheck
from tests.simulation.producers import batch_of

CLIENT: Any = SimpleNamespace(world=SimpleNamespace(wall_clock_ms=lambda: 1_000_000))


def log_of(values: list[bytes], missing: tuple[int, ...] = ()) -> bytes:
    """A log with a batch for each value; those at the offsets that are missing are left out."""
    data = b""
    for offset, value in enumerate(values):
        batch = bytearray(batch_of(CLIENT, [value]))
        struct.pack_into(">q", batch, 0, offset)
        if offset not in missing:
            data += batch
    assert len(list(iter_batches(data))) == len(values) - len(missing)
    return data


def complaints(log: bytes, acknowledged: list[bytes], sent: list[bytes]) -> list[str]:
    """Findings of the check of one partition, on a single machine."""
    found: list[str] = []
    disk = SimpleNamespace(directories={"/data/t-0"}, files={"/data/t-0/0.log": SimpleNamespace(content=log)})
    world: Any = SimpleNamespace(
        machines={"n1": SimpleNamespace(name="n1", disk=disk, log_directories=["/data"])},
        replicas_of=lambda _topic, _partition: ["n1"],
        broken=found.append,
    )
    history = History(world)
    history.sent = {value: Sent("t", 0, offset) for offset, value in enumerate(acknowledged)}
    history.sent |= {value: Sent("t", 0, None) for value in sent}
    FinalCheck(cast("Any", world), history, {"t": 1}, {}).run()
    return found


ALL = [b"c1/0/%d" % number for number in range(5)]


def test_all_that_was_acknowledged_is_there() -> None:
    """Records sent without an answer may be there."""
    assert complaints(log_of(ALL), ALL[:4], ALL[4:]) == []


@pytest.mark.parametrize(
    ("values", "missing", "complaint"),
    [
        (ALL[:4], (), "b'c1/0/4' was acknowledged at t-0 and is lost"),
        ([*ALL, ALL[4]], (), "b'c1/0/4' is there twice: at t-0 offset 5 and at offset 4"),
        ([*ALL, b"c9/0/9"], (), "b'c9/0/9' is at t-0 offset 5 and was never sent"),
        ([*ALL, b"c1/0/5", b"c1/0/6"], (5,), "t-0: offset 6 follows 4 in the log"),
    ],
)
def test_what_is_wrong_at_the_end_of_a_log(values: list[bytes], missing: tuple[int, ...], complaint: str) -> None:
    unanswered = [value for value in values if value.startswith(b"c1/") and value not in ALL]
    assert complaint in complaints(log_of(values, missing), ALL, unanswered)
