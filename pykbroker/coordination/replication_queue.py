"""Records that a coordinator has appended to one partition and that are not replicated yet, in the order of the log.

Appends take effect one after the other, each when the high watermark has reached its end: until then a failover may
truncate it, so no client may have seen it. The request waits until then, or until its deadline, at which it gets an
error. The append stays in the queue after the deadline: it may still be replicated and must then take effect, because
memory and log must agree. Kafka's transaction coordinator drops the late state instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from pykbroker.completion import Completion
from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.coordination.partition_writer import InternalPartition


class Waiting:
    """One append in the queue.

    Args:
        end_offset: offset after its last record.
        deadline: time on trio's clock, in seconds, at which the request gets an error.
        on_replicated: called when the high watermark has reached `end_offset`.
        on_late: called with the error if it has not by the deadline; `on_replicated` may still follow.
    """

    __slots__ = ("_answered", "_error", "deadline", "end_offset", "on_late", "on_replicated")

    def __init__(
        self,
        end_offset: int,
        deadline: float,
        on_replicated: Callable[[], None],
        on_late: Callable[[ErrorCode], None],
    ) -> None:
        self.end_offset = end_offset
        self.deadline = deadline
        self.on_replicated = on_replicated
        self.on_late = on_late
        self._error: ErrorCode | None = None
        self._answered = Completion()

    @property
    def is_answered(self) -> bool:
        """True if `wait_answer` returns at once."""
        return self._error is not None

    def answer(self, error: ErrorCode) -> None:
        """Sets the outcome; only the first one counts."""
        if self._error is None:
            self._error = error
            self._answered.complete()

    async def wait_answer(self) -> ErrorCode:
        """Waits for replication: NONE, or the partition's error if the append is late or this broker has resigned.

        `response_error` maps that error to the one for a client.
        """
        await self._answered.wait()
        assert self._error is not None
        return self._error


class ReplicationQueue:
    """The queue of one partition. `run` must be running while it is not empty."""

    def __init__(self, partition: InternalPartition) -> None:
        self._partition = partition
        self._waiting: deque[Waiting] = deque()
        self._is_closed = False
        self._is_running = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def push(self, waiting: Waiting) -> bool:
        """Adds the latest append; True if the caller must start `run`."""
        self._waiting.append(waiting)
        is_first, self._is_running = not self._is_running, True
        return is_first

    def advance(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Lets the appends that are replicated take effect, and answers their requests with `error`."""
        while self._waiting and self._waiting[0].end_offset <= self._partition.high_watermark:
            waiting = self._waiting.popleft()
            waiting.on_replicated()
            waiting.answer(error)

    async def run(self, timeout_s: float) -> None:
        """Follows the high watermark until the queue is empty or closed.

        Args:
            timeout_s: time between an append and its deadline.
        """
        while self._waiting:
            deadline = next((w.deadline for w in self._waiting if not w.is_answered), None)
            if deadline is None:
                # All are answered as late. The deadline of an append that is pushed meanwhile is not before this one.
                deadline = trio.current_time() + timeout_s
            # The leadership of now is that of the appends: the queue is closed when the leader epoch changes.
            error = await self._partition.wait_replicated(
                self._waiting[0].end_offset, deadline, self._partition.leadership
            )
            if self._is_closed:
                return
            if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self.close(error)
                return
            self.advance(error if error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND else ErrorCode.NONE)
            self._answer_late()
        self._is_running = False

    def _answer_late(self) -> None:
        now = trio.current_time()
        for waiting in list(self._waiting):
            if not waiting.is_answered and waiting.deadline <= now:
                waiting.answer(ErrorCode.REQUEST_TIMED_OUT)
                waiting.on_late(ErrorCode.REQUEST_TIMED_OUT)

    def close(self, error: ErrorCode) -> None:
        """Empties the queue and answers all with `error`: another broker leads the partition, or it is gone."""
        self._is_closed = True
        while self._waiting:
            self._waiting.popleft().answer(error)


class ReplicationQueues:
    """The queues of a coordinator, by partition; a partition without other replicas never has one.

    Args:
        timeout_s: time that an append waits before it is late.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._queues: dict[int, ReplicationQueue] = {}

    def must_wait(self, number: int, partition: InternalPartition | None, end_offset: int) -> bool:
        """True if the latest append is not replicated yet, or an earlier one has not taken effect."""
        assert partition is not None, "a shard is unloaded before its partition is removed"
        queue = self._queues.get(number)
        if queue is None:
            if partition.high_watermark >= end_offset:
                return False
            self._queues[number] = ReplicationQueue(partition)
            return True
        queue.advance()
        return bool(queue) or partition.high_watermark < end_offset

    def push(
        self,
        number: int,
        end_offset: int,
        on_replicated: Callable[[], None],
        on_late: Callable[[ErrorCode], None],
        nursery: trio.Nursery | None,
    ) -> Waiting:
        """Queues an append for which `must_wait` is true; `nursery` is for the task that follows the high watermark."""
        queue = self._queues[number]
        waiting = Waiting(end_offset, trio.current_time() + self._timeout_s, on_replicated, on_late)
        if queue.push(waiting):
            assert nursery is not None, "nothing is appended before the coordinator runs"
            nursery.start_soon(queue.run, self._timeout_s)
        return waiting

    def close(self, number: int) -> None:
        """Answers every waiting request of an unloaded shard with NOT_LEADER_OR_FOLLOWER."""
        queue = self._queues.pop(number, None)
        if queue is not None:
            queue.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
