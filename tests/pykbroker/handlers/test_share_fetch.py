"""ShareFetch and ShareAcknowledge, with the share coordinator behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.controller.metadata.image import Acl, TopicImage
from pykbroker.controller.metadata.image_delta import delta_between
from pykbroker.errors import CoordinatorError
from pykbroker.logstore.errors import StorageError
from pykbroker.protocol.acl_codes import ALLOW, LITERAL, READ
from pykbroker.protocol.acl_codes import GROUP as GROUP_TYPE
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.records.batch import RecordBatch
from pykbroker.replication.fetch_sessions import FINAL_EPOCH
from pykbroker.security.standard_authorizer import StandardAuthorizer
from pykbroker.share_partitions.acknowledgement import ACCEPT, NOT_FOUND, REJECT, RELEASE, RENEW
from pykbroker.share_partitions.fetch import ShareFetch
from pykbroker.share_partitions.leader import LeaderState
from pykbroker.share_partitions.sessions import SessionKey, TopicIdPartition
from pykbroker.share_state.state import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    PartitionState,
    SharePartitionKey,
    StateBatch,
    WriteState,
)
from tests.support.data_path import NOW_MS, cluster_image, topic_id, topic_image
from tests.support.share_broker import GROUP, TOPIC, ShareBroker, acquired

WAIT_MS = 500


def key_of(partition: int = 0) -> SharePartitionKey:
    return SharePartitionKey(GROUP, topic_id(TOPIC), partition)


async def stored(broker: ShareBroker) -> PartitionState:
    found = await broker.coordinator.read(key_of(), 0)
    assert isinstance(found, PartitionState)
    return found


def only(response: Any) -> Any:
    """The only partition of a response."""
    [topic] = response.responses
    [partition] = topic.partitions
    return partition


async def test_p180_records_go_to_one_member(tmp_path: Path) -> None:
    """P-180."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a", b"b")
        broker.produce(b"c")
        first = await broker.fetch("m1", max_records=2, max_wait_ms=WAIT_MS)
        assert acquired(first) == [(0, 1, 1)]
        second = await broker.fetch("m2", max_wait_ms=WAIT_MS)
        assert acquired(second) == [(2, 2, 1)]
        # Only the batches of what was acquired are sent.
        [values] = [[r.value for r in RecordBatch(only(second).records.read()).records()]]
        assert values == [b"c"]
        assert acquired(await broker.fetch("m1")) == []


async def test_p181_an_acknowledgement_is_stored_before_it_is_confirmed(tmp_path: Path) -> None:
    """P-181."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a", b"b", b"c", b"d")
        await broker.fetch("m", max_wait_ms=WAIT_MS)
        answer = only(await broker.acknowledge("m", (0, 3, [ACCEPT, RELEASE, REJECT, ACCEPT])))
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
        state = await stored(broker)
        assert state.start_offset == 0
        assert list(state.batches) == [
            StateBatch(0, 0, ACKNOWLEDGED, 1),
            StateBatch(1, 1, AVAILABLE, 1),
            StateBatch(2, 2, ARCHIVED, 1),
            StateBatch(3, 3, ACKNOWLEDGED, 1),
        ]
        assert acquired(await broker.fetch("m2", max_wait_ms=WAIT_MS)) == [(1, 1, 2)]


async def test_acknowledgements_in_a_fetch(tmp_path: Path) -> None:
    """P-187."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a")
        await broker.fetch("m", max_wait_ms=WAIT_MS)
        broker.produce(b"b")
        response = await broker.fetch("m", (0, 0, [ACCEPT]))
        assert acquired(response) == [(1, 1, 1)]
        assert (only(response).acknowledge_error_code, response.acquisition_lock_timeout_ms) == (0, 30_000)
        refused = only(await broker.fetch("m", (0, 1, [ACCEPT, 4]), is_renew_ack=False))
        assert refused.acknowledge_error_code == ErrorCode.INVALID_REQUEST
        refused = only(await broker.fetch("m", (7, 7, [ACCEPT])))
        assert refused.acknowledge_error_code == ErrorCode.INVALID_REQUEST
        assert refused.acknowledge_error_message.startswith("Batch record not found.")


