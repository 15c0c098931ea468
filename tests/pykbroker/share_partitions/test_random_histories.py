"""Random histories of one share partition beside an oracle that knows of each offset only what members were told.

The rules: no record is with two members at a time; a delivery count goes up by one with each delivery, to the limit at
most; a record that was accepted or archived is never delivered again; and in the end every record is accepted once, or
archived after its last delivery or by a member.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from pykbroker.share_partitions import acknowledgement
from pykbroker.share_partitions.acknowledgement import ACCEPT, GAP, REJECT, RELEASE, RENEW, Refused
from pykbroker.share_partitions.share_partition import Change, SharePartition
from pykbroker.share_state.batches import combine_batches
from pykbroker.share_state.state import ACKNOWLEDGED, ARCHIVED, AVAILABLE, StateBatch
from tests.pykbroker.share_partitions.machine import DEFAULT_SETTINGS, LOCK_MS, Machine

HISTORIES = 240
STEPS = 120
MEMBERS = ("a", "b", "c")


class Pending:
    """An acknowledgement whose write has not ended: what it changes if it is stored."""

    def __init__(self, member: str, types: dict[int, int], changes: Sequence[Change]) -> None:
        self.member = member
        self.types = types
        self.changes = changes


class Oracle:
    """The state of each offset as members were told it.

    Attributes:
        holder: offset -> the member that holds it, and until when.
        counts: offset -> number of deliveries.
        done: offset -> ACKNOWLEDGED or ARCHIVED.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.holder: dict[int, tuple[str, int]] = {}
        self.counts: dict[int, int] = {}
        self.done: dict[int, int] = {}
        # Acknowledged, and not known to be stored: nobody else may get them meanwhile.
        self.in_doubt: set[int] = set()

    def delivered(self, member: str, found: Sequence[tuple[int, int, int]], now_ms: int) -> int:
        """Checks a delivery; gives the number of records."""
        total = 0
        for first, last, count in found:
            for offset in range(first, last + 1):
                assert offset not in self.done, f"{offset} is delivered after its end"
                assert offset not in self.in_doubt, f"{offset} is delivered while its acknowledgement is stored"
                held = self.holder.get(offset)
                assert held is None or held[1] <= now_ms, f"{offset} is with {held}"
                assert count == self.counts.get(offset, 0) + 1, f"{offset}: delivery {count}"
                assert count <= self.limit
                self.counts[offset] = count
                self.holder[offset] = member, now_ms + LOCK_MS
                total += 1
        return total

    def ended(self, offset: int, kind: int) -> None:
        """A member no longer holds an offset."""
        self.holder.pop(offset, None)
        if kind == ACCEPT:
            assert self.done.get(offset) is None, f"{offset} is accepted twice"
            self.done[offset] = ACKNOWLEDGED
        elif kind in (REJECT, GAP) or self.counts[offset] >= self.limit:
            self.done[offset] = ARCHIVED

    def expire(self, now_ms: int) -> None:
        for offset, (_, expires_ms) in list(self.holder.items()):
            if expires_ms <= now_ms and offset not in self.in_doubt:
                self.ended(offset, RELEASE)


