"""What every node believes is looked at while a run goes on: wrappers around a few methods of the broker.

They change nothing; they tell `Observed` who leads which epoch and what is committed, and a difference between two
nodes is a broken rule.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pykbroker.controller.node import ControllerNode
from pykbroker.replication.partition import Partition
from tests.simulation.timeline import NODE

if TYPE_CHECKING:
    from tests.simulation.world import World


class Observed:
    """What the nodes of one run did and said.

    Attributes:
        controllers: each machine's newest node of the quorum.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.controllers: dict[str, ControllerNode] = {}
        self._raft_leaders: dict[int, str] = {}
        self._partition_leaders: dict[tuple[bytes, int, int], str] = {}
        # End offset of a committed batch to (epoch, checksum of its records).
        self._committed: dict[int, tuple[int, int]] = {}
        self._epochs_led = 0

    def leads_quorum(self, epoch: int) -> None:
        """This machine leads the quorum in an epoch."""
        name = NODE.get()
        before = self._raft_leaders.setdefault(epoch, name)
        if before != name:
            self._world.broken(f"{name} leads the quorum in epoch {epoch}, which {before} has led")

    def appends(self, topic_id: bytes, partition: int, epoch: int) -> None:
        """This machine appends as the leader of a partition in an epoch."""
        name = NODE.get()
        before = self._partition_leaders.setdefault((topic_id, partition, epoch), name)
        if before != name:
            self._world.broken(f"{name} appends to partition {partition} in leader epoch {epoch}, as {before} did")

    def commits(self, end_offset: int, epoch: int, checksum: int) -> None:
        """This machine takes a batch of the metadata log for committed."""
        before = self._committed.setdefault(end_offset, (epoch, checksum))
        if before != (epoch, checksum):
            self._world.broken(
                f"{NODE.get()} takes another metadata batch for committed at {end_offset}: of epoch {epoch} with "
                f"{checksum:08x}, before it was of {before[0]} with {before[1]:08x}"
            )

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While a run goes on."""
        with (
            _wrapped(ControllerNode, "_apply", self._apply),
            _wrapped(ControllerNode, "_on_leadership", self._on_leadership),
            _wrapped(Partition, "append_as_leader", self._append_as_leader),
        ):
            yield

    def _apply(self, original: Callable[..., Any], node: ControllerNode, *arguments: Any) -> Any:
        start = node._applied.offset
        result = original(node, *arguments)
        end = node._applied.offset
        self.controllers[NODE.get()] = node
        if end > start:
            for batch in node._storage.read(start, end):
                checksum = zlib.crc32(b"\0".join(batch.values))
                self.commits(batch.last_offset + 1, batch.epoch, checksum)
        return result

    def _on_leadership(self, original: Callable[..., Any], node: ControllerNode, *arguments: Any) -> Any:
        if node.is_leader:
            self.leads_quorum(node._core.epoch)
        return original(node, *arguments)

    def _append_as_leader(
        self, original: Callable[..., Any], partition: Partition, *arguments: Any, **options: Any
    ) -> Any:
        result = original(partition, *arguments, **options)
        self.appends(partition.topic_id, partition.partition, partition.leader_epoch)
        return result


@contextmanager
def _wrapped(owner: type, name: str, around: Callable[..., Any]) -> Iterator[None]:
    original = getattr(owner, name)

    def wrapper(self: Any, *arguments: Any, **options: Any) -> Any:
        return around(original, self, *arguments, **options)

    setattr(owner, name, wrapper)
    try:
        yield
    finally:
        setattr(owner, name, original)
