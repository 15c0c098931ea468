"""Offsets within transactions, over the handlers, on real logs (P-113, P-135, P-139, P-142)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from pykbroker.controller.metadata.image import Acl
from pykbroker.coordination.partitioning import OFFSETS_TOPIC, coordinator_partition
from pykbroker.groups import administration
from pykbroker.handlers.delete_groups import handle_delete_groups
from pykbroker.handlers.list_groups import handle_list_groups
from pykbroker.handlers.offset_delete import handle_offset_delete
from pykbroker.handlers.offset_fetch import handle_offset_fetch
from pykbroker.handlers.txn_offset_commit import handle_txn_offset_commit
from pykbroker.handlers.write_txn_markers import handle_write_txn_markers
from pykbroker.protocol.acl_codes import ALLOW, GROUP, LITERAL, READ, TOPIC, TRANSACTIONAL_ID, WRITE
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from pykbroker.protocol.messages.list_groups import ListGroupsRequest
from pykbroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from pykbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from pykbroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pykbroker.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from pykbroker.protocol.steps import PIECE
from pykbroker.replication.partition import Partition
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.pykbroker.groups.rig import Rig
from tests.support.data_path import topic_image
from tests.support.transactions import FakeTransactions
from tests.support.turns import with_turns

G = coordinator_partition("g", 5)
PRODUCER_ID = 7
NEWEST = 5


async def test_others_have_turns_while_the_topics_of_a_commit_are_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    partitions = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3)]
    names = ["clicks", *(f"missing{number}" for number in range(PIECE))]
    rig = TransactionRig(tmp_path)
    async with rig.running():
        request = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id="g",
            producer_id=PRODUCER_ID,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=partitions) for name in names],
        )
        response, turns = await with_turns(rig.call(handle_txn_offset_commit, request, NEWEST))
        codes = {topic.name: topic.partitions[0].error_code for topic in response.topics}
        assert codes == {name: 0 if name == "clicks" else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for name in names}
        assert turns >= PIECE - 1


async def test_others_have_turns_while_a_large_commit_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    names = [f"t{number}" for number in range(2 * PIECE)]
    partitions = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3)]
    rig = TransactionRig(tmp_path)
    async with rig.running():
        rig.change(topic_image(OFFSETS_TOPIC, 5), *map(topic_image, names))
        request = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id="g",
            producer_id=PRODUCER_ID,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=partitions) for name in names],
        )
        response, turns = await with_turns(rig.call(handle_txn_offset_commit, request, NEWEST))
        assert {topic.name: topic.partitions[0].error_code for topic in response.topics} == dict.fromkeys(names, 0)
        assert turns > 2 * len(names) - PIECE


class TransactionRig(Rig):
    """One broker whose transaction coordinator answers as a test says."""

    def __init__(self, folder: Path, properties: dict[str, str] | None = None, *, is_fresh: bool = False) -> None:
        super().__init__(folder, properties, is_fresh=is_fresh)
        self.coordinator = FakeTransactions()
        coordinator: Any = self.coordinator
        self.services = self.services.replaced(transactions=coordinator)

    @property
    def partition_of_g(self) -> Partition:
        found = self.partitions.get(OFFSETS_TOPIC, G)
        assert found is not None
        return found

    async def commit_in_transaction(
        self,
        offset: int,
        partitions: Sequence[int] = (0,),
        *,
        version: int = NEWEST,
        topic: str = "clicks",
        metadata: str | None = None,
        **fields: Any,
    ) -> list[int]:
        """The error of each partition."""
        asked = [
            TxnOffsetCommitRequestPartition(partition_index=n, committed_offset=offset, committed_metadata=metadata)
            for n in partitions
        ]
        topics = [TxnOffsetCommitRequestTopic(name=topic, partitions=asked)]
        identity = {"transactional_id": "t", "group_id": "g", "producer_id": PRODUCER_ID, "producer_epoch": 0}
        request = TxnOffsetCommitRequest(**{**identity, "topics": topics, **fields})
        response = await self.call(handle_txn_offset_commit, request, version)
        return [p.error_code for answered in response.topics for p in answered.partitions]

    async def mark(
        self, *, commit: bool, producer_id: int = PRODUCER_ID, epoch: int = 0, transaction_version: int = 1
    ) -> int:
        """Writes the marker into the partition of group "g"."""
        topics = [WritableTxnMarkerTopic(name=OFFSETS_TOPIC, partition_indexes=[G])]
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=commit,
            topics=topics,
            transaction_version=transaction_version,
        )
        response = await self.call(handle_write_txn_markers, WriteTxnMarkersRequest(markers=[marker]), 2)
        error: int = response.markers[0].topics[0].partitions[0].error_code
        return error

    async def stable_offset(self, partition: int = 0, *, version: int = 9, all_topics: bool = False) -> tuple[int, int]:
        """(committed offset, error) as a consumer that requires stable offsets is told."""
        names = None if all_topics else [OffsetFetchRequestTopics(name="clicks", partition_indexes=[partition])]
        if version >= 8:
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=names)])
        else:
            topic = OffsetFetchRequestTopic(name="clicks", partition_indexes=[partition])
            request = OffsetFetchRequest(group_id="g", topics=[topic])
        request.require_stable = True
        response = await self.call(handle_offset_fetch, request, version)
        topics = response.groups[0].topics if version >= 8 else response.topics
        found = {p.partition_index: p for topic in topics for p in topic.partitions}.get(partition)
        return (found.committed_offset, found.error_code) if found is not None else (-2, 0)


@pytest.mark.parametrize("version", range(NEWEST + 1))
async def test_offsets_count_when_the_transaction_is_committed(tmp_path: Path, version: int) -> None:
    """P-139; P-135: verified once for each transaction, by version 5 added to it."""
    rig = TransactionRig(tmp_path)
    async with rig.running():
        assert await rig.commit_in_transaction(5, [0, 1], version=version) == [0, 0]
        assert await rig.commit_in_transaction(6, [1], version=version) == [0]
        assert rig.coordinator.asked == [("t", PRODUCER_ID, 0, [(OFFSETS_TOPIC, G)], version >= 5)]
        assert (await rig.fetch(), await rig.fetch(partition=1)) == (-1, -1)
        assert await rig.mark(commit=True) == ErrorCode.NONE
        assert (await rig.fetch(), await rig.fetch(partition=1)) == (5, 6)
        assert await rig.commit_in_transaction(7, version=version, producer_epoch=1) == [0]
        assert len(rig.coordinator.asked) == 2


async def test_offsets_are_dropped_when_it_is_aborted(tmp_path: Path) -> None:
    """P-139."""
    rig = TransactionRig(tmp_path)
    async with rig.running():
        await rig.commit(3)
        await rig.commit_in_transaction(9)
        assert await rig.fetch() == 3
        assert await rig.mark(commit=False) == ErrorCode.NONE
        assert await rig.fetch() == 3
        assert await rig.stable_offset() == (3, 0)


@pytest.mark.parametrize("version", [7, 8, 9])
async def test_stable_offsets_are_waited_for(tmp_path: Path, version: int) -> None:
    """P-113: for the partitions of the transaction only; others, and who does not ask for it, are told as ever."""
    rig = TransactionRig(tmp_path)
    async with rig.running():
        await rig.commit(3)
        await rig.commit(4, partition=1)
        await rig.commit_in_transaction(9)
        unstable = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert await rig.stable_offset(version=version) == unstable
        assert await rig.stable_offset(1, version=version) == (4, 0)
        assert await rig.fetch() == 3
        if version >= 8:
            assert await rig.stable_offset(version=version, all_topics=True) == unstable
            assert await rig.stable_offset(1, version=version, all_topics=True) == (4, 0)
        await rig.mark(commit=True)
        assert await rig.stable_offset(version=version) == (9, 0)


async def test_a_first_commit_that_is_pending_is_unstable_too(tmp_path: Path) -> None:
    """P-113; among all offsets of the group it is not named, as there is none yet."""
    rig = TransactionRig(tmp_path)
    async with rig.running():
        await rig.commit_in_transaction(9)
        assert await rig.stable_offset() == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert await rig.stable_offset(all_topics=True) == (-2, 0)


async def test_the_newest_commit_wins(tmp_path: Path) -> None:
    """P-139: by place in the log, not by when the transactions end."""
    rig = TransactionRig(tmp_path)
    async with rig.running():
        await rig.commit_in_transaction(5)
        await rig.commit_in_transaction(6, producer_id=8)
        await rig.mark(commit=True, producer_id=8)
        assert await rig.stable_offset() == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        await rig.mark(commit=True)
        assert await rig.stable_offset() == (6, 0)
        await rig.commit_in_transaction(7, producer_epoch=1)
        await rig.commit(8)
        await rig.mark(commit=True, epoch=1)
        assert await rig.fetch() == 8
    again = TransactionRig(tmp_path)
    async with again.running():
        assert await again.fetch() == 8


@pytest.mark.parametrize("commit", [True, False])
async def test_pending_offsets_are_replayed(tmp_path: Path, commit: bool) -> None:
    """P-142: and end with a marker that comes after the restart; so does the transaction in the log."""
    rig = TransactionRig(tmp_path)
    async with rig.running():
        await rig.commit(3)
        await rig.commit_in_transaction(8, producer_id=8)
        await rig.mark(commit=not commit, producer_id=8)
        await rig.commit_in_transaction(9)
    again = TransactionRig(tmp_path)
    async with again.running():
        assert await again.fetch() == (3 if commit else 8)
        assert await again.stable_offset() == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert await again.commit_in_transaction(10) == [0]
        assert not again.coordinator.asked, "the transaction is known to be open"
        assert await again.mark(commit=commit) == ErrorCode.NONE
        assert await again.stable_offset() == (10 if commit else 8, 0)


async def test_a_group_of_which_only_aborted_offsets_are_known_outlives_a_restart(tmp_path: Path) -> None:
    """Unless it was deleted since; that of a later abort is another one."""

    async def groups(rig: TransactionRig) -> list[str]:
        return [group.group_id for group in (await rig.call(handle_list_groups, ListGroupsRequest(), 4)).groups]

    async def delete(rig: TransactionRig) -> int:
        response = await rig.call(handle_delete_groups, DeleteGroupsRequest(groups_names=["g"]), 2)
        code: int = response.results[0].error_code
        return code

    rig = TransactionRig(tmp_path)
    async with rig.running():
        await rig.commit_in_transaction(8)
        await rig.mark(commit=False)
        assert await groups(rig) == ["g"]
    rig = TransactionRig(tmp_path)
    async with rig.running():
        assert await groups(rig) == ["g"]
        assert await rig.fetch() == -1
        assert await delete(rig) == ErrorCode.NONE
        assert await groups(rig) == []
    rig = TransactionRig(tmp_path)
    async with rig.running():
        assert await groups(rig) == []
        await rig.commit_in_transaction(9)
        await rig.mark(commit=False)
    rig = TransactionRig(tmp_path)
    async with rig.running():
        assert await groups(rig) == ["g"]


async def test_members_are_validated(tmp_path: Path) -> None:
    """P-139: from version 3 by member, generation and instance; while the group rebalances too."""
    rig = TransactionRig(tmp_path)
    async with rig.running():
        assert await rig.commit_in_transaction(1, generation_id=0, member_id="m") == [ErrorCode.ILLEGAL_GENERATION]
        member_id = await rig.stable()
        mine: dict[str, Any] = {"member_id": member_id, "generation_id": 1}
        cases: tuple[tuple[dict[str, Any], ErrorCode], ...] = (
            ({}, ErrorCode.NONE),
            ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"generation_id": -1}, ErrorCode.ILLEGAL_GENERATION),
            ({"generation_id": -1, "member_id": ""}, ErrorCode.NONE),
        )
        for changed, error in cases:
            assert await rig.commit_in_transaction(1, **{**mine, **changed}) == [error], changed
        assert await rig.commit_in_transaction(1, version=2) == [ErrorCode.NONE]


async def test_a_group_that_rebalances_takes_offsets(tmp_path: Path) -> None:
    """P-139: of the old generation, and of the new one before its assignment is known; P-109 is about plain ones."""
    rig = TransactionRig(tmp_path)
    async with rig.running():
        first = await rig.join()
        joined = await rig.join(first.member_id)
        member: dict[str, Any] = {"member_id": joined.member_id, "generation_id": joined.generation_id}
        plain: dict[str, Any] = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
        assert await rig.commit(1, **plain) == ErrorCode.REBALANCE_IN_PROGRESS
        assert await rig.commit_in_transaction(1, **member) == [ErrorCode.NONE]


async def test_a_transactional_commit_is_no_heartbeat(tmp_path: Path) -> None:
    """P-110 is about plain commits."""
    rig = TransactionRig(tmp_path)
    async with rig.running():
        member_id = await rig.stable()
        for _ in range(3):
            await trio.sleep(4)
            errors = await rig.commit_in_transaction(1, member_id=member_id, generation_id=1)
        assert errors == [ErrorCode.UNKNOWN_MEMBER_ID]


async def test_partitions_that_do_not_exist(tmp_path: Path) -> None:
    """P-111: the others are committed; metadata that is too long is refused by partition."""
    rig = TransactionRig(tmp_path)
    async with rig.running():
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await rig.commit_in_transaction(1, [0, 9]) == [unknown, 0]
        assert await rig.commit_in_transaction(1, topic="ghost") == [unknown]
        assert await rig.commit_in_transaction(1, metadata="m" * 4097) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
        await rig.mark(commit=True)
        assert await rig.fetch() == 1


async def test_topics_that_the_client_may_not_read(tmp_path: Path) -> None:
    """P-111: each of their partitions has the error; those of other topics are committed."""
    acls = {
        bytes([number]) * 16: Acl(resource_type, name, LITERAL, "User:ANONYMOUS", "*", operation, ALLOW)
        for number, (resource_type, name, operation) in enumerate(
            ((TRANSACTIONAL_ID, "t", WRITE), (GROUP, "g", READ), (TOPIC, "clicks", READ))
        )
    }
    rig = TransactionRig(tmp_path)
    rig.services = rig.services.replaced(authorizer=StandardAuthorizer(lambda: acls, frozenset(), False))
    async with rig.running():
        rig.change(topic_image("clicks", 2), topic_image("secret", 1), topic_image(OFFSETS_TOPIC, 5))
        assert await rig.commit_in_transaction(1, topic="secret") == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert await rig.commit_in_transaction(1) == [ErrorCode.NONE]


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 5, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 5, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NETWORK_EXCEPTION, 5, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
async def test_verification_fails(tmp_path: Path, said: ErrorCode, version: int, told: ErrorCode) -> None:
    """P-135, P-139; below version 2 nobody is told that something is being loaded."""
    rig = TransactionRig(tmp_path)
    async with rig.running():
        rig.coordinator.answer = said
        assert await rig.commit_in_transaction(1, version=version) == [told]
        assert rig.partition_of_g.log.log_end_offset == 0


@pytest.mark.parametrize(
    ("is_verified", "version", "told"),
    [
        ("true", 4, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("true", 5, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("false", 4, ErrorCode.NOT_COORDINATOR),
        ("false", 5, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
async def test_a_cluster_without_offsets(tmp_path: Path, is_verified: str, version: int, told: ErrorCode) -> None:
    """P-135: the partition to be verified does not exist; without verification P-90 holds."""
    rig = TransactionRig(tmp_path, {"transaction.partition.verification.enable": is_verified}, is_fresh=True)
    async with rig.running():
        assert await rig.commit_in_transaction(1, version=version) == [told]
        assert await rig.commit_in_transaction(1, version=version, group_id="") == [ErrorCode.INVALID_GROUP_ID]
        assert await rig.commit(1) == ErrorCode.NOT_COORDINATOR


async def test_a_fenced_producer(tmp_path: Path) -> None:
    """P-55: by the partition of the offsets."""
    rig = TransactionRig(tmp_path)
    async with rig.running():
        await rig.commit_in_transaction(1, producer_epoch=3)
        assert await rig.commit_in_transaction(1, producer_epoch=2) == [ErrorCode.INVALID_PRODUCER_EPOCH]


async def test_markers_are_fenced(tmp_path: Path) -> None:
    """P-136: and then the offsets go on waiting."""
    rig = TransactionRig(tmp_path)
    async with rig.running():
        await rig.commit_in_transaction(1, producer_epoch=3)
        assert await rig.mark(commit=True, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await rig.mark(commit=True, epoch=3, transaction_version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await rig.stable_offset() == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert await rig.mark(commit=True, epoch=4, transaction_version=2) == ErrorCode.NONE
        assert await rig.stable_offset() == (1, 0)


async def test_where_the_group_is_not_coordinated_here(tmp_path: Path) -> None:
    """P-90: and an empty group id is none."""
    rig = TransactionRig(tmp_path)
    async with rig.running():
        rig.change(topic_image("clicks", 2), topic_image(OFFSETS_TOPIC, 5, leader=2, followers=(1,)))
        assert await rig.commit_in_transaction(1) == [ErrorCode.NOT_COORDINATOR]
        assert await rig.commit_in_transaction(1, group_id="") == [ErrorCode.INVALID_GROUP_ID]


async def test_a_marker_for_groups_that_are_not_loaded_comes_again(tmp_path: Path) -> None:
    """P-139: it would be missed by the replay that is under way; the coordinator tries again after this error."""
    rig = TransactionRig(tmp_path)
    assert await rig.mark(commit=True) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert rig.partition_of_g.log.log_end_offset == 0
    rig.close()


async def test_a_deleted_group_does_not_come_back(tmp_path: Path) -> None:
    """P-107, P-139: with the end of a transaction that was open when it was deleted."""
    rig = TransactionRig(tmp_path)
    async with rig.running():
        await rig.commit(3, partition=1)
        await rig.commit_in_transaction(9)
        response = await rig.call(handle_delete_groups, DeleteGroupsRequest(groups_names=["g"]), 2)
        assert response.results[0].error_code == ErrorCode.NONE
        assert await rig.stable_offset() == (-1, 0)
        await rig.mark(commit=True)
        assert await rig.fetch() == -1
        assert not (await administration.list_groups(rig.groups, set(), set())).groups
    again = TransactionRig(tmp_path)
    async with again.running():
        assert await again.fetch() == -1
        assert not (await administration.list_groups(again.groups, set(), set())).groups


async def test_pending_offsets_can_be_deleted(tmp_path: Path) -> None:
    """P-107: OffsetDelete ends their wait."""
    rig = TransactionRig(tmp_path)
    async with rig.running():
        await rig.commit_in_transaction(9, [0, 1])
        partitions = [OffsetDeleteRequestPartition(partition_index=0)]
        topics = [OffsetDeleteRequestTopic(name="clicks", partitions=partitions)]
        await rig.answer(handle_offset_delete, OffsetDeleteRequest(group_id="g", topics=topics), 0)
        assert await rig.stable_offset() == (-1, 0)
        assert await rig.stable_offset(1) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        await rig.mark(commit=True)
        assert (await rig.fetch(), await rig.fetch(partition=1)) == (-1, 9)


async def test_offsets_of_a_deleted_topic(tmp_path: Path) -> None:
    """Pending ones go with it."""
    rig = TransactionRig(tmp_path)
    async with rig.running():
        await rig.commit_in_transaction(9)
        rig.change(topic_image(OFFSETS_TOPIC, 5))
        assert await rig.stable_offset() == (-1, 0)
        await rig.mark(commit=True)
        assert await rig.fetch() == -1


async def test_a_deleted_topic_has_a_tombstone_for_each_of_its_offsets(tmp_path: Path) -> None:
    """As in Kafka: one for the committed offset, and one for the pending offset of the same partition."""
    rig = TransactionRig(tmp_path)
    async with rig.running():
        await rig.commit(3)
        await rig.commit_in_transaction(9)
        end_offset = rig.partition_of_g.log.log_end_offset
        rig.change(topic_image(OFFSETS_TOPIC, 5))
        batches = [batch for batch in rig.partition_of_g.log.iter_batches() if batch.base_offset >= end_offset]
        [first, second] = [record for batch in batches for record in batch.records()]
        assert first.key == second.key
        assert first.value is second.value is None


async def test_nothing_expires_while_a_transaction_is_open(tmp_path: Path) -> None:
    """P-114: neither the offset that it may change nor the group; others of the group do."""
    rig = TransactionRig(tmp_path, {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "30000"})
    async with rig.running():
        await rig.commit(3)
        await rig.commit(4, partition=1)
        await rig.commit_in_transaction(9)
        await trio.sleep(120)
        assert (await rig.fetch(), await rig.fetch(partition=1)) == (3, -1)
        await rig.mark(commit=False)
        await trio.sleep(60)
        assert await rig.fetch() == -1
        assert not (await administration.list_groups(rig.groups, set(), set())).groups


async def test_a_group_with_nothing_but_a_pending_offset_stays(tmp_path: Path) -> None:
    """P-114."""
    rig = TransactionRig(tmp_path, {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "30000"})
    async with rig.running():
        await rig.commit_in_transaction(9)
        await trio.sleep(90)
        assert [group.group_id for group in (await administration.list_groups(rig.groups, set(), set())).groups] == [
            "g"
        ]
        await rig.mark(commit=False)
        await trio.sleep(60)
        assert not (await administration.list_groups(rig.groups, set(), set())).groups


async def test_a_partition_named_twice_is_answered_twice(tmp_path: Path) -> None:
    rig = TransactionRig(tmp_path)
    async with rig.running():
        assert await rig.commit_in_transaction(5, [99, 99]) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


@pytest.mark.parametrize("fields", [{"producer_id": -1}, {"epoch": -1}])
async def test_a_marker_without_a_producer_fails_for_its_partition(tmp_path: Path, fields: dict[str, int]) -> None:
    """P-133: here the coordinator makes the batch, so the rest of the request goes on."""
    rig = TransactionRig(tmp_path)
    async with rig.running():
        assert await rig.mark(commit=True, **fields) == ErrorCode.UNKNOWN_SERVER_ERROR
