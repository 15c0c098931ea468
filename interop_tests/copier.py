"""Copies a topic into another, exactly once: consume, produce, and commit both in one transaction, until it is killed.

    python -m interop_tests.copier CLIENT BOOTSTRAP INPUT OUTPUT GROUP TRANSACTIONAL_ID

Every record goes to the partition of its own number. The first transaction of a process and every eighth after it
are aborted and done again. The process
has no other answer to trouble than to end: whoever started it starts it again.
"""

from __future__ import annotations

import asyncio
import faulthandler
import itertools
import os
import sys
import threading
import time
import traceback
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import kafka
from kafka.structs import OffsetAndMetadata

SESSION_TIMEOUT_MS = 3_000
# Longer than a broker takes to come back: a copier that is started again ends what its predecessor left open.
TRANSACTION_TIMEOUT_MS = 60_000
RECORDS = 50
"""At most so many in one transaction."""

ABORTED = 8
"""The first of so many is aborted: each run has aborted transactions, however few there are in it."""

TIMEOUT_S = 20.0
STUCK_S = 40.0
"""After so long in one call the process ends as well."""

# librdkafka forgets all brokers when none answers, and then waits for ever in send_offsets_to_transaction: it keeps the
# group's coordinator as one of those that it has forgotten (2.16, "Handle is terminating").
LIBRDKAFKA = {"metadata.recovery.strategy": "none", "reconnect.backoff.max.ms": 500, "log_level": 0}


class Job(NamedTuple):
    """From where to where, and as whom."""

    bootstrap: str
    source: str
    target: str
    group: str
    transactional_id: str


class Watch:
    """Ends the process when its work stands still."""

    def __init__(self) -> None:
        self._moved_at = time.monotonic()
        threading.Thread(target=self._run, daemon=True).start()

    def moved(self) -> None:
        """Another round has begun."""
        self._moved_at = time.monotonic()

    def _run(self) -> None:
        while time.monotonic() < self._moved_at + STUCK_S:
            time.sleep(1)
        print(f"nothing has happened for {STUCK_S:.0f} s", file=sys.stderr, flush=True)
        faulthandler.dump_traceback()
        os._exit(2)


_transactions = itertools.count()


def is_aborted() -> bool:
    """True for the first transaction that asks, and for one in ABORTED after it."""
    return next(_transactions) % ABORTED == 0


def require_membership(member_id: str | None) -> None:
    """Ends a copier that was thrown out of the group, as when its broker was away for longer than a session.

    Then both libraries give metadata without a member and generation, with which a broker fences nobody: another copier
    may have read the same records from the same committed offset.
    """
    if not member_id:
        raise RuntimeError("no longer a member of the group")


