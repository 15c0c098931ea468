"""Any call to the file system under the metadata quorum may fail: commands are refused, and successful ones stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import trio

from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.image import ClusterImage
from pykbroker.controller.metadata.topics import CreateTopics, DeleteTopics, NewTopic, TopicReference
from pykbroker.controller.node import ControllerNode
from pykbroker.controller.raft.local_messages import Resign
from pykbroker.logstore.errors import StorageError
from pykbroker.protocol.error_codes import ErrorCode
from tests.controller.nodes import DATA, make_node, register_broker, running
from tests.support.fake_filesystem import FakeFileSystem

Result = TypeVar("Result")

SETTINGS: dict[str, Any] = {"snapshot_bytes": 500}
WRITES = frozenset({"append", "write_file"})


def check_refusal(refused: CommandRefused) -> None:
    assert refused.error.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "Input/output error" in str(refused)


async def run_here(work: Callable[[], Result]) -> Result:
    """In place of a thread, whose calls would be counted in another order each time."""
    return work()


class Scenario:
    """Topics are created and deleted; `answered` has those that exist by the responses to clients."""

    def __init__(self, faults: range, methods: frozenset[str] | None) -> None:
        self.filesystem = FakeFileSystem()
        self.filesystem.make_directory(DATA)
        self.filesystem.fault_clock = 0
        self.filesystem.faults = faults
        self.filesystem.fault_methods = methods
        self.answered: set[str] = set()
        # Topic ids of one life must not come again in the next.
        self.lives = 0

    def check(self, image: ClusterImage) -> None:
        assert set(image.topics_by_name) == self.answered

    async def register(self, node: ControllerNode) -> None:
        for _ in range(20):
            try:
                await register_broker(node)
                return
            except CommandRefused as refused:
                check_refusal(refused)

    async def create(self, node: ControllerNode, name: str) -> None:
        for _ in range(20):
            try:
                (result,) = await node.submit(CreateTopics([NewTopic(name)]), 1000)
                assert not result.error.is_failure, result
                self.answered.add(name)
                break
            except CommandRefused as refused:
                check_refusal(refused)
                self.check(node.image)
        self.check(node.image)

    async def delete(self, node: ControllerNode, name: str) -> None:
        for _ in range(20):
            try:
                await node.submit(DeleteTopics([TopicReference(name=name)]), 1000)
                self.answered.discard(name)
                break
            except CommandRefused as refused:
                check_refusal(refused)
                self.check(node.image)
        self.check(node.image)

    async def run(self, *, stops_cleanly: bool) -> None:
        """One life of a node: a start that is repeated if it fails, commands, and a stop that may fail."""
        for _ in range(20):
            try:
                # A start that fails is repeated; the next life opens the log again.
                make_node(self.filesystem).open()
            except StorageError:
                continue
            break
        self.lives += 1
        try:
            async with running(
                self.filesystem,
                stops_cleanly=stops_cleanly,
                seed=self.lives,
                run_in_thread=run_here,
                **SETTINGS,
            ) as node:
                self.check(node.image)
                await self.register(node)
                for number in range(6):
                    await self.create(node, f"{len(self.answered)}-{number}-{stops_cleanly}")
                    if number % 3 == 2:
                        await self.delete(node, min(self.answered))
        except StorageError:
            pass

    async def whole(self) -> None:
        await self.run(stops_cleanly=False)
        await self.run(stops_cleanly=True)
        self.filesystem.faults = ()
        async with running(self.filesystem) as node:
            self.check(node.image)


@pytest.mark.parametrize(
    ("length", "methods"), [(1, None), (4, None), (8, WRITES)], ids=["once", "some times", "no space"]
)
async def test_every_call_may_fail(length: int, methods: frozenset[str] | None) -> None:
    """A command that cannot be written is refused with KAFKA_STORAGE_ERROR, and has no effect."""
    healthy = Scenario(range(0), methods)
    await healthy.whole()
    count = healthy.filesystem.fault_clock
    assert count > 20
    for number in range(0, count, length):
        scenario = Scenario(range(number, number + length), methods)
        try:
            await scenario.whole()
        except BaseException as error:
            error.add_note(f"with call {number} failing")
            raise


async def test_what_a_failed_write_left_is_cut_off_before_the_next_term_begins() -> None:
    """The first record of a term comes without a command."""
    filesystem = FakeFileSystem()
    async with running(filesystem) as node:
        await register_broker(node)
        filesystem.fault_methods = frozenset({"sync", "truncate"})
        filesystem.faults = range(1 << 30)
        with pytest.raises(CommandRefused) as refused:
            await node.submit(CreateTopics([NewTopic("refused")]), 1000)
        check_refusal(refused.value)
        filesystem.faults = ()
        node.step(Resign())
        await trio.sleep(10)
        assert node.is_leader
        (result,) = await node.submit(CreateTopics([NewTopic("taken")]), 1000)
        assert not result.error.is_failure
    async with running(filesystem) as node:
        assert set(node.image.topics_by_name) == {"taken"}
