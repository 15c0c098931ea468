"""The APIs of the transaction coordinator: versions, errors by version, what the tools list. P-88, P-127 to P-136."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from pykbroker.coordination.partitioning import OFFSETS_TOPIC, coordinator_partition
from pykbroker.handlers.add_offsets_to_txn import handle_add_offsets_to_txn
from pykbroker.handlers.add_partitions_to_txn import handle_add_partitions_to_txn
from pykbroker.handlers.describe_transactions import handle_describe_transactions
from pykbroker.handlers.find_coordinator import handle_find_coordinator
from pykbroker.handlers.list_transactions import handle_list_transactions
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pykbroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from pykbroker.protocol.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from pykbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykbroker.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from pykbroker.transactions.states import TransactionState as LoggedTransactionState
from tests.pykbroker.transactions.rig import FIRST_PRODUCER_ID, Rig
from tests.support.data_path import NODE_ID, NOW_MS, topic_image
from tests.support.turns import Turns, with_turns

P = FIRST_PRODUCER_ID


async def add_old(rig: Rig, version: int = 3, *, epoch: int = 0, **topics: list[int]) -> dict[tuple[str, int], int]:
    """AddPartitionsToTxn as clients send it; the code per partition."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=P,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=ids) for name, ids in topics.items()],
    )
    response = await rig.call(handle_add_partitions_to_txn, request, version)
    return codes_of(response.results_by_topic_v3_and_below)


async def add_new(rig: Rig, version: int, *transactions: AddPartitionsToTxnTransaction) -> dict[str, Any]:
    """AddPartitionsToTxn as brokers send it; the code per partition of each transaction."""
    request = AddPartitionsToTxnRequest(transactions=list(transactions))
    response = await rig.call(handle_add_partitions_to_txn, request, version)
    assert response.error_code == ErrorCode.NONE
    return {result.transactional_id: codes_of(result.topic_results) for result in response.results_by_transaction}


def codes_of(topics: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, result.partition_index): result.partition_error_code
        for topic in topics
        for result in topic.results_by_partition
    }


@pytest.mark.parametrize("version", range(4))
async def test_all_partitions_are_added_or_none_p_131(tmp_path: Path, version: int) -> None:
    """P-131."""
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.begin()
        assert await add_old(rig, version, t=[0, 7], gone=[0], __transaction_state=[0]) == {
            ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
            ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("__transaction_state", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        }
        assert rig.transaction().current.partitions == frozenset()
        assert await add_old(rig, version, t=[0, 1, 0]) == {("t", 0): ErrorCode.NONE, ("t", 1): ErrorCode.NONE}
        assert rig.transaction().current.partitions == {("t", 0), ("t", 1)}


async def test_one_answer_for_all_partitions_is_given_to_what_the_request_names(tmp_path: Path) -> None:
    """Also what it names twice, and topics without partitions; with an answer for each partition each is there once."""
    rig = Rig(tmp_path)

    async def add(*topics: tuple[str, list[int]]) -> list[tuple[str, list[int]]]:
        named = [AddPartitionsToTxnTopic(name=name, partitions=partitions) for name, partitions in topics]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=P,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=named,
        )
        response = await rig.call(handle_add_partitions_to_txn, request, 3)
        return [
            (topic.name, [result.partition_index for result in topic.results_by_partition])
            for topic in response.results_by_topic_v3_and_below
        ]

    async with rig.running():
        await rig.begin()
        assert await add(("t", [0, 0, 1]), ("gone", [])) == [("t", [0, 0, 1]), ("gone", [])]
        assert await add(("t", [0, 0, 7]), ("gone", [])) == [("t", [0, 7])]


@pytest.mark.parametrize("version", [4, 5])
async def test_several_transactions_at_once_p_135(tmp_path: Path, version: int) -> None:
    """P-135: brokers verify for old clients and add for new ones."""
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.begin("x")
        await rig.begin("y")

        def transaction(name: str, producer_id: int, *, verify_only: bool) -> AddPartitionsToTxnTransaction:
            topics = [AddPartitionsToTxnTopic(name="t", partitions=[0])]
            return AddPartitionsToTxnTransaction(
                transactional_id=name, producer_id=producer_id, producer_epoch=0, verify_only=verify_only, topics=topics
            )

        answers = await add_new(
            rig,
            version,
            transaction("x", P, verify_only=False),
            transaction("y", P + 1, verify_only=True),
            transaction("z", P, verify_only=False),
        )
        assert {name: list(codes.values()) for name, codes in answers.items()} == {
            "x": [ErrorCode.NONE],
            "y": [ErrorCode.TRANSACTION_ABORTABLE],
            "z": [ErrorCode.INVALID_PRODUCER_ID_MAPPING],
        }
        assert rig.transaction("x").current.client_version == 2


