"""The coordinator's shell: log, replay, markers, timers. What a transaction may do is in test_transaction."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.controller.metadata.features import TV_0
from pykbroker.coordination.partitioning import TRANSACTION_TOPIC
from pykbroker.coordination.transaction_marker import TransactionMarker
from pykbroker.errors import KafkaError
from pykbroker.handlers.list_transactions import handle_list_transactions
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.list_transactions import ListTransactionsRequest
from pykbroker.protocol.steps import PIECE
from pykbroker.transactions import administration
from pykbroker.transactions.administration import describe_transaction, list_transactions
from pykbroker.transactions.completion import TransactionCompletion
from pykbroker.transactions.shard import LARGE, TransactionFilter
from pykbroker.transactions.state_log import encode_value
from pykbroker.transactions.states import ProducerIdentity, TransactionState
from tests.pykbroker.transactions.rig import FIRST_PRODUCER_ID, Rig
from tests.support.coordinator_errors import outcome, outcome_of
from tests.support.data_path import topic_image
from tests.support.turns import with_turns

P = FIRST_PRODUCER_ID
COMMITTED = [
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.COMPLETE_COMMIT,
]


def states(rig: Rig, transactional_id: str = "x") -> list[TransactionState]:
    return [entry.state for entry in rig.written(transactional_id) if entry is not None]


async def test_a_transaction_of_an_old_client_p_137(tmp_path: Path) -> None:
    """P-137: on a broker with transaction.version 2; the epoch stays, and the marker has it."""
    rig = Rig(tmp_path)
    async with rig.running():
        known = await rig.begin()
        assert known == (P, 0)
        assert await rig.add(known, 0, 2) == ErrorCode.NONE
        assert await rig.end(known, version=4) == (ErrorCode.NONE, (-1, -1))
        assert states(rig) == COMMITTED
        marker = TransactionMarker(P, 0, coordinator_epoch=0, is_commit=True, transaction_version=0)
        assert rig.markers == [(marker, "t", 0), (marker, "t", 2)]
        assert await rig.end(known, version=4) == (ErrorCode.NONE, (-1, -1))
        assert await rig.add(known, 1) == ErrorCode.NONE


async def test_a_transaction_of_a_new_client_p_136(tmp_path: Path) -> None:
    """P-136: the leader of a partition adds it; each end gives a new epoch, a repetition gives it again."""
    rig = Rig(tmp_path)
    async with rig.running():
        known = await rig.begin()
        added = await rig.transactions.verify(ProducerIdentity("x", *known), [("t", 1)], add=True)
        assert added == {("t", 1): ErrorCode.NONE}
        assert await rig.end(known, is_commit=False) == (ErrorCode.NONE, (P, 1))
        assert rig.markers == [(TransactionMarker(P, 1, 0, is_commit=False, transaction_version=2), "t", 1)]
        assert await rig.end(known, is_commit=False) == (ErrorCode.NONE, (P, 1))
        assert await rig.end((P, 1), is_commit=False) == (ErrorCode.NONE, (P, 2))
        assert len(rig.markers) == 1


async def test_a_new_client_at_version_0_is_refused_p_433(tmp_path: Path) -> None:
    """P-433: nothing has changed, and an older client's requests go on; level 1 can store what the client does."""
    rig = Rig(tmp_path, level=0)
    async with rig.running():
        known = await rig.begin()
        refused = await rig.transactions.verify(ProducerIdentity("x", *known), [("t", 1)], add=True)
        assert refused == {("t", 1): ErrorCode.UNSUPPORTED_VERSION}
        assert await rig.end(known, is_commit=False) == (ErrorCode.UNSUPPORTED_VERSION, (-1, -1))
        assert await rig.end((P, 1)) == (ErrorCode.PRODUCER_FENCED, (-1, -1))
        assert await rig.add(known) == ErrorCode.NONE
        assert await rig.end(known) == (ErrorCode.UNSUPPORTED_VERSION, (-1, -1))
        assert await rig.end(known, version=4) == (ErrorCode.NONE, (-1, -1))
        assert states(rig) == COMMITTED
        rig.set_level(1)
        assert await rig.transactions.verify(ProducerIdentity("x", *known), [("t", 1)], add=True) == {
            ("t", 1): ErrorCode.NONE
        }
        assert await rig.end(known) == (ErrorCode.NONE, (P, 1))


