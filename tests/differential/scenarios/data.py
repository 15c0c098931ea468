"""Records through the life of a topic: fetch sessions, idempotent producers, transactions, deletion, a second life."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pykbroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pykbroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pykbroker.protocol.messages.delete_topics import DeleteTopicsRequest
from pykbroker.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from pykbroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from pykbroker.protocol.messages.end_txn import EndTxnRequest
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from pykbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pykbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker.protocol.messages.list_transactions import ListTransactionsRequest
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from pykbroker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.differential.script import DAMAGES, NEXT, Batch, Records, Ref
from tests.differential.world import World

NEWEST_PRODUCE, NEWEST_FETCH = 13, 18
LAST_WITH_NAMES = 12


def create(world: World, *names: str, partitions: int = 2) -> None:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    world.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)


def produce(
    world: World, topic: str, *batches: Batch, partition: int = 0, version: int = NEWEST_PRODUCE, **fields: Any
) -> Any:
    named: Any = TopicProduceData(partition_data=[PartitionProduceData(index=partition, records=Records(batches))])
    if version > LAST_WITH_NAMES:
        named.topic_id = Ref("topic_id", topic)
    else:
        named.name = topic
    request = ProduceRequest(**{"acks": -1, "timeout_ms": 10_000, "topic_data": [named], **fields})
    return world.call(request, version)


def fetch(
    world: World,
    topic: str,
    *places: tuple[int, int],
    version: int = NEWEST_FETCH,
    forget: Sequence[int] = (),
    **fields: Any,
) -> Any:
    """`places` are (partition, offset)."""
    names: Any = {"topic_id": Ref("topic_id", topic)} if version > LAST_WITH_NAMES else {"topic": topic}
    asked = [FetchPartition(partition=p, fetch_offset=o, partition_max_bytes=1 << 20) for p, o in places]
    topics = [FetchTopic(partitions=asked, **names)] if asked else []
    forgotten = [ForgottenTopic(partitions=list(forget), **names)] if forget else []
    return world.call(FetchRequest(topics=topics, forgotten_topics_data=forgotten, **fields), version)


def look(world: World, topic: str) -> None:
    """Everything that can be asked about a topic's data."""
    for version in (1, 4, 9, 11):
        for timestamp in (-1, -2, -3, 1_790_000_000_000, 1_790_000_000_003):
            for isolation_level in (0, 1) if version >= 2 else (0,):
                asked = [ListOffsetsPartition(partition_index=n, timestamp=timestamp) for n in range(2)]
                request = ListOffsetsRequest(
                    replica_id=-1,
                    isolation_level=isolation_level,
                    topics=[ListOffsetsTopic(name=topic, partitions=asked)],
                )
                world.call(request, version)
    for epoch in (-7, -1, 0, 1):
        asked_epochs = [OffsetForLeaderPartition(partition=n, leader_epoch=epoch) for n in range(2)]
        topics = [OffsetForLeaderTopic(topic=topic, partitions=asked_epochs)]
        world.call(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), 4)
    for isolation_level in (0, 1):
        fetch(world, topic, (0, 0), (1, 0), isolation_level=isolation_level)
    world.call(DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0, 1])]), 0)


def every_version(world: World) -> None:
    """A record in and out by each version of Produce and Fetch; with each codec."""
    create(world, "~v")
    for version in range(3, NEWEST_PRODUCE + 1):
        for codec in range(5):
            produce(world, "~v", Batch(record_count=2, codec=codec), version=version)
    for version in range(4, NEWEST_FETCH + 1):
        for offset in (0, 3, 20, 1000, -1):
            fetch(world, "~v", (0, offset), (1, 0), version=version)
    look(world, "~v")


def damaged_batches(world: World) -> None:
    """P-35 to P-43."""
    create(world, "~d")
    for damage in DAMAGES:
        for version in (3, 6, 7, NEWEST_PRODUCE):
            produce(world, "~d", Batch(record_count=3, damage=damage), version=version)
    for batches in (
        (),
        (Batch(), Batch()),
        (Batch(record_count=0),),
        (Batch(is_control=True),),
        (Batch(base_offset=3),),
    ):
        produce(world, "~d", *batches)
    look(world, "~d")