@pytest.mark.parametrize("version", range(5))
async def test_a_fenced_producer_by_version_p_130(tmp_path: Path, version: int) -> None:
    """P-130: clients of old versions know INVALID_PRODUCER_EPOCH alone."""
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.begin()
        await rig.begin()
        expected = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        if version < 4:
            assert await add_old(rig, version, t=[0]) == {("t", 0): expected}
        request = AddOffsetsToTxnRequest(transactional_id="x", producer_id=P, producer_epoch=0, group_id="g")
        assert (await rig.answer(handle_add_offsets_to_txn, request, version)).error_code == expected
        assert (await rig.end((P, 0), version=version))[0] == expected


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_a_fenced_producer_that_begins_anew_p_130(tmp_path: Path, version: int) -> None:
    """P-130."""
    rig = Rig(tmp_path)
    async with rig.running():
        for _ in range(3):
            await rig.begin()
        expected = ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert await rig.init(expected=(P, 0), version=version) == (expected, (-1, -1))


@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "code"),
    [
        ("", 1000, ErrorCode.INVALID_REQUEST),
        ("t", 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", 900_000, ErrorCode.NONE),
    ],
)
async def test_what_is_wrong_with_the_request_itself_p_127(
    tmp_path: Path, transactional_id: str, timeout_ms: int, code: ErrorCode
) -> None:
    """P-127."""
    rig = Rig(tmp_path)
    async with rig.running():
        assert (await rig.init(transactional_id, timeout_ms=timeout_ms))[0] == code


