"""Moves of replicas between the log directories of a broker (AlterReplicaLogDirs, KIP-113): the tasks that do them.

`directory_move` has the decisions; this module reads, waits and reports. Slices of the log are read in a thread, except
the last one, and appended in turns of about a millisecond.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from pykbroker.logstore.errors import LogError, StorageError
from pykbroker.protocol.records.errors import RecordError
from pykbroker.replication.directory_move import DirectoryMove, Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.logstore.log_directories import LogDirectories
    from pykbroker.replication.partition import Partition
    from pykbroker.replication.partitions import Partitions
    from pykbroker.replication.throttle import ReplicationThrottle
    from pykbroker.run_in_thread import RunInThread
    from pykbroker.wall_clock import WallClock

log = logging.getLogger(__name__)

POLL_S = 0.1
"""Seconds between two checks of moves that wait for the throttle or for the controller."""
RETRY_S = 1.0
"""Seconds before the next attempt after a failed step."""


class DirectoryMoves:
    """The moves of a broker with several log directories. Call `apply` with each image, after `Partitions.apply`.

    Args:
        directories: log directories of the broker.
        partitions: its replicas.
        image: returns the newest image.
        on_assignment: called when the directory of a replica is to be reported to the controller.
        throttle: `replica.alter.log.dirs.io.max.bytes.per.second`.
        run_in_thread: runs blocking work in a thread.
        clock: time of day, for log files.
        worker_count: number of moves that can read at the same time (`num.replica.alter.log.dirs.threads`).
    """

    def __init__(
        self,
        directories: LogDirectories,
        partitions: Partitions,
        image: Callable[[], ClusterImage],
        on_assignment: Callable[[], None],
        throttle: ReplicationThrottle,
        run_in_thread: RunInThread,
        clock: WallClock,
        worker_count: int,
    ) -> None:
        self._directories = directories
        self._partitions = partitions
        self._image = image
        self._on_assignment = on_assignment
        self._throttle = throttle
        self._run_in_thread = run_in_thread
        self._clock = clock
        self._worker_count = worker_count
        self._node_id = partitions.environment.node_id
        self._moves: dict[tuple[str, int], DirectoryMove] = {}
        # Moves for which a worker executes a step now.
        self._busy: set[DirectoryMove] = set()
        self._wake = trio.Event()

    def target_of(self, topic: str, partition: int) -> bytes | None:
        """Id of the directory to report to the controller for a moving replica; None before the copy is complete."""
        move = self._moves.get((topic, partition))
        return move.target if move is not None and move.is_assigned and self._is_current(move) else None

    def begin(self, partition: Partition, directory_id: bytes) -> None:
        """Begins the move of a replica to another directory; it replaces a move to a third one.

        The replica's present directory cancels a move.

        Raises:
            StorageError: the copy cannot be created.
        """
        key = partition.topic, partition.partition
        directories = self._directories
        if directories.future_id_of(*key) not in (None, directory_id):
            self._cancel_move(partition)
        if directory_id in (directories.id_of(*key), directories.future_id_of(*key)):
            return
        future = directories.create_future(
            *key, directory_id, partition.topic_id, partition.log.config, self._clock.now_ms()
        )
        log.info("%s moves from %s to %s", partition, partition.log.path, future.path)
        self._add(partition, DirectoryMove(partition, future, directory_id, self._assigned(partition)))

    def _cancel_move(self, partition: Partition) -> None:
        key = partition.topic, partition.partition
        self._moves.pop(key, None)
        partition.future = None
        log.info("the move of %s ends", partition)
        try:
            self._directories.drop_future(*key, self._clock.now_ms())
        except StorageError as error:
            log.error("the copy of %s could not be deleted: %s", partition, error)
            partition.on_storage_error(error)
        # The target of the earlier move may have been reported to the controller already.
        self._on_assignment()

    def _add(self, partition: Partition, move: DirectoryMove) -> None:
        partition.future = move.future
        self._moves[move.key] = move
        self._wake.set()

    def apply(self, old: ClusterImage, new: ClusterImage) -> None:
        """Continues moves: those that a start has found, and those whose new directory the metadata has."""
        self._resume()
        if self._moves:
            self._wake.set()

    def _resume(self) -> None:
        for key, future in self._directories.futures.items():
            partition = self._partitions.get(*key)
            if partition is None or partition.future is future:
                continue
            target = self._directories.future_id_of(*key)
            assert target is not None
            future.config = partition.log.config
            move = DirectoryMove(partition, future, target, self._assigned(partition))
            log.info("%s continues to move from %s to %s", partition, partition.log.path, future.path)
            try:
                # Before the log gets records: after a crash it may end below the copy, in the same leader epoch.
                move.align(self._clock.now_ms())
            except LogError as error:
                log.error("the copy of %s cannot be used: %s", partition, error)
                self._cancel_move(partition)
            else:
                self._add(partition, move)

    def _assigned(self, partition: Partition) -> bytes | None:
        topic = self._image().topics_by_name.get(partition.topic)
        found = None if topic is None else topic.partitions.get(partition.partition)
        return None if found is None else found.directory_on(self._node_id)

    def _is_current(self, move: DirectoryMove) -> bool:
        return (
            self._moves.get(move.key) is move
            and move.partition.future is move.future
            and self._partitions.get(*move.key) is move.partition
            and self._directories.future(*move.key) is move.future
        )

    async def run(self) -> None:
        """Moves replicas until it is cancelled."""
        async with trio.open_nursery() as nursery:
            for _ in range(self._worker_count):
                nursery.start_soon(self._run_moves)

    async def _run_moves(self) -> None:
        while True:
            wake = self._wake
            has_progress = False
            for move in list(self._moves.values()):
                if move in self._busy or (move.not_before > trio.current_time() and self._is_current(move)):
                    continue
                self._busy.add(move)
                try:
                    has_progress |= await self._take_next_step(move)
                finally:
                    self._busy.discard(move)
                await trio.lowlevel.checkpoint()
            if has_progress:
                continue
            with trio.move_on_after(POLL_S if self._moves else float("inf")):
                await wake.wait()
            if self._wake is wake:
                self._wake = trio.Event()
            # `Partitions.open_offline` changes replicas without a new image.
            self._resume()

    async def _take_next_step(self, move: DirectoryMove) -> bool:
        """Does the next step of a move; False if there is none for now."""
        if not self._is_current(move):
            self._remove_move(move)
            return True
        try:
            move.align(self._clock.now_ms())
            was_assigned = move.is_assigned
            step = move.next_step(
                self._assigned(move.partition),
                is_throttled=self._throttle.is_exceeded(trio.current_time()),
                is_cleaning=self._partitions.cleaned == move.key,
            )
            if move.is_assigned and not was_assigned:
                self._on_assignment()
            if step is Step.COPY:
                await self._copy(move)
            elif step is Step.SYNC:
                await self._sync(move)
            elif step is Step.REPLACE:
                self._replace(move)
        except (LogError, RecordError) as error:
            self._on_failure(move, error)
            return False
        return step is not Step.WAIT

    def _on_failure(self, move: DirectoryMove, error: LogError | RecordError) -> None:
        log.error("%s cannot be moved for now: %s", move.partition, error)
        move.not_before = trio.current_time() + RETRY_S
        if isinstance(error, StorageError):
            move.partition.on_storage_error(error)
        if not self._is_current(move):
            return
        if self._directories.get(*move.key) is not move.partition.log:
            # It was renamed for its deletion, and neither the copy nor the log could be renamed after that.
            self._partitions.take_offline([move.key])

    def _remove_move(self, move: DirectoryMove) -> None:
        if self._moves.get(move.key) is move:
            del self._moves[move.key]
            if move.partition.future is move.future:
                # The target directory has failed. The controller may have it already.
                move.partition.future = None
                self._on_assignment()

    async def _copy(self, move: DirectoryMove) -> None:
        records = move.read()
        if records is None:
            move.skip(self._clock.now_ms())
            return
        offset = move.future.log_end_offset
        try:
            if len(records) < move.slice_bytes:
                # The end of the log, which is in memory: an await would let the log grow further meanwhile.
                data = records.read()
            else:
                data = await self._run_in_thread(records.read)
        finally:
            records.release()
        if not self._is_current(move) or move.future.log_end_offset != offset:
            return
        began = trio.current_time()
        move.take(data, self._clock.now_ms())
        move.on_slice(trio.current_time() - began)
        self._throttle.record(len(data), began)

    async def _sync(self, move: DirectoryMove) -> None:
        end_offset = move.future.log_end_offset
        work = move.future.begin_flush()
        failure: LogError | None = None
        if work is not None:
            try:
                await self._run_in_thread(work.run)
            except LogError as error:
                failure = error
            finally:
                work.finish()
        if move.future.recovery_point < end_offset and self._is_current(move):
            # After a failed sync no later one proves that the records are on the disk.
            self._restart_copy(move)
        if failure is not None:
            raise failure
        move.on_synced()

    def _restart_copy(self, move: DirectoryMove) -> None:
        log.warning("%s is copied to %s once more: a sync has failed", move.partition, move.future.path)
        self._cancel_move(move.partition)
        self.begin(move.partition, move.target)
        self._moves[move.key].not_before = trio.current_time() + RETRY_S

    def _replace(self, move: DirectoryMove) -> None:
        partition = move.partition
        old_path = partition.log.path
        partition.replace_log_by_future(self._directories.replace_by_future(*move.key, self._clock.now_ms()))
        del self._moves[move.key]
        log.info("%s has moved from %s to %s", partition, old_path, partition.log.path)