async def test_released_records_come_after_others(tmp_path: Path) -> None:
    """P-635."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a")
        await broker.fetch("m", max_wait_ms=WAIT_MS)
        broker.produce(b"b")
        assert acquired(await broker.fetch("m", (0, 0, [RELEASE]), max_wait_ms=WAIT_MS)) == [(1, 1, 1)]
        assert acquired(await broker.fetch("m", (1, 1, [ACCEPT]), max_wait_ms=WAIT_MS)) == [(0, 0, 2)]
        # Without others the request waits until they are stored, if it may wait.
        began = trio.current_time()
        assert acquired(await broker.fetch("m", (0, 0, [RELEASE]), max_wait_ms=WAIT_MS)) == [(0, 0, 3)]
        assert trio.current_time() - began < WAIT_MS / 1000
        assert acquired(await broker.fetch("m", (0, 0, [RELEASE]), max_wait_ms=0)) == []
        assert acquired(await broker.fetch("m", max_wait_ms=0)) == [(0, 0, 4)]


async def test_acknowledgements_of_a_client_that_leaves_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request ends between the acknowledgement and its store."""
    broker = ShareBroker(tmp_path)

    async def leave(*_: object, **__: object) -> None:
        raise trio.BrokenResourceError

    async with broker.running():
        broker.produce(b"a")
        await broker.fetch("m", max_wait_ms=WAIT_MS)
        with monkeypatch.context() as patched:
            patched.setattr(ShareFetch, "run", leave)
            with pytest.raises(trio.BrokenResourceError):
                await broker.fetch("m", (0, 0, [ACCEPT]))
        assert list((await stored(broker)).batches) == [StateBatch(0, 0, ACKNOWLEDGED, 1)]


async def test_p182_a_fetch_waits_for_records(tmp_path: Path) -> None:
    """P-182."""
    broker = ShareBroker(tmp_path)
    async with broker.running() as nursery:
        await broker.fetch("m", max_wait_ms=1)
        found: list[Any] = []

        async def fetch() -> None:
            found.append(await broker.fetch("m", max_wait_ms=60_000))

        nursery.start_soon(fetch)
        await trio.sleep(1)
        assert not found
        broker.produce(b"a")
        await trio.sleep(0.01)
        assert acquired(found[0]) == [(0, 0, 1)]


async def test_p182_a_fetch_waits_no_longer_than_it_wants(tmp_path: Path) -> None:
    """P-182."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        before = trio.current_time()
        assert acquired(await broker.fetch("m", max_wait_ms=WAIT_MS)) == []
        assert trio.current_time() - before == pytest.approx(WAIT_MS / 1000)
        broker.produce(b"a")
        response = await broker.fetch("m", max_wait_ms=WAIT_MS, min_bytes=10_000)
        assert acquired(response) == [(0, 0, 1)]
        assert trio.current_time() - before == pytest.approx(2 * WAIT_MS / 1000)


async def test_p361_negative_limits(tmp_path: Path) -> None:
    """P-361."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a")
        before = trio.current_time()
        failed = only(await broker.fetch("m", max_bytes=-5, max_wait_ms=WAIT_MS))
        assert (failed.error_code, failed.acquired_records) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])
        nothing = only(await broker.fetch("m2", max_records=-1, max_wait_ms=WAIT_MS))
        assert (nothing.error_code, nothing.acquired_records) == (ErrorCode.NONE, [])
        assert (await broker.fetch("m", max_records=0, max_wait_ms=WAIT_MS)).responses == []
        assert (await broker.fetch("m", max_bytes=0, max_wait_ms=WAIT_MS)).responses == []
        assert trio.current_time() < before + WAIT_MS / 1000
        assert acquired(await broker.fetch("m", max_wait_ms=WAIT_MS)) == [(0, 0, 1)]


async def test_a_large_batch_is_at_the_expense_of_other_partitions(tmp_path: Path) -> None:
    broker = ShareBroker(tmp_path)
    async with broker.running():
        await broker.fetch("m", partitions=(0, 1), max_wait_ms=WAIT_MS)
        await broker.fetch("m")
        broker.produce(bytes(180), partition=0)
        broker.produce(b"b", partition=1)
        for expected in (0, 1):
            assert only(await broker.fetch("m", max_bytes=300, max_wait_ms=WAIT_MS)).partition_index == expected


async def test_p363_large_batches_count_as_the_limit_of_their_partition(tmp_path: Path) -> None:
    """P-363: the first batch alone is sent and smaller than min_bytes; both partitions have enough."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        await broker.fetch("m", partitions=(0, 1), max_wait_ms=1)
        broker.produce(bytes(180), partition=0)
        broker.produce(bytes(180), partition=1)
        before = trio.current_time()
        response = await broker.fetch("m", max_bytes=400, min_bytes=400, max_wait_ms=WAIT_MS)
        assert acquired(response) == [(0, 0, 1)]
        assert trio.current_time() == before


async def test_p363_a_large_batch_is_not_worth_more_than_the_limit_of_its_partition(tmp_path: Path) -> None:
    """P-363: the batch has min_bytes, but its partition may have the half of max_bytes only."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        await broker.fetch("m", partitions=(0, 1), max_wait_ms=1)
        broker.produce(bytes(400), partition=0)
        before = trio.current_time()
        response = await broker.fetch("m", max_bytes=400, min_bytes=400, max_wait_ms=WAIT_MS)
        assert acquired(response) == [(0, 0, 1)]
        assert trio.current_time() == pytest.approx(before + WAIT_MS / 1000)


