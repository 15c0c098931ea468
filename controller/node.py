"""ControllerNode: joins raft and metadata, and is the only file here that knows trio.

It plans commands on the newest image, proposes their records, and does what RaftCore's outputs ask for, in their order:
persist, send, apply. Commands that wait at the same moment go into the log with one write and one sync, which runs
right here: a sync of some hundred bytes took 0.1 ms where this was measured, less than a trip to a thread and back.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from operator import itemgetter
from typing import Any, TypeVar

import trio

from pykbroker.controller.formatting import first_command
from pykbroker.controller.metadata.commands import Command, CommandRefused, ConfigRules, RandomSource
from pykbroker.controller.metadata.features import KRAFT_VERSION
from pykbroker.controller.metadata.image import EMPTY_IMAGE, ClusterImage, InconsistentMetadata
from pykbroker.controller.metadata.image_builder import apply_records
from pykbroker.controller.metadata.record_framing import decode_record, encode_records
from pykbroker.controller.proposals import (
    ROUND_SIZE_MAX,
    TIMEOUT_MIN_MS,
    Linger,
    Proposal,
    Uncommitted,
    not_leader,
    not_written,
    stopping,
)
from pykbroker.controller.raft import local_messages as local
from pykbroker.controller.raft.core import RaftCore
from pykbroker.controller.raft.log_view import BEGINNING, OffsetAndEpoch
from pykbroker.controller.raft.messages import NO_LEADER, FetchResponse, Message
from pykbroker.controller.raft.output import Envelope, Output
from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterSet
from pykbroker.controller.raft.roles import NEVER_MS, QuorumDescription, Role
from pykbroker.controller.raft_storage import TO_MEND, TOPIC, RaftStorage
from pykbroker.controller.running_clock import RunningClock
from pykbroker.controller.settings import ControllerSettings as ControllerSettings
from pykbroker.controller.snapshot_download import Download, SnapshotDownload
from pykbroker.controller.snapshot_file import Snapshot
from pykbroker.controller.snapshot_taker import SnapshotTaker, image_of_snapshot
from pykbroker.controller.voter_requests import Probe, VoterRequests
from pykbroker.logstore.errors import CorruptSegment, InconsistentDirectory, StorageError
from pykbroker.logstore.filesystem import FileSystem
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.errors import DecodeError

log = logging.getLogger(__name__)

R = TypeVar("R")

ImageCallback = Callable[[ClusterImage, ClusterImage], None]

BATCH_SIZE_MAX = 8 << 20
"""Kafka's limit for one batch of the metadata log (KafkaRaftClient); a node could not fetch a larger one."""