def values(rig: Rig) -> list[bytes | None]:
    """The records of id "x", as they are in the log, without their times."""
    return [
        None if state is None else encode_value(state._replace(start_ms=0, last_update_ms=0), 2)
        for state in rig.written("x")
    ]


@pytest.mark.parametrize("disturbance", ["", "other partitions", "the same partitions", "a new leader", "a level"])
async def test_a_transaction_of_very_many_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disturbance: str
) -> None:
    """They are encoded while other requests run, which may add some. The log is the same as without that."""
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    rig, plain = Rig(tmp_path / "rig"), Rig(tmp_path / "plain")
    names = [f"t{number}" for number in range(LARGE + 3 * PIECE)]

    async def add(to: Rig, *names: str) -> ErrorCode:
        partitions = [(name, 0) for name in names]
        return await to.transactions.add_partitions(ProducerIdentity("x", *known), partitions, client_version=TV_0)

    async with rig.running(), plain.running():
        known = await rig.begin()
        assert await plain.begin() == known

        async def disturb() -> None:
            if disturbance == "other partitions":
                assert await add(rig, "other") is ErrorCode.NONE
            elif disturbance == "the same partitions":
                assert await add(rig, *names) is ErrorCode.NONE
            elif disturbance == "a new leader":
                rig.change(topic_image("t", 3), topic_image(TRANSACTION_TOPIC, 5, leader=2, leader_epoch=1))
            elif disturbance == "a level":
                rig.set_level(0)

        error, turns = await with_turns(add(rig, *names), disturb)
        assert turns >= (3 if disturbance else len(names) // PIECE)
        if disturbance == "a new leader":
            assert error is ErrorCode.NOT_COORDINATOR
            return
        assert error is ErrorCode.NONE
        assert await add(rig, "last") is ErrorCode.NONE
        assert await rig.end(known, version=4) == (ErrorCode.NONE, (-1, -1))
        monkeypatch.setattr("pykbroker.transactions.shard.LARGE", 1_000_000)
        if disturbance == "other partitions":
            assert await add(plain, "other") is ErrorCode.NONE
        elif disturbance == "a level":
            plain.set_level(0)
        assert await add(plain, *names) is ErrorCode.NONE
        assert await add(plain, "last") is ErrorCode.NONE
        assert await plain.end(known, version=4) == (ErrorCode.NONE, (-1, -1))
        await trio.sleep(1)
        assert states(rig)[-1] is TransactionState.COMPLETE_COMMIT
        assert values(rig) == values(plain)
        assert not any(shard._encoded for shard in rig.transactions.runtime.shards.values())


async def test_verification_p_135(tmp_path: Path) -> None:
    """P-135: a partition that is not part of the transaction is TRANSACTION_ABORTABLE."""
    rig = Rig(tmp_path)
    async with rig.running():
        known = await rig.begin()
        await rig.add(known, 0)

        async def verify(transactional_id: str = "x", epoch: int = 0) -> list[ErrorCode]:
            codes = await rig.transactions.verify(
                ProducerIdentity(transactional_id, P, epoch), [("t", 0), ("t", 1)], add=False
            )
            return list(codes.values())

        assert await verify() == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]
        assert await verify(epoch=1) == [ErrorCode.PRODUCER_FENCED] * 2
        assert await verify("y") == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
        assert await verify("") == [ErrorCode.INVALID_REQUEST] * 2
        rig.marker_errors["t", 0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        await rig.end(known, version=4)
        assert await verify() == [ErrorCode.CONCURRENT_TRANSACTIONS] * 2


async def test_without_the_topic_there_is_no_coordinator(tmp_path: Path) -> None:
    rig = Rig(tmp_path, is_fresh=True)
    async with rig.running():
        assert (await rig.init())[0] == ErrorCode.NOT_COORDINATOR
        rig.transactions.request_topic_creation(1)
        await trio.sleep(0.1)
        assert await rig.begin() == (P, 0)
    [topic] = rig.created
    assert (topic.name, topic.partition_count, topic.replication_factor) == (TRANSACTION_TOPIC, 50, 1)
    assert topic.configs == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }


