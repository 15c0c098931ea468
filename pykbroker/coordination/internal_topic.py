"""A topic that a coordinator needs. It is created when a client first looks for the coordinator, once at a time."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from pykbroker.named_tuple import NamedTuple

if TYPE_CHECKING:
    import trio

log = logging.getLogger(__name__)


class InternalTopic(NamedTuple):
    """A topic to be created through the controller; `configs` are Kafka's keys and values, as text."""

    name: str
    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]


class TopicCreation:
    """Creates one internal topic, with at most one creation in flight.

    Args:
        create: creates a topic through the controller. It may fail, as the client sends FindCoordinator again.
    """

    def __init__(self, create: Callable[[InternalTopic], Awaitable[None]]) -> None:
        self._create = create
        self._is_under_way = False

    def start(self, nursery: trio.Nursery, topic: InternalTopic, wanted_replicas: int) -> None:
        """Starts the creation, unless one is in flight; logs if it gets fewer than `wanted_replicas` (P-117)."""
        if self._is_under_way:
            return
        self._is_under_way = True
        if topic.replication_factor < wanted_replicas:
            log.info("%s gets %d replica(s) instead of %d", topic.name, topic.replication_factor, wanted_replicas)
        nursery.start_soon(self._run, topic)

    async def _run(self, topic: InternalTopic) -> None:
        try:
            await self._create(topic)
        except Exception as error:
            log.warning("%s could not be created and will be tried again: %s", topic.name, error)
        finally:
            self._is_under_way = False
