"""SnapshotDownload: brings a leader's checkpoint to this node, one at a time."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from pykbroker.controller.raft.core import RaftCore
from pykbroker.controller.raft.log_view import OffsetAndEpoch
from pykbroker.controller.raft.quorum import ReplicaKey
from pykbroker.controller.raft_storage import RaftStorage
from pykbroker.controller.snapshot_file import Snapshot
from pykbroker.logstore.errors import StorageError
from pykbroker.protocol.errors import ProtocolError

log = logging.getLogger(__name__)

Download = Callable[[int, OffsetAndEpoch, ReplicaKey], Awaitable[bytes]]
"""(leader, snapshot, this replica) to the bytes of the leader's checkpoint file."""


class SnapshotDownload:
    """What a follower needs that is behind the beginning of its leader's log.

    Attributes:
        wanted: the leader and its checkpoint, as the state machine asked for it and nobody has begun to get it.
    """

    def __init__(self, download: Download | None) -> None:
        """`download` is None for a node that has nobody to follow."""
        self._download = download
        self._under_way = trio.CancelScope()
        self.wanted: tuple[int, OffsetAndEpoch] | None = None

    @property
    def is_due(self) -> bool:
        return self.wanted is not None and self._download is not None

    def take(self) -> tuple[int, OffsetAndEpoch]:
        """What is wanted; somebody begins to get it now."""
        assert self.wanted is not None
        taken, self.wanted = self.wanted, None
        return taken

    async def install(
        self, core: RaftCore, storage: RaftStorage, leader_id: int, snapshot: OffsetAndEpoch, wall_clock_ms: int
    ) -> Snapshot | Exception | None:
        """The checkpoint, which log and files begin with now; or why it did not come; None if another is being fetched.

        Who is still giving an earlier one is let go: it does not lead any more.
        """
        from pykbroker.controller.node_client import NodeUnreachable
        from pykbroker.controller.snapshot_exchange import SnapshotUnavailable

        assert self._download is not None
        self._under_way.cancel()
        content = None
        try:
            with trio.CancelScope() as self._under_way:
                content = await self._download(leader_id, snapshot, core.key)
            if content is None:
                return None
            if core.leader_id != leader_id or core.high_watermark >= snapshot.offset:
                raise SnapshotUnavailable("it is not wanted any more")
            return storage.install_snapshot(snapshot, content, wall_clock_ms)
        except (SnapshotUnavailable, NodeUnreachable, ProtocolError, StorageError) as error:
            log.warning("the checkpoint %d of node %d was not taken over: %s", snapshot.offset, leader_id, error)
            return error