async def test_p363_an_older_segment_is_enough(tmp_path: Path) -> None:
    """P-363."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a")
        await broker.fetch("other", max_records=1, max_wait_ms=WAIT_MS)
        broker.produce(b"b")
        found = broker.partitions.get(TOPIC, 0)
        assert found is not None
        found.log.roll(NOW_MS)
        before = trio.current_time()
        assert acquired(await broker.fetch("m", min_bytes=10_000, max_wait_ms=WAIT_MS)) == [(1, 1, 1)]
        assert trio.current_time() == before


async def test_waiting_members_take_turns(tmp_path: Path) -> None:
    """Three wait for a partition: each record that comes, or that one gives back, goes to the next one."""
    broker = ShareBroker(tmp_path)
    async with broker.running() as nursery:
        found: list[tuple[str, list[tuple[int, int, int]]]] = []

        async def fetch(member: str) -> None:
            found.append((member, acquired(await broker.fetch(member, max_wait_ms=60_000))))

        for member in ("a", "b", "c"):
            nursery.start_soon(fetch, member)
            await trio.sleep(0.1)
        broker.produce(b"1")
        await trio.sleep(0.1)
        assert found == [("a", [(0, 0, 1)])]
        await broker.acknowledge("a", (0, 0, [RELEASE]), epoch=1)
        await trio.sleep(0.1)
        assert found[1:] == [("b", [(0, 0, 2)])]
        broker.produce(b"2")
        await trio.sleep(0.1)
        assert found[2:] == [("c", [(1, 1, 1)])]


async def test_p183_locks_expire(tmp_path: Path) -> None:
    """P-183."""
    broker = ShareBroker(tmp_path, share_record_lock_duration_ms="15000", share_delivery_count_limit="2")
    async with broker.running():
        broker.produce(b"a", b"b")
        assert acquired(await broker.fetch("m1", max_wait_ms=WAIT_MS)) == [(0, 1, 1)]
        await broker.acknowledge("m1", (0, 0, [ACCEPT]))
        await trio.sleep(15)
        assert acquired(await broker.fetch("m2", max_wait_ms=WAIT_MS)) == [(1, 1, 2)]
        late = only(await broker.acknowledge("m1", (1, 1, [ACCEPT])))
        assert late.error_code == ErrorCode.INVALID_RECORD_STATE
        await trio.sleep(15.1)
        assert acquired(await broker.fetch("m2", max_wait_ms=WAIT_MS)) == []
        assert (await stored(broker)).batches[-1] == StateBatch(1, 1, ARCHIVED, 2)


async def test_p183_what_a_refused_acknowledgement_frees_goes_to_a_waiting_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P-183: the acknowledgement comes after the end of the lock, before the timer of locks has run."""
    broker = ShareBroker(tmp_path)
    async with broker.running() as nursery:
        broker.produce(b"a")
        assert acquired(await broker.fetch("m1", max_wait_ms=WAIT_MS)) == [(0, 0, 1)]
        found: list[Any] = []

        async def fetch() -> None:
            found.append(await broker.fetch("m2", max_wait_ms=60_000))

        nursery.start_soon(fetch)
        await trio.sleep(1)
        leader = broker.shares.find(GROUP, TopicIdPartition(topic_id(TOPIC), 0))
        assert leader is not None
        late_ms = leader.now_ms() + 30_000
        with monkeypatch.context() as patch:
            patch.setattr(leader, "now_ms", lambda: late_ms)
            refused = only(await broker.acknowledge("m1", (0, 0, [ACCEPT]), (7, 7, [ACCEPT])))
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        await trio.sleep(1)
        assert [acquired(each) for each in found] == [[(0, 0, 2)]]


