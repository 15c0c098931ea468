"""Fetch of many partitions: other requests are served between them, and what they change is not missed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from pykbroker.handlers.fetch import handle_fetch
from pykbroker.logstore.file_range import FileRange
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from pykbroker.replication.caught_up import CaughtUpConsumer
from pykbroker.replication.partition import Partition
from pykbroker.requests.fetch_responses import ResponseParts
from tests.support.data_path import NOW_MS, DataPath, batch, cluster_image, topic_id, topic_image
from tests.support.turns import Turns, with_turns

VERSION = 17
PARTITIONS = 20


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Every turn is over at once."""
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    data_path = DataPath(tmp_path, cluster_image(topic_image("many", PARTITIONS)))
    yield data_path
    data_path.close()


def put(path: DataPath, partition: int) -> None:
    found = path.partitions.get("many", partition)
    assert found is not None
    found.append_as_leader(bytearray(batch()), NOW_MS)


def asked(*, partitions: int = PARTITIONS, **fields: Any) -> FetchRequest:
    named = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1000) for number in range(partitions)]
    topic = FetchTopic(topic="many", topic_id=topic_id("many"), partitions=named)
    return FetchRequest(**{"min_bytes": 1, "max_wait_ms": 0, "topics": [topic] if named else [], **fields})


def release(response: Any) -> dict[int, int]:
    """Gives back the file ranges; returns the sizes of the records by partition."""
    sizes = {}
    for topic in response.responses:
        for data in topic.partitions:
            sizes[data.partition_index] = len(data.records)
            if data.records:
                data.records.release()
    return sizes


def on_read(monkeypatch: pytest.MonkeyPatch, number: int, effect: Any) -> None:
    """Calls `effect` once, when this partition is read."""
    read = Partition.read
    effects = [effect]

    def watched(self: Partition, *args: Any, **options: Any) -> Any:
        if self.partition == number and effects:
            effects.pop()()
        return read(self, *args, **options)

    monkeypatch.setattr(Partition, "read", watched)


async def test_others_have_their_turn_between_partitions(path: DataPath) -> None:
    for number in range(PARTITIONS):
        put(path, number)
    response, turns = await with_turns(path.call(handle_fetch, asked(), VERSION))
    sizes = release(response)
    assert len(sizes) == PARTITIONS
    assert all(sizes.values())
    assert turns >= PARTITIONS / 2