def fetch_sessions(world: World) -> None:
    """P-72 to P-76."""
    create(world, "~s")
    for version in (7, 12, NEWEST_FETCH):
        produce(world, "~s", Batch(record_count=3))
        number = world.session_count
        session: Any = Ref("session_id", "", number)
        fetch(world, "~s", (0, 0), (1, 0), version=version, session_epoch=0)
        fetch(world, "~s", version=version, session_id=session, session_epoch=1)
        produce(world, "~s", Batch(), partition=1)
        fetch(world, "~s", version=version, session_id=session, session_epoch=2)
        fetch(world, "~s", (1, 1), version=version, session_id=session, session_epoch=3)
        fetch(world, "~s", (0, 99), (7, 0), version=version, session_id=session, session_epoch=4)
        fetch(world, "~s", version=version, session_id=session, session_epoch=5)
        fetch(world, "~s", version=version, forget=[0, 7], session_id=session, session_epoch=6)
        fetch(world, "~s", version=version, session_id=session, session_epoch=9)
        fetch(world, "~s", version=version, session_id=session, session_epoch=7)
        fetch(world, "~s", (0, 0), version=version, session_id=session, session_epoch=-1)
        fetch(world, "~s", version=version, session_id=session, session_epoch=8)
        fetch(world, "~s", version=version, session_id=4711, session_epoch=1)


def orders_of_fetch_sessions(world: World) -> None:
    """P-72: a session begun with refused partitions, before and after its topic is deleted."""
    for version in (7, 12, NEWEST_FETCH):
        topic = f"~o{version}"
        create(world, topic)
        session: Any = Ref("session_id", "", world.session_count)
        fetch(world, topic, (7, 0), (1, 0), (9, 0), (0, 0), version=version, session_epoch=0)
        fetch(world, topic, (8, 0), version=version, session_id=session, session_epoch=1)
        produce(world, topic, Batch(), partition=1)
        fetch(world, topic, version=version, session_id=session, session_epoch=2)
        world.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 1)
        fetch(world, topic, version=version, session_id=session, session_epoch=3)


def idempotent_producers(world: World) -> None:
    """P-51 to P-58."""
    create(world, "~i")
    for version in range(6):
        world.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), version)
    for sequence in (0, 0, 3, 1, NEXT, NEXT, 2, 0):
        produce(world, "~i", Batch(producer_index=0, sequence=sequence))
    for epoch_shift in (1, 0, 1):
        produce(world, "~i", Batch(producer_index=0, sequence=0, epoch_shift=epoch_shift))
        produce(world, "~i", Batch(producer_index=0, sequence=9, epoch_shift=epoch_shift))
    for sequence in (7, 8, 2**31 - 1, 0):
        produce(world, "~i", Batch(record_count=2, producer_index=1, sequence=sequence), partition=1)
    produce(world, "~i", Batch(producer_index=2, sequence=-1))
    produce(world, "~i", Batch(producer_index=9, sequence=5))
    look(world, "~i")


def lives_of_a_topic(world: World) -> None:
    """P-71, P-150: records deleted, the topic deleted, and made again under the same name."""
    create(world, "~l")
    produce(world, "~l", *[Batch(record_count=5)])
    for offset in (2, 1, 9, -1, -2):
        asked = [DeleteRecordsPartition(partition_index=0, offset=offset)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="~l", partitions=asked)], timeout_ms=1000)
        world.call(request, 2)
        fetch(world, "~l", (0, 0))
        fetch(world, "~l", (0, 3))
    look(world, "~l")
    world.call(DeleteTopicsRequest(topic_names=["~l"], timeout_ms=10_000), 5)
    produce(world, "~l", Batch())
    produce(world, "~l", Batch(), version=LAST_WITH_NAMES)
    fetch(world, "~l", (0, 0))
    fetch(world, "~l", (0, 0), version=LAST_WITH_NAMES)
    create(world, "~l", partitions=1)
    produce(world, "~l", Batch())
    look(world, "~l")
    for version in (0, 9, 12, 13):
        world.call(MetadataRequest(topics=[MetadataRequestTopic(name="~l")]), version)


