"""KIP-835: the active controller writes empty records, by which the high watermark of an idle quorum moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from pykbroker.controller.idle_records import write_no_ops
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.controller.node import ControllerNode
from pykbroker.controller.raft.local_messages import Resign
from pykbroker.logstore.errors import StorageError
from tests.controller.nodes import DATA, register_broker, running
from tests.support.fake_filesystem import FakeFileSystem
from tests.support.in_place import run_in_place

FOLDER = f"{DATA}/__cluster_metadata-0"


@asynccontextmanager
async def writing(filesystem: FakeFileSystem, interval_ms: int, **settings: Any) -> AsyncIterator[ControllerNode]:
    async with running(filesystem, run_in_thread=run_in_place, **settings) as node, trio.open_nursery() as nursery:
        await register_broker(node)
        nursery.start_soon(write_no_ops, node, interval_ms)
        yield node
        nursery.cancel_scope.cancel()


async def test_a_record_at_each_interval_changes_nothing_but_the_offset() -> None:
    async with writing(FakeFileSystem(), 500) as node:
        before = node.image
        await trio.sleep(5.25)
        after = node.image
        assert after.offset == before.offset + 10
        assert node.quorum_state().high_watermark == after.offset + 1
        assert (after.brokers, after.features) == (before.brokers, before.features)


async def test_other_records_do_not_delay_it() -> None:
    """As in Kafka, whose task of this name also writes when the controller is not idle."""
    async with writing(FakeFileSystem(), 1000) as node:
        before = node.image.offset
        for number in range(11):
            await trio.sleep(0.5)
            await node.submit(CreateTopics([NewTopic(f"t{number}", assignments=[(0, [1])])]), 1000)
        assert node.image.offset == before + 11 * 2 + 5


async def test_an_idle_log_has_snapshots() -> None:
    filesystem = FakeFileSystem()
    async with writing(filesystem, 500, snapshot_interval_ms=60_000) as node:
        await trio.sleep(190)
        assert sum(entry.name.endswith(".checkpoint") for entry in filesystem.list(FOLDER)) == 2
        assert node.log_start > 0


async def test_after_an_error_the_next_one_comes_in_five_minutes() -> None:
    filesystem = FakeFileSystem()
    async with writing(filesystem, 500) as node:
        before = node.image.offset
        filesystem.fail_next["sync"] = StorageError(FOLDER, "input/output error")
        await trio.sleep(299)
        assert node.image.offset == before
        await trio.sleep(3)
        assert node.image.offset > before


async def test_only_a_leader_writes(caplog: pytest.LogCaptureFixture) -> None:
    async with writing(FakeFileSystem(), 500) as node:
        await trio.sleep(1.25)
        node.step(Resign())
        before = node.image.offset
        with trio.move_on_after(60):
            while not node.is_leader:
                assert node.image.offset == before
                await trio.sleep(0.1)
        await trio.sleep(2)
        assert node.image.offset > before
        assert not caplog.records