async def test_records_that_come_during_the_first_pass_end_the_wait_at_once(
    path: DataPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partition 0 was empty when it was read and has records before the last one is: the notification counts."""
    on_read(monkeypatch, PARTITIONS - 1, lambda: put(path, 0))
    begin = trio.current_time()
    sizes = release(await path.call(handle_fetch, asked(max_wait_ms=10_000), VERSION))
    assert sizes[0] > 0
    assert trio.current_time() - begin < 1


async def test_records_that_come_during_a_later_pass_end_the_wait_at_once(path: DataPath) -> None:
    """A wake-up for nothing is followed by another pass; partition 0 has records behind its look at it."""
    begin = trio.current_time()

    async def wake_up() -> None:
        await trio.sleep(1)
        found = path.partitions.get("many", 3)
        assert found is not None
        found.replica.waiters.notify(1)
        # The pass and this task take turns.
        for _ in range(PARTITIONS // 2):
            await trio.lowlevel.checkpoint()
        put(path, 0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wake_up)
        sizes = release(await path.call(handle_fetch, asked(max_wait_ms=10_000), VERSION))
    assert sizes[0] > 0
    assert trio.current_time() - begin == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_partitions_that_still_have_nothing_are_not_read_again(
    path: DataPath, monkeypatch: pytest.MonkeyPatch, isolation_level: int
) -> None:
    reads: list[int] = []
    read = Partition.read

    def counted(self: Partition, *args: Any, **options: Any) -> Any:
        reads.append(self.partition)
        return read(self, *args, **options)

    async def produce() -> None:
        await trio.sleep(1)
        assert sorted(reads) == list(range(PARTITIONS))
        reads.clear()
        put(path, 4)

    monkeypatch.setattr(Partition, "read", counted)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        request = asked(max_wait_ms=10_000, isolation_level=isolation_level)
        sizes = release(await path.call(handle_fetch, request, VERSION))
    assert {number for number, size in sizes.items() if size} == {4}
    assert len(sizes) == PARTITIONS
    assert reads == [4]


async def test_a_new_leader_epoch_is_noticed_where_there_are_no_records(path: DataPath) -> None:
    request = asked(max_wait_ms=10_000)
    found = path.partitions.get("many", 4)
    assert found is not None
    request.topics[0].partitions[4].current_leader_epoch = found.leader_epoch

    async def elect() -> None:
        await trio.sleep(1)
        found.leader_epoch += 1
        found.replica.wake_all()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(elect)
        response = await path.call(handle_fetch, request, VERSION)
    errors = {data.partition_index: data.error_code for topic in response.responses for data in topic.partitions}
    assert {number: code for number, code in errors.items() if code} == {4: ErrorCode.FENCED_LEADER_EPOCH}


async def test_a_session_that_another_connection_changes_meanwhile(
    path: DataPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other request removes a partition while this one reads: the session stays without it."""
    first = await path.call(handle_fetch, asked(session_epoch=0), VERSION)
    release(first)
    put(path, 0)
    forgotten = ForgottenTopic(topic="many", topic_id=topic_id("many"), partitions=[0])
    removal = asked(
        partitions=0, session_id=first.session_id, session_epoch=2, forgotten_topics_data=[forgotten], min_bytes=0
    )
    sizes = {}
    async with trio.open_nursery() as nursery:

        async def remove() -> None:
            release(await path.call(handle_fetch, removal, VERSION))

        on_read(monkeypatch, 5, lambda: nursery.start_soon(remove))
        update = asked(partitions=0, session_id=first.session_id, session_epoch=1)
        sizes = release(await path.call(handle_fetch, update, VERSION))
    assert sizes == {0: len(batch())}
    put(path, 0)
    last = asked(partitions=0, session_id=first.session_id, session_epoch=3)
    assert release(await path.call(handle_fetch, last, VERSION)) == {}


async def test_a_client_that_leaves_during_a_turn_leaves_no_file_range(
    path: DataPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    leased: set[FileRange] = set()
    read, release_range = Partition.read, FileRange.release

    def watched_read(self: Partition, *args: Any, **options: Any) -> Any:
        found = read(self, *args, **options)
        assert found.records is not None
        leased.add(found.records)
        if self.partition == 5:
            scope.cancel()
        return found

    def watched_release(self: FileRange) -> None:
        leased.discard(self)
        release_range(self)

    monkeypatch.setattr(Partition, "read", watched_read)
    monkeypatch.setattr(FileRange, "release", watched_release)
    for number in range(PARTITIONS):
        put(path, number)
    with trio.CancelScope() as scope:
        await path.call(handle_fetch, asked(), VERSION)
    assert scope.cancelled_caught
    assert not leased


@pytest.mark.parametrize("is_left", [False, True])
async def test_others_have_their_turn_while_a_long_response_is_made(
    path: DataPath, monkeypatch: pytest.MonkeyPatch, is_left: bool
) -> None:
    """It is also encoded in turns, even if the request of a session names no partition."""
    monkeypatch.setattr("pykbroker.handlers.fetch.FEW", PARTITIONS - 1)
    session = await path.call(handle_fetch, asked(session_epoch=0), VERSION)
    for number in range(PARTITIONS):
        put(path, number)
    turns, turns_at_adds, leased = Turns(), list[int](), list[FileRange]()
    add = ResponseParts.add

    def watched_add(self: ResponseParts, asked: Any, data: Any) -> None:
        turns_at_adds.append(turns.count)
        leased.append(data.records)
        if is_left and len(leased) == 5:
            scope.cancel()
        add(self, asked, data)

    monkeypatch.setattr(ResponseParts, "add", watched_add)
    context = path.context(ApiKey.FETCH, VERSION, "test")
    request = asked(partitions=0, session_id=session.session_id, session_epoch=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.run)
        with trio.CancelScope() as scope:
            response = await handle_fetch(context, request)
            assert len(release(response)) == PARTITIONS
        nursery.cancel_scope.cancel()
    assert context.has_long_response
    assert len(set(turns_at_adds)) >= len(turns_at_adds) / 2  # trio runs ready tasks in random order
    assert scope.cancelled_caught == is_left
    assert all(found._released for found in leased)


async def test_others_have_their_turn_between_many_partitions_that_are_not_read(
    path: DataPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower's fetches are noted with a time that is looked at again after each turn."""
    monkeypatch.setattr("pykbroker.handlers.fetch.SKIPPED_PER_LOOK", 4)
    session = await path.call(handle_fetch, asked(session_epoch=0), VERSION)
    release(await path.call(handle_fetch, asked(partitions=0, session_id=session.session_id, session_epoch=1), VERSION))
    times: list[float | None] = []
    turns = Turns()

    def on_fetch(self: CaughtUpConsumer, now: float | None) -> float | None:
        times.append(now)
        return turns.count + 1.0 if now is None else now

    monkeypatch.setattr(Partition, "read", lambda *_, **__: pytest.fail("nothing has changed"))
    monkeypatch.setattr(CaughtUpConsumer, "on_fetch", on_fetch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.run)
        request = asked(partitions=0, session_id=session.session_id, session_epoch=2)
        response = await path.call(handle_fetch, request, VERSION)
        assert response.responses == []
        nursery.cancel_scope.cancel()
    assert [index for index, time in enumerate(times) if time is None] == list(range(0, PARTITIONS, 4))
    assert len(set(times)) > 2  # trio runs ready tasks in random order
