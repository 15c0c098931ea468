"""Hooks that compare the nodes' views while a run goes on. A difference between two nodes is a broken rule.

Nodes of the quorum report it themselves (`Host.quorum_observer`); of partitions, the public method by which a leader
appends is wrapped.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from pykbroker.controller.node import ControllerNode
from pykbroker.replication.partition import Partition
from tests.simulation.timeline import NODE

if TYPE_CHECKING:
    from tests.simulation.world import World


class Observed:
    """Leaderships and committed batches that the nodes of one run have reported.

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

    # The seam of ControllerNode, NodeObserver

    def on_leadership(self, node: ControllerNode) -> None:
        if node.is_leader:
            self.leads_quorum(node.known_leader()[1])

    def on_applied(self, node: ControllerNode, start_offset: int, end_offset: int) -> None:
        self.controllers[NODE.get()] = node
        if end_offset > start_offset:
            for batch in node.read_log(start_offset, end_offset):
                self.commits(batch.last_offset + 1, batch.epoch, zlib.crc32(b"\0".join(batch.values)))

    # Partitions

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While a run goes on: appends of leaders, wherever they come from."""
        original = Partition.append_as_leader

        def append_as_leader(partition: Partition, *arguments: Any, **options: Any) -> Any:
            result = original(partition, *arguments, **options)
            self.appends(partition.topic_id, partition.partition, partition.leader_epoch)
            return result

        with patch.object(Partition, "append_as_leader", append_as_leader):
            yield
