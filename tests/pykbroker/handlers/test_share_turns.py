"""Members of share groups with very many partitions are served in turns with others, which may change these."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from pykbroker.controller.metadata.image import TopicImage
from pykbroker.handlers.share_acknowledge import handle_share_acknowledge
from pykbroker.handlers.share_fetch import handle_share_fetch
from pykbroker.logstore.file_range import FileRange
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages import share_acknowledge, share_fetch
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.record import Record
from pykbroker.protocol.steps import PIECE
from pykbroker.replication.fetch_sessions import FINAL_EPOCH
from pykbroker.replication.partition import Partition
from pykbroker.share_partitions.fetch import READS_PER_STEP
from pykbroker.share_partitions.sessions import SessionKey
from pykbroker.share_state.state import ACQUIRED, SharePartitionKey
from tests.support.data_path import NOW_MS, topic_id, topic_image
from tests.support.share_broker import GROUP, ShareBroker
from tests.support.turns import with_turns

TOPIC = "many"
COUNT = 80
ACCEPT = 1


@pytest.fixture(autouse=True)
def turns_are_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)


class Broker(ShareBroker):
    """A broker with topic "many" in place of "clicks", with a record in each of its partitions."""

    async def prepare(self) -> None:
        self.change(topic_image(TOPIC, COUNT))
        for number in range(COUNT):
            await self.persister.initialize(SharePartitionKey(GROUP, topic_id(TOPIC), number), 1, -1)
            self.append(number)

    def append(self, number: int) -> None:
        found = self.partitions.get(TOPIC, number)
        assert found is not None
        found.append_as_leader(build_batch([Record(0, NOW_MS, None, b"a")]), NOW_MS)

    async def ask(self, member: str, *, offset: int | None = None, **fields: Any) -> Any:
        """A ShareFetch of all partitions; with an offset it accepts that record of each of them."""
        epoch = self.sessions.get(member, 0)
        batches = []
        if offset is not None:
            batches.append(
                share_fetch.AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[ACCEPT])
            )
        asked = [
            share_fetch.FetchPartition(partition_index=number, acknowledgement_batches=batches)
            for number in range(COUNT)
        ]
        topics = [share_fetch.FetchTopic(topic_id=topic_id(TOPIC), partitions=asked)]
        request = share_fetch.ShareFetchRequest(
            **{
                "group_id": GROUP,
                "member_id": member,
                "share_session_epoch": epoch,
                "max_wait_ms": 500,
                "min_bytes": 1,
                "max_records": 10 * COUNT,
                "batch_size": 500,
                "topics": topics if epoch == 0 or offset is not None else [],
                **fields,
            }
        )
        response = await self.answer(handle_share_fetch, request, 2)
        if response.error_code == ErrorCode.NONE:
            self.sessions[member] = epoch + 1
        return response

    async def acquire(self, member: str) -> set[int]:
        """The partitions of which a member acquires a record, with as many requests as it needs."""
        found: set[int] = set()
        for _ in range(5):
            found |= partitions_with_records(await self.ask(member))
        return found


def partitions_with_records(response: Any) -> set[int]:
    return {p.partition_index for topic in response.responses for p in topic.partitions if p.acquired_records}


async def test_others_have_turns_while_records_are_acquired_and_acknowledged(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    async with broker.running():
        await broker.prepare()
        assert await broker.acquire("m") == set(range(COUNT))
        for number in range(COUNT):
            broker.append(number)
        response, turns = await with_turns(broker.ask("m", offset=0))
        assert partitions_with_records(response) == set(range(COUNT))
        assert {p.acknowledge_error_code for topic in response.responses for p in topic.partitions} == {0}
        # Acknowledgements one by one, reads and acquisitions a few at a time.
        assert turns >= COUNT + 2 * COUNT // READS_PER_STEP


async def test_others_have_turns_during_share_acknowledge(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    async with broker.running():
        await broker.prepare()
        assert await broker.acquire("m") == set(range(COUNT))
        batch = share_fetch.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])
        asked = [
            share_acknowledge.AcknowledgePartition(partition_index=number, acknowledgement_batches=[batch])
            for number in range(COUNT)
        ]
        request = share_acknowledge.ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id="m",
            share_session_epoch=broker.sessions["m"],
            topics=[share_acknowledge.AcknowledgeTopic(topic_id=topic_id(TOPIC), partitions=asked)],
        )
        response, turns = await with_turns(broker.call(handle_share_acknowledge, request, 2))
        assert [p.error_code for p in response.responses[0].partitions] == [0] * COUNT
        assert turns >= COUNT


async def test_two_members_at_once_acquire_each_record_once(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    async with broker.running():
        await broker.prepare()
        found: dict[str, set[int]] = {}

        async def acquire(member: str) -> None:
            found[member] = await broker.acquire(member)

        async with trio.open_nursery() as nursery:
            for member in ("m", "n"):
                nursery.start_soon(acquire, member)
        assert not found["m"] & found["n"]
        assert found["m"] | found["n"] == set(range(COUNT))


async def test_a_member_that_goes_while_it_acquires_leaves_nothing_locked(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    async with broker.running():
        await broker.prepare()
        await broker.acquire("m")  # loads the share partitions
        broker.shares.release_session(SessionKey(GROUP, "m"))
        await broker.shares.released(SessionKey(GROUP, "m"))
        del broker.sessions["m"]
        key = SessionKey(GROUP, "n")

        async def leave() -> None:
            leaders = list(broker.shares._leaders.values())
            while not any(batch.state.state == ACQUIRED for leader in leaders for batch in leader.shares.batches):
                await trio.lowlevel.checkpoint()
            session = broker.shares.sessions.get(key)
            assert session is not None
            broker.shares.connection_closed(session.connection)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave)
            response = await broker.ask("n")
        assert len(partitions_with_records(response)) < COUNT
        await broker.shares.released(key)
        assert await broker.acquire("o") == set(range(COUNT))


async def test_the_records_of_a_closed_connection_are_released_in_turns(tmp_path: Path) -> None:
    """A session that the same member begins meanwhile gets them all."""
    broker = Broker(tmp_path)
    async with broker.running():
        await broker.prepare()
        assert await broker.acquire("m") == set(range(COUNT))
        await broker.ask("other")  # the group has another session, so its share partitions stay
        session = broker.shares.sessions.get(SessionKey(GROUP, "m"))
        assert session is not None
        del broker.sessions["m"]
        broker.shares.connection_closed(session.connection)
        _, turns = await with_turns(broker.shares.released(SessionKey(GROUP, "m")))
        assert turns >= COUNT
        assert await broker.acquire("m") == set(range(COUNT))


async def test_share_partitions_of_a_group_without_members_end_in_turns(tmp_path: Path) -> None:
    """Those that are left stay if a member comes meanwhile."""
    broker = Broker(tmp_path)
    async with broker.running():
        await broker.prepare()
        assert await broker.acquire("m") == set(range(COUNT))
        session = broker.shares.sessions.get(SessionKey(GROUP, "m"))
        assert session is not None
        broker.shares.connection_closed(session.connection)
        _, turns = await with_turns(broker.shares.released(SessionKey(GROUP, "m")))
        assert broker.shares._leaders == {}
        assert turns >= 2 * COUNT
        assert await broker.acquire("n") == set(range(COUNT))


async def test_locks_of_many_share_partitions_expire_in_turns(tmp_path: Path) -> None:
    """P-183."""
    broker = Broker(tmp_path, share_record_lock_duration_ms="15000")
    async with broker.running():
        await broker.prepare()
        assert await broker.acquire("m") == set(range(COUNT))
        await trio.sleep(15.1)
        assert await broker.acquire("n") == set(range(COUNT))


async def test_a_request_that_ends_between_two_reads_leaves_no_file_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(tmp_path)
    async with broker.running():
        await broker.prepare()
        leased: set[FileRange] = set()
        reads = 0
        read, release = Partition.read, FileRange.release

        def watched_read(self: Partition, *args: Any, **options: Any) -> Any:
            nonlocal reads
            found = read(self, *args, **options)
            if self.topic == TOPIC and found.records is not None:
                leased.add(found.records)
                reads += 1
                if reads == READS_PER_STEP + 1:
                    scope.cancel()
            return found

        def watched_release(self: FileRange) -> None:
            leased.discard(self)
            release(self)

        monkeypatch.setattr(Partition, "read", watched_read)
        monkeypatch.setattr(FileRange, "release", watched_release)
        with trio.CancelScope() as scope:
            await broker.ask("m")
        assert scope.cancelled_caught
        assert READS_PER_STEP < reads < COUNT
        assert not leased


async def test_a_member_that_goes_while_records_are_read_acquires_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody would have the records until their locks expire."""
    broker = Broker(tmp_path)
    async with broker.running():
        await broker.prepare()
        reads = 0
        read = Partition.read

        def watched_read(self: Partition, *args: Any, **options: Any) -> Any:
            nonlocal reads
            if self.topic == TOPIC:
                reads += 1
                if reads == READS_PER_STEP + 1:
                    session = broker.shares.sessions.get(SessionKey(GROUP, "m"))
                    assert session is not None
                    broker.shares.sessions.remove(session.key)
            return read(self, *args, **options)

        monkeypatch.setattr(Partition, "read", watched_read)
        assert partitions_with_records(await broker.ask("m")) == set()
        assert reads > READS_PER_STEP
        leaders = broker.shares._leaders.values()
        assert not [leader for leader in leaders for batch in leader.shares.batches if batch.state.state == ACQUIRED]


