"""Records what Apache Kafka answers: `python -m tests.transcripts.transactions.record BROKER CONTROLLER`, a fresh node.

Both are HOST:PORT. A second broker is registered at the controller that only the registration exists of.
Kafka is started with `KAFKA_PROPERTIES` and transaction.version 2, as it is formatted by default. Besides the answers,
the records of `__transaction_state` are kept, of each id in order: their values are compared with those that we write.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pykbroker.coordination.partitioning import TRANSACTION_TOPIC
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from pykbroker.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from pykbroker.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from pykbroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pykbroker.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from pykbroker.protocol.records.batch import iter_batches
from tests.support.transcripts import Client, to_json
from tests.transcripts.transactions.script import (
    PARTITIONS,
    STUCK,
    STUCK_TOPIC,
    TOPIC,
    Ask,
    SetLevel,
    Settle,
    SpendEpochs,
    Step,
    Wait,
    script,
)

ANSWERS = Path(__file__).with_name("answers.jsonl")
RECORDS = Path(__file__).with_name("records.jsonl")

LAST_EPOCH = 32766
SAFE_DOWNGRADE, UPGRADE = 2, 1

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
ABSENT_BROKER = 9
BEAT_S = 1.0
FEATURES = (
    "metadata.version",
    "kraft.version",
    "transaction.version",
    "group.version",
    "eligible.leader.replicas.version",
    "share.version",
    "streams.version",
)
STATE_PARTITIONS = 50


class Kafka:
    """Takes the steps on a broker."""

    def __init__(self, broker: tuple[str, int], controller: tuple[str, int]) -> None:
        self._client = Client(*broker)
        self._controller = Client(*controller)
        self.answers: list[dict[str, Any]] = []

    def prepare(self) -> None:
        topics = [CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)]
        self._call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
        for key_type, key in ((1, "x"), (0, "g")):
            find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            while self._call(find, 6).coordinators[0].port < 0:
                time.sleep(0.2)
        # The first answers are COORDINATOR_LOAD_IN_PROGRESS, until the broker has a block of producer ids.
        request = InitProducerIdRequest(transactional_id="first", transaction_timeout_ms=60_000)
        while self._call(request, 5).error_code != ErrorCode.NONE:
            time.sleep(0.2)

        self._make_stuck_topic()

    def _make_stuck_topic(self) -> None:
        """A topic on a broker of which nothing exists but a heartbeat."""
        features = [Feature(name=name, max_supported_version=99) for name in FEATURES]
        features[0].min_supported_version = 7
        registration = BrokerRegistrationRequest(
            broker_id=ABSENT_BROKER,
            cluster_id=CLUSTER_ID,
            incarnation_id=bytes(range(16)),
            listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=1)],
            features=features,
            log_dirs=[bytes(range(1, 17))],
        )
        registered: Any = self._controller.call(registration, 4)
        assert registered.error_code == ErrorCode.NONE
        beating = threading.Thread(target=self._beat, args=(registered.broker_epoch,), daemon=True)
        beating.start()
        time.sleep(3 * BEAT_S)
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[ABSENT_BROKER])
        topic = CreatableTopic(name=STUCK_TOPIC, num_partitions=-1, replication_factor=-1, assignments=[assignment])
        created = self._call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        assert created.topics[0].error_code == ErrorCode.NONE, created.topics[0].error_message
        time.sleep(1)

    def _beat(self, epoch: int) -> None:
        """Without this the broker is fenced and its partitions lose their leader: Kafka does without their markers."""
        beat = BrokerHeartbeatRequest(
            broker_id=ABSENT_BROKER, broker_epoch=epoch, current_metadata_offset=epoch + 1_000_000
        )
        while True:
            answer: Any = self._controller.call(beat, 1)
            assert answer.error_code == ErrorCode.NONE
            time.sleep(BEAT_S)

    def take(self, step: Step) -> Any:
        """Takes a step; gives the answer to a request."""
        if isinstance(step, Ask):
            answer = self._call(step.request, step.version)
            self.answers.append({"label": step.label, "answer": to_json(answer)})
            return answer
        if isinstance(step, Settle):
            self._settle(step.transactional_id)
        elif isinstance(step, Wait):
            time.sleep(step.time_ms / 1000)
        elif isinstance(step, SetLevel):
            self._set_level(step.level)
        elif isinstance(step, SpendEpochs):
            self._spend(step.transactional_id)
        return None

    def _call(self, request: Any, version: int) -> Any:
        answer = self._client.call(request, version)
        assert answer is not None, request
        return answer

    def _settle(self, name: str) -> None:
        if not name or name.startswith(STUCK):
            return
        while True:
            request = DescribeTransactionsRequest(transactional_ids=[name])
            state = self._call(request, 0).transaction_states[0].transaction_state
            if not state.startswith("Prepare"):
                return
            time.sleep(0.002)

    def _set_level(self, level: int) -> None:
        for upgrade_type in (SAFE_DOWNGRADE, UPGRADE):
            update = FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=upgrade_type)
            self._call(UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update]), 2)
        time.sleep(1)

    def _spend(self, name: str) -> None:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        while self._call(request, 5).producer_epoch < LAST_EPOCH:
            pass

    def records(self) -> list[tuple[str, str | None]]:
        """Key and value of all records of the coordinator's topic as hexadecimal text, by partition."""
        found: list[tuple[str, str | None]] = []
        for number in range(STATE_PARTITIONS):
            offset = 0
            while True:
                part = self._fetch(number, offset)
                if not part:
                    break
                for batch in iter_batches(part):
                    for record in batch.records():
                        value = None if record.value is None else bytes(record.value).hex()
                        found.append((bytes(record.key or b"").hex(), value))
                    offset = batch.last_offset + 1
        return found

    def _fetch(self, number: int, offset: int) -> bytes:
        partition = FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic=TRANSACTION_TOPIC, partitions=[partition])]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 24, session_epoch=-1, topics=topics)
        answer = self._call(request, 12)
        return bytes(answer.responses[0].partitions[0].records or b"")


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def main(broker: str, controller: str) -> None:
    kafka = Kafka(_address(broker), _address(controller))
    kafka.prepare()
    steps = script()
    answer: Any = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration:
            break
        answer = kafka.take(step)
    ANSWERS.write_text("".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in kafka.answers))
    records = (entry for entry in kafka.records() if b"spent" not in bytes.fromhex(entry[0]))
    RECORDS.write_text("".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in records))


if __name__ == "__main__":
    main(*sys.argv[1:])
