"""The coordinator answers as Apache Kafka 4.3.1 did, and writes the same records (tests/transcripts/transactions)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from pykbroker.coordination.partitioning import TRANSACTION_TOPIC
from pykbroker.protocol.codec import decode, decode_versioned, encode, encode_versioned
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.transaction_log import TransactionLogValue
from pykbroker.requests.api_table import APIS, load_handler
from tests.pykbroker.transactions.rig import PARTITIONS, Rig
from tests.support.data_path import topic_image
from tests.support.transcripts import to_json
from tests.transcripts.transactions.script import (
    KAFKA_PROPERTIES,
    STUCK_TOPIC,
    Ask,
    SetLevel,
    SpendEpochs,
    Step,
    Wait,
    script,
)

FOLDER = Path(__file__).parents[2] / "transcripts" / "transactions"
LAST_EPOCH = 32766
FIRST_ID = 1
"""The recording has taken id 0 to see whether Kafka gives ids already."""


def comparable(value: Any) -> Any:
    """An answer without what depends on the time or on a hash table's order."""
    if isinstance(value, dict):
        return {
            key: (content >= 0 if key == "transaction_start_time_ms" else comparable(content))
            for key, content in value.items()
        }
    if isinstance(value, list):
        return sorted((comparable(member) for member in value), key=repr)
    return value


class Ours:
    """Takes the steps of the script on our handlers."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.answers: list[tuple[str, Any]] = []

    async def take(self, step: Step) -> Any:
        if isinstance(step, Ask):
            _, handler = load_handler(APIS[step.request.KEY])
            answer = await self._rig.answer(handler, step.request, step.version)
            arrived = decode(type(answer), step.version, encode(answer, step.version))
            self.answers.append((step.label, to_json(arrived)))
            return arrived
        if isinstance(step, Wait):
            await trio.sleep(step.time_ms / 1000)
        elif isinstance(step, SetLevel):
            self._rig.set_level(step.level)
        elif isinstance(step, SpendEpochs):
            transaction = self._rig.transaction(step.transactional_id)
            transaction.current = transaction.current._replace(producer_epoch=LAST_EPOCH)
        return None

    def records(self) -> list[tuple[bytes, bytes | None]]:
        return [
            (bytes(record.key or b""), None if record.value is None else bytes(record.value))
            for number in range(PARTITIONS)
            for batch in self._rig.partitions.get(TRANSACTION_TOPIC, number).log.iter_batches()  # type: ignore[union-attr]
            for record in batch.records()
        ]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[tuple[str, Any]], list[tuple[bytes, bytes | None]]]:
    """Answers and records of the whole script."""

    async def run() -> tuple[list[tuple[str, Any]], list[tuple[bytes, bytes | None]]]:
        rig = Rig(tmp_path_factory.mktemp("log"), KAFKA_PROPERTIES)
        rig.next_id = FIRST_ID
        side = Ours(rig)
        rig.marker_errors[STUCK_TOPIC, 0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        async with rig.running():
            rig.change(*rig.services.metadata.image.topics_by_name.values(), topic_image(STUCK_TOPIC, 1))
            steps = script()
            answer: Any = None
            while True:
                try:
                    step = steps.send(answer)
                except StopIteration:
                    break
                answer = await side.take(step)
            records = side.records()
        return side.answers, records

    clock = trio.testing.MockClock(autojump_threshold=0)
    return trio.run(run, clock=clock)


def test_every_answer_is_kafkas(ours: Any) -> None:
    """P-127 to P-137, P-140: each request in each state, with the right producer and with wrong ones."""
    entries = [json.loads(line) for line in (FOLDER / "answers.jsonl").read_text().splitlines()]
    assert [label for label, _ in ours[0]] == [entry["label"] for entry in entries]
    different = [
        f"{label}\n  Kafka: {entry['answer']}\n  ours:  {answer}"
        for (label, answer), entry in zip(ours[0], entries, strict=True)
        if comparable(answer) != comparable(entry["answer"])
    ]
    assert not different, f"{len(different)} differ:\n" + "\n".join(different)


def timeless(value: bytes | None) -> Any:
    """A record's value without its timestamps, but for whether there is a start."""
    if value is None:
        return None
    decoded = decode_versioned(TransactionLogValue, value)
    decoded.transaction_last_update_timestamp_ms = 0
    decoded.transaction_start_timestamp_ms = min(decoded.transaction_start_timestamp_ms, 0)
    for topic in decoded.transaction_partitions or ():
        topic.partition_ids = sorted(topic.partition_ids)
    if decoded.transaction_partitions is not None:
        decoded.transaction_partitions.sort(key=lambda topic: topic.topic)
    return value[:2], to_json(decoded)


def test_every_record_is_kafkas(ours: Any) -> None:
    """`__transaction_state` in Kafka's formats: the same keys with the same values, in the same order."""
    kafka: dict[bytes, list[bytes | None]] = {}
    for line in (FOLDER / "records.jsonl").read_text().splitlines():
        key, value = json.loads(line)
        kafka.setdefault(bytes.fromhex(key), []).append(None if value is None else bytes.fromhex(value))
    written: dict[bytes, list[bytes | None]] = {}
    for key, value in ours[1]:
        written.setdefault(key, []).append(value)
    compared = [key for key in kafka if key in written and b"-spent-" not in key]
    assert len(compared) > 400
    different = [
        f"{key!r}\n  Kafka: {[timeless(value) for value in kafka[key]]}\n  ours:  {[timeless(v) for v in written[key]]}"
        for key in compared
        if [timeless(value) for value in kafka[key]] != [timeless(value) for value in written[key]]
    ]
    assert not different, f"{len(different)} differ:\n" + "\n".join(different)
    assert {key for key in kafka if b"-spent-" not in key} - set(written) == {b"\0\0\0\5first"}


def test_kafkas_records_are_read_and_written_byte_by_byte() -> None:
    """Both versions of the value."""
    versions = set()
    for line in (FOLDER / "records.jsonl").read_text().splitlines():
        value = bytes.fromhex(json.loads(line)[1])
        version = int.from_bytes(value[:2], "big")
        versions.add(version)
        assert encode_versioned(decode_versioned(TransactionLogValue, value), version) == value
    assert versions == {0, 1}