async def test_an_empty_id_is_no_id(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        assert (await rig.end((P, 0), transactional_id=""))[0] == ErrorCode.INVALID_REQUEST
        assert await rig.add((P, 0), transactional_id="") == ErrorCode.INVALID_REQUEST
        assert (await describe(rig, ""))[0].error_code == ErrorCode.INVALID_REQUEST


async def test_offsets_of_a_group_p_131(tmp_path: Path) -> None:
    """P-131: the partition that keeps the group, as many partitions as the topic will have when there is none yet."""
    rig = Rig(tmp_path, {"offsets.topic.num.partitions": "7"})
    async with rig.running():
        await rig.begin()
        request = AddOffsetsToTxnRequest(transactional_id="x", producer_id=P, producer_epoch=0, group_id="g")
        assert (await rig.answer(handle_add_offsets_to_txn, request, 4)).error_code == ErrorCode.NONE
        assert rig.transaction().current.partitions == {(OFFSETS_TOPIC, coordinator_partition("g", 7))}


# The tools


async def describe(rig: Rig, *transactional_ids: str) -> list[TransactionState]:
    request = DescribeTransactionsRequest(transactional_ids=list(transactional_ids))
    response = await rig.call(handle_describe_transactions, request, 0)
    found: list[TransactionState] = response.transaction_states
    return found


async def test_describe_p_134(tmp_path: Path) -> None:
    """P-134: the state's name is Kafka's."""
    rig = Rig(tmp_path)
    async with rig.running():
        known = await rig.begin(timeout_ms=5000)
        await rig.add(known, 2, 0)
        [x, y] = await describe(rig, "x", "y")
        assert y.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert (x.error_code, x.transaction_state, x.transaction_timeout_ms) == (0, "Ongoing", 5000)
        assert (x.producer_id, x.producer_epoch) == known
        assert x.transaction_start_time_ms == NOW_MS
        assert [(topic.topic, topic.partitions) for topic in x.topics] == [("t", [0, 2])]
        await rig.end(known)
        [x] = await describe(rig, "x")
        assert (x.transaction_state, x.topics) == ("CompleteCommit", [])


async def test_others_have_turns_between_the_partitions_of_a_described_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but its partitions is of the moment at which it was found."""
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    rig = Rig(tmp_path, {"transaction.state.log.num.partitions": "1"})
    async with rig.running():
        known = await rig.begin(timeout_ms=5000)
        await rig.add(known, 2, 0)
        transaction = rig.transaction()
        transaction.current = transaction.current._replace(partitions=frozenset(("t", n) for n in range(100)))

        def end() -> None:
            transaction.current = transaction.current._replace(state=LoggedTransactionState.COMPLETE_ABORT)

        [x], turns = await with_turns(describe(rig, "x"), end, at=50)
        assert turns > 100
        assert transaction.current.state is LoggedTransactionState.COMPLETE_ABORT
        assert x.transaction_state == "Ongoing"
        assert [(topic.topic, topic.partitions) for topic in x.topics] == [("t", list(range(100)))]


async def test_others_have_turns_between_listed_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    rig = Rig(tmp_path)
    async with rig.running():
        for number in range(30):
            await rig.begin(f"x{number}")
        response, turns = await with_turns(list_of(rig))
        assert len(response.transaction_states) == 30
        assert turns >= 30


async def list_of(rig: Rig, version: int = 2, **filters: Any) -> ListTransactionsResponse:
    request = ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": [], **filters})
    response: ListTransactionsResponse = await rig.answer(handle_list_transactions, request, version)
    return response


def names(response: ListTransactionsResponse) -> list[str]:
    return sorted(state.transactional_id for state in response.transaction_states)


async def test_list(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        for name in "abc":
            await rig.begin(name)
        await rig.add((P, 0), 0, transactional_id="a")
        found = await list_of(rig, 0)
        assert names(found) == ["a", "b", "c"]
        assert {state.transactional_id: state.transaction_state for state in found.transaction_states}["a"] == "Ongoing"
        assert names(await list_of(rig, state_filters=["Empty"])) == ["b", "c"]
        unknown = await list_of(rig, state_filters=["Empty", "nonsense", "empty"])
        assert (names(unknown), unknown.unknown_state_filters) == (["b", "c"], ["nonsense", "empty"])
        assert names(await list_of(rig, state_filters=["Dead"])) == []
        assert names(await list_of(rig, producer_id_filters=[P + 1, 9])) == ["b"]
        assert names(await list_of(rig, producer_id_filters=[P + 1], state_filters=["Ongoing"])) == []


async def test_list_by_duration_and_name(tmp_path: Path) -> None:
    """KIP-994, KIP-1152; an id without a transaction has begun none, which Kafka takes for long ago."""
    import trio

    rig = Rig(tmp_path)
    async with rig.running():
        for name in ("app-1", "app-2", "other"):
            known = await rig.begin(name)
            if name != "other":
                await rig.add(known, 0, transactional_id=name)
            await trio.sleep(1)
        assert names(await list_of(rig, duration_filter=1500)) == ["app-1", "app-2", "other"]
        assert names(await list_of(rig, duration_filter=2500)) == ["app-1", "other"]
        assert names(await list_of(rig, transactional_id_pattern="app-.*")) == ["app-1", "app-2"]
        assert names(await list_of(rig, transactional_id_pattern="app")) == []
        assert names(await list_of(rig, transactional_id_pattern="")) == ["app-1", "app-2", "other"]
        assert names(await list_of(rig, transactional_id_pattern="(?i)APP-1")) == ["app-1"]
        for pattern in ("(", "(?=app)"):
            wrong = await list_of(rig, transactional_id_pattern=pattern)
            assert wrong.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_the_coordinator_of_an_id_p_88_p_89(tmp_path: Path) -> None:
    """P-88, P-89: the topic is created when a client first looks."""
    import trio

    rig = Rig(tmp_path, is_fresh=True)
    async with rig.running():
        for version, code in ((1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (4, ErrorCode.NONE), (6, ErrorCode.NONE)):
            request = FindCoordinatorRequest(key_type=1, key="x", coordinator_keys=["x"])
            if version < 4:
                request.coordinator_keys = []
            else:
                request.key = ""
            found = await rig.call(handle_find_coordinator, request, version)
            answer = found.coordinators[0] if version >= 4 else found
            assert (answer.error_code, answer.node_id) == (code, -1 if code else NODE_ID)
            await trio.sleep(0.1)


async def test_others_have_turns_between_many_transactions_and_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    rig, turns = Rig(tmp_path), Turns()
    async with rig.running() as nursery:
        known = await rig.begin()
        nursery.start_soon(turns.run)
        await trio.lowlevel.checkpoint()
        before = turns.count
        assert len(await describe(rig, *["x", *(f"y{number}" for number in range(50))])) == 51
        assert turns.count - before >= 50
        before = turns.count
        codes = await add_old(rig, 3, epoch=0, **{"t": [0, 1, 2], **{f"missing{number}": [0] for number in range(50)}})
        assert set(codes.values()) == {ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert await add_old(rig, t=[0, 1, 2] * 20) == dict.fromkeys((("t", 0), ("t", 1), ("t", 2)), ErrorCode.NONE)
        assert turns.count - before >= 50
        assert rig.transaction().current.partitions == {("t", 0), ("t", 1), ("t", 2)}
        assert known[0] == P


async def test_others_have_turns_while_partitions_of_many_topics_are_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    rig, names, turns = Rig(tmp_path), [f"t{number}" for number in range(50)], Turns()
    rig.change(*rig.services.metadata.image.topics_by_name.values(), *(topic_image(name, 2) for name in names))

    async with rig.running() as nursery:
        await rig.begin()
        nursery.start_soon(turns.run)
        before = turns.count
        topics: dict[str, Any] = {name: [0, 1, 1] for name in names}
        codes = await add_old(rig, **topics)
        assert set(codes.values()) == {ErrorCode.NONE}
        # Turns for the topics and their two partitions, and for the four elements of each topic's result.
        assert turns.count - before >= 7 * len(names)
        expected = {(name, number) for name in names for number in (0, 1)}
        assert rig.transaction().current.partitions == expected