def transactions(world: World) -> None:
    """P-127 to P-142, for old and new clients."""
    create(world, "~x")
    name, other = "~tx", "~ty"

    def who(shift: int = 0) -> dict[str, Any]:
        return {"producer_id": Ref("producer_id", name), "producer_epoch": Ref("producer_epoch", name, 0, shift)}

    def end(version: int, committed: bool, shift: int = 0) -> None:
        world.call(EndTxnRequest(transactional_id=name, committed=committed, **who(shift)), version)

    def describe() -> None:
        world.call(DescribeTransactionsRequest(transactional_ids=[name, other]), 0)
        world.call(ListTransactionsRequest(state_filters=["Ongoing", "Empty"]), 2)
        look(world, "~x")

    describe()
    for version in range(6):
        world.call(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), version)
        end(min(version, 4), True)
    batch = Batch(producer=name, is_transactional=True)
    for committed in (True, False):
        produce(world, "~x", batch, version=11, transactional_id=name)
        identity = {f"v3_and_below_{field}": value for field, value in who().items()}
        places = [AddPartitionsToTxnTopic(name="~x", partitions=[0])]
        added = AddPartitionsToTxnRequest(v3_and_below_transactional_id=name, v3_and_below_topics=places, **identity)
        world.call(added, 3)
        produce(world, "~x", batch, version=11, transactional_id=name)
        produce(world, "~x", batch._replace(sequence=77), version=11, transactional_id=name)
        world.call(AddOffsetsToTxnRequest(transactional_id=name, group_id="~g", **who()), 3)
        _commit_offset(world, name, 4, who())
        describe()
        end(3, committed, shift=1)
        end(3, committed)
        describe()
    for committed in (True, False):
        produce(world, "~x", batch, transactional_id=name)
        produce(world, "~x", Batch(producer=name), transactional_id=name)
        produce(world, "~x", Batch(), transactional_id=name)
        _commit_offset(world, name, 5, who())
        describe()
        end(5, committed, shift=-1)
        end(5, committed)
        end(5, committed)
        describe()
    end(5, True)
    end(5, False)
    produce(world, "~x", batch._replace(epoch_shift=-1), transactional_id=name)
    produce(world, "~x", batch._replace(producer_index=7, producer=None), transactional_id=other)
    describe()


def deleted_records_of_an_open_transaction(world: World) -> None:
    """P-68, P-150: the last stable offset is that of the batch which has the log start."""
    create(world, "~d")
    name = "~td"
    world.call(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 5)
    produce(world, "~d", Batch(producer=name, is_transactional=True, record_count=4), transactional_id=name)
    produce(world, "~d", Batch(record_count=4))
    for offset in (2, 6, 8):
        asked = [DeleteRecordsPartition(partition_index=0, offset=offset)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="~d", partitions=asked)], timeout_ms=1000)
        world.call(request, 2)
        look(world, "~d")
        for isolation_level in (0, 1):
            fetch(world, "~d", (0, offset), isolation_level=isolation_level)
    produce(world, "~d", Batch(record_count=2))
    look(world, "~d")
    who: dict[str, Any] = {"producer_id": Ref("producer_id", name), "producer_epoch": Ref("producer_epoch", name, 0, 0)}
    world.call(EndTxnRequest(transactional_id=name, committed=True, **who), 5)
    look(world, "~d")


def _commit_offset(world: World, name: str, version: int, who: dict[str, Any]) -> None:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="m")
    topics = [TxnOffsetCommitRequestTopic(name="~x", partitions=[partition])]
    world.call(TxnOffsetCommitRequest(transactional_id=name, group_id="~g", topics=topics, **who), version)
    for require_stable in (False, True):
        asked: Any = OffsetFetchRequestTopics(name="~x", partition_indexes=[0])
        groups = [OffsetFetchRequestGroup(group_id="~g", topics=[asked])]
        world.call(OffsetFetchRequest(groups=groups, require_stable=require_stable), 8)
