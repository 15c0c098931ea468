"""The order in which Kafka's brokers describe settings: that of the hash tables of its AbstractConfig (P-613).

Clients show it: kafka-topics prints the settings of a topic as they come.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

from pykbroker.config.definitions.broker import BROKER_CONFIGS
from pykbroker.config.definitions.topic import TOPIC_CONFIGS
from pykbroker.java_order import hash_order, table_size_for

_SAME_SLOT_OF_TOPIC_KEYS = (
    ("segment.bytes", "retention.ms", "compression.gzip.level"),
    ("flush.messages", "compression.zstd.level"),
    ("retention.bytes", "delete.retention.ms"),
    ("max.compaction.lag.ms", "file.delete.delay.ms"),
)
_SAME_SLOT_OF_BROKER_KEYS = (
    ("share.fetch.purgatory.purge.interval.requests", "alter.log.dirs.replication.quota.window.num"),
    (
        "broker.id",
        "max.request.partition.size.limit",
        "offsets.topic.compression.codec",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "delegation.token.max.lifetime.ms",
    ),
    ("compression.lz4.level", "log.roll.hours", "controller.quorum.fetch.max.bytes"),
    ("early.start.listeners", "controlled.shutdown.enable", "share.coordinator.state.topic.compression.codec"),
    ("transaction.partition.verification.enable", "controller.quorum.auto.join.enable"),
    ("group.share.max.size", "controller.quorum.election.backoff.max.ms"),
    ("log.cleaner.enable", "controller.quorum.fetch.timeout.ms"),
    ("producer.purgatory.purge.interval.requests", "controller.quorum.voters"),
    ("group.share.max.assignment.interval.ms", "controller.quota.window.num"),
    ("remote.log.metadata.manager.impl.prefix", "controller.quota.window.size.seconds"),
    ("max.connections", "delegation.token.expiry.time.ms"),
    (
        "metadata.log.segment.bytes",
        "fetch.purgatory.purge.interval.requests",
        "group.streams.num.standby.replicas",
        "group.share.record.lock.duration.ms",
    ),
    ("group.consumer.max.size", "group.consumer.assignors"),
    ("replica.fetch.response.max.bytes", "group.max.session.timeout.ms", "group.consumer.heartbeat.interval.ms"),
    ("remote.log.manager.expiration.thread.pool.size", "group.consumer.max.assignment.interval.ms"),
    (
        "remote.log.metadata.manager.class.path",
        "group.consumer.max.heartbeat.interval.ms",
        "sasl.login.refresh.window.factor",
    ),
    (
        "group.consumer.max.session.timeout.ms",
        "num.recovery.threads.per.data.dir",
        "ssl.keystore.type",
        "sasl.oauthbearer.assertion.private.key.file",
    ),
    ("process.roles", "group.max.size"),
    ("replica.fetch.backoff.ms", "group.share.delivery.count.limit", "kafka.metrics.reporters"),
    ("sasl.mechanism.controller.protocol", "group.share.max.record.lock.duration.ms"),
    ("log.message.timestamp.before.max.ms", "group.share.min.partition.max.record.locks"),
    ("log.cleaner.min.cleanable.ratio", "group.share.min.record.lock.duration.ms"),
    ("remote.log.manager.fetch.max.bytes.per.second", "group.share.session.timeout.ms"),
    (
        "remote.log.storage.manager.class.name",
        "socket.receive.buffer.bytes",
        "group.streams.initial.rebalance.delay.ms",
    ),
    ("remote.fetch.max.wait.ms", "group.streams.max.heartbeat.interval.ms"),
    ("replica.fetch.min.bytes", "group.streams.max.session.timeout.ms", "sasl.oauthbearer.sub.claim.name"),
    ("num.io.threads", "group.streams.max.size", "sasl.login.refresh.buffer.seconds"),
    ("metadata.log.max.snapshot.interval.ms", "group.streams.max.standby.replicas"),
    ("socket.connection.setup.timeout.ms", "listeners"),
    ("metadata.log.dir", "log.cleaner.io.buffer.load.factor", "transaction.max.timeout.ms"),
    ("remote.log.metadata.manager.listener.name", "log.flush.interval.messages"),
    ("remote.log.manager.copy.quota.window.size.seconds", "log.flush.offset.checkpoint.interval.ms"),
    ("ssl.keystore.key", "sasl.client.callback.handler.class"),
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "sasl.kerberos.kinit.cmd"),
    ("ssl.keymanager.algorithm", "sasl.login.callback.handler.class"),
    ("sasl.oauthbearer.scope", "sasl.oauthbearer.jwks.endpoint.url"),
    ("share.coordinator.threads", "sasl.server.max.receive.size", "security.providers"),
    ("transaction.state.log.min.isr", "ssl.secure.random.implementation"),
)
"""Keys of one slot of Kafka's table, in the order of their definitions where that is not the order of the alphabet."""


@lru_cache(maxsize=1)
def topic_key_order() -> list[str]:
    """The keys of every topic."""
    return hash_order(_as_defined(TOPIC_CONFIGS, _SAME_SLOT_OF_TOPIC_KEYS))


@lru_cache(maxsize=1)
def broker_key_order() -> list[str]:
    """The keys of every broker."""
    return hash_order(_as_defined(BROKER_CONFIGS, _SAME_SLOT_OF_BROKER_KEYS))


def _as_defined(names: Iterable[str], same_slot: Iterable[Sequence[str]]) -> list[str]:
    """Names in the order of the alphabet, but those of one slot as Kafka defines them."""
    place = {name: index for index, name in enumerate(names)}
    for slot in same_slot:
        place.update(zip(slot, sorted(place[name] for name in slot), strict=True))
    return sorted(place, key=place.__getitem__)


def further_keys_first(given: Collection[str], known: Collection[str]) -> list[str]:
    """All keys that a broker describes: those that are given and not among Kafka's own, then these (`known`, in order).

    Args:
        given: all keys that are set, also known ones, whose number decides the order of the others.
        known: Kafka's own keys in their order.
    """
    size = table_size_for(int(len(given) / 0.75 + 1))
    further = set(given).difference(known)
    return [*hash_order(sorted(further), size), *known]