async def test_p184_a_renewal_fetches_nothing(tmp_path: Path) -> None:
    """P-184."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a")
        await broker.fetch("m", max_wait_ms=WAIT_MS)
        broker.produce(b"b")
        await trio.sleep(20)
        nothing: dict[str, Any] = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
        refused = await broker.fetch("m", (0, 0, [RENEW]), is_renew_ack=True)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        renewed = await broker.fetch("m", (0, 0, [RENEW]), is_renew_ack=True, **nothing)
        assert (acquired(renewed), only(renewed).acknowledge_error_code) == ([], ErrorCode.NONE)
        await trio.sleep(20)
        again = only(await broker.acknowledge("m", (0, 0, [RENEW]), is_renew_ack=True))
        assert again.error_code == ErrorCode.NONE
        await trio.sleep(29)
        assert only(await broker.acknowledge("m", (0, 0, [ACCEPT]))).error_code == ErrorCode.NONE


# Sessions


async def test_p185_epochs_of_a_session(tmp_path: Path) -> None:
    """P-185."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        missing, wrong = ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert (await broker.fetch("m", epoch=1)).error_code == missing
        assert (await broker.fetch("m", epoch=-1)).error_code == missing
        assert (await broker.acknowledge("m", epoch=0)).error_code == wrong
        assert (await broker.fetch("m", (0, 0, [ACCEPT]), epoch=0)).error_code == ErrorCode.INVALID_REQUEST
        assert (await broker.fetch("m", epoch=0)).error_code == ErrorCode.NONE
        assert (await broker.fetch("m", epoch=2)).error_code == wrong
        assert (await broker.acknowledge("m", epoch=3)).error_code == wrong
        assert (await broker.fetch("m", epoch=1)).error_code == ErrorCode.NONE
        assert (await broker.acknowledge("m", epoch=-1)).error_code == ErrorCode.NONE
        assert (await broker.fetch("m", epoch=2)).error_code == missing