def copy_confluent(job: Job) -> None:
    """By librdkafka, in a group that fences members that have lost their partitions (KIP-447)."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "transactional.id": job.transactional_id,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "linger.ms": 0,
            **LIBRDKAFKA,
        }
    )
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": job.bootstrap,
            "group.id": job.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 500,
            **LIBRDKAFKA,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    batch: list[Any] = []
    # What a rebalance takes away, or gives back at its committed offset, is read again by whoever gets it.
    consumer.subscribe(
        [job.source],
        on_assign=lambda *_: batch.clear(),
        on_revoke=lambda *_: batch.clear(),
        on_lost=lambda *_: batch.clear(),
    )
    watch = Watch()
    while True:
        watch.moved()
        batch.clear()
        _fill(batch, consumer)
        if not batch:
            continue
        last = {message.partition(): message.offset() for message in batch}
        positions = [confluent_kafka.TopicPartition(job.source, *place) for place in last.items()]
        for position in positions:
            position.offset += 1
        while True:
            producer.begin_transaction()
            for message in batch:
                producer.produce(job.target, message.value(), partition=message.partition())
            metadata = consumer.consumer_group_metadata()
            require_membership(consumer.memberid())
            producer.send_offsets_to_transaction(positions, metadata, TIMEOUT_S)
            if not is_aborted():
                producer.commit_transaction(TIMEOUT_S)
                break
            # librdkafka 2.16 gives the sequence numbers of records that wait for their retry when it aborts to those of
            # the next transaction. If a broker has stored them before its connection broke, it takes the next records
            # for the same ones, and they are lost; Apache Kafka does so too.
            if producer.flush(TIMEOUT_S):
                raise RuntimeError("records were not delivered in time")
            producer.abort_transaction(TIMEOUT_S)


def _fill(batch: list[Any], consumer: confluent_kafka.Consumer) -> None:
    """One message after the other, so that a rebalance between them finds those before it in the batch."""
    while len(batch) < RECORDS:
        message = consumer.poll(0.0 if batch else 0.1)
        if message is None:
            return
        if message.error() is None:
            batch.append(message)


def copy_kafka_python(job: Job) -> None:
    """By kafka-python, in a group."""
    producer = kafka.KafkaProducer(
        bootstrap_servers=job.bootstrap,
        transactional_id=job.transactional_id,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        delivery_timeout_ms=30_000,
        request_timeout_ms=5_000,
    )
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=job.bootstrap,
        group_id=job.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=500,
        max_poll_records=RECORDS,
    )
    producer.init_transactions()
    consumer.subscribe([job.source])
    watch = Watch()
    while True:
        watch.moved()
        polled = consumer.poll(timeout_ms=100)
        if not polled:
            continue
        offsets = {place: OffsetAndMetadata(records[-1].offset + 1, "", -1) for place, records in polled.items()}
        # Of the generation in which the records were polled: the library may join again by itself in the background,
        # and with a later generation the broker could not fence a copier that has lost these partitions meanwhile.
        metadata = consumer.group_metadata()
        require_membership(metadata.member_id)
        while True:
            producer.begin_transaction()
            sent = [
                producer.send(job.target, record.value, partition=record.partition)
                for records in polled.values()
                for record in records
            ]
            producer.send_offsets_to_transaction(offsets, metadata)
            # The library commits even if a batch has expired and its partition was never added to the transaction.
            for future in sent:
                future.get(TIMEOUT_S)
            if not is_aborted():
                producer.commit_transaction()
                break
            producer.abort_transaction()


def copy_aiokafka(job: Job) -> None:
    """By aiokafka, without membership: it knows no fencing by generation, so one process has all partitions."""
    asyncio.run(_copy_aiokafka(job))


async def _copy_aiokafka(job: Job) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=job.bootstrap,
        transactional_id=job.transactional_id,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
    )
    await producer.start()
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=job.bootstrap,
        group_id=job.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await consumer.start()
    await consumer._client.force_metadata_update()
    consumer.assign([aiokafka.TopicPartition(job.source, n) for n in await producer.partitions_for(job.source)])
    watch = Watch()
    while True:
        watch.moved()
        polled: dict[Any, Any] = await consumer.getmany(timeout_ms=100, max_records=RECORDS)
        if not polled:
            continue
        offsets = {place: records[-1].offset + 1 for place, records in polled.items()}
        while True:
            await producer.begin_transaction()
            for records in polled.values():
                for record in records:
                    await producer.send(job.target, record.value, partition=record.partition)
            await producer.send_offsets_to_transaction(offsets, job.group)
            if not is_aborted():
                await asyncio.wait_for(producer.commit_transaction(), TIMEOUT_S)
                break
            await asyncio.wait_for(producer.flush(), TIMEOUT_S)
            await asyncio.wait_for(producer.abort_transaction(), TIMEOUT_S)


COPIERS = {"confluent-kafka": copy_confluent, "kafka-python": copy_kafka_python, "aiokafka": copy_aiokafka}

if __name__ == "__main__":
    try:
        COPIERS[sys.argv[1]](Job(*sys.argv[2:]))
    except BaseException:
        traceback.print_exc()
        # At once: the libraries may wait for a broker that is gone when they are taken down in order.
        os._exit(1)