async def test_a_marker_that_cannot_be_written_is_tried_again_p_132(tmp_path: Path) -> None:
    """P-132: the answer does not wait for it, the next transaction does."""
    rig = Rig(tmp_path)
    async with rig.running():
        known = await rig.begin()
        await rig.add(known, 0, 1)
        rig.marker_errors["t", 0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await rig.end(known, version=4) == (ErrorCode.NONE, (-1, -1))
        assert [partition for _, _, partition in rig.markers] == [1]
        assert await rig.add(known, 2) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert (await rig.init())[0] == ErrorCode.CONCURRENT_TRANSACTIONS
        await trio.sleep(1)
        assert rig.transaction().partitions == {("t", 0)}
        del rig.marker_errors["t", 0]
        await trio.sleep(0.3)
        assert [partition for _, _, partition in rig.markers] == [1, 0]
        assert states(rig) == COMMITTED
        assert await rig.add(known, 2) == ErrorCode.NONE


async def test_a_reply_goes_out_before_the_markers_are_written_p_132(tmp_path: Path) -> None:
    """P-132: once the decision is in the log; the caller has the rest done after its reply."""
    rig = Rig(tmp_path)
    async with rig.running():
        known = await rig.begin()
        await rig.add(known, 0, 2)
        follow_ups: list[Callable[[], None]] = []
        answer = await rig.transactions.end(
            "x", *known, is_commit=True, client_version=2, after_reply=follow_ups.append
        )
        assert answer == (ErrorCode.NONE, P, 1)
        assert (states(rig), rig.markers) == (COMMITTED[:-1], [])
        assert await rig.add((P, 1), 1) == ErrorCode.CONCURRENT_TRANSACTIONS
        [follow_up] = follow_ups
        follow_up()
        assert states(rig) == COMMITTED
        assert [partition for _, _, partition in rig.markers] == [0, 2]
        assert await rig.add((P, 1), 1) == ErrorCode.NONE


async def test_a_repetition_leaves_nothing_to_be_done_after_its_reply(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        known = await rig.begin()
        await rig.add(known, 0)
        await rig.end(known)
        follow_ups: list[Callable[[], None]] = []
        answer = await rig.transactions.end(
            "x", *known, is_commit=True, client_version=2, after_reply=follow_ups.append
        )
        assert (answer, follow_ups) == ((ErrorCode.NONE, P, 1), [])


async def test_a_deleted_topic_needs_no_marker(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        known = await rig.begin()
        await rig.add(known, 0)
        rig.change(topic_image(TRANSACTION_TOPIC, 5))
        assert (await rig.end(known))[0] == ErrorCode.NONE
        assert states(rig) == COMMITTED
        assert rig.markers == []


async def test_a_partition_that_saw_a_newer_producer_stops_the_markers(tmp_path: Path) -> None:
    """As in Kafka the id stays busy until its partition is loaded anew."""
    rig = Rig(tmp_path)
    async with rig.running():
        known = await rig.begin()
        await rig.add(known, 0, 1)
        rig.marker_errors["t", 0] = ErrorCode.TRANSACTION_COORDINATOR_FENCED
        await rig.end(known)
        await trio.sleep(5)
        assert rig.markers == []
        assert (await rig.init())[0] == ErrorCode.CONCURRENT_TRANSACTIONS


async def test_very_many_markers_let_others_in_between(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        rig.change(topic_image(TRANSACTION_TOPIC, 5), topic_image("t", 1), topic_image("many", 350))
        known = await rig.begin()
        places = [("many", number) for number in range(350)]
        await rig.transactions.verify(ProducerIdentity("x", *known), places, add=True)
        rig.marker_errors["many", 3] = ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await rig.end(known))[0] == ErrorCode.NONE
        assert rig.markers == []
        await trio.sleep(0.01)
        assert len(rig.markers) == 349
        rig.marker_errors.clear()
        await trio.sleep(0.3)
        assert len(rig.markers) == 350
        assert states(rig) == COMMITTED


async def test_each_of_very_many_markers_is_written_in_a_step_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A marker may have to open its log first."""
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    rig = Rig(tmp_path)
    async with rig.running():
        rig.change(topic_image(TRANSACTION_TOPIC, 5), topic_image("t", 1), topic_image("many", 80))
        known = await rig.begin()
        await rig.transactions.verify(
            ProducerIdentity("x", *known), [("many", number) for number in range(80)], add=True
        )
        await rig.end(known)
        written = [len(rig.markers)]
        while len(rig.markers) < 80:
            await trio.lowlevel.checkpoint()
            written.append(len(rig.markers))
        # trio may run the task twice before it runs this one again
        assert max(after - before for before, after in pairwise(written)) <= 2
        await trio.testing.wait_all_tasks_blocked()
        assert states(rig) == COMMITTED


async def test_very_many_markers_when_the_partition_is_loaded_anew_in_between(tmp_path: Path) -> None:
    """The first task ends without a word, the markers that are left come from the log."""
    rig = Rig(tmp_path)
    async with rig.running():
        topics = topic_image("t", 1), topic_image("many", 350)
        rig.change(topic_image(TRANSACTION_TOPIC, 5), *topics)
        known = await rig.begin()
        await rig.transactions.verify(
            ProducerIdentity("x", *known), [("many", number) for number in range(350)], add=True
        )
        assert (await rig.end(known))[0] == ErrorCode.NONE
        rig.change(topic_image(TRANSACTION_TOPIC, 5, leader=2, followers=(1,)), *topics)
        rig.change(topic_image(TRANSACTION_TOPIC, 5, leader_epoch=3), *topics)
        await trio.sleep(1)
        assert {place for _, _, place in rig.markers} == set(range(350))
        assert states(rig) == COMMITTED
        assert rig.transaction().pending is None


async def test_a_failed_fence_of_a_late_transaction_is_tried_again_p_140(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """P-140."""
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.add(await rig.begin(timeout_ms=5_000), 0)

        def refuse(partition: object) -> None:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "no")

        with monkeypatch.context() as patch:
            patch.setattr(type(rig.partitions.get("t", 0)), "check_enough_replicas", refuse)
            await trio.sleep(10.1)
        assert "COORDINATOR_NOT_AVAILABLE" in caplog.text
        assert rig.transaction().current.state is TransactionState.ONGOING
        await trio.sleep(10)
        assert rig.transaction().current.state is TransactionState.COMPLETE_ABORT


@pytest.mark.parametrize("level", [0, 1, 2])
async def test_replay_goes_on_where_the_log_ends_p_142(tmp_path: Path, level: int) -> None:
    """P-142: everything that was answered is known; a decided transaction gets its markers."""
    rig = Rig(tmp_path, level=level)
    async with rig.running():
        ongoing, decided = await rig.begin("ongoing"), await rig.begin("decided")
        await rig.add(ongoing, 1, transactional_id="ongoing")
        await rig.add(decided, 0, 1, transactional_id="decided")
        rig.marker_errors["t", 0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        await rig.end(decided, transactional_id="decided", version=4)
    again = Rig(tmp_path, level=level)
    async with again.running():
        assert again.transaction("decided").current.state is TransactionState.COMPLETE_COMMIT
        assert [(marker.producer_id, marker.is_commit, place) for marker, _, place in again.markers] == [
            (decided[0], True, 0),
            (decided[0], True, 1),
        ]
        assert await again.add(ongoing, 2, transactional_id="ongoing") == ErrorCode.NONE
        assert again.transaction("ongoing").current.partitions == {("t", 1), ("t", 2)}


async def test_a_bad_record_does_not_take_the_others_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from pykbroker.coordination.partition_writer import append_records
    from pykbroker.protocol.records.batch import frames_of
    from pykbroker.transactions.state_log import encode_key

    rig = Rig(tmp_path)
    async with rig.running():
        await rig.begin()
        for number in range(5):
            partition = rig.partitions.get(TRANSACTION_TOPIC, number)
            assert partition is not None
            pairs = [(encode_key(f"bad{number}"), b"\0\1nonsense"), (b"\0\7new", b"")]
            append_records(partition, frames_of(pairs), 0, 1)
    again = Rig(tmp_path)
    async with again.running():
        assert again.transaction().current.producer_id == P
        assert "is skipped" in caplog.text


async def test_another_leader_and_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        known = await rig.begin()
        await rig.add(known, 0)
        rig.marker_errors["t", 0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        await rig.end(known, version=4)
        rig.change(topic_image("t", 3), topic_image(TRANSACTION_TOPIC, 5, leader=2, followers=(1,)))
        assert await rig.add(known, 1) == ErrorCode.NOT_COORDINATOR
        rig.marker_errors.clear()
        await trio.sleep(5)
        assert rig.markers == []
        rig.change(topic_image("t", 3), topic_image(TRANSACTION_TOPIC, 5, leader_epoch=7))
        assert await rig.add(known, 1) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await trio.sleep(0.1)
        assert [marker.coordinator_epoch for marker, _, _ in rig.markers] == [7]
        assert await rig.add(known, 1) == ErrorCode.NONE


async def test_a_newer_leader_epoch_goes_into_markers_p_133(tmp_path: Path) -> None:
    """P-133."""
    rig = Rig(tmp_path)
    async with rig.running():
        known = await rig.begin()
        await rig.add(known, 0)
        rig.change(topic_image("t", 3), topic_image(TRANSACTION_TOPIC, 5, leader_epoch=4))
        await trio.sleep(0.1)  # another leader may have written in between: all is read anew
        await rig.end(known)
        assert [marker.coordinator_epoch for marker, _, _ in rig.markers] == [4]


async def test_a_stopped_coordinator_answers_nobody(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.begin()
        rig.transactions.runtime.stop()
        assert (await rig.init())[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_failed_append_changes_nothing_p_115(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-115: with the code that makes a client try again; also the record that completes a transaction comes later."""
    rig = Rig(tmp_path)
    async with rig.running():
        known = await rig.begin()
        await rig.add(known, 0)

        def refuse(partition: object) -> None:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "no")

        partition_type = type(rig.partitions.get("t", 0))
        with monkeypatch.context() as patch:
            patch.setattr(partition_type, "check_enough_replicas", refuse)
            assert await rig.add(known, 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert (await rig.end(known))[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert rig.transaction().current.partitions == {("t", 0)}
        rig.marker_errors["t", 0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        await rig.end(known)
        rig.marker_errors.clear()
        with monkeypatch.context() as patch:
            patch.setattr(partition_type, "check_enough_replicas", refuse)
            await trio.sleep(1)
            assert len(rig.markers) == 1
            assert rig.transaction().current.state is TransactionState.PREPARE_COMMIT
        await trio.sleep(1)
        assert states(rig) == COMMITTED


@pytest.mark.parametrize("level", [0, 2])
async def test_a_transaction_that_takes_too_long_is_aborted_p_140(tmp_path: Path, level: int) -> None:
    """P-140: looked at every ten seconds, and the producer is fenced."""
    rig = Rig(tmp_path, level=level)
    async with rig.running():
        known = await rig.begin(timeout_ms=15_000)
        await rig.add(known, 0)
        await trio.sleep(19.9)
        assert rig.transaction().current.state is TransactionState.ONGOING
        await trio.sleep(0.2)
        assert rig.transaction().current.state is TransactionState.COMPLETE_ABORT
        assert [marker[:4] for marker, _, _ in rig.markers] == [(P, 1, 0, False)]
        # Under transaction.version 2 the epoch below the present one may repeat an end, and finds another decision.
        expected = ErrorCode.PRODUCER_FENCED if level == 0 else ErrorCode.INVALID_TXN_STATE
        assert (await rig.end(known, version=5 if level else 4))[0] == expected
        assert await rig.add(known, 0) == ErrorCode.PRODUCER_FENCED
        # As in Kafka the one that was fenced by a timeout may then begin anew, for it is the last that there was.
        assert await rig.init(expected=known) == (
            (ErrorCode.NONE, (P, 1)) if level else (ErrorCode.PRODUCER_FENCED, (-1, -1))
        )


async def test_a_two_phase_commit_has_no_timeout(tmp_path: Path) -> None:
    """P-441: whatever the request says of it, also when a later coordinator has loaded the log."""
    rig = Rig(tmp_path, {"transaction.two.phase.commit.enable": "true"})
    async with rig.running():
        known = await rig.begin(timeout_ms=-5, version=6, two_phase_commit=True)
        await rig.add(known, 0)
        rig.clock.time_ms += 30 * 24 * 3600 * 1000
        await trio.sleep(20)
        assert rig.transaction().current.state is TransactionState.ONGOING
    again = Rig(tmp_path, {"transaction.two.phase.commit.enable": "true"})
    again.clock.time_ms += 60 * 24 * 3600 * 1000
    async with again.running():
        await trio.sleep(60)
        assert again.transaction().current.state is TransactionState.ONGOING
        assert again.transaction().current.timeout_ms == 2**31 - 1
        assert (await again.end(known))[0] == ErrorCode.NONE


@pytest.mark.parametrize("is_enabled", [False, True])
async def test_two_phase_commits_that_are_refused(tmp_path: Path, is_enabled: bool) -> None:
    """P-441: without `transaction.two.phase.commit.enable`, and the prepared transaction of another producer."""
    rig = Rig(tmp_path, {"transaction.two.phase.commit.enable": str(is_enabled).lower()})
    async with rig.running():
        refused = ErrorCode.UNSUPPORTED_VERSION if is_enabled else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        options: dict[str, Any] = {"version": 6, "timeout_ms": 0, "keep_prepared": True}
        assert (await rig.init(two_phase_commit=True, **options))[0] == refused
        assert (await rig.init(**options))[0] == ErrorCode.UNSUPPORTED_VERSION
        assert (await rig.init("", two_phase_commit=True, **options))[0] == ErrorCode.INVALID_REQUEST
        assert (await rig.init(version=6, timeout_ms=0))[0] == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert await rig.init(version=6) == (ErrorCode.NONE, (P, 0))


async def test_timeouts_go_on_after_a_restart_p_140(tmp_path: Path) -> None:
    """P-140: by the time of day at which the transaction began."""
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.add(await rig.begin(timeout_ms=60_000), 0)
    again = Rig(tmp_path)
    again.clock.time_ms += 55_000
    async with again.running():
        await trio.sleep(9.9)
        assert again.transaction().current.state is TransactionState.ONGOING
        await trio.sleep(0.2)
        assert again.transaction().current.state is TransactionState.COMPLETE_ABORT


async def test_unused_ids_expire_p_56(tmp_path: Path) -> None:
    """P-56: `transactional.id.expiration.ms` after the last change; an open transaction never."""
    rig = Rig(tmp_path, {"transactional.id.expiration.ms": "7200000", "transaction.max.timeout.ms": "100000000"})
    async with rig.running():
        await rig.begin("unused")
        await rig.add(await rig.begin("open", timeout_ms=100_000_000), 0, transactional_id="open")
        await trio.sleep(3601)
        await rig.begin("used")
        await trio.sleep(2 * 3600)
        assert outcome(describe_transaction, rig.transactions, "unused") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert rig.written("unused")[-1] is None
        assert outcome(describe_transaction, rig.transactions, "used") is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert rig.transaction("open").current.state is TransactionState.ONGOING
        assert (await rig.end((P, 0), transactional_id="unused"))[0] == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    again = Rig(tmp_path)
    async with again.running():
        assert outcome(describe_transaction, again.transactions, "unused") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_very_many_ids_expire_in_several_batches(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {"transactional.id.expiration.ms": "1", "message.max.bytes": "200000"})
    async with rig.running():
        for number in range(30):
            await rig.begin(f"{number:030000}")
        await trio.sleep(3601)
        for number in range(30):
            assert (
                outcome(describe_transaction, rig.transactions, f"{number:030000}")
                is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            )


async def test_no_producer_id_no_transaction(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        rig.id_error = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no block")
        assert (await rig.init())[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert outcome(describe_transaction, rig.transactions, "x") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_two_at_once_who_begin_get_two_epochs(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    answers: list[tuple[int, tuple[int, int]]] = []

    async def begin() -> None:
        answers.append(await rig.init())

    async with rig.running(), trio.open_nursery() as nursery:
        nursery.start_soon(begin)
        nursery.start_soon(begin)
    assert sorted(known[1] for _, known in answers) == [0, 1]
    assert len({known[0] for _, known in answers}) == 1


async def test_the_epochs_run_out_p_129(tmp_path: Path) -> None:
    """P-129: after 32,766 the next end brings a new producer id, which a repetition gets again."""
    rig = Rig(tmp_path)
    async with rig.running():
        known = await rig.begin()
        transaction = rig.transaction()
        transaction.current = transaction.current._replace(producer_epoch=32766)
        await rig.add((P, 32766), 0)
        assert await rig.end((P, 32766)) == (ErrorCode.NONE, (P + 1, 0))
        assert [(marker.producer_id, marker.producer_epoch) for marker, _, _ in rig.markers] == [(P, 32767)]
        assert await rig.end((P, 32766)) == (ErrorCode.NONE, (P + 1, 0))
        assert await rig.add((P + 1, 0), 0) == ErrorCode.NONE
        transaction.current = transaction.current._replace(producer_epoch=32766)
        rig.id_error = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no block")
        assert (await rig.end((P + 1, 32766)))[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert known == (P, 0)


async def test_lists_and_descriptions_of_another_broker(tmp_path: Path) -> None:
    """P-128: neither transactions that are being loaded nor those of another broker are shown."""
    rig = Rig(tmp_path)
    everything = TransactionFilter()
    async with rig.running():
        await rig.begin()
    again = Rig(tmp_path)
    assert await outcome_of(list_transactions, again.transactions, everything) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    listed = await again.answer(handle_list_transactions, ListTransactionsRequest(), 1)
    assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert outcome(describe_transaction, again.transactions, "x") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    async with again.running():
        found = await list_transactions(again.transactions, everything)
        assert [transaction.transactional_id for transaction in found] == ["x"]


async def test_transactions_are_listed_in_kafkas_order(tmp_path: Path) -> None:
    """P-615: as Apache Kafka 4.3.1 listed fourteen ids of three partitions."""
    rig = Rig(tmp_path, is_fresh=True)
    rig.change(topic_image("t", 3), topic_image(TRANSACTION_TOPIC, 3))
    expected = [f"txn-{number}" for number in (2, 5, 12, 8, 0, 6, 3, 9, 11, 1, 13, 4, 10, 7)]
    async with rig.running():
        for number in range(14):
            await rig.begin(f"txn-{number}")
        found = await list_transactions(rig.transactions, TransactionFilter())
        assert [transaction.transactional_id for transaction in found] == expected


async def test_a_list_of_very_many_lets_others_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    monkeypatch.setattr(administration, "LISTED_PER_TURN", 2)
    async with rig.running():
        for number in range(5):
            await rig.begin(f"x{number}")
        found, turns = await with_turns(list_transactions(rig.transactions, TransactionFilter()))
        assert len(found) == 5
        assert turns > 0


def test_a_transaction_whose_markers_are_being_written_is_tried_later() -> None:
    later: list[Any] = []
    transaction: Any = SimpleNamespace(key=(0, "x"), to_do=lambda: [("t", 0)])
    completion: Any = SimpleNamespace(_in_tasks={(0, "x")}, _schedule_retry=later.append)
    TransactionCompletion._advance(completion, transaction)
    assert later == [transaction]