async def test_p185_a_session_that_ends_gives_its_records_back(tmp_path: Path) -> None:
    """P-185."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a", b"b")
        await broker.fetch("m1", max_wait_ms=WAIT_MS)
        assert (await broker.fetch("m1", (0, 0, [ACCEPT]), epoch=-1)).error_code == ErrorCode.NONE
        assert acquired(await broker.fetch("m2", max_wait_ms=WAIT_MS)) == [(1, 1, 2)]


async def test_p185_a_session_ends_with_its_connection(tmp_path: Path) -> None:
    """P-185."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a")
        await broker.fetch("m1", max_wait_ms=WAIT_MS)
        await broker.fetch("m2")
        session = broker.shares.sessions.get(SessionKey(GROUP, "m1"))
        assert session is not None
        session.connection.call_when_closed()  # type: ignore[attr-defined]
        assert (await broker.fetch("m1", epoch=1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert acquired(await broker.fetch("m2")) == [(0, 0, 2)]


async def test_nothing_is_kept_of_a_group_without_sessions(tmp_path: Path) -> None:
    """Groups with names of their own come and go; the release of a member's records reads the settings of its group."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a")
        assert acquired(await broker.fetch("m", max_wait_ms=WAIT_MS)) == [(0, 0, 1)]
        session = broker.shares.sessions.get(SessionKey(GROUP, "m"))
        assert session is not None
        session.connection.call_when_closed()  # type: ignore[attr-defined]
        shares = broker.shares
        assert not shares.sessions.has_group(GROUP)
        assert [len(kept) for kept in (shares._leaders, shares._numbers, shares._settings)] == [0, 0, 0]


async def test_a_connection_that_ends_after_the_broker(tmp_path: Path) -> None:
    """Its records are not released any more: the next leader finds them available."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a")
        await broker.fetch("m", max_wait_ms=WAIT_MS)
        session = broker.shares.sessions.get(SessionKey(GROUP, "m"))
        assert session is not None
    session.connection.call_when_closed()  # type: ignore[attr-defined]
    with pytest.raises(CoordinatorError, match="NOT_COORDINATOR"):
        broker.coordinator.begin_write(key_of(), WriteState(1, 0, 0, 0, ()))


async def test_p185_too_many_sessions(tmp_path: Path) -> None:
    """P-185."""
    broker = ShareBroker(tmp_path, {"group.share.max.share.sessions": "1", "group.share.max.size": "1"})
    async with broker.running():
        await broker.fetch("m1")
        before = trio.current_time()
        assert (await broker.fetch("m2", max_wait_ms=700)).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert trio.current_time() - before == pytest.approx(0.7)
        assert (await broker.fetch("m1", epoch=0)).error_code == ErrorCode.NONE


async def test_a_response_names_only_what_has_changed(tmp_path: Path) -> None:
    broker = ShareBroker(tmp_path)
    async with broker.running():
        assert await broker.fetch("m", partitions=(0, 1), max_wait_ms=WAIT_MS)
        broker.produce(b"a", partition=1)
        response = await broker.fetch("m")
        assert only(response).partition_index == 1


async def test_p360_partitions_with_a_known_position_come_first(tmp_path: Path) -> None:
    """P-360: a partition at whose next offset an earlier request has looked is served before the others."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a", partition=0)
        broker.produce(b"b", partition=1)
        await broker.fetch("m1", partitions=(0, 1), max_records=1, max_wait_ms=WAIT_MS)
        await trio.testing.wait_all_tasks_blocked()
        # Now it looks for records at the end of partition 0 and at the start of partition 1.
        await broker.fetch("m1", max_records=1, max_wait_ms=WAIT_MS)
        await broker.fetch("m1", epoch=FINAL_EPOCH)
        await trio.testing.wait_all_tasks_blocked()
        first = await broker.fetch("m2", partitions=(0, 1), max_records=1, max_wait_ms=WAIT_MS)
        assert [p.partition_index for p in first.responses[0].partitions if p.acquired_records] == [1]


# What the log has


async def test_p186_the_start_of_a_group(tmp_path: Path) -> None:
    """P-186."""
    broker = ShareBroker(tmp_path, share_auto_offset_reset="latest")
    async with broker.running():
        broker.produce(b"a")
        assert acquired(await broker.fetch("m", max_wait_ms=WAIT_MS)) == []
        broker.produce(b"b")
        assert acquired(await broker.fetch("m")) == [(1, 1, 1)]


async def test_p186_the_start_by_duration(tmp_path: Path) -> None:
    """P-186."""
    broker = ShareBroker(tmp_path, share_auto_offset_reset="by_duration:PT1H")
    async with broker.running():
        broker.produce(b"a")
        broker.clock.time_ms = NOW_MS + 2 * 3_600_000
        failed = only(await broker.fetch("m", max_wait_ms=WAIT_MS))
        assert failed.error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        broker.clock.time_ms = NOW_MS + 1_800_000
        assert acquired(await broker.fetch("m", epoch=0, max_wait_ms=WAIT_MS)) == [(0, 0, 1)]


async def test_records_that_were_deleted_are_skipped(tmp_path: Path) -> None:
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a")
        await broker.fetch("m", max_wait_ms=1)
        for value in (b"b", b"c"):
            broker.produce(value)
        partition = broker.partitions.get(TOPIC, 0)
        assert partition is not None
        partition.log.advance_log_start(2)
        assert acquired(await broker.fetch("m")) == []
        assert acquired(await broker.fetch("m")) == [(2, 2, 1)]


async def test_p188_committed_records_only(tmp_path: Path) -> None:
    """P-188."""
    broker = ShareBroker(
        tmp_path, {"transaction.partition.verification.enable": "false"}, share_isolation_level="read_committed"
    )
    async with broker.running():
        writes = {"is_transactional": True, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        broker.produce(b"kept")
        broker.produce(b"aborted", **writes)
        assert acquired(await broker.fetch("m", max_wait_ms=WAIT_MS)) == [(0, 0, 1)]
        assert acquired(await broker.fetch("m")) == []
        end_transaction(broker, 7, is_commit=False)
        broker.produce(b"kept")
        # The marker is acquired: clients acknowledge it as a gap.
        assert acquired(await broker.fetch("m")) == [(2, 3, 1)]


async def test_p363_a_start_behind_what_may_be_read(tmp_path: Path) -> None:
    """P-363: the response comes at once, without records."""
    broker = ShareBroker(
        tmp_path, {"transaction.partition.verification.enable": "false"}, share_isolation_level="read_committed"
    )
    async with broker.running():
        broker.produce(b"open", b"open", is_transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
        await broker.persister.initialize(key_of(), 2, 1)
        before = trio.current_time()
        await broker.fetch("m", max_wait_ms=1)
        assert acquired(await broker.fetch("m", max_wait_ms=60_000)) == []
        assert trio.current_time() < before + 1


def end_transaction(broker: ShareBroker, producer_id: int, *, is_commit: bool) -> None:
    from pykbroker.logstore.partition_log import AppendOrigin
    from pykbroker.protocol.records.batch import build_batch
    from pykbroker.protocol.records.control import ControlRecordType, control_record_key, end_transaction_value
    from pykbroker.protocol.records.record import Record

    kind = ControlRecordType.COMMIT if is_commit else ControlRecordType.ABORT
    record = Record(0, NOW_MS, control_record_key(kind), end_transaction_value(0))
    marker = build_batch([record], is_transactional=True, is_control=True, producer_id=producer_id, producer_epoch=0)
    partition = broker.partitions.get(TOPIC, 0)
    assert partition is not None
    partition.append_as_leader(marker, NOW_MS, AppendOrigin.COORDINATOR)


# Errors


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": None}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "m" * 37}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_refused_requests(tmp_path: Path, fields: dict[str, Any], error: ErrorCode) -> None:
    """P-185."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        assert (await broker.fetch("m", **fields)).error_code == error
        assert (await broker.acknowledge("m", **fields)).error_code == error


async def test_a_cluster_without_share_groups(tmp_path: Path) -> None:
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.services.metadata.image.features = {}
        assert (await broker.fetch("m")).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await broker.acknowledge("m")).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_partitions_that_are_not_here(tmp_path: Path) -> None:
    broker = ShareBroker(tmp_path)
    async with broker.running():
        assert only(await broker.fetch("a", partitions=(9,))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert only(await broker.fetch("b", topic=b"\x07" * 16)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        await broker.fetch("c", max_wait_ms=WAIT_MS)
        broker.change(topic_image(TOPIC, 2, leader=2, leader_epoch=1))
        moved = only(await broker.fetch("c"))
        assert moved.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (moved.current_leader.leader_id, moved.current_leader.leader_epoch) == (2, 1)
        gone = only(await broker.acknowledge("c", (0, 0, [ACCEPT])))
        assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_p491_a_fetch_waits_on_while_the_leader_moves(tmp_path: Path) -> None:
    """P-491: it is answered at its end, without the partition, even if this broker leads again meanwhile."""
    broker = ShareBroker(tmp_path)
    async with broker.running() as nursery:
        await broker.fetch("m", max_wait_ms=WAIT_MS)
        answers: list[Any] = []

        async def wait() -> None:
            answers.append(await broker.fetch("m", max_wait_ms=1_000))

        started = trio.current_time()
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        broker.change(topic_image(TOPIC, 2, leader=2, leader_epoch=1))
        await trio.sleep(0.5)
        broker.change(topic_image(TOPIC, 2, leader_epoch=2))
        broker.produce(b"a")
        await trio.sleep(0.499)
        assert answers == []
        await trio.sleep(0.001)
        await trio.testing.wait_all_tasks_blocked()
        assert trio.current_time() - started == pytest.approx(1)
        assert (answers[0].error_code, answers[0].responses) == (ErrorCode.NONE, [])
        assert acquired(await broker.fetch("m", max_wait_ms=WAIT_MS)) == [(0, 0, 1)]


async def test_p491_the_other_partitions_of_a_fetch_are_served_while_a_leader_moves(tmp_path: Path) -> None:
    """P-491: the next request is told that the leader is another one."""
    broker = ShareBroker(tmp_path)
    async with broker.running() as nursery:
        await broker.fetch("m", partitions=(0, 1), max_wait_ms=WAIT_MS)
        answers: list[Any] = []

        async def wait() -> None:
            answers.append(await broker.fetch("m", max_wait_ms=1_000))

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        moved = topic_image(TOPIC, 1, leader=2, leader_epoch=1)
        broker.change(TopicImage(TOPIC, topic_id(TOPIC), {**topic_image(TOPIC, 2).partitions, **moved.partitions}))
        broker.produce(b"a", partition=1)
        await trio.testing.wait_all_tasks_blocked()
        [topic] = answers[0].responses
        assert [(found.partition_index, found.error_code) for found in topic.partitions] == [(1, ErrorCode.NONE)]
        told = only(await broker.fetch("m", max_wait_ms=WAIT_MS))
        assert (told.partition_index, told.error_code) == (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def test_p189_a_new_leader_fences_the_old_one(tmp_path: Path) -> None:
    """P-189: another broker has read the state under a newer leader epoch: what this one acknowledges is not stored."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a")
        await broker.fetch("m", max_wait_ms=WAIT_MS)
        await broker.coordinator.read(key_of(), 5)
        fenced = only(await broker.acknowledge("m", (0, 0, [ACCEPT])))
        assert fenced.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        text = "Error in write state RPC. The leader epoch in the request is older than the epoch on the broker."
        assert fenced.error_message == text
        assert not (await broker.coordinator.read(key_of(), 5)).batches  # type: ignore[union-attr]
        assert broker.shares.find(GROUP, TopicIdPartition(topic_id(TOPIC), 0)) is None


async def test_a_load_waits_for_the_writes_of_the_leader_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last member of a group goes while its acknowledgement is stored; the next one loads what was stored."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a", b"b")
        await broker.fetch("m1", max_wait_ms=WAIT_MS)
        begin_write = broker.persister.begin_write

        def slow(key: SharePartitionKey, write: WriteState) -> Any:
            async def store() -> None:
                await trio.sleep(1)
                assert begin_write(key, write) is None

            return store

        monkeypatch.setattr(broker.persister, "begin_write", slow)
        session = broker.shares.sessions.get(SessionKey(GROUP, "m1"))
        assert session is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.acknowledge, "m1", (0, 0, [ACCEPT]))
            await trio.sleep(0.1)
            session.connection.call_when_closed()  # type: ignore[attr-defined]
            assert acquired(await broker.fetch("m2", max_wait_ms=5_000)) == [(1, 1, 2)]


async def test_p187_nothing_is_in_flight_during_a_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-187: what a member of the leader before acknowledges meanwhile is not found."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a")
        read = broker.persister.read

        async def slow(key: SharePartitionKey, leader_epoch: int) -> Any:
            await trio.sleep(1)
            return await read(key, leader_epoch)

        monkeypatch.setattr(broker.persister, "read", slow)
        await broker.fetch("m")
        refused = only(await broker.acknowledge("m", (0, 0, [ACCEPT])))
        assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_RECORD_STATE, NOT_FOUND)
        assert acquired(await broker.fetch("m", max_wait_ms=2_000)) == [(0, 0, 1)]


async def test_state_that_cannot_be_read(tmp_path: Path) -> None:
    """P-182: the member gets the error at the end of its wait, so that it does not ask for another load at once."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        await broker.persister.delete(key_of())
        await broker.coordinator.read(key_of(1), 5)
        started = trio.current_time()
        failed = await broker.fetch("m", partitions=(1,), max_wait_ms=WAIT_MS)
        assert only(failed).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert trio.current_time() - started == pytest.approx(WAIT_MS / 1000)


async def test_state_that_is_gone(tmp_path: Path) -> None:
    """P-181: as after the deletion of the group."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a")
        await broker.fetch("m", max_wait_ms=WAIT_MS)
        await broker.persister.delete(key_of())
        refused = only(await broker.fetch("m", (0, 0, [ACCEPT])))
        assert refused.acknowledge_error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        text = "Error in write state RPC. Write operation on uninitialized share partition not allowed."
        assert refused.acknowledge_error_message == text


async def test_a_batch_alone_is_sent_as_it_was_read(tmp_path: Path) -> None:
    """P-180: with the beginning of the next one, which clients pass over."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a")
        size = len(only(await broker.fetch("m", max_wait_ms=WAIT_MS)).records.read())
        broker.produce(b"b")
        broker.produce(b"c")
        cut = await broker.fetch("m", max_bytes=size + 20)
        assert acquired(cut) == [(1, 1, 1)]
        assert len(only(cut).records.read()) == size + 20


async def test_record_limit_mode(tmp_path: Path) -> None:
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a", b"b", b"c")
        assert acquired(await broker.fetch("m1", max_records=1, share_acquire_mode=1, max_wait_ms=WAIT_MS)) == [
            (0, 0, 1)
        ]
        assert acquired(await broker.fetch("m2", max_records=1, share_acquire_mode=1)) == [(1, 1, 1)]
        refused = await broker.fetch("m3", share_acquire_mode=9)
        assert (refused.error_code, refused.error_message) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)


class Quota:
    """The quota of a client that may get some bytes at once."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max

    def fetch_bytes_max(self) -> int:
        return 1_000

    def throttle_fetch(self, size_bytes: int) -> int:
        return 0 if size_bytes <= self.bytes_max else 700


async def test_a_throttled_member_gets_no_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its acknowledgements count; what it has acquired comes again."""
    broker = ShareBroker(tmp_path, share_record_lock_duration_ms="15000")
    make_context = broker.context
    quota = Quota(10_000)

    def context(*arguments: Any, **fields: Any) -> Any:
        made = make_context(*arguments, **fields)
        made.quota = quota  # type: ignore[assignment]
        return made

    monkeypatch.setattr(broker, "context", context)
    async with broker.running():
        for _ in range(3):
            broker.produce(b"v" * 600)
        assert acquired(await broker.fetch("m", max_wait_ms=WAIT_MS)) == [(0, 0, 1)]
        quota.bytes_max = 100
        throttled = await broker.fetch("m", (0, 0, [ACCEPT]))
        assert (throttled.throttle_time_ms, acquired(throttled)) == (700, [])
        assert only(throttled).acknowledge_error_code == ErrorCode.NONE
        quota.bytes_max = 10_000
        await trio.sleep(15.1)
        assert acquired(await broker.fetch("m")) == [(1, 1, 2)]


async def test_p185_a_request_that_waits_while_the_next_one_is_served(tmp_path: Path) -> None:
    """P-185: a client that does not wait for a response gets none of the first request's records."""
    broker = ShareBroker(tmp_path)
    async with broker.running() as nursery:
        await broker.fetch("m")
        answers: list[Any] = []

        async def wait_long() -> None:
            answers.append(await broker.fetch("m", epoch=1, max_wait_ms=5_000))

        nursery.start_soon(wait_long)
        await trio.testing.wait_all_tasks_blocked()
        assert (await broker.fetch("m", epoch=2)).error_code == ErrorCode.NONE
        await trio.sleep(6)
        assert [(answer.error_code, answer.responses) for answer in answers] == [
            (ErrorCode.INVALID_SHARE_SESSION_EPOCH, [])
        ]


async def test_a_member_that_goes_while_it_waits_acquires_nothing(tmp_path: Path) -> None:
    """P-185: else its records would be locked until their time is over."""
    broker = ShareBroker(tmp_path)
    async with broker.running() as nursery:
        await broker.fetch("m")
        answers: list[Any] = []

        async def wait_long() -> None:
            answers.append(await broker.fetch("m", max_wait_ms=5_000))

        nursery.start_soon(wait_long)
        await trio.testing.wait_all_tasks_blocked()
        session = broker.shares.sessions.get(SessionKey(GROUP, "m"))
        assert session is not None
        session.connection.call_when_closed()  # type: ignore[attr-defined]
        broker.produce(b"a")
        await trio.sleep(6)
        assert [acquired(answer) for answer in answers] == [[]]
        assert acquired(await broker.fetch("n", max_wait_ms=WAIT_MS)) == [(0, 0, 1)]


async def test_a_log_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is acquired, and the partition has the error."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a")
        await broker.fetch("m", epoch=0)
        partition = broker.partitions.get(TOPIC, 0)

        def fail(*_: Any, **__: Any) -> Any:
            raise StorageError(TOPIC, "the disk has gone")

        with monkeypatch.context() as patch:
            patch.setattr(type(partition), "read", fail)
            failed = only(await broker.fetch("m", max_wait_ms=WAIT_MS))
            assert (failed.error_code, failed.acquired_records) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
        assert acquired(await broker.fetch("m", max_wait_ms=WAIT_MS)) == [(0, 0, 1)]


