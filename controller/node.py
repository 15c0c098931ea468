"""ControllerNode: one node of the metadata quorum, in trio.

It joins a driver of raft (`raft_driver`), a queue of commands (`command_queue`) and a publisher of images
(`image_publisher`): commands are planned on the newest image, raft replicates their records, and committed records are
applied and published as an image. The node also writes snapshots, downloads the leader's snapshots, and gives the
quorum's state to handlers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import trio

from pykbroker.controller.command_queue import TIMEOUT_MIN_MS, CommandQueue, not_leader, not_written, stopping
from pykbroker.controller.formatting import first_command
from pykbroker.controller.image_publisher import LARGE, ImageCallback, ImagePreparer, ImagePublisher
from pykbroker.controller.metadata.commands import Command, CommandRefused, ConfigRules, PlanContext
from pykbroker.controller.metadata.features import KRAFT_VERSION
from pykbroker.controller.metadata.image import ClusterImage, InconsistentMetadata
from pykbroker.controller.metadata.metadata_versions import METADATA_VERSION
from pykbroker.controller.raft import local_messages as local
from pykbroker.controller.raft.core import RaftCore
from pykbroker.controller.raft.log_view import BEGINNING, OffsetAndEpoch
from pykbroker.controller.raft.messages import NO_LEADER, Message
from pykbroker.controller.raft.output import Output
from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterSet
from pykbroker.controller.raft.roles import NEVER_MS, QuorumDescription, Role
from pykbroker.controller.raft_driver import RaftDriver
from pykbroker.controller.raft_storage import HOW_TO_REPAIR, TOPIC, CommittedBatch, RaftStorage
from pykbroker.controller.running_clock import RunningClock
from pykbroker.controller.settings import ControllerSettings as ControllerSettings
from pykbroker.controller.snapshot_file import Snapshot
from pykbroker.controller.snapshot_generator import SnapshotGenerator, image_of_snapshot
from pykbroker.controller.snapshot_installer import SnapshotInstaller
from pykbroker.controller.transport import Transport
from pykbroker.controller.turns import in_turns
from pykbroker.controller.voter_requests import VoterRequests
from pykbroker.logstore.errors import CorruptSegment, InconsistentDirectory, StorageError
from pykbroker.logstore.filesystem import FileSystem
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import TEXTS
from pykbroker.protocol.errors import DecodeError
from pykbroker.protocol.steps import Steps, finished

if TYPE_CHECKING:
    from pykbroker.controller.random_source import RandomSource
    from pykbroker.run_in_thread import RunInThread

log = logging.getLogger(__name__)

R = TypeVar("R")


class NodeObserver(Protocol):
    """Observer of a node's events, for a simulation or a trace, like etcd's TraceLogger. It changes nothing."""

    def on_leadership(self, node: ControllerNode) -> None:
        """Called when leader or epoch of the quorum have changed."""

    def on_applied(self, node: ControllerNode, start_offset: int, end_offset: int) -> None:
        """Called when the node has applied committed records; `node.read_log` has the batches between the offsets."""


class ControllerNode:
    """One node of the quorum. Call `open`, then `run` in a nursery, and `close` at the end.

    After `open` a single voter has loaded its image and leads. Commands are executed while `run` runs.

    Attributes:
        clock: clock for deadlines of other nodes.
        voter_requests: changes of the voters and of kraft.version.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        *,
        filesystem: FileSystem,
        config_rules: ConfigRules,
        random: RandomSource,
        wall_clock_ms: Callable[[], int],
        transport: Transport | None,
        run_in_thread: RunInThread = trio.to_thread.run_sync,
        observer: NodeObserver | None = None,
    ) -> None:
        """Opens no file; `open` does that.

        Args:
            wall_clock_ms: time of day in ms, for the timestamps of records.
            transport: connections to the other nodes of the quorum; None for a single node.
            run_in_thread: runs blocking work in a thread.
        """
        self.settings = settings
        self.clock = RunningClock(settings.running_tick_ms)
        self._filesystem = filesystem
        self._config_rules = config_rules
        self._random = random
        self._wall_clock_ms = wall_clock_ms
        self._transport = Transport() if transport is None else transport
        self._run_in_thread = run_in_thread
        self._observer = observer
        self.voter_requests = VoterRequests(self.step_or_resign, self._transport)
        self._installer = SnapshotInstaller(self._transport)
        self._queue = CommandQueue(settings.append_linger_ms)
        self._publisher = ImagePublisher(settings.supported_features[METADATA_VERSION][1])
        self._wakeup = trio.Event()
        self._leadership = trio.Event()
        self._advance = trio.Event()
        self._is_running = self._is_stopped = False
        self._storage: RaftStorage
        self._core: RaftCore
        self._driver: RaftDriver
        self._snapshots: SnapshotGenerator
        self._bootstrap: Command[Any]

    # Life

    def open(self, *, is_clean: bool = False) -> None:
        """Opens or creates the files, loads the image and joins the quorum. `is_clean`: the last stop was clean.

        Raises:
            StorageError: the files cannot be used; CorruptFile for damaged files, InconsistentDirectory for files of
                newer software.
        """
        try:
            self._open(is_clean=is_clean)
        except (DecodeError, InconsistentMetadata) as error:
            path = f"{self.settings.data_directory}/{TOPIC}-0"
            raise InconsistentDirectory(
                path, f"the metadata in it cannot be read: {error}: was it written by newer software?"
            ) from error
        except CorruptSegment as error:
            raise InconsistentDirectory(error.path, f"{error.reason}; {HOW_TO_REPAIR}") from error

    def _open(self, *, is_clean: bool) -> None:
        settings = self.settings
        self._storage = RaftStorage.open(
            settings.data_directory,
            filesystem=self._filesystem,
            settings=settings.storage,
            now_ms=self._wall_clock_ms(),
            is_clean=is_clean,
            is_sole_voter=settings.voters.ids == [settings.node_id],
        )
        first_values: list[bytes] = []
        newest = self._storage.newest_snapshot()
        if newest is not None:
            snapshot, content = newest
            if snapshot == BEGINNING:
                # The snapshot of the format step: its records are not in the log of the new cluster yet.
                newest, first_values = None, content.values
            else:
                self._publisher.publish(image_of_snapshot(snapshot, content), snapshot)
        is_new = self._storage.end_offset == 0
        self._bootstrap = first_command(self._filesystem, settings, first_values, is_new=is_new)
        key = ReplicaKey(settings.node_id, settings.directory_id)
        self._core = RaftCore(
            key,
            settings.voters,
            self._storage.log_view(),
            self._storage.state,
            settings.raft,
            self._random,
            control=sorted(self._storage.control_records(), key=itemgetter(0)),
            itself=Voter(key, settings.endpoints, settings.supported_features.get(KRAFT_VERSION, (0, 0))),
            bootstrap_ids=range(-2, -2 - settings.bootstrap_count, -1),
        )
        self._driver = RaftDriver(
            self._core,
            self._storage,
            self._transport,
            self,
            now_ms=self.clock.now_ms,
            wall_clock_ms=self._wall_clock_ms,
        )
        self._transport.set_voters(self._core.voters)
        self._snapshots = SnapshotGenerator(
            self._storage, settings, self._wall_clock_ms, self._run_in_thread, has_one=newest is not None
        )
        finished(self._run_cycle())

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Executes commands, drives timers and takes snapshots, until it is cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.clock.run)
                self._is_running = True
                task_status.started()
                while True:
                    await in_turns(self._run_cycle())
                    if self._snapshots.is_due(self.image, self._publisher.applied):
                        self._snapshots.is_writing = True
                        nursery.start_soon(self._take_snapshot)
                    if self._installer.is_due:
                        nursery.start_soon(self._install_snapshot)
                    self.voter_requests.start_probes(nursery)
                    if self._queue and self._can_plan and self._queue.linger_until_ms == NEVER_MS:
                        await trio.lowlevel.checkpoint()
                        continue
                    with trio.move_on_at(self._deadline()):
                        await self._wakeup.wait()
                    self._wakeup = trio.Event()
        finally:
            self._is_stopped, self._is_running = True, False
            self._queue.fail_all(stopping())

    def close(self) -> None:
        """Gives up leadership and closes the files. Call it after `run` has ended.

        Raises:
            StorageError: a file could not be written; the files are closed even then.
        """
        try:
            if self._driver.truncation_error is not None:
                self._driver.undo_append(self._driver.truncation_error)
            self._driver.step(local.Resign())
        finally:
            self._storage.close()

    async def hand_over(self, timeout_ms: int) -> None:
        """Resigns as leader and waits until another node leads. Call it before a clean stop, while `run` runs."""
        self.step(local.Resign())
        if len(self.voters) > 1:
            with trio.move_on_after(timeout_ms / 1000):
                while self._core.leader_id == NO_LEADER:
                    await self._leadership.wait()

    # The cluster's metadata

    @property
    def image(self) -> ClusterImage:
        """State of the cluster after the committed records that this node has applied."""
        return self._publisher.image

    def subscribe(self, callback: ImageCallback, prepare: ImagePreparer | None = None) -> None:
        """Calls `callback(old image, new image)` for each new image, in order.

        During the calls `new.delta` has the changes since `old`.

        While the node runs, an image with many new or changed partitions is given to `prepare` first, with the same
        arguments.
        If there is an image already, the callback is called at once, with the empty image as the old one. An exception
        of a subscriber ends the node, because the subscriber's state would no longer match the image.
        """
        self._publisher.subscribe(callback, prepare)

    async def submit(self, command: Command[R], timeout_ms: int) -> R:
        """Result of a command, after its records are committed, durable and applied, and all subscribers were called.

        Raises:
            CommandRefused: error code and text for the client. NOT_CONTROLLER: another node leads, nothing was done.
                REQUEST_TIMED_OUT: the command may still take effect. KAFKA_STORAGE_ERROR: its records could not be
                written. Other codes are those of the command.
        """
        if self._is_stopped:
            raise stopping()
        pending = self._queue.put(command)
        self._wakeup.set()
        with trio.move_on_after(max(timeout_ms, TIMEOUT_MIN_MS) / 1000):
            await pending.done.wait()
        if not pending.done.is_set():
            raise CommandRefused(ErrorCode.REQUEST_TIMED_OUT, TEXTS[ErrorCode.REQUEST_TIMED_OUT])
        failure, pending.failure = pending.failure, None
        if failure is not None:
            # Its traceback has frames with the pending command and with this local: neither may refer to it, or the
            # cycle keeps the command, which may be large, until the garbage collector finds it.
            try:
                raise failure
            finally:
                del failure
        result: R = pending.result
        return result

    async def applied(self, end_offset: int, timeout_ms: int) -> bool:
        """Waits until this node has applied the committed log up to an offset; False after `timeout_ms`."""
        with trio.move_on_after(max(timeout_ms, TIMEOUT_MIN_MS) / 1000):
            while self._publisher.applied.offset < end_offset:
                await self._advance.wait()
        return self._publisher.applied.offset >= end_offset

    # The quorum

    @property
    def is_leader(self) -> bool:
        """True if this node is the active controller."""
        return self._core.role is Role.LEADER

    async def leadership_changed(self) -> None:
        """Returns at the next change of the quorum's leader or epoch."""
        await self._leadership.wait()

    def known_leader(self) -> tuple[int, int]:
        """(node id of the leader, -1 while it is unknown; epoch)."""
        return self._core.leader_id, self._core.epoch

    def quorum_state(self) -> QuorumDescription:
        """Leader, epoch and high watermark; on the leader also the replicas (for DescribeQuorum).

        For each voter and observer: log end offset, and the times of its last fetch and of being caught up last, in ms
        of the wall clock, -1 for never.
        """
        now_ms = self.clock.now_ms()
        return self._core.describe(now_ms).shifted(self._wall_clock_ms() - now_ms)

    @property
    def voters(self) -> VoterSet:
        """The voters of the newest VotersRecord in the log, else those of the configuration."""
        return self._core.voters

    @property
    def kraft_version(self) -> int:
        """The finalized kraft.version: 1 when log and snapshots have the voters (KIP-853)."""
        return self._core.kraft_version

    @property
    def log_start(self) -> int:
        """First offset of the log; records before it are only in a snapshot."""
        return self._core.log.start.offset

    def read_log(self, start_offset: int, end_offset: int) -> Iterator[CommittedBatch]:
        """Batches of the log between two offsets, both at the edge of a batch and not below `log_start`.

        Raises:
            StorageError: the batches cannot be read.
        """
        return self._storage.read(start_offset, end_offset)

    def snapshot_slice(self, snapshot: OffsetAndEpoch, position: int, size_max: int) -> tuple[int, bytes] | None:
        """Size of a snapshot file of this node, and its bytes from a position on; None if it does not exist."""
        return self._storage.snapshot_slice(snapshot, position, size_max)

    def step(self, message: Message | local.LocalMessage) -> None:
        """Passes a message of another node, or of this one, to raft.

        Raises:
            StorageError: the output could not be written.
        """
        self._driver.step(message)
        self._wakeup.set()

    def step_or_resign(self, message: Message | local.LocalMessage) -> None:
        """As `step`, but a leader that cannot write resigns instead of raising StorageError."""
        self._driver.step_or_resign(message)
        self._wakeup.set()

    # What the driver reports (RaftListener)

    def on_output(self, output: Output) -> None:
        if output.fetch_snapshot is not None:
            self._installer.wanted = output.fetch_snapshot
            self._wakeup.set()
        if self.voter_requests.take(output):
            self._wakeup.set()

    def on_leadership(self) -> None:
        if self._observer is not None:
            self._observer.on_leadership(self)
        self._leadership.set()
        self._leadership = trio.Event()
        if not self.is_leader:
            self._queue.planned.clear()
            self._queue.fail_all(not_leader())

    def on_committed(self, high_watermark: int) -> None:
        """Publishes the images up to the high watermark: planned ones, and others by replaying the log.

        While the node runs, large ones are left to its task (`_apply_large`).
        """
        publisher, planned = self._publisher, self._queue.planned
        start_offset = publisher.applied.offset
        while publisher.applied.offset < high_watermark:
            if planned and planned[0].base_offset == publisher.applied.offset:
                if planned[0].end_offset > high_watermark:
                    break
                if self._is_running and publisher.must_prepare(planned[0].image, planned[0].record_count):
                    self._wakeup.set()
                    break
                _, end_offset, image = planned.popleft()
                publisher.publish(image, OffsetAndEpoch(end_offset, image.epoch))
            else:
                end_offset = self._replay_end(high_watermark)
                if self._is_running and end_offset - publisher.applied.offset >= LARGE:
                    self._wakeup.set()
                    break
                after, first, last = publisher.read(self._storage, end_offset)
                if self._is_running and after is not None and publisher.must_prepare(after, last.offset - first.offset):
                    # A few records may delete topics with thousands of partitions. The task reads them once more.
                    self._wakeup.set()
                    break
                publisher.publish_read(after, first, last)
        self._note_applied(start_offset)

    def _replay_end(self, high_watermark: int) -> int:
        """End of the records that were not planned here, from the applied ones on."""
        planned = self._queue.planned
        return min(planned[0].base_offset if planned else high_watermark, high_watermark)

    def _note_applied(self, start_offset: int) -> None:
        publisher = self._publisher
        self._advance.set()
        self._advance = trio.Event()
        self._queue.on_applied(publisher.image, publisher.applied.offset)
        if self._observer is not None:
            self._observer.on_applied(self, start_offset, publisher.applied.offset)

    def _apply_large(self) -> Steps[None]:
        """Applies committed records that `on_committed` has left to this task.

        Raises:
            StorageError: the records cannot be read.
        """
        publisher, planned = self._publisher, self._queue.planned
        while (start_offset := publisher.applied.offset) < (high_watermark := self._core.high_watermark):
            if planned and planned[0].base_offset == start_offset:
                if planned[0].end_offset > high_watermark:
                    return
                yield from publisher.prepare_in_steps(planned[0].image, planned[0].record_count)
                self.on_committed(self._core.high_watermark)
            else:
                image, first, last = yield from publisher.read_in_steps(self._storage, self._replay_end(high_watermark))
                if image is not None:
                    yield from publisher.prepare_in_steps(image, last.offset - first.offset)
                if publisher.publish_read(image, first, last):
                    self._note_applied(start_offset)

    def on_records_dropped(self, end_offset: int, error: StorageError) -> None:
        self._queue.on_records_dropped(self.image, end_offset, error)

    # One round

    def _deadline(self) -> float:
        """Time of the next round in seconds of trio's clock, infinite when nothing is due."""
        deadline_ms = min(self._core.next_deadline_ms, self._queue.linger_until_ms)
        return float("inf") if deadline_ms >= NEVER_MS else self.clock.trio_time(deadline_ms)

    def _run_cycle(self) -> Steps[None]:
        now_ms = self.clock.now_ms()
        self._driver.tick(now_ms)
        if self._publisher.applied.offset < self._core.high_watermark:
            # Either there are many of these records, or they could not be read when they were committed. A new leader
            # plans nothing before it has applied them, so no other event would try this again.
            try:
                yield from self._apply_large()
            except StorageError as error:
                log.debug("committed metadata still cannot be read: %s", error)
        if self._must_bootstrap or (self._queue and not (self._can_plan and self._queue.must_linger(now_ms))):
            yield from self._carry_out()
        yield from self._storage.reserve.tick(now_ms)

    @property
    def _can_plan(self) -> bool:
        """True if this node leads and has applied all records of earlier leaders, so that its image is the newest."""
        start_offset = self._core.epoch_start_offset
        return start_offset is not None and self._publisher.applied.offset > start_offset

    @property
    def _must_bootstrap(self) -> bool:
        """True if this node leads a new cluster whose first records are not written yet."""
        return self._can_plan and not self._queue.image.is_bootstrapped

    def _carry_out(self) -> Steps[None]:
        """Plans the waiting commands, each on the image after the previous one, and writes all records at once."""
        self._queue.linger_until_ms = NEVER_MS
        if not self.is_leader:
            self._queue.fail_all(not_leader(self._core.leader_id))
            return
        if not self._can_plan:
            return
        driver = self._driver
        if driver.truncation_error is not None:
            driver.undo_append(driver.truncation_error)
            if driver.truncation_error is not None:
                self._queue.fail_all(not_written(driver.truncation_error))
                return
        if self._must_bootstrap and not self._queue.is_first(self._bootstrap):
            self._queue.put(self._bootstrap, is_first=True)
        planning = yield from self._queue.plan_round(
            self._plan_context,
            base_offset=self._core.log.end_offset,
            epoch=self._core.epoch,
            timestamp_ms=self._wall_clock_ms,
        )
        if self._queue.finish_round(planning, self._core.log.end_offset, driver.propose):
            driver.write_proposed()
        self._queue.on_applied(self.image, self._publisher.applied.offset)

    def _plan_context(self, next_offset: int) -> PlanContext:
        voter_ids = frozenset(self.voters.ids)
        return self.settings.plan_context(next_offset, self._random, self._config_rules, voter_ids)

    # Snapshots

    async def _take_snapshot(self) -> None:
        applied = self._publisher.applied
        start = await self._snapshots.write(self.image, applied, self._core.history.records_at(applied.offset))
        if start is not None:
            self._driver.step(local.SnapshotTaken(start))

    async def _install_snapshot(self) -> None:
        """Downloads the leader's snapshot, and applies and publishes it. After a failure the next Fetch repeats it."""
        leader_id, snapshot = self._installer.take()
        found = await self._installer.install(
            self._core, self._storage, leader_id, snapshot, self._wall_clock_ms(), self.step_or_resign
        )
        if isinstance(found, Exception):
            self.step_or_resign(local.SnapshotFailed(leader_id, isinstance(found, StorageError)))
        if not isinstance(found, Snapshot):
            return
        self._publisher.applied = snapshot
        self._driver.step(local.SnapshotInstalled(snapshot, found.control))
        self._queue.image = image_of_snapshot(snapshot, found)
        self._publisher.replace(self._queue.image, snapshot)
        self._wakeup.set()
