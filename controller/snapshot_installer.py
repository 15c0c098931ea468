"""SnapshotInstaller: replaces this node's log by the leader's snapshot, with one download at a time."""

from __future__ import annotations

import logging

import trio

from pykbroker.controller.raft.core import RaftCore
from pykbroker.controller.raft.log_view import OffsetAndEpoch
from pykbroker.controller.raft_storage import RaftStorage
from pykbroker.controller.snapshot_file import Snapshot
from pykbroker.controller.transport import NoResponse, Step, Transport
from pykbroker.logstore.errors import StorageError

log = logging.getLogger(__name__)


class SnapshotInstaller:
    """Download and installation of a snapshot, for a follower whose log ends before the leader's log starts.

    Attributes:
        wanted: the leader and its snapshot, from `Output.fetch_snapshot`, until the download begins.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._under_way = trio.CancelScope()
        self.wanted: tuple[int, OffsetAndEpoch] | None = None

    @property
    def is_due(self) -> bool:
        return self.wanted is not None and self._transport.can_download

    def take(self) -> tuple[int, OffsetAndEpoch]:
        """Returns the wanted snapshot and clears `wanted`: its download begins now."""
        assert self.wanted is not None
        taken, self.wanted = self.wanted, None
        return taken

    async def install(
        self,
        core: RaftCore,
        storage: RaftStorage,
        leader_id: int,
        snapshot: OffsetAndEpoch,
        wall_clock_ms: int,
        step: Step,
    ) -> Snapshot | NoResponse | StorageError | None:
        """Downloads a snapshot and starts the log at its end; cancels an earlier download, from a deposed leader.

        Returns:
            The snapshot's content, the error that prevented the installation, or None if a later download cancelled
            this one.
        """
        self._under_way.cancel()
        content = None
        try:
            with trio.CancelScope() as self._under_way:
                content = await self._transport.download(leader_id, core.epoch, snapshot, core.key, step)
            if content is None:
                return None
            if core.leader_id != leader_id or core.high_watermark >= snapshot.offset:
                raise NoResponse("another node leads now, or the log has reached the end of the snapshot")
            return storage.install_snapshot(snapshot, content, wall_clock_ms)
        except (NoResponse, StorageError) as error:
            log.warning(
                "the metadata snapshot at offset %d of leader %d was not installed: %s",
                snapshot.offset,
                leader_id,
                error,
            )
            return error