async def test_fewer_bytes_than_partitions(tmp_path: Path) -> None:
    """P-363: each of some partitions may have one byte, which is one batch of the first."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a", partition=0)
        broker.produce(b"b", partition=1)
        found = await broker.fetch("m", partitions=(0, 1), max_bytes=1, max_wait_ms=WAIT_MS)
        assert sum(len(p.acquired_records) for topic in found.responses for p in topic.partitions) == 1


async def test_a_cluster_in_which_share_groups_are_disabled(tmp_path: Path) -> None:
    """Sessions and records in flight end with the feature."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a")
        await broker.fetch("m", max_wait_ms=WAIT_MS)
        old = broker.services.metadata.image
        broker.complete = lambda image: None  # type: ignore[method-assign]
        broker.change(*(t for t in old.topics_by_name.values() if t.name == TOPIC))
        assert broker.shares.sessions.get(SessionKey(GROUP, "m")) is None
        assert broker.shares.find(GROUP, TopicIdPartition(topic_id(TOPIC), 0)) is None
        broker.shares.release_session(SessionKey(GROUP, "m"))  # there is nothing to release


async def test_stored_state_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another broker has stored a batch that ends before it begins: the partition is not served, and says so."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        batches = [StateBatch(5, 6, ACKNOWLEDGED, 1), StateBatch(3, 2, ACKNOWLEDGED, 1)]

        async def read(key: SharePartitionKey, leader_epoch: int) -> Any:
            return PartitionState(1, 0, batches)

        monkeypatch.setattr(broker.persister, "read", read)
        failed = await broker.fetch("m", max_wait_ms=WAIT_MS)
        assert only(failed).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_share_partition_whose_topic_partition_is_led_elsewhere_is_not_found(tmp_path: Path) -> None:
    """The replicas of this broker follow a new image before the share partitions do."""
    broker = ShareBroker(tmp_path)
    async with broker.running():
        broker.produce(b"a")
        assert acquired(await broker.fetch("m", max_wait_ms=WAIT_MS)) == [(0, 0, 1)]
        shares, place = broker.shares, TopicIdPartition(topic_id(TOPIC), 0)
        leader = shares.find(GROUP, place)
        assert leader is not None
        old, new = broker.services.metadata.image, cluster_image(topic_image(TOPIC, 2, leader=2, leader_epoch=6))
        new.delta = delta_between(old, new)
        broker.partitions.apply(old, new)
        assert shares.find(GROUP, place) is None
        assert leader.state is LeaderState.ENDED
        assert leader not in shares._leaders.values()


async def test_records_of_a_topic_that_the_member_may_not_read_are_not_acquired(tmp_path: Path) -> None:
    broker = ShareBroker(tmp_path)
    acls = {bytes(16): Acl(GROUP_TYPE, GROUP, LITERAL, "User:ANONYMOUS", "*", READ, ALLOW)}
    authorizer = StandardAuthorizer(lambda: acls, frozenset(), False)
    broker.services = broker.services.replaced(authorizer=authorizer)
    async with broker.running():
        broker.produce(b"a")
        refused = only(await broker.fetch("m", max_wait_ms=WAIT_MS))
        assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert refused.acquired_records == []
