"""The order in which Kafka's brokers describe settings: that of the hash tables of its AbstractConfig (P-613).

Clients show it: kafka-topics prints the settings of a topic as they come.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from pykbroker.config.definitions.broker import BROKER_CONFIGS
from pykbroker.config.definitions.topic import TOPIC_CONFIGS
from pykbroker.java_order import hash_order, table_size_for


@lru_cache(maxsize=1)
def topic_key_order() -> list[str]:
    """The keys of every topic."""
    return hash_order(TOPIC_CONFIGS)


@lru_cache(maxsize=1)
def broker_key_order() -> list[str]:
    """The keys of every broker."""
    return hash_order(BROKER_CONFIGS)


def further_keys_first(given: Collection[str], known: Collection[str]) -> list[str]:
    """All keys that a broker describes: those that are given and not among Kafka's own, then these (`known`, in order).

    Args:
        given: all keys that are set, also known ones, whose number decides the order of the others.
        known: Kafka's own keys in their order.
    """
    size = table_size_for(int(len(given) / 0.75 + 1))
    further = set(given).difference(known)
    return [*hash_order(sorted(further), size), *known]
