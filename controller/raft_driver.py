"""RaftDriver: executes the outputs of RaftCore in their order: persist, send, apply. Synchronous.

A sync runs in the event loop: a sync of some hundred bytes was measured at 0.1 ms, less than a switch to a thread and
back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from pykbroker.controller.raft.core import RaftCore
from pykbroker.controller.raft.local_messages import LocalMessage, Persisted, PersistFailed, Propose, Resign
from pykbroker.controller.raft.messages import FetchResponse, Message
from pykbroker.controller.raft.output import Envelope, Output
from pykbroker.controller.raft_storage import RaftStorage
from pykbroker.controller.transport import Transport
from pykbroker.logstore.errors import StorageError
from pykbroker.protocol.records.batch import RecordFrames

log = logging.getLogger(__name__)


class RaftListener(Protocol):
    """The node's callbacks for outputs of raft."""

    def on_output(self, output: Output) -> None:
        """Called when an output is persisted. Its messages are sent next, then its high watermark is applied."""

    def on_leadership(self) -> None:
        """Called when leader or epoch have changed."""

    def on_committed(self, high_watermark: int) -> None:
        """Called when the records below `high_watermark` are committed."""

    def on_records_dropped(self, end_offset: int, error: StorageError) -> None:
        """Called when the records from `end_offset` on could not be written and were removed from raft's log."""


class RaftDriver:
    """Driver of one RaftCore with its storage and transport.

    Args:
        now_ms: clock for deadlines of other nodes, in milliseconds.
        wall_clock_ms: time of day in ms, for the timestamps of records.

    Attributes:
        truncation_error: error of the truncation after a failed write; None if there is none. While there is one, the
            file of the log may be longer than raft's log.
    """

    def __init__(
        self,
        core: RaftCore,
        storage: RaftStorage,
        transport: Transport,
        listener: RaftListener,
        *,
        now_ms: Callable[[], int],
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._core = core
        self._storage = storage
        self._transport = transport
        self._listener = listener
        self._now_ms = now_ms
        self._wall_clock_ms = wall_clock_ms
        self._proposed = Output()
        self.truncation_error: StorageError | None = None

    def step(self, message: Message | LocalMessage) -> None:
        """Processes a message.

        Raises:
            StorageError: its output could not be written.
        """
        self._perform_output(self._core.step(message, self._now_ms()))

    def tick(self, now_ms: int) -> None:
        """Processes the time if the state machine has something to do; may raise StorageError, as `step`."""
        if now_ms >= self._core.next_deadline_ms:
            self._perform_output(self._core.tick(now_ms))

    def step_or_resign(self, message: Message | LocalMessage) -> None:
        """As `step`, but a leader that cannot write resigns instead of raising StorageError."""
        try:
            self.step(message)
        except StorageError as error:
            self._undo_append_and_resign(error)

    def propose(self, records: RecordFrames) -> None:
        """Appends one batch to the leader's log. `write_proposed` writes it, together with others."""
        output = self._core.step(Propose(records, records.record_count), self._now_ms())
        self._proposed.entries += output.entries
        self._proposed.send += output.send

    def write_proposed(self) -> None:
        """Persists the proposed batches with one write and one sync; a leader that cannot write resigns."""
        output, self._proposed = self._proposed, Output()
        try:
            end_offset = self._persist(output)
        except StorageError as error:
            self._undo_append_and_resign(error)
        else:
            self._after_persist(output, end_offset)

    def _perform_output(self, output: Output) -> None:
        self._after_persist(output, self._persist(output))

    def _persist(self, output: Output) -> int:
        """Persists an output; returns the offset below which the log is durable then."""
        core, storage = self._core, self._storage
        if output.must_persist or (output.send and storage.has_unwritten_state):
            return storage.persist(output, self._wall_clock_ms(), core.voters, core.kraft_version)
        return core.log.persisted_offset

    def _after_persist(self, output: Output, end_offset: int) -> None:
        self._listener.on_output(output)
        for envelope in output.send:
            self._transport.send(self._with_records(envelope))
        if output.leadership is not None:
            self._listener.on_leadership()
        if output.high_watermark is not None:
            self._listener.on_committed(output.high_watermark)
        if output.entries:
            self.step(Persisted(end_offset))

    def _with_records(self, envelope: Envelope) -> Envelope:
        """Adds the records from the log to a FetchResponse; other messages stay as they are."""
        message = envelope.message
        if isinstance(message, FetchResponse) and message.offset >= 0 and not (message.diverging or message.snapshot):
            entries = self._storage.read_entries(message.offset, message.max_bytes)
            return envelope._replace(message=message._replace(entries=entries))
        return envelope

    def undo_append(self, error: StorageError) -> None:
        """Removes the records that could not be made durable because of `error`.

        If truncating the log fails as well, it is tried again, and nothing is proposed before it has succeeded.
        """
        self._listener.on_output(self._core.step(PersistFailed(), self._now_ms()))
        end_offset = self._core.log.end_offset
        try:
            self._storage.undo_append(end_offset, self._wall_clock_ms())
            self.truncation_error = None
        except StorageError as truncation_error:
            self.truncation_error = truncation_error
        self._listener.on_records_dropped(end_offset, error)

    def _undo_append_and_resign(self, error: StorageError) -> None:
        """As `undo_append`; a leader with other voters also resigns, so that one of them can lead."""
        self.undo_append(error)
        if self._core.epoch_start_offset is not None and len(self._core.voters) > 1:
            log.error("this node resigns as leader of the metadata quorum: %s", error)
            self.step(Resign())