class History:
    """One random history."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        limit = self.random.choice((2, 3, 5, 10))
        has_holes = self.random.random() < 0.5
        log: list[tuple[int, int]] = []
        offset = 0
        while len(log) < 30:
            size = self.random.choice((1, 1, 3, 10, 25))
            log.append((offset, offset + size - 1))
            offset += size
            if has_holes and self.random.random() < 0.3:
                # Compacted, or markers of transactions.
                offset += self.random.choice((1, 5, 30))
        self.existing = {offset for first, last in log for offset in range(first, last + 1)}
        self.end = max(self.existing) + 1
        settings = DEFAULT_SETTINGS._replace(
            delivery_count_limit=limit, record_locks_max=self.random.choice((100, 40, 2_000))
        )
        self.machine = Machine(log[: self.random.randint(1, 30)], settings=settings)
        self.whole_log = log
        self.oracle = Oracle(limit)
        self.pending: list[Pending] = []
        self.stored: list[StateBatch] = []
        self.stored_start = 0

    def run(self) -> None:
        steps = [self.fetch, self.fetch, self.acknowledge, self.acknowledge, self.end_write, self.pass_time]
        steps += [self.release, self.grow, self.fail_over]
        for _ in range(STEPS):
            self.random.choice(steps)()
            self.check_offsets()
        self.finish()

    def fetch(self) -> None:
        member = self.random.choice(MEMBERS)
        limit = self.random.random() < 0.4
        wanted = self.random.choice((1, 4, 20, 500))
        batches_max = self.random.choice((None, 1, 3))
        batch_size = self.random.choice((1, 10, 500))
        found = self.machine.fetch(member, wanted, batch_size=batch_size, limit=limit, batches_max=batches_max)
        count = self.oracle.delivered(member, found, self.machine.now_ms)
        if limit:
            assert count <= wanted

    def acknowledge(self) -> None:
        """A range of offsets around some that a member holds, by types for all or for each."""
        held = [o for o, (_, until) in self.oracle.holder.items() if until > self.machine.now_ms]
        if not held:
            return
        first = self.random.choice(held)
        member = self.oracle.holder[first][0] if self.random.random() < 0.9 else self.random.choice(MEMBERS)
        last = first + self.random.choice((0, 0, 2, 9, 30))
        kinds = (ACCEPT, ACCEPT, RELEASE, REJECT, GAP, RENEW)
        types = [self.random.choice(kinds)]
        if self.random.random() < 0.5 and last > first:
            types = [self.random.choice(kinds) for _ in range(last - first + 1)]
        start = self.machine.shares.start_offset
        try:
            changes = self.machine.begin(member, first, last, *types)
        except Refused:
            held_by = {o: h for o, (h, until) in self.oracle.holder.items() if until > self.machine.now_ms}
            wanted = list(range(max(first, start), last + 1))
            is_valid = all(
                o in self.existing and held_by.get(o) == member and o not in self.oracle.in_doubt for o in wanted
            )
            assert not is_valid, f"{member} may acknowledge {first}..{last}"
            # A refused request may have renewed locks before the offset that it was refused for.
            if RENEW in types:
                self.learn_renewals(member, first, last)
            return
        each = {o: types[0] if len(types) == 1 else types[o - first] for o in range(max(first, start), last + 1)}
        # No member has the offsets of a gap between two fetches.
        in_flight = {
            o for batch in self.machine.shares.batches for o in range(batch.first_offset, batch.last_offset + 1)
        }
        each = {offset: kind for offset, kind in each.items() if offset in in_flight}
        for offset, kind in each.items():
            assert self.oracle.holder[offset][0] == member
            if kind == RENEW:
                self.oracle.holder[offset] = member, self.machine.now_ms + LOCK_MS
            else:
                self.oracle.in_doubt.add(offset)
        given_back = {offset: kind for offset, kind in each.items() if kind != RENEW}
        if given_back:
            self.pending.append(Pending(member, given_back, changes))

    def learn_renewals(self, member: str, first: int, last: int) -> None:
        for batch in self.machine.shares.batches:
            for offset in range(max(first, batch.first_offset), min(last, batch.last_offset) + 1):
                held = self.oracle.holder.get(offset)
                if held is not None and held[0] == member:
                    self.oracle.holder[offset] = member, max(held[1], batch.state_of(offset).lock_expires_ms)

    def end_write(self) -> None:
        if not self.pending:
            return
        pending = self.pending.pop(self.random.randrange(len(self.pending)))
        is_stored = self.random.random() < 0.8
        if is_stored:
            self.store([change.stored for change in pending.changes])
        self.machine.end(pending.changes, is_stored=is_stored)
        for offset, kind in pending.types.items():
            self.oracle.in_doubt.discard(offset)
            if is_stored:
                self.oracle.ended(offset, kind)
        self.oracle.expire(self.machine.now_ms)

    def store(self, batches: Sequence[StateBatch]) -> None:
        self.stored_start = max(self.stored_start, self.machine.shares.start_offset)
        self.stored = list(combine_batches(self.stored, batches, self.stored_start))

    def pass_time(self) -> None:
        stored = self.machine.pass_time(self.random.choice((1, LOCK_MS // 2, LOCK_MS)))
        self.store([StateBatch(*batch) for batch in stored])
        self.oracle.expire(self.machine.now_ms)

    def release(self) -> None:
        member = self.random.choice(MEMBERS)
        changes = acknowledgement.release(self.machine.shares, member)
        types = {
            offset: RELEASE
            for change in changes
            for offset in range(change.stored.first_offset, change.stored.last_offset + 1)
        }
        held = {
            o
            for o, (holder, until) in self.oracle.holder.items()
            if holder == member and until > self.machine.now_ms and o not in self.oracle.in_doubt
        }
        # What the log does not have may have been archived meanwhile.
        assert types.keys() & self.existing == held & self.existing
        self.oracle.in_doubt.update(types)
        if changes:
            self.pending.append(Pending(member, types, changes))

    def grow(self) -> None:
        self.machine.log = self.whole_log[: len(self.machine.log) + self.random.randint(0, 3)]

    def fail_over(self) -> None:
        """Another broker loads the stored state: no record is held any more, and later deliveries are not counted."""
        if self.random.random() < 0.7:
            return
        machine = self.machine
        self.pending.clear()
        machine.shares = SharePartition(lambda: machine.settings, 1, self.stored_start, self.stored)
        self.oracle.holder.clear()
        self.oracle.in_doubt.clear()
        known: dict[int, StateBatch] = {
            offset: batch for batch in self.stored for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        for offset in self.oracle.counts:
            batch = known.get(offset)
            if offset < self.stored_start:
                assert offset in self.oracle.done or offset not in self.existing
            elif batch is None:
                assert self.oracle.done.get(offset) != ACKNOWLEDGED, f"the acknowledgement of {offset} is lost"
                self.oracle.counts[offset] = 0
                self.oracle.done.pop(offset, None)
            else:
                self.oracle.counts[offset] = batch.delivery_count
                if batch.delivery_state == AVAILABLE:
                    # Archived after its last delivery, when the write of an acknowledgement had failed: as in Kafka,
                    # that is not stored.
                    assert self.oracle.done.pop(offset, ARCHIVED) == ARCHIVED
                else:
                    assert self.oracle.done.setdefault(offset, batch.delivery_state) == batch.delivery_state

    def check_offsets(self) -> None:
        """Asserts that all records below the start offset are done, and the count of those above it that are done."""
        shares = self.machine.shares
        assert all(offset in self.oracle.done for offset in self.existing if offset < shares.start_offset)
        assert shares.start_offset <= shares.end_offset + 1
        in_flight = range(shares.start_offset, shares.end_offset + 1)
        counted = {
            offset: batch.state_of(offset).state
            for batch in shares.batches
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        done = [o for o in in_flight if counted.get(o) in (ACKNOWLEDGED, ARCHIVED)]
        assert shares.delivery_complete_count == len(done)

    def finish(self) -> None:
        """Everything that is left is accepted by one member."""
        self.machine.log = self.whole_log
        while self.pending:
            self.end_write()
        for _ in range(10_000):
            if self.machine.shares.start_offset >= self.end:
                break
            found = self.machine.fetch("z", batches_max=self.random.choice((None, 1)))
            self.oracle.delivered("z", found, self.machine.now_ms)
            if not found:
                self.machine.pass_time()
                self.oracle.expire(self.machine.now_ms)
            for first, last, _ in found:
                self.machine.acknowledge("z", first, last)
                for offset in range(first, last + 1):
                    self.oracle.ended(offset, ACCEPT)
        assert self.oracle.done.keys() >= self.existing, "records are lost"


@pytest.mark.parametrize("part", range(4))
def test_random_histories(part: int) -> None:
    for seed in range(part, HISTORIES, 4):
        try:
            History(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
