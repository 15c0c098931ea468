"""Hooks that compare the nodes' views while a run goes on. A difference between two nodes is a broken rule.

Nodes of the quorum report it themselves (`Host.quorum_observer`); of partitions, the public method by which a leader
appends is wrapped.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from pykbroker.controller.node import ControllerNode
from pykbroker.logstore.log_directories import LogDirectories
from pykbroker.protocol.uuids import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from pykbroker.replication.partition import Partition
from pykbroker.replication.partitions import Partitions
from tests.simulation.timeline import NODE

if TYPE_CHECKING:
    from tests.simulation.world import World

RESERVED_DIRECTORIES = (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, LOST_DIRECTORY)
"""Ids that name no directory."""


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
            if len(self._world.machines[NODE.get()].log_directories) > 1:
                self._leaders_have_their_logs(node)

    # Log directories

    def loses_directory(self, path: str, lost: list[tuple[str, int]]) -> None:
        """This machine has taken a log directory offline, with these logs."""
        machine = self._world.machines[NODE.get()]
        if path not in machine.failed_directories and not machine.is_failing:
            self._world.broken(f"{machine.name} takes {path} offline, which has not failed")
        elsewhere = [key for key in lost if f"{path}/{key[0]}-{key[1]}" not in machine.disk.directories]
        if elsewhere:
            self._world.broken(f"{machine.name} takes {path} offline with {elsewhere}, which are not in it")

    def loses_replicas(self, lost: set[tuple[str, int]], wanted: set[tuple[str, int]]) -> None:
        """This machine serves the replicas `lost` no more; those of `wanted` were in the directory that is offline."""
        if lost != wanted:
            self._world.broken(f"{NODE.get()} takes {sorted(lost)} offline instead of {sorted(wanted)}")

    def _leaders_have_their_logs(self, node: ControllerNode) -> None:
        """No leader is on a broker that has registered without the log directory of its replica."""
        image = node.image
        for topic in image.topics_by_name.values():
            for partition in topic.partitions.values():
                broker = image.brokers.get(partition.leader)
                place = partition.directory_on(partition.leader)
                if broker is None or place is None or place in RESERVED_DIRECTORIES or place in broker.log_dirs:
                    continue
                self._world.broken(
                    f"broker {partition.leader} leads {topic.name}-{partition.partition} without the directory of its "
                    "replica"
                )

    # Partitions

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While a run goes on: appends of leaders, wherever they come from, and directories that go offline."""
        original = Partition.append_as_leader
        directory_offline, replicas_offline = LogDirectories.take_offline, Partitions.take_offline

        def take_directory_offline(directories: LogDirectories, directory_id: bytes) -> list[tuple[str, int]]:
            path = directories.online[directory_id].path
            lost = directory_offline(directories, directory_id)
            self.loses_directory(path, lost)
            return lost

        def take_replicas_offline(partitions: Partitions, keys: Iterable[tuple[str, int]]) -> None:
            before = {(each.topic, each.partition) for each in partitions.all()}
            replicas_offline(partitions, keys)
            after = {(each.topic, each.partition) for each in partitions.all()}
            self.loses_replicas(before - after, before.intersection(keys))

        def append_as_leader(partition: Partition, *arguments: Any, **options: Any) -> Any:
            result = original(partition, *arguments, **options)
            self.appends(partition.topic_id, partition.partition, partition.leader_epoch)
            return result

        with (
            patch.object(Partition, "append_as_leader", append_as_leader),
            patch.object(LogDirectories, "take_offline", take_directory_offline),
            patch.object(Partitions, "take_offline", take_replicas_offline),
        ):
            yield
