"""One broker with a coordinator on real logs, under metadata that a test changes and trio's virtual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from pykbroker.controller.metadata.image import ClusterImage, TopicImage
from pykbroker.controller.metadata.image_delta import delta_between
from pykbroker.coordination.internal_topic import InternalTopic
from pykbroker.coordination.runtime import CoordinatorEnvironment
from tests.support.data_path import NODE_ID, DataPath, cluster_image, topic_image


class CoordinatorRig(DataPath):
    """A broker with one coordinator under test. A subclass makes the coordinator and names it by `under_test`.

    Attributes:
        created: internal topics that it has asked for.
        creation_error: raised in place of creating a topic.
        creation_s: seconds that a creation takes.
        partition_count: partitions of a created topic.
    """

    creation_error: Exception | None = None
    creation_s = 0.01
    partition_count = 1

    def __init__(self, folder: Path, image: ClusterImage, properties: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, image, properties)
        self.created: list[InternalTopic] = []

    def under_test(self) -> Any:
        """The coordinator, or the runtime alone."""
        raise NotImplementedError

    def runtime_under_test(self) -> Any:
        """The coordinator's runtime."""
        return self.under_test().runtime

    def environment(self, partitions: Any = None) -> CoordinatorEnvironment:
        """Environment of the coordinator, with these partitions in place of the broker's own if there are any."""
        return CoordinatorEnvironment(
            NODE_ID, self.clock, partitions or self.partitions, self.services.metadata, self.create_internal_topic
        )

    async def create_internal_topic(self, topic: InternalTopic) -> None:
        self.created.append(topic)
        await trio.sleep(self.creation_s)
        if self.creation_error is not None:
            raise self.creation_error
        image = topic_image(topic.name, self.partition_count)
        self.change(*self.services.metadata.image.topics_by_name.values(), image)

    def complete(self, image: ClusterImage) -> None:
        """Adds to a new image what is not topics."""

    def change(self, *topics: TopicImage) -> None:
        """The metadata changes to these topics."""
        old = self.services.metadata.image
        new = cluster_image(*topics)
        self.complete(new)
        new.delta = delta_between(old, new)
        self.services.metadata.apply(old, new)
        self.partitions.apply(old, new)
        self.under_test().on_metadata_change(old, new)

    async def end_tasks(self, nursery: trio.Nursery) -> None:
        """Stops what is `running` and lets the caller go on after it, as a task may that was woken before."""
        nursery.cancel_scope.cancel()
        while not self.runtime_under_test().has_ended:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[trio.Nursery]:
        """Runs the coordinator; closes the logs in the end."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.runtime_under_test().run)
            yield nursery
            nursery.cancel_scope.cancel()
        self.close()
