"""Members of share groups with very many partitions are served in turns with others, which may change these."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
import trio

from pykbroker.handlers.share_acknowledge import handle_share_acknowledge
from pykbroker.handlers.share_fetch import handle_share_fetch
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages import share_acknowledge, share_fetch
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.record import Record
from pykbroker.share_partitions.fetch import READS_PER_STEP
from pykbroker.share_partitions.sessions import SessionKey
from pykbroker.share_state.state import ACQUIRED, SharePartitionKey
from tests.support.data_path import NOW_MS, topic_id, topic_image
from tests.support.share_broker import GROUP, ShareBroker

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
        response = await self.call(handle_share_fetch, request, 2)
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


async def with_turns(work: Awaitable[Any]) -> tuple[Any, int]:
    """Result of the work, during which no time passes, and the number of turns that another task had meanwhile."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        result = await work
        nursery.cancel_scope.cancel()
    return result, turns


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
        batch = share_acknowledge.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])
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