async def test_a_share_partition_that_is_led_elsewhere_before_its_turn_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(tmp_path)
    async with broker.running():
        await broker.prepare()
        assert await broker.acquire("m") == set(range(COUNT))
        for number in range(COUNT):
            broker.append(number)
        order: list[int] = []
        read = Partition.read

        def watched_read(self: Partition, *args: Any, **options: Any) -> Any:
            if self.topic == TOPIC:
                order.append(self.partition)
                if len(order) == 1:
                    gone = (self.partition - 1) % COUNT  # the last one of the rotation
                    moved = topic_image(TOPIC, COUNT, leader=2, leader_epoch=6).partitions[gone]
                    present = topic_image(TOPIC, COUNT).partitions
                    broker.change(TopicImage(TOPIC, topic_id(TOPIC), {**present, gone: moved}))
            return read(self, *args, **options)

        monkeypatch.setattr(Partition, "read", watched_read)
        found = partitions_with_records(await broker.ask("m"))
        assert found == set(range(COUNT)) - {(order[0] - 1) % COUNT}
        assert set(order) == found


async def test_a_session_that_ends_while_an_earlier_one_of_its_member_is_released(tmp_path: Path) -> None:
    """The records of both are released before the member acquires any."""
    broker = Broker(tmp_path)
    async with broker.running() as nursery:
        await broker.prepare()
        assert await broker.acquire("m") == set(range(COUNT))
        await broker.ask("other")
        key = SessionKey(GROUP, "m")
        leaders = list(broker.shares._leaders.values())

        def close() -> None:
            session = broker.shares.sessions.get(key)
            assert session is not None
            broker.shares.connection_closed(session.connection)

        del broker.sessions["m"]
        close()
        first = broker.shares._releasing[key]
        # Fewer partitions, so that the second end would be over before the first.
        few = [share_fetch.FetchPartition(partition_index=number) for number in range(PIECE + 1)]
        topics = [share_fetch.FetchTopic(topic_id=topic_id(TOPIC), partitions=few)]
        nursery.start_soon(partial(broker.ask, "m", topics=topics))
        while broker.shares.sessions.get(key) is None:
            await trio.lowlevel.checkpoint()
        assert not first.is_set()
        close()
        assert broker.shares._releasing[key] is not first
        await broker.shares.released(key)
        assert first.is_set()
        assert not [leader for leader in leaders for batch in leader.shares.batches if batch.state.state == ACQUIRED]


