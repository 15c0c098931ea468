"""A whole broker of this process, in a thread of its own: real sockets, real files, real time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import trio

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.node.broker import ReadyAddress, run_broker
from pykbroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pykbroker.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pykbroker.protocol.messages.delete_topics import DeleteTopicsRequest
from pykbroker.protocol.messages.end_txn import EndTxnRequest
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pykbroker.protocol.messages.metadata import MetadataRequest
from pykbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.wire_client import WireClient

TIMEOUT_S = 60.0
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "metadata.max.idle.interval.ms": "0",
}


class WholeBroker:
    """`with WholeBroker(folder) as broker:` starts it, and stops it in order at the end.

    What ends its start is raised by `start`, what ends it later by `stop`, each as `pykbroker start` would see it.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self._config = BrokerConfig.from_properties({**SETTINGS, "log.dirs": str(folder), **(settings or {})})
        self._ready = threading.Event()
        self._scope = trio.CancelScope()
        self._token: trio.lowlevel.TrioToken
        self._address: ReadyAddress | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.client: WireClient

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()

        def on_ready(address: ReadyAddress) -> None:
            self._address = address
            self._ready.set()

        with self._scope:
            await run_broker(self._config, on_ready=on_ready)

    def start(self) -> Self:
        """Starts it and connects a client."""
        self._thread.start()
        assert self._ready.wait(TIMEOUT_S)
        if self._address is None:
            self._thread.join()
            assert self._failure is not None
            raise self._failure
        self.client = WireClient((self._address.host, self._address.port))
        return self

    @property
    def address(self) -> ReadyAddress:
        """Address of the listener; the broker has started."""
        assert self._address is not None
        return self._address

    def stop(self) -> None:
        """Stops it in order; raises what ended it, before or now."""
        self.client.close()
        if self._thread.is_alive():
            self._token.run_sync_soon(self._scope.cancel)
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "the broker does not end"
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except BaseException:
            if value is None:
                raise

    # What tests ask of it; error codes are for them to judge

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> int:
        configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
        code: int = self.client.call(CreateTopicsRequest(topics=[topic], timeout_ms=20_000), 5).topics[0].error_code
        return code

    def delete_topic(self, name: str) -> int:
        response = self.client.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=20_000), 4)
        code: int = response.responses[0].error_code
        return code

    def topics(self) -> dict[str, int]:
        """Names and numbers of partitions."""
        response = self.client.call(MetadataRequest(topics=None), 5)
        return {topic.name: len(topic.partitions) for topic in response.topics}

    def produce(self, topic: str, data: bytes, partition: int = 0, transactional_id: str | None = None) -> int:
        topic_data = [
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=data)])
        ]
        request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=20_000, topic_data=topic_data)
        code: int = self.client.call(request, 9).responses[0].partition_responses[0].error_code
        return code

    def fetch(self, topic: str, partition: int, offset: int, isolation_level: int = 0) -> Any:
        """The partition's part of the answer."""
        asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 22)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=isolation_level,
            topics=[FetchTopic(topic=topic, partitions=[asked])],
        )
        return self.client.call(request, 11).responses[0].partitions[0]

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        topics = [
            DeleteRecordsTopic(
                name=topic, partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)]
            )
        ]
        response = self.client.call(DeleteRecordsRequest(topics=topics, timeout_ms=20_000), 1)
        code: int = response.topics[0].partitions[0].error_code
        return code

    def commit(self, group: str, topic: str, partition: int, offset: int) -> int:
        partitions = [
            OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
        ]
        topics = [OffsetCommitRequestTopic(name=topic, partitions=partitions)]
        request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
        code: int = self.client.call(request, 7).topics[0].partitions[0].error_code
        return code

    def find_coordinator(self, key: str, key_type: int) -> int:
        code: int = self.client.call(FindCoordinatorRequest(key=key, key_type=key_type), 2).error_code
        return code

    def init_producer_id(self, transactional_id: str | None) -> Any:
        """The whole answer."""
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        return self.client.call(request, 4)

    def add_partition_to_transaction(
        self, transactional_id: str, producer_id: int, epoch: int, topic: str, partition: int
    ) -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )
        response = self.client.call(request, 3)
        code: int = response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        return code

    def end_transaction(self, transactional_id: str, producer_id: int, epoch: int, *, committed: bool) -> int:
        request = EndTxnRequest(
            transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=committed
        )
        code: int = self.client.call(request, 3).error_code
        return code
