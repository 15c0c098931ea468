"""One ShareFetch request: acquires records of the partitions of a session, and waits if there are too few.

The records stay in the file: the data of a partition is a range of the file, and only headers of batches are read.
A session may have thousands of partitions, and other requests have turns between two of them. If such a request changes
the next records of a share partition, that partition is left out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from pykbroker.controller.turns import TASKS_PER_TURN, Turn, in_turns
from pykbroker.errors import KafkaError, error_code_for
from pykbroker.logstore.errors import LogError, OffsetOutOfRange
from pykbroker.logstore.range_headers import headers_in
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.steps import PIECE, Steps
from pykbroker.share_partitions.acquisition import Acquired, Acquisition, FetchedBatch
from pykbroker.share_partitions.leader import LeaderState, ShareLeader
from pykbroker.share_partitions.waiters import FetchWaiter

if TYPE_CHECKING:
    from pykbroker.logstore.file_range import FileRange
    from pykbroker.protocol.records.layout import BatchHeader
    from pykbroker.share_partitions.registry import SharePartitions
    from pykbroker.share_partitions.sessions import SessionKey, TopicIdPartition

READS_PER_STEP = 4
"""Partitions that are read, or of which records are acquired, in one step: each takes some tens of microseconds."""
MAGIC_WITH_DELTA = 2
"""First record format with the last offset in a batch's header."""


