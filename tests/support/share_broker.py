"""A broker of share groups without sockets: share coordinator, persister and share partitions on real logs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from pykbroker.controller.metadata.features import SHARE_VERSION
from pykbroker.controller.metadata.image import GROUP_RESOURCE, ClusterImage, TopicImage
from pykbroker.coordination.internal_topic import InternalTopic
from pykbroker.coordination.partitioning import SHARE_STATE_TOPIC
from pykbroker.handlers.share_acknowledge import handle_share_acknowledge
from pykbroker.handlers.share_fetch import handle_share_fetch
from pykbroker.protocol.messages import share_acknowledge, share_fetch
from pykbroker.protocol.records.batch import build_batch
from pykbroker.protocol.records.record import Record
from pykbroker.share_partitions.lazy import LazySharePartitions
from pykbroker.share_partitions.registry import SharePartitions
from pykbroker.share_state.coordinator import ShareCoordinator
from pykbroker.share_state.persister import SharePersister
from pykbroker.share_state.state import SharePartitionKey
from tests.support.coordinator_rig import CoordinatorRig
from tests.support.data_path import NODE_ID, NOW_MS, cluster_image, topic_id, topic_image

GROUP = "g"
TOPIC = "clicks"


class ShareBroker(CoordinatorRig):
    """One broker with topic "clicks" (2 partitions), and group "g" whose share partitions begin at the log start.

    Attributes:
        sessions: epoch of the next request of each member.
    """

    def __init__(self, folder: Path, properties: Mapping[str, str] | None = None, **configs: str) -> None:
        super().__init__(folder, cluster_image(topic_image(TOPIC, 2), topic_image(SHARE_STATE_TOPIC, 3)), properties)
        self._configs = {"share.auto.offset.reset": "earliest"}
        self._configs |= {key.replace("_", "."): value for key, value in configs.items()}
        self.complete(self.services.metadata.image)
        self.coordinator = ShareCoordinator(self.services.config, self.environment())
        self.persister = SharePersister(self.coordinator, NODE_ID, self._connect, lambda: None)
        shares = LazySharePartitions(self._make_shares)
        self.services = self.services.replaced(share_state=self.coordinator, shares=shares)
        self.sessions: dict[str, int] = {}

    def under_test(self) -> Any:
        return self.coordinator

    def complete(self, image: ClusterImage) -> None:
        image.features = {SHARE_VERSION: 1}
        image.configs = {**image.configs, (GROUP_RESOURCE, GROUP): self._configs}

    def _make_shares(self, nursery: trio.Nursery) -> SharePartitions:
        configs = self.services.metadata
        return SharePartitions(
            self.services.config.share_groups,
            lambda group_id: configs.image.configs.get((GROUP_RESOURCE, group_id), {}),
            self.partitions,
            self.persister,
            self.clock,
            nursery,
        )

    async def create_internal_topic(self, topic: InternalTopic) -> None:
        raise AssertionError(f"{topic.name} exists")

    def _connect(self, broker_id: int) -> Any:
        raise AssertionError(f"there is no broker {broker_id}")

    @property
    def shares(self) -> SharePartitions:
        return self.services.shares.get()

    def change(self, *topics: TopicImage) -> None:
        """The metadata changes to these topics, beside that of share state."""
        old = self.services.metadata.image
        super().change(*topics, topic_image(SHARE_STATE_TOPIC, 3))
        self.services.shares.on_metadata_change(old, self.services.metadata.image)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[trio.Nursery]:
        """Runs the broker, with the state of both share partitions initialized; closes the logs in the end."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.coordinator.runtime.run)
            await nursery.start(self.services.shares.run)
            for partition in (0, 1):
                await self.persister.initialize(SharePartitionKey(GROUP, topic_id(TOPIC), partition), 1, -1)
            yield nursery
            nursery.cancel_scope.cancel()
        self.close()

    def produce(self, *values: bytes, partition: int = 0, **batch: Any) -> None:
        """Appends one batch."""
        records = [Record(number, NOW_MS, None, value) for number, value in enumerate(values)]
        found = self.partitions.get(TOPIC, partition)
        assert found is not None
        found.append_as_leader(build_batch(records, **batch), NOW_MS)

    async def fetch(
        self,
        member: str,
        *acknowledgements: tuple[int, int, list[int]],
        version: int = 2,
        epoch: int | None = None,
        partitions: Sequence[int] = (0,),
        group_id: str | None = GROUP,
        topic: bytes | None = None,
        **fields: Any,
    ) -> Any:
        """A ShareFetch; the partitions are named in the first request of a member, and acknowledged in others."""
        if epoch is None:
            epoch = self.sessions.get(member, 0)
        batches = [_batch(share_fetch, *each) for each in acknowledgements]
        named = partitions if epoch == 0 or acknowledgements else ()
        asked = [share_fetch.FetchPartition(partition_index=p, acknowledgement_batches=batches) for p in named]
        request = share_fetch.ShareFetchRequest(
            **{
                "group_id": group_id,
                "member_id": member,
                "share_session_epoch": epoch,
                "max_wait_ms": 0,
                "min_bytes": 1,
                "max_records": 500,
                "batch_size": 500,
                "topics": [share_fetch.FetchTopic(topic_id=topic or topic_id(TOPIC), partitions=asked)]
                if named
                else [],
                **fields,
            }
        )
        response = await self.answer(handle_share_fetch, request, version)
        if not response.error_code:
            self.sessions[member] = epoch + 1
        return response

    async def acknowledge(
        self, member: str, *batches: tuple[int, int, list[int]], version: int = 2, **fields: Any
    ) -> Any:
        """A ShareAcknowledge about partition 0."""
        epoch = fields.pop("epoch", self.sessions.get(member, 0))
        asked = share_acknowledge.AcknowledgePartition(
            partition_index=0, acknowledgement_batches=[_batch(share_acknowledge, *each) for each in batches]
        )
        topic = share_acknowledge.AcknowledgeTopic(topic_id=topic_id(TOPIC), partitions=[asked])
        request = share_acknowledge.ShareAcknowledgeRequest(
            **{"group_id": GROUP, "member_id": member, "share_session_epoch": epoch, "topics": [topic], **fields}
        )
        response = await self.answer(handle_share_acknowledge, request, version)
        if not response.error_code:
            self.sessions[member] = epoch + 1
        return response


def _batch(module: Any, first: int, last: int, types: list[int]) -> Any:
    return module.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)


def acquired(response: Any) -> list[tuple[int, int, int]]:
    """(first offset, last offset, delivery count) of all partitions of a response to ShareFetch."""
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in response.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]