async def test_the_share_partitions_that_a_member_still_finds_stay(tmp_path: Path) -> None:
    """Its group had no member, and a part of its share partitions has ended by then."""
    broker = Broker(tmp_path)
    async with broker.running():
        await broker.prepare()
        assert await broker.acquire("m") == set(range(COUNT))
        session = broker.shares.sessions.get(SessionKey(GROUP, "m"))
        assert session is not None
        before = set(broker.shares._leaders.values())
        broker.shares.connection_closed(session.connection)
        while len(broker.shares._leaders) == COUNT:
            await trio.lowlevel.checkpoint()
        assert await broker.acquire("n") == set(range(COUNT))
        await broker.shares.released(SessionKey(GROUP, "m"))
        assert before & set(broker.shares._leaders.values())
        assert len(broker.shares._leaders) == COUNT


async def test_share_partitions_end_with_the_connection_of_a_session_that_was_closed(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    async with broker.running():
        await broker.prepare()
        assert await broker.acquire("m") == set(range(COUNT))
        session = broker.shares.sessions.get(SessionKey(GROUP, "m"))
        assert session is not None
        closed = await broker.ask("m", share_session_epoch=FINAL_EPOCH)
        assert closed.error_code == ErrorCode.NONE
        assert len(broker.shares._leaders) == COUNT
        broker.shares.connection_closed(session.connection)
        await broker.shares.released(SessionKey(GROUP, ""))
        assert broker.shares._leaders == {}
