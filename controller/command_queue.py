"""CommandQueue: submitted commands until they have a result, and planned images that are not committed yet.

A command is planned on the newest image, committed or not, which gives its records. Its result is returned when these
are committed and applied. A round plans the waiting commands, each on the image after the previous one. It is done in
steps between which other tasks run (`steps.py`), because a command may create 10,000 partitions. The log and the queue
change at its end, in one piece.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import trio

from pykbroker.controller.metadata.commands import Command, CommandRefused, PlanContext, plan_in_steps
from pykbroker.controller.metadata.image import EMPTY_IMAGE, ClusterImage
from pykbroker.controller.metadata.image_builder import apply_in_steps
from pykbroker.controller.metadata.record_framing import encode_in_steps
from pykbroker.controller.raft.messages import NO_LEADER
from pykbroker.controller.raft.roles import NEVER_MS
from pykbroker.logstore.errors import StorageError
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.records.batch import RecordFrames, frames_in_steps
from pykbroker.protocol.steps import Steps

TIMEOUT_MIN_MS = 100
"""Smallest timeout of a command in ms: one of a few ms would end before the disk has written."""

ROUND_SIZE_MAX = 256
"""Largest number of commands in one write, so that the first one does not wait for the planning of thousands."""

BATCH_SIZE_MAX = 8 << 20
"""Kafka's limit in bytes for one batch of the metadata log (KafkaRaftClient); nodes cannot fetch a larger one."""


class PendingCommand:
    """A submitted command. It is done when the log is applied up to `end_offset`."""

    __slots__ = ("command", "done", "end_offset", "failure", "result")

    def __init__(self, command: Command[Any]) -> None:
        self.command = command
        self.done = trio.Event()
        self.end_offset = -1
        self.result: Any = None
        self.failure: Exception | None = None

    def fail(self, failure: Exception) -> None:
        self.failure = failure
        self.done.set()


class PlannedImage(NamedTuple):
    """The image after the records from `base_offset` to below `end_offset`, which are not committed yet."""

    base_offset: int
    end_offset: int
    image: ClusterImage

    @property
    def record_count(self) -> int:
        return self.end_offset - self.base_offset


class Round:
    """A round of planning, of which nothing is in the log yet.

    Attributes:
        base_image, base_offset: newest image and end of the log when it began.
        image, end_offset: image and end of the log after the commands that are planned so far.
        commands: the commands that it has taken from the queue and not refused.
        planned: images after its commands that have records.
        batches: records of each of these, encoded for their batch.
    """

    __slots__ = ("base_image", "base_offset", "batches", "commands", "end_offset", "image", "planned")

    def __init__(self, image: ClusterImage, end_offset: int) -> None:
        self.base_image = self.image = image
        self.base_offset = self.end_offset = end_offset
        self.commands: list[PendingCommand] = []
        self.planned: list[PlannedImage] = []
        self.batches: list[RecordFrames] = []


