"""A share partition with a log of batches beside it, for tests: everything by offsets."""

from __future__ import annotations

from collections.abc import Sequence

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.share_partitions import acknowledgement
from pykbroker.share_partitions.acknowledgement import ACCEPT, AcknowledgedBatch
from pykbroker.share_partitions.acquisition import Acquired, Acquisition, FetchedBatch
from pykbroker.share_partitions.settings import SharePartitionSettings
from pykbroker.share_partitions.share_partition import Change, SharePartition
from pykbroker.share_state.state import StateBatch

LOCK_MS = 30_000
DEFAULT_SETTINGS = SharePartitionSettings.of_group(BrokerConfig.from_properties({}).share_groups, {})


class Machine:
    """One share partition.

    Attributes:
        log: the batches of the log, as (first offset, last offset).
        now_ms: the time.
        settings: the group's settings.
    """

    def __init__(
        self,
        log: Sequence[tuple[int, int]] = (),
        *,
        start_offset: int = 0,
        stored: Sequence[tuple[int, int, int, int]] = (),
        settings: SharePartitionSettings | None = None,
    ) -> None:
        self.log = list(log)
        self.now_ms = 1_000
        self.settings = settings or DEFAULT_SETTINGS
        batches = [StateBatch(*batch) for batch in stored]
        self.shares = SharePartition(lambda: self.settings, 1, start_offset, batches)

    def fetch(
        self,
        member: str,
        records_max: int = 500,
        *,
        batch_size: int = 500,
        limit: bool = False,
        batches_max: int | None = None,
    ) -> list[tuple[int, int, int]]:
        """Acquires records for a member, as (first offset, last offset, delivery count).

        A read of the log ends with its segment, after `batches_max` batches.
        """
        if not self.shares.can_acquire:
            return []
        offset = self.shares.next_fetch_offset()
        fetched = [FetchedBatch(first, last) for first, last in self.log if last >= offset][:batches_max]
        acquisition = Acquisition(
            self.shares, member, self.now_ms, records_max=records_max, is_record_limit=limit, batch_size=batch_size
        )
        found: list[Acquired] = acquisition.acquire(offset, fetched)
        return [tuple(each) for each in found]  # type: ignore[misc]

    def begin(self, member: str, first: int, last: int, *types: int) -> list[Change]:
        """Starts an acknowledgement."""
        batch = AcknowledgedBatch(first, last, types or (ACCEPT,))
        try:
            return acknowledgement.acknowledge(self.shares, member, [batch], self.now_ms)
        except acknowledgement.Refused as refused:
            self.shares.complete(refused.changes, is_stored=False, now_ms=self.now_ms)
            raise

    def end(self, changes: Sequence[Change], *, is_stored: bool = True) -> bool:
        """Ends it; True if the start offset moved."""
        return self.shares.complete(changes, is_stored=is_stored, now_ms=self.now_ms)

    def acknowledge(self, member: str, first: int, last: int, *types: int) -> bool:
        """Acknowledges and stores."""
        return self.end(self.begin(member, first, last, *types))

    def release(self, member: str) -> None:
        self.end(acknowledgement.release(self.shares, member))

    def pass_time(self, duration_ms: int = LOCK_MS) -> list[tuple[int, int, int, int]]:
        """Time passes; gives what the expiry of locks has to store."""
        self.now_ms += duration_ms
        stored = self.shares.expire_locks(self.now_ms)
        self.shares.advance_start()
        return [(*batch,) for batch in stored]

    @property
    def offsets(self) -> tuple[int, int]:
        return self.shares.start_offset, self.shares.end_offset
