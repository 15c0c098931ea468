"""Requests about the data of transactions: what partitions and groups do with them, with right and wrong producers.

One script for both sides: `record` runs it on a fresh Apache Kafka and keeps the answers, the test runs it on a fresh
broker of ours and compares. Producer ids are the same on both, as both count from 0.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pykbroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from pykbroker.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from pykbroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from pykbroker.protocol.messages.end_txn import EndTxnRequest
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pykbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
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
from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
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
from pykbroker.protocol.records.batch import build_batch, iter_batches
from pykbroker.protocol.records.record import Record
from tests.support.transcripts import Client, to_json

TOPIC = "t"
PARTITIONS = 4
COORDINATOR_FOR_GROUPS, COORDINATOR_FOR_TRANSACTIONS = 0, 1
PATIENCE_S = 30.0
PAUSE_S = 0.05
NOW_MS = 1_700_000_000_000
OLD, ABORTABLE, NEW = 10, 11, 12
"""Versions of Produce of the three generations of clients."""


class Producer:
    """A transactional id with its producer id and epoch."""

    def __init__(self, name: str, producer_id: int, epoch: int) -> None:
        self.name = name
        self.producer_id = producer_id
        self.epoch = epoch


class Conversation:
    """Asks one broker and keeps the answers, with a label each."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.answers: list[tuple[str, Any]] = []

    def quietly(self, request: Message, version: int) -> Any:
        """The answer, which is not kept."""
        answer = self._client.call(request, version)
        assert answer is not None, f"closed upon {request}"
        return answer

    def ask(self, label: str, request: Message, version: int) -> Any:
        """The answer, kept as plain data."""
        answer = self._client.call(request, version)
        self.answers.append((f"{label} v{version}", None if answer is None else timeless(to_json(answer))))
        return answer

    # Preparations

    def prepare(self) -> None:
        """The topic and both coordinators."""
        topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        self.quietly(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
        for kind in (COORDINATOR_FOR_GROUPS, COORDINATOR_FOR_TRANSACTIONS):
            self._until(lambda k=kind: not self.quietly(FindCoordinatorRequest(key="x", key_type=k), 3).error_code)

    def init(self, name: str, version: int = 5) -> Producer:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        answers: list[Any] = []

        def is_done() -> bool:
            answers.append(self.quietly(request, version))
            return not answers[-1].error_code

        self._until(is_done)
        return Producer(name, answers[-1].producer_id, answers[-1].producer_epoch)

    def add(self, producer: Producer, partitions: Sequence[int]) -> None:
        """AddPartitionsToTxn as clients of the first generation send it."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.name,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=list(partitions))],
        )
        self._until(
            lambda: (
                not self.quietly(request, 3)
                .results_by_topic_v3_and_below[0]
                .results_by_partition[0]
                .partition_error_code
            )
        )

    def add_group(self, producer: Producer, group: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=producer.name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=group,
        )
        self._until(lambda: not self.quietly(request, 3).error_code)

    def end(self, producer: Producer, *, commit: bool, version: int = 4) -> None:
        """Ends the transaction and waits for its markers; with version 5 the producer gets its next epoch."""
        request = EndTxnRequest(
            transactional_id=producer.name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        answer = self.quietly(request, version)
        assert not answer.error_code, answer
        if version >= 5:
            producer.producer_id, producer.epoch = answer.producer_id, answer.producer_epoch
        described = DescribeTransactionsRequest(transactional_ids=[producer.name])
        self._until(lambda: self.quietly(described, 0).transaction_states[0].transaction_state.startswith("Complete"))

    @staticmethod
    def _until(is_done: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_done():
            assert time.monotonic() < deadline, "the broker does not get ready"
            time.sleep(PAUSE_S)

    # Questions

    def produce(
        self,
        label: str,
        producer: Producer,
        sequence: int,
        version: int,
        partitions: Sequence[int] = (0,),
        *,
        topic: str = TOPIC,
        count: int = 1,
        **changes: Any,
    ) -> Any:
        """`changes`: transactional_id, producer_id, epoch, is_transactional."""
        name = changes.pop("transactional_id", producer.name)
        batch = batch_of(producer, sequence, count, **changes)
        data = [PartitionProduceData(index=index, records=batch) for index in partitions]
        topics = [TopicProduceData(name=topic, partition_data=data)]
        request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=5_000, topic_data=topics)
        return self.ask(label, request, version)

    def look(self, label: str, partition: int = 0) -> None:
        """Fetches, ListOffsets and DescribeProducers of a partition, at both isolation levels."""
        for isolation in (0, 1):
            for version in (4, 12):
                self._fetch(f"{label}: fetch, isolation {isolation}", partition, isolation, version)
            for timestamp in (-1, -2, NOW_MS):
                asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=-1)
                topics = [ListOffsetsTopic(name=TOPIC, partitions=[asked])]
                request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
                self.ask(f"{label}: list offsets {timestamp}, isolation {isolation}", request, 7)
        topics_asked = [TopicRequest(name=TOPIC, partition_indexes=[partition])]
        self.ask(f"{label}: describe producers", DescribeProducersRequest(topics=topics_asked), 0)

    def _fetch(self, label: str, partition: int, isolation: int, version: int) -> None:
        asked = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, isolation_level=isolation, topics=[FetchTopic(topic=TOPIC, partitions=[asked])]
        )
        answer = self.quietly(request, version)
        found = answer.responses[0].partitions[0]
        batches = [
            (b.base_offset, b.record_count, b.is_control, b.producer_id, b.producer_epoch, b.base_sequence)
            for b in iter_batches(bytes(found.records or b""))
        ]
        found.records = b""
        self.answers.append((f"{label} v{version}", [timeless(to_json(answer)), [list(b) for b in batches]]))

    def commit(
        self,
        label: str,
        producer: Producer,
        group: str,
        offset: int,
        version: int,
        *,
        partitions: Sequence[int] = (0,),
        topic: str = TOPIC,
        metadata: str | None = None,
        **changes: Any,
    ) -> None:
        """TxnOffsetCommit. `changes`: fields of the request."""
        asked = [
            TxnOffsetCommitRequestPartition(partition_index=n, committed_offset=offset, committed_metadata=metadata)
            for n in partitions
        ]
        fields = {
            "transactional_id": producer.name,
            "group_id": group,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "topics": [TxnOffsetCommitRequestTopic(name=topic, partitions=asked)],
        }
        self.ask(label, TxnOffsetCommitRequest(**{**fields, **changes}), version)

    def offsets(self, label: str, group: str) -> None:
        """Committed offsets, stable or not, in the forms of several versions."""
        for require_stable in (False, True):
            for version in (6, 7, 8, 9):
                if version < 8:
                    topics = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0, 1])]
                    request = OffsetFetchRequest(group_id=group, topics=topics)
                else:
                    named = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0, 1])]
                    groups = [OffsetFetchRequestGroup(group_id=group, topics=asked) for asked in (named, None)]
                    request = OffsetFetchRequest(groups=groups[:1] if version == 8 else groups[1:])
                if version >= 7:
                    request.require_stable = require_stable
                self.ask(f"{label}: offsets, stable {require_stable}", request, version)

    def mark(self, label: str, producer_id: int, epoch: int, version: int, partition: int = 3, **changes: Any) -> None:
        topics = [WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[partition])]
        fields = {"producer_id": producer_id, "producer_epoch": epoch, "topics": topics}
        self.ask(label, WriteTxnMarkersRequest(markers=[WritableTxnMarker(**{**fields, **changes})]), version)


def batch_of(
    producer: Producer,
    sequence: int,
    count: int = 1,
    *,
    producer_id: int | None = None,
    epoch: int | None = None,
    is_transactional: bool = True,
) -> bytes:
    return build_batch(
        [Record(number, NOW_MS + number, b"k", b"v") for number in range(count)],
        producer_id=producer.producer_id if producer_id is None else producer_id,
        producer_epoch=producer.epoch if epoch is None else epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def timeless(answer: Any) -> Any:
    """An answer without what depends on the clock: throttling, times of markers; and without order among partitions,
    which in some of Kafka's answers is that of a hash table.
    """
    if isinstance(answer, dict):
        times = ("throttle_time_ms", "last_timestamp", "timestamp")
        return {name: timeless(value) for name, value in answer.items() if name not in times}
    if not isinstance(answer, list):
        return answer
    members = [timeless(member) for member in answer]
    if any(isinstance(member, dict) and {"index", "partition_index"} & member.keys() for member in members):
        members.sort(key=lambda member: member.get("index", member.get("partition_index", 0)))
    return members


def run(client: Client) -> list[tuple[str, Any]]:
    """The whole conversation."""
    talk = Conversation(client)
    talk.prepare()
    first_generation(talk)
    second_generation(talk)
    strange_requests(talk)
    offsets_of_transactions(talk)
    markers(talk)
    return talk.answers


def first_generation(talk: Conversation) -> None:
    """Clients that add their partitions: verified once, fenced by epoch, aborted transactions listed."""
    one = talk.init("one")
    for version in (3, 9, OLD, ABORTABLE):
        talk.produce("not in a transaction", one, 0, version)
    talk.add(one, [0])
    talk.produce("one of two partitions is in it", one, 0, OLD, [0, 1])
    talk.produce("one of two partitions is in it", one, 1, ABORTABLE, [0, 1])
    talk.produce("a duplicate", one, 0, OLD)
    talk.produce("a gap", one, 5, OLD)
    talk.produce("outside of it", one, 2, OLD, is_transactional=False, transactional_id=None)
    talk.produce("an older epoch", one, 2, OLD, epoch=-1)
    talk.produce("a newer epoch", one, 0, OLD, epoch=one.epoch + 1)
    talk.produce("another id", one, 2, ABORTABLE, transactional_id="unknown")
    talk.look("open")
    talk.end(one, commit=False)
    talk.look("aborted")
    talk.produce("a duplicate after the end", one, 1, ABORTABLE)
    talk.produce("goes on after the end", one, 2, ABORTABLE)
    talk.produce("plain after the end", one, 2, OLD, is_transactional=False, transactional_id=None)
    talk.add(one, [0, 1])
    talk.produce("the next one", one, 3, OLD, count=3)
    talk.produce("any sequence where the producer is not known", one, 7, OLD, [1])
    talk.end(one, commit=True)
    talk.look("committed")
    talk.init("one")
    talk.produce("fenced by another", one, 6, OLD)
    talk.produce("fenced by another, elsewhere", one, 0, ABORTABLE, [2])


def second_generation(talk: Conversation) -> None:
    """Clients that leave it to the broker to add partitions, and have an epoch for each transaction."""
    two = talk.init("two")
    talk.produce("the first sequence is not 0", two, 4, NEW, [2])
    talk.produce("added by the partition", two, 0, NEW, [2])
    talk.produce("goes on", two, 1, NEW, [2])
    talk.produce("a duplicate", two, 1, NEW, [2])
    talk.produce("a gap", two, 9, NEW, [2])
    talk.look("open, second generation", 2)
    before = Producer(two.name, two.producer_id, two.epoch)
    talk.end(two, commit=True, version=5)
    talk.produce("the epoch of the last one", before, 2, NEW, [2])
    talk.produce("the epoch of the last one, a duplicate", before, 1, NEW, [2])
    talk.produce("the next one does not begin at 0", two, 2, NEW, [2])
    talk.produce("the next one", two, 0, NEW, [2, 1])
    talk.end(two, commit=False, version=5)
    talk.look("ended, second generation", 2)


def strange_requests(talk: Conversation) -> None:
    """Requests that no client sends: missing, empty or wrong ids, epochs, topics and partitions."""
    three = talk.init("three")
    for version in (OLD, ABORTABLE, NEW):
        talk.produce("without an id", three, 0, version, [0, 1], transactional_id=None)
        talk.produce("an empty id", three, 0, version, transactional_id="")
        talk.produce("an unknown id", three, 0, version, transactional_id="nobody")
        talk.produce("another producer id", three, 0, version, producer_id=12_345)
        talk.produce("a higher epoch", three, 0, version, epoch=three.epoch + 5)
        talk.produce("an unknown topic", three, 0, version, topic="none")
        talk.produce("an unknown partition", three, 0, version, [9])
        talk.produce("an internal topic", three, 0, version, topic="__consumer_offsets")
        data = [
            PartitionProduceData(index=0, records=batch_of(three, 0)),
            PartitionProduceData(index=1, records=batch_of(three, 0, producer_id=77)),
        ]
        topics = [TopicProduceData(name=TOPIC, partition_data=data)]
        request = ProduceRequest(transactional_id="three", acks=-1, timeout_ms=5_000, topic_data=topics)
        talk.ask("two producers", request, version)
    unknown = [("none", [0]), (TOPIC, [9]), ("not legal!", [0])]
    asked = [TopicRequest(name=name, partition_indexes=partitions) for name, partitions in unknown]
    talk.ask("producers of what is not there", DescribeProducersRequest(topics=asked), 0)


def offsets_of_transactions(talk: Conversation) -> None:
    """Offsets that wait for the end, and who may commit them."""
    four = talk.init("four")
    for version in (0, 2, 3, 4):
        talk.commit("the group is not in the transaction", four, "g", 1, version)
    talk.add_group(four, "g")
    talk.commit("an unknown generation", four, "g", 1, 3, generation_id=3, member_id="m")
    for version in range(5):
        talk.commit("in the transaction", four, "g", 10 + version, version)
    talk.commit("a member of nothing", four, "g", 9, 4, generation_id=3, member_id="m")
    talk.commit("an instance of nothing", four, "g", 9, 4, generation_id=3, member_id="m", group_instance_id="i")
    talk.commit("an unknown partition", four, "g", 9, 4, partitions=(1, 9))
    talk.commit("an unknown topic", four, "g", 9, 4, topic="none")
    talk.commit("long metadata", four, "g", 9, 4, partitions=(1,), metadata="m" * 4097)
    talk.commit("an older epoch", four, "g", 9, 4, producer_epoch=-1)
    talk.commit("no group", four, "", 9, 4)
    talk.commit("another id", four, "h", 9, 4, transactional_id="nobody")
    talk.offsets("pending", "g")
    talk.end(four, commit=True)
    talk.offsets("committed", "g")
    five = talk.init("five")
    talk.commit("added by the group", five, "g", 20, 5)
    talk.commit("of another partition", five, "g", 21, 5, partitions=(1,))
    talk.offsets("pending again", "g")
    talk.end(five, commit=False, version=5)
    talk.offsets("aborted", "g")
    talk.commit("to be deleted", five, "g", 30, 5, partitions=(0, 1))
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name=TOPIC, partitions=partitions)]
    talk.ask("delete one", OffsetDeleteRequest(group_id="g", topics=topics), 0)
    talk.offsets("one deleted", "g")
    talk.ask("delete the group", DeleteGroupsRequest(groups_names=["g"]), 2)
    talk.offsets("deleted", "g")
    talk.end(five, commit=True, version=5)
    talk.offsets("deleted and committed", "g")


def markers(talk: Conversation) -> None:
    """WriteTxnMarkers of coordinators that are right, late, or of another time."""
    talk.init("six")
    six = talk.init("six")
    talk.add(six, [3])
    for epoch, coordinator_epoch in ((3, 0), (2, 0), (3, 5), (3, 4), (4, 5)):
        label = f"marker, epoch {epoch}, coordinator {coordinator_epoch}"
        talk.mark(label, 500, epoch, 1, coordinator_epoch=coordinator_epoch)
    for epoch, version in ((4, 0), (4, 2), (3, 2), (5, 2), (5, 2), (4, 1)):
        label = f"marker, epoch {epoch}, transaction.version {version}"
        talk.mark(label, 500, epoch, 2, transaction_version=version, coordinator_epoch=5)
    talk.produce("open", six, 0, OLD, [3])
    id_of_six = six.producer_id
    talk.mark("equal epoch while open", id_of_six, six.epoch, 2, transaction_version=2)
    talk.mark("older epoch while open", id_of_six, six.epoch - 1, 2, transaction_version=1)
    talk.look("marked in vain", 3)
    talk.mark("aborted by an administrator", id_of_six, six.epoch, 1)
    talk.look("aborted by an administrator", 3)
    topics = [WritableTxnMarkerTopic(name=name, partition_indexes=[0, 9]) for name in (TOPIC, "none")]
    talk.mark("partitions that are not there", 600, 0, 2, topics=topics)