class FetchLimits(NamedTuple):
    """Limits of a ShareFetch request, as in its fields."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    is_record_limit: bool


class Fetched(NamedTuple):
    """The outcome for one partition.

    Attributes:
        error: NONE, or the error of this partition.
        records: the batches with the acquired records, perhaps with others too; None if none were acquired.
        acquired: the acquired records, in order of offsets.
    """

    error: ErrorCode = ErrorCode.NONE
    records: FileRange | None = None
    acquired: Sequence[Acquired] = ()


class _Candidate(NamedTuple):
    """A share partition from which records may be acquired, from an offset on."""

    topic_partition: TopicIdPartition
    leader: ShareLeader
    offset: int
    size_max: int


class _Read(NamedTuple):
    """A read of a candidate: a range of the log, nothing, or an error."""

    candidate: _Candidate
    records: FileRange | None
    error: ErrorCode = ErrorCode.NONE


class ShareFetch:
    """One request.

    Args:
        shares: the share partitions of this broker.
        member: the member.
        topic_partitions: the partitions, in the order in which they are served.
        limits: the request's limits.
    """

    def __init__(
        self,
        shares: SharePartitions,
        member: SessionKey,
        topic_partitions: Sequence[TopicIdPartition],
        limits: FetchLimits,
    ) -> None:
        self._shares = shares
        self._member = member
        self._topic_partitions = topic_partitions
        self._limits = limits
        self._errors: dict[TopicIdPartition, Fetched] = {}
        self._leaders: dict[TopicIdPartition, ShareLeader] = {}
        # True if an attempt has been interrupted, so that share partitions may have changed since its beginning.
        self._others_ran = False

    async def run(self, before_wait: Callable[[], Awaitable[None]]) -> Mapping[TopicIdPartition, Fetched]:
        """Acquires records, waiting up to the limit; leaves out partitions without records and without an error.

        Args:
            before_wait: called before the request waits, when the changes that it makes can end the wait.
        """
        limits = self._limits
        if not self._topic_partitions or not limits.max_records or not limits.max_bytes:
            return {}
        await self._shares.released(self._member)
        await self._find_leaders()
        found = await in_turns(self._attempt_acquisition())
        if found is None and limits.max_wait_ms <= 0:
            found = await in_turns(self._attempt_acquisition(is_last=True))
        if found is not None or not self._leaders or limits.max_wait_ms <= 0:
            return self._errors | (found or {})
        deadline = trio.current_time() + limits.max_wait_ms / 1000
        with FetchWaiter() as waiter:
            await self._register(waiter)
            await before_wait()
            while True:
                await waiter.wait(deadline)
                if self._shares.sessions.get(self._member) is None:
                    # The member has gone: it must not acquire anything.
                    return self._errors
                self._drop_ended_leaders()
                is_last = trio.current_time() >= deadline
                found = await in_turns(self._attempt_acquisition(is_last=is_last))
                if found is not None or is_last:
                    return self._errors | (found or {})

    async def _find_leaders(self) -> None:
        """Finds the leaders of all partitions, and begins to load those that are missing, in turns with others."""
        turn = Turn()
        loads = 0
        for topic_partition in self._topic_partitions:
            self._find_leader(topic_partition)
            leader = self._leaders.get(topic_partition)
            # Each load is a task, which reads and stores in one step.
            loads += leader is not None and leader.state is LeaderState.LOADING
            if loads >= TASKS_PER_TURN:
                loads = 0
                await trio.lowlevel.checkpoint()
            elif turn.is_over:
                await turn.end_if_over()

    def _find_leader(self, topic_partition: TopicIdPartition) -> None:
        try:
            self._leaders[topic_partition] = self._shares.find_or_load(self._member.group_id, topic_partition)
        except KafkaError as error:
            self._errors[topic_partition] = Fetched(error.error_code)

    async def _register(self, waiter: FetchWaiter) -> None:
        """Registers with all partitions. If others run meanwhile, the wait ends at once: they may have changed some."""
        turn = Turn()
        for leader in list(self._leaders.values()):
            waiter.register(leader.waiters)
            if turn.is_over:
                waiter.wake()
                await turn.end_if_over()

    def _drop_ended_leaders(self) -> None:
        """Drops leaders that have ended meanwhile; the partition of one that could not be loaded gets an error (P-491).

        The request goes on waiting, and does not load a successor: without a wait the member would repeat it at once.
        """
        for topic_partition, leader in list(self._leaders.items()):
            if leader.state is not LeaderState.ENDED and leader.is_current:
                continue
            del self._leaders[topic_partition]
            if leader.load_error is not None:
                self._errors[topic_partition] = Fetched(leader.load_error.error_code)

    def _attempt_acquisition(self, *, is_last: bool = False) -> Steps[dict[TopicIdPartition, Fetched] | None]:
        """Acquires records; None if there are too few, unless it is the last attempt."""
        self._others_ran = False
        candidates = yield from self._candidates()
        if not candidates:
            return None
        if self._limits.max_bytes < 0:
            # As in Kafka, whose PartitionMaxBytesStrategy fails; a negative number of records acquires nothing.
            return {candidate.topic_partition: Fetched(ErrorCode.UNKNOWN_SERVER_ERROR) for candidate in candidates}
        known: list[_Candidate] = []
        if not is_last:
            # As in Kafka (DelayedShareFetch.combineLogReadResponse), partitions that were read before come first.
            known = [candidate for candidate in candidates if candidate.offset == candidate.leader.looked_up_offset]
            candidates = [
                candidate for candidate in candidates if candidate.offset != candidate.leader.looked_up_offset
            ]
        reads: list[_Read] = []
        try:
            yield from self._read_all(known, reads)
            yield from self._read_all(candidates, reads)
            if not is_last:
                for read in reads:
                    if read.error is ErrorCode.NONE:
                        read.candidate.leader.looked_up_offset = read.candidate.offset
                is_enough = yield from self._is_enough(reads)
                if not is_enough:
                    _release(reads)
                    return None
            return (yield from self._acquire_all(reads))
        except BaseException:  # GeneratorExit, too: the request has ended between two steps
            _release(reads)
            raise

    def _yield_to_others(self) -> Steps[None]:
        """Lets others run in the middle of an attempt."""
        self._others_ran = True
        yield

    def _read_all(self, candidates: Sequence[_Candidate], reads: list[_Read]) -> Steps[None]:
        """Appends the reads of candidates."""
        size = 0
        for count, candidate in enumerate(candidates):
            if count and not count % READS_PER_STEP:
                yield from self._yield_to_others()
            if self._others_ran and not _is_unchanged(candidate):
                continue
            # Only the first partition with data may exceed its limit, by one batch, for which the others get less.
            left = max(self._limits.max_bytes - size, 0)
            read = self._read(candidate, min(candidate.size_max, left), at_least_one=not size)
            reads.append(read)
            size += 0 if read.records is None else len(read.records)

    def _candidates(self) -> Steps[list[_Candidate]]:
        topic_partitions: list[tuple[TopicIdPartition, ShareLeader]] = []
        for count, (topic_partition, leader) in enumerate(list(self._leaders.items())):
            if count and not count % PIECE:
                yield from self._yield_to_others()
            if leader.state is LeaderState.ACTIVE and leader.is_current and leader.shares.can_acquire:
                topic_partitions.append((topic_partition, leader))
        if not topic_partitions:
            return []
        each, rest = divmod(self._limits.max_bytes, len(topic_partitions))
        sizes = [each] * len(topic_partitions)
        if each:
            sizes[0] += rest
        else:
            sizes[:rest] = [1] * rest
        candidates: list[_Candidate] = []
        for (topic_partition, leader), size in zip(topic_partitions, sizes, strict=True):
            candidates.append(_Candidate(topic_partition, leader, leader.shares.next_fetch_offset(), size))
            if not len(candidates) % PIECE:
                yield from self._yield_to_others()
        return candidates

    def _read(self, candidate: _Candidate, size_max: int, *, at_least_one: bool) -> _Read:
        leader = candidate.leader
        try:
            found = leader.partition.read(candidate.offset, size_max, leader.bound, at_least_one=at_least_one)
        except OffsetOutOfRange:
            return _Read(candidate, None, ErrorCode.OFFSET_OUT_OF_RANGE)
        except LogError as error:
            return _Read(candidate, None, error_code_for(error))
        return _Read(candidate, found.records)

    def _is_enough(self, reads: Sequence[_Read]) -> Steps[bool]:
        """True if the response need not wait: an error, records of an older segment, or `min_bytes` of records.

        As in Kafka (DelayedShareFetch.isMinBytesSatisfied), a partition counts with the bytes that it has, up to its
        part of `max_bytes`. The read may have fewer or more bytes, as it ends with a whole batch.
        """
        size = 0
        for count, read in enumerate(reads):
            if count and not count % PIECE:
                yield from self._yield_to_others()
            if read.error is not ErrorCode.NONE:
                return True
            offset, leader = read.candidate.offset, read.candidate.leader
            log, end = leader.partition.log, leader.readable_end
            if offset > end:
                return True
            if offset == end:
                continue
            bases = log.segment_base_offsets
            if bisect_right(bases, offset) < bisect_right(bases, end):
                return True
            size += min(log.loaded.segments.size_between(offset, end) or 0, read.candidate.size_max)
        return size >= self._limits.min_bytes

    def _acquire_all(self, reads: Sequence[_Read]) -> Steps[dict[TopicIdPartition, Fetched]]:
        found: dict[TopicIdPartition, Fetched] = {}
        count = 0
        for number, read in enumerate(reads):
            if not number % READS_PER_STEP:
                if number:
                    yield from self._yield_to_others()
                if self._shares.sessions.get(self._member) is None:
                    # The member has gone, and what it has acquired is released.
                    _release(reads)
                    return {}
            topic_partition, leader = read.candidate.topic_partition, read.candidate.leader
            if self._others_ran and not _is_unchanged(read.candidate):
                _release((read,))
                continue
            if read.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                # The log start has moved: only records from there on can be acquired.
                leader.shares.move_start(leader.partition.log_start_offset)
                found[topic_partition] = Fetched()
                continue
            if read.error is not ErrorCode.NONE or read.records is None:
                found[topic_partition] = Fetched(read.error)
                continue
            acquired = self._acquire(read.candidate, read.records, self._limits.max_records - count)
            if not acquired:
                read.records.release()
                found[topic_partition] = Fetched()
                continue
            count += sum(each.record_count for each in acquired)
            found[topic_partition] = Fetched(records=read.records, acquired=acquired)
        return found

    def _acquire(self, candidate: _Candidate, records: FileRange, records_max: int) -> list[Acquired]:
        """Acquires records of a range, and narrows the range to their batches."""
        leader, shares = candidate.leader, candidate.leader.shares
        last_wanted = max(shares.end_offset, candidate.offset) + records_max
        headers: list[tuple[int, BatchHeader]] = []
        batches = headers_in(records)
        for start, header in batches:
            headers.append((start, header))
            if _last_offset(header) >= last_wanted:
                break
        acquisition = Acquisition(
            shares,
            self._member.member_id,
            leader.now_ms(),
            records_max=records_max,
            is_record_limit=self._limits.is_record_limit,
            batch_size=self._limits.batch_size,
        )
        fetched = [FetchedBatch(header.base_offset, _last_offset(header)) for _, header in headers]
        acquired = acquisition.acquire(candidate.offset, fetched)
        if not acquired:
            return []
        leader.acquired()
        if leader.settings().is_read_committed:
            acquired = self._without_aborted(candidate, records, headers, acquired)
        # A batch alone is sent as it was read, with the beginning of the next one, as in Kafka.
        if acquired and (len(headers) > 1 or next(batches, None) is not None):
            _narrow_range(records, headers, acquired[0].first_offset, acquired[-1].last_offset)
        return acquired

    def _without_aborted(
        self,
        candidate: _Candidate,
        records: FileRange,
        headers: Sequence[tuple[int, BatchHeader]],
        acquired: list[Acquired],
    ) -> list[Acquired]:
        leader = candidate.leader
        transactions = leader.partition.log.aborted_transactions_in(candidate.offset, records)
        if not transactions:
            return acquired
        from pykbroker.share_partitions import aborted_records

        aborted = aborted_records.aborted_batches(
            (aborted_records.batch_of(records, start, header) for start, header in headers),
            ((transaction.first_offset, transaction.producer_id) for transaction in transactions),
        )
        return aborted_records.archive_aborted(leader.shares, acquired, aborted)


def _is_unchanged(candidate: _Candidate) -> bool:
    """True if nothing has changed since the last step: its leader leads, and its next records are the same."""
    leader = candidate.leader
    return (
        leader.state is LeaderState.ACTIVE
        and leader.is_current
        and leader.shares.can_acquire
        and leader.shares.next_fetch_offset() == candidate.offset
    )


def _last_offset(header: BatchHeader) -> int:
    return header.last_offset if header.magic >= MAGIC_WITH_DELTA else header.base_offset


def _narrow_range(
    records: FileRange, headers: Sequence[tuple[int, BatchHeader]], first_offset: int, last_offset: int
) -> None:
    """Narrows a range to the batches with offsets from `first_offset` to `last_offset`."""
    begin = end = 0
    for start, header in headers:
        if header.base_offset <= first_offset:
            begin = start
        elif header.base_offset > last_offset:
            break
        end = start + header.size_bytes
    records.narrow(begin, end - begin)


def _release(reads: Sequence[_Read]) -> None:
    for read in reads:
        if read.records is not None:
            read.records.release()