class CommandQueue:
    """Waiting commands, and images of planned ones.

    Attributes:
        image: the image on which the next command is planned.
        planned: images whose records are in the log and not committed, oldest first.
        linger_until_ms: time in ms at which gathered commands are planned; NEVER_MS without any.
    """

    def __init__(self, linger_ms: int) -> None:
        """`linger_ms`: time in ms that commands are gathered for one write (`controller.quorum.append.linger.ms`)."""
        self.image = EMPTY_IMAGE
        self.planned: deque[PlannedImage] = deque()
        self.linger_until_ms = NEVER_MS
        self._linger_ms = linger_ms
        self._waiting: deque[PendingCommand] = deque()
        self._in_log: deque[PendingCommand] = deque()
        self._round: Round | None = None

    def put(self, command: Command[Any], *, is_first: bool = False) -> PendingCommand:
        """Adds a command at the end of the queue, or with `is_first` at its head."""
        pending = PendingCommand(command)
        (self._waiting.appendleft if is_first else self._waiting.append)(pending)
        return pending

    def is_first(self, command: Command[Any]) -> bool:
        """True if this command is at the head of the queue."""
        return bool(self._waiting) and self._waiting[0].command is command

    def __bool__(self) -> bool:
        """True if commands wait to be planned."""
        return bool(self._waiting)

    def must_linger(self, now_ms: int) -> bool:
        """True if the commands should wait for further ones; the time runs from the first call."""
        if not self._linger_ms or len(self._waiting) >= ROUND_SIZE_MAX:
            return False
        if self.linger_until_ms == NEVER_MS:
            self.linger_until_ms = now_ms + self._linger_ms
        return now_ms < self.linger_until_ms

    def plan_round(
        self, context: Callable[[int], PlanContext], *, base_offset: int, epoch: int, timestamp_ms: Callable[[], int]
    ) -> Steps[Round]:
        """Plans the waiting commands, at most ROUND_SIZE_MAX of them. `finish_round` takes the result.

        Args:
            context: returns the context of a command whose first record gets the given offset.
            base_offset: end of the log.
        """
        planning = self._round = Round(self.image, base_offset)
        for _ in range(min(len(self._waiting), ROUND_SIZE_MAX)):
            pending = self._waiting.popleft()
            planning.commands.append(pending)
            try:
                yield from self._plan(planning, pending, context(planning.end_offset), epoch, timestamp_ms)
            except Exception as error:  # a refusal, or a fault of the command, which has changed nothing
                if self._round is planning:
                    planning.commands.pop()
                    pending.fail(error)
            yield
            if self._round is not planning:
                break  # this node does not lead any more, and the commands have failed
        return planning

    def _plan(
        self,
        planning: Round,
        pending: PendingCommand,
        context: PlanContext,
        epoch: int,
        timestamp_ms: Callable[[], int],
    ) -> Steps[None]:
        base_offset, image = planning.end_offset, planning.image
        plan = yield from plan_in_steps(pending.command, image, context)
        pending.result = plan.result
        pending.end_offset = base_offset
        if not plan.records:
            return
        values = yield from encode_in_steps(plan.records, image.metadata_version)
        if sum(map(len, values)) > BATCH_SIZE_MAX:
            raise CommandRefused(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
        end_offset = base_offset + len(values)
        planning.image = yield from apply_in_steps(
            image, plan.records, offset=end_offset - 1, epoch=epoch, timestamp_ms=timestamp_ms()
        )
        planning.end_offset = pending.end_offset = end_offset
        planning.planned.append(PlannedImage(base_offset, end_offset, planning.image))
        planning.batches.append((yield from frames_in_steps((None, value) for value in values)))

    def finish_round(self, planning: Round, end_offset: int, propose: Callable[[RecordFrames], None]) -> bool:
        """Puts the records of a round into the log, which ends at `end_offset`; False if it has to be planned again.

        Meanwhile a change of the voters may have written control records, or earlier records may have failed to be
        written, so that the offsets or the image have changed. The commands are then in the queue again.

        Args:
            propose: appends the encoded records of one command to the log as one batch.
        """
        if self._round is not planning:
            return True
        self._round = None
        if self.image is not planning.base_image or end_offset != planning.base_offset:
            self._waiting.extendleft(reversed(planning.commands))
            return False
        self.image = planning.image
        self.planned += planning.planned
        self._in_log += planning.commands
        for frames in planning.batches:
            propose(frames)
        return True

    def on_applied(self, image: ClusterImage, end_offset: int) -> None:
        """Completes the commands below `end_offset`, up to which the log is applied with the result `image`."""
        if not self.planned:
            self.image = image
        while self._in_log and self._in_log[0].end_offset <= end_offset:
            self._in_log.popleft().done.set()

    def on_records_dropped(self, image: ClusterImage, end_offset: int, error: StorageError) -> None:
        """Fails the commands whose records, from `end_offset` on, were not written. `image`: the newest applied one."""
        while self.planned and self.planned[-1].end_offset > end_offset:
            self.planned.pop()
        self.image = self.planned[-1].image if self.planned else image
        while self._in_log and self._in_log[-1].end_offset > end_offset:
            self._in_log.pop().fail(not_written(error))

    def fail_all(self, failure: CommandRefused) -> None:
        """Fails every command; another leader may still commit those that are in the log."""
        planning, self._round = self._round, None
        for pending in (*self._in_log, *(planning.commands if planning else ()), *self._waiting):
            pending.fail(failure)
        self._in_log.clear()
        self._waiting.clear()


def not_written(error: StorageError) -> CommandRefused:
    return CommandRefused(ErrorCode.KAFKA_STORAGE_ERROR, str(error))


def stopping() -> CommandRefused:
    return CommandRefused(ErrorCode.NOT_CONTROLLER, "The controller is stopping.")


def not_leader(leader_id: int = NO_LEADER) -> CommandRefused:
    """The refusal of a voter that does not lead, with Kafka's text; `leader_id` is the leader that it follows."""
    if leader_id == NO_LEADER:
        return CommandRefused(ErrorCode.NOT_CONTROLLER, "No controller appears to be active.")
    return CommandRefused(ErrorCode.NOT_CONTROLLER, f"The active controller appears to be node {leader_id}.")