class ControllerNode:
    """One node of the metadata quorum: `open`, then `run` in a nursery, at last `close`.

    After `open` a quorum of one has its image loaded and leads; commands are carried out once `run` runs.
    `clock` has the time in which deadlines of other nodes are.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        *,
        filesystem: FileSystem,
        config_rules: ConfigRules,
        random: RandomSource,
        wall_clock_ms: Callable[[], int],
        send: Callable[[Envelope], None] | None = None,
        download: Download | None = None,
        probe: Probe | None = None,
        on_voters: Callable[[VoterSet], None] | None = None,
        run_in_thread: Callable[[Callable[[], None]], Awaitable[None]] = trio.to_thread.run_sync,
    ) -> None:
        """`wall_clock_ms` stamps records; `send` takes messages for other nodes and may drop them; `download` gets the
        bytes of a leader's checkpoint; `probe` asks a node for its versions; `on_voters` is told who votes, first
        and whenever that changes; `run_in_thread` does blocking work.
        """
        self.settings = settings
        self._filesystem = filesystem
        self._config_rules = config_rules
        self._random = random
        self._wall_clock_ms = wall_clock_ms
        self._send_to_peer = send
        self._download = SnapshotDownload(download)
        self.voter_requests = VoterRequests(self.request, probe, on_voters)
        self._run_in_thread = run_in_thread
        self._image = EMPTY_IMAGE
        self._planning_image = EMPTY_IMAGE
        self._subscribers: list[ImageCallback] = []
        self._queue: deque[Proposal] = deque()
        self._linger = Linger(settings.append_linger_ms)
        self._waiting: deque[Proposal] = deque()
        self._uncommitted: deque[Uncommitted] = deque()
        self._applied = OffsetAndEpoch(0, 0)
        self.clock = RunningClock(settings.running_tick_ms)
        self._wakeup = trio.Event()
        self._leadership = trio.Event()
        self._advance = trio.Event()
        self._is_stopped = False
        # Why the log may hold more than was agreed on: what a failed write left could not be cut off yet.
        self._leftover: StorageError | None = None
        self._storage: RaftStorage
        self._core: RaftCore
        self._snapshots: SnapshotTaker

    # Life

    def open(self, *, is_clean: bool = False) -> None:
        """Opens or makes the files, loads the image and joins the quorum. `is_clean`: the last stop was in order.

        Raises:
            StorageError: the files cannot be used; CorruptFile where they are damaged, InconsistentDirectory where
                newer software wrote them.
        """
        try:
            self._open(is_clean=is_clean)
        except (DecodeError, InconsistentMetadata) as error:
            path = f"{self.settings.data_directory}/{TOPIC}-0"
            raise InconsistentDirectory(
                path, f"the metadata in it cannot be read: {error}: was it written by newer software?"
            ) from error
        except CorruptSegment as error:
            raise InconsistentDirectory(error.path, f"{error.reason}; {TO_MEND}") from error

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
                # The checkpoint of the format step: its records are the first of a new cluster, to be written yet.
                newest, first_values = None, content.values
            else:
                self._image = image_of_snapshot(snapshot, content)
                self._applied = snapshot
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
        self.voter_requests.tell_voters(self._core.voters)
        self._snapshots = SnapshotTaker(
            self._storage, settings, self._wall_clock_ms, self._run_in_thread, has_one=newest is not None
        )
        self._perform(self._core.tick(self.clock.now_ms()))
        self._cycle()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carries out commands, lets time pass, takes snapshots; until it is cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.clock.run)
                task_status.started()
                while True:
                    self._cycle()
                    if self._snapshots.is_due(self._image, self._applied):
                        self._snapshots.is_writing = True
                        nursery.start_soon(self._take_snapshot)
                    if self._download.is_due:
                        nursery.start_soon(self._install_snapshot)
                    self.voter_requests.start_probes(nursery)
                    if self._queue and self._can_plan and self._linger.until_ms == NEVER_MS:
                        await trio.lowlevel.checkpoint()
                        continue
                    with trio.move_on_at(self._deadline()):
                        await self._wakeup.wait()
                    self._wakeup = trio.Event()
        finally:
            self._is_stopped = True
            self._fail_all(stopping())

    def close(self) -> None:
        """Gives up leadership and closes the files. To be called when `run` has ended.

        Raises:
            StorageError: something could not be written; the files are closed all the same.
        """
        try:
            if self._leftover is not None:
                self._take_back(self._leftover)
            self._perform(self._core.step(local.Resign(), self.clock.now_ms()))
        finally:
            self._storage.close()

    # What others use

    @property
    def image(self) -> ClusterImage:
        """What is committed and applied here."""
        return self._image

    @property
    def is_leader(self) -> bool:
        """Whether this node is the active controller."""
        return self._core.role is Role.LEADER

    async def leadership_changed(self) -> None:
        """Returns when this node begins or ceases to lead, the next time after the call."""
        await self._leadership.wait()

    def subscribe(self, callback: ImageCallback) -> None:
        """Calls `callback(old image, new image)` for each new image, in order; `new.delta` is what changed since old.

        If there is an image already, it is called at once with the empty image as the old one. What it raises ends the
        controller: nobody would know any more what this node believes.
        """
        self._subscribers.append(callback)
        if self._image is not EMPTY_IMAGE:
            from pykbroker.controller.metadata.image_delta import delta_between

            image = apply_records(
                self._image,
                (),
                offset=self._image.offset,
                epoch=self._image.epoch,
                timestamp_ms=self._image.timestamp_ms,
            )
            image.delta = delta_between(EMPTY_IMAGE, image)
            callback(EMPTY_IMAGE, image)

    async def submit(self, command: Command[R], timeout_ms: int) -> R:
        """The result of a command, once its records are committed, durable and applied, and every subscriber knows.

        Raises:
            CommandRefused: with the code and the text for the client. NOT_CONTROLLER: another node leads, nothing was
                done. REQUEST_TIMED_OUT: it may still be done. KAFKA_STORAGE_ERROR: it could not be written. Others as
                the command says.
        """
        if self._is_stopped:
            raise stopping()
        proposal = Proposal(command)
        self._queue.append(proposal)
        self._wakeup.set()
        with trio.move_on_after(max(timeout_ms, TIMEOUT_MIN_MS) / 1000):
            await proposal.done.wait()
        if not proposal.done.is_set():
            raise CommandRefused(ErrorCode.REQUEST_TIMED_OUT, "The request timed out.")
        if proposal.failure is not None:
            raise proposal.failure
        result: R = proposal.result
        return result

    def quorum_state(self) -> QuorumDescription:
        """Leader, epoch, high watermark; on the leader also each voter and observer with its log end offset and when it
        fetched and was caught up last (wall clock, -1 for never). For DescribeQuorum, which only the leader answers."""
        now_ms = self.clock.now_ms()
        return self._core.describe(now_ms).shifted(self._wall_clock_ms() - now_ms)

    @property
    def voters(self) -> VoterSet:
        """Who votes, as far as this node knows: by the newest record in its log, or as configured."""
        return self._core.voters

    @property
    def kraft_version(self) -> int:
        """The finalized kraft.version: 1 when log and checkpoints say who votes (KIP-853)."""
        return self._core.kraft_version

    async def applied(self, end_offset: int, timeout_ms: int) -> bool:
        """Waits until the log is committed and applied here up to an offset; whether it came to it in time."""
        with trio.move_on_after(max(timeout_ms, TIMEOUT_MIN_MS) / 1000):
            while self._applied.offset < end_offset:
                await self._advance.wait()
        return self._applied.offset >= end_offset

    def known_leader(self) -> tuple[int, int]:
        """Node id of the leader, -1 while nobody is known to lead, and the epoch."""
        return self._core.leader_id, self._core.epoch

    @property
    def log_start(self) -> int:
        """Where the log begins: records before are in a checkpoint alone."""
        return self._core.log.start.offset

    def snapshot_slice(self, snapshot: OffsetAndEpoch, position: int, size_max: int) -> tuple[int, bytes] | None:
        """Size of a checkpoint file of ours, and its bytes from a position on; None if there is no such."""
        return self._storage.snapshot_slice(snapshot, position, size_max)

    def step(self, message: Message | local.LocalMessage) -> None:
        """Processes a message from another node of the quorum, or from this one.

        Raises:
            StorageError: what it asks for could not be written.
        """
        self._perform(self._core.step(message, self.clock.now_ms()))
        self._wakeup.set()

    async def hand_over(self, timeout_ms: int) -> None:
        """Before an orderly stop, while messages still travel: a leader resigns, and waits until another one leads."""
        self._perform(self._core.step(local.Resign(), self.clock.now_ms()))
        self._wakeup.set()
        if len(self._core.voters) > 1:
            with trio.move_on_after(timeout_ms / 1000):
                while self._core.leader_id == NO_LEADER:
                    await self._leadership.wait()

    # The driver

    def request(self, message: local.LocalMessage) -> None:
        """As `step`, but a leader that cannot write resigns instead of an error."""
        try:
            self.step(message)
        except StorageError as error:
            self._give_up(error)
            self._wakeup.set()

    def _deadline(self) -> float:
        deadline_ms = min(self._core.next_deadline_ms, self._linger.until_ms)
        return float("inf") if deadline_ms >= NEVER_MS else self.clock.trio_time(deadline_ms)

    def _cycle(self) -> None:
        now_ms = self.clock.now_ms()
        if now_ms >= self._core.next_deadline_ms:
            self._perform(self._core.tick(now_ms))
        if self._applied.offset < self._core.high_watermark:
            # It could not be read when it was committed. A new leader decides nothing before, so nothing else does it.
            try:
                self._apply(self._core.high_watermark)
            except StorageError as error:
                log.debug("committed metadata still cannot be read: %s", error)
        if self._must_bootstrap or (self._queue and not self._linger.is_waiting(self._queue, self._can_plan, now_ms)):
            self._carry_out()
        self._storage.reserve.tick(now_ms)

    def _carry_out(self) -> None:
        """Plans the commands that wait, one on the image of the other, and proposes them together."""
        self._linger.until_ms = NEVER_MS
        if not self.is_leader:
            self._fail_all(not_leader())
            return
        if not self._can_plan:
            return
        if self._leftover is not None:
            self._take_back(self._leftover)
            if self._leftover is not None:
                self._fail_all(not_written(self._leftover))
                return
        if self._must_bootstrap:
            self._queue.appendleft(Proposal(self._bootstrap))
        output = Output()
        planned: list[Proposal] = []
        while self._queue and len(planned) < ROUND_SIZE_MAX:
            proposal = self._queue.popleft()
            try:
                self._plan(proposal, output)
            except Exception as error:  # a refusal, or a fault of the command, which has changed nothing
                proposal.fail(error)
            else:
                planned.append(proposal)
        self._waiting.extend(planned)
        try:
            end_offset = self._persist(output)
        except StorageError as error:
            self._give_up(error)
        else:
            self._after_persist(output, end_offset)
        self._tell_outcomes()

    @property
    def _can_plan(self) -> bool:
        """Whether all that earlier leaders committed is known here: only then a new leader's image tells the truth."""
        start_offset = self._core.epoch_start_offset
        return start_offset is not None and self._applied.offset > start_offset

    @property
    def _must_bootstrap(self) -> bool:
        """Whether this node leads a new cluster, whose first records are still to be written."""
        return self._can_plan and not self._planning_image.is_bootstrapped

    def _plan(self, proposal: Proposal, output: Output) -> None:
        base_offset = self._core.log.end_offset
        image = self._planning_image
        voter_ids = frozenset(self._core.voters.ids)
        context = self.settings.plan_context(base_offset, self._random, self._config_rules, voter_ids)
        plan = proposal.command.plan(image, context)
        proposal.result = plan.result
        proposal.end_offset = base_offset
        if not plan.records:
            return
        values = encode_records(plan.records, image.metadata_version)
        if sum(map(len, values)) > BATCH_SIZE_MAX:
            raise CommandRefused(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
        end_offset = proposal.end_offset = base_offset + len(values)
        self._planning_image = apply_records(
            image, plan.records, offset=end_offset - 1, epoch=self._core.epoch, timestamp_ms=self._wall_clock_ms()
        )
        self._uncommitted.append(Uncommitted(base_offset, end_offset, self._planning_image))
        proposed = self._core.step(local.Propose(values, len(values)), self.clock.now_ms())
        output.entries += proposed.entries
        output.send += proposed.send

    def _perform(self, output: Output) -> None:
        """Does what an output asks for, and what follows from having done it."""
        self._after_persist(output, self._persist(output))

    def _persist(self, output: Output) -> int:
        """The first part of an output; the offset below which the log is durable then."""
        if output.must_persist or (output.send and self._storage.owes_state):
            return self._storage.persist(output, self._wall_clock_ms(), self._core.voters, self._core.kraft_version)
        return self._core.log.persisted_offset

    def _after_persist(self, output: Output, end_offset: int) -> None:
        if self.voter_requests.take(output):
            self._wakeup.set()
        for envelope in output.send:
            self._send(envelope)
        if output.fetch_snapshot is not None:
            self._download.wanted = output.fetch_snapshot
            self._wakeup.set()
        if output.leadership is not None:
            self._on_leadership()
        if output.high_watermark is not None:
            self._apply(output.high_watermark)
        if output.entries:
            self._perform(self._core.step(local.Persisted(end_offset), self.clock.now_ms()))

    def _send(self, envelope: Envelope) -> None:
        message = envelope.message
        if isinstance(message, FetchResponse) and message.offset >= 0 and not (message.diverging or message.snapshot):
            entries = self._storage.read_entries(message.offset, message.max_bytes)
            envelope = envelope._replace(message=message._replace(entries=entries))
        if self._send_to_peer is not None:
            self._send_to_peer(envelope)

    def _on_leadership(self) -> None:
        self._leadership.set()
        self._leadership = trio.Event()
        if not self.is_leader:
            self._uncommitted.clear()
            self._fail_all(not_leader())

    def _apply(self, high_watermark: int) -> None:
        """Publishes the images up to the high watermark: those that were planned here, others from the log."""
        while self._applied.offset < high_watermark:
            if self._uncommitted and self._uncommitted[0].base_offset == self._applied.offset:
                if self._uncommitted[0].end_offset > high_watermark:
                    break
                planned = self._uncommitted.popleft()
                self._applied = OffsetAndEpoch(planned.end_offset, planned.image.epoch)
                self._publish(planned.image)
            else:
                end = self._uncommitted[0].base_offset if self._uncommitted else high_watermark
                self._replay(min(end, high_watermark))
        if not self._uncommitted:
            self._planning_image = self._image
        self._advance.set()
        self._advance = trio.Event()
        self._tell_outcomes()

    def _replay(self, end_offset: int) -> None:
        """Applies what the log holds up to an offset, as one step."""
        records: list[Any] = []
        offset = epoch = timestamp_ms = -1
        last = self._applied
        for batch in self._storage.read(self._applied.offset, end_offset):
            last = OffsetAndEpoch(batch.last_offset + 1, batch.epoch)
            if batch.values:
                records += map(decode_record, batch.values)
                offset, epoch, timestamp_ms = batch.last_offset, batch.epoch, batch.timestamp_ms
        assert last.offset == end_offset, (last, end_offset)
        self._applied = last
        if records:
            self._publish(apply_records(self._image, records, offset=offset, epoch=epoch, timestamp_ms=timestamp_ms))

    def _publish(self, image: ClusterImage) -> None:
        old, self._image = self._image, image
        for callback in self._subscribers:
            callback(old, image)

    def _tell_outcomes(self) -> None:
        while self._waiting and self._waiting[0].end_offset <= self._applied.offset:
            self._waiting.popleft().done.set()

    def _give_up(self, error: StorageError) -> None:
        """As `_take_back`; and a leader with others beside it makes room for one that can decide something."""
        self._take_back(error)
        if self.is_leader and len(self._core.voters) > 1:
            log.error("this node gives up the lead of the quorum: %s", error)
            self._perform(self._core.step(local.Resign(), self.clock.now_ms()))

    def _take_back(self, error: StorageError) -> None:
        """Nothing of this round could be made durable: the log is as before, and who asked is told.

        When the log cannot be cut either, nothing is written before that has been done.
        """
        self.voter_requests.take(self._core.step(local.PersistFailed(), self.clock.now_ms()))
        try:
            self._storage.take_back(self._core.log.end_offset, self._wall_clock_ms())
            self._leftover = None
        except StorageError as also:
            self._leftover = also
        while self._uncommitted and self._uncommitted[-1].end_offset > self._core.log.end_offset:
            self._uncommitted.pop()
        self._planning_image = self._uncommitted[-1].image if self._uncommitted else self._image
        while self._waiting and self._waiting[-1].end_offset > self._core.log.end_offset:
            self._waiting.pop().fail(not_written(error))

    def _fail_all(self, failure: CommandRefused) -> None:
        for proposal in (*self._waiting, *self._queue):
            proposal.fail(failure)
        self._waiting.clear()
        self._queue.clear()

    # Snapshots

    async def _take_snapshot(self) -> None:
        control = self._core.history.records_at(self._applied.offset)
        start = await self._snapshots.write(self._image, self._applied, control)
        if start is not None:
            self._core.step(local.SnapshotTaken(start), self.clock.now_ms())

    async def _install_snapshot(self) -> None:
        """Fetches the leader's checkpoint and begins anew behind it. If that fails, a later Fetch asks for it again."""
        leader_id, snapshot = self._download.take()
        found = await self._download.install(self._core, self._storage, leader_id, snapshot, self._wall_clock_ms())
        if isinstance(found, Exception):
            self.request(local.SnapshotFailed(leader_id, isinstance(found, StorageError)))
        if not isinstance(found, Snapshot):
            return
        from pykbroker.controller.metadata.image_delta import delta_between

        self._applied = snapshot
        image = image_of_snapshot(snapshot, found)
        image.delta = delta_between(self._image, image)
        self._perform(self._core.step(local.SnapshotInstalled(snapshot, found.control), self.clock.now_ms()))
        self._publish(image)
        self._planning_image = image
        self._wakeup.set()
