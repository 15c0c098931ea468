"""ImagePublisher: the newest image of the cluster, and the subscribers that are called for each new one.

All subscribers are called in one step, so that readers see the old state or the new one. Work that takes long for
thousands of partitions is done before, in steps between which other tasks run (`prepare_in_steps`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pykbroker.controller.metadata.image import (
    BROKER_RESOURCE,
    EMPTY_IMAGE,
    ClusterImage,
    ImageDelta,
    UnsupportedMetadataVersion,
)
from pykbroker.controller.metadata.image_builder import ImageBuilder, apply_records
from pykbroker.controller.metadata.metadata_versions import METADATA_VERSION, not_supported
from pykbroker.controller.metadata.record_framing import decode_record
from pykbroker.controller.raft.log_view import OffsetAndEpoch
from pykbroker.controller.raft_storage import RaftStorage
from pykbroker.protocol.steps import Steps, finished

ImageCallback = Callable[[ClusterImage, ClusterImage], None]

ImagePreparer = Callable[[ClusterImage, ClusterImage], Iterable[None]]
"""Prepares a subscriber, in steps, for the next image (old, new), whose records are committed. A part of the result may
be seen before the image is published, as in Kafka, whose publishers apply an image one after another."""

LARGE = 32
"""Number of new partitions, of topics with changed settings, or of records, from which an image is prepared, or read
from the log, in steps. A changed partition has a record of its own."""


class ImagePublisher:
    """The newest image and its subscribers.

    Attributes:
        image: state of the cluster after the committed records below `applied`.
        applied: end of the applied log, including control records, which do not change `image`.
        prepared: the image for which the subscribers were prepared, until one is published, or None.
    """

    def __init__(self, metadata_version_max: int) -> None:
        """A publisher of a node that supports levels of metadata.version up to this one."""
        self._metadata_version_max = metadata_version_max
        self.image = EMPTY_IMAGE
        self.applied = OffsetAndEpoch(0, 0)
        self.prepared: ClusterImage | None = None
        self._subscribers: list[ImageCallback] = []
        self._preparers: list[ImagePreparer] = []

    def subscribe(self, callback: ImageCallback, prepare: ImagePreparer | None = None) -> None:
        """Calls `callback(old image, new image)` for each new image, and at once if there is one.

        `prepare` is called before `callback` for an image with many new, changed or deleted partitions, with changed
        settings of many topics, or with a change among many records that are kept whole, such as quotas.
        """
        self._subscribers.append(callback)
        if prepare is not None:
            self._preparers.append(prepare)
        image = self.image
        if image is not EMPTY_IMAGE:
            first = apply_records(image, (), offset=image.offset, epoch=image.epoch, timestamp_ms=image.timestamp_ms)
            _set_delta(EMPTY_IMAGE, first)
            callback(EMPTY_IMAGE, first)
            first.delta = ImageDelta()

    def publish(self, image: ClusterImage, applied: OffsetAndEpoch) -> None:
        """Makes an image the newest one and calls the subscribers.

        Raises:
            UnsupportedMetadataVersion: the cluster has a level that this node does not support.
        """
        if image.features.get(METADATA_VERSION, 0) > self._metadata_version_max:
            raise UnsupportedMetadataVersion(not_supported(image.metadata_version, self._metadata_version_max))
        self.applied = applied
        old, self.image = self.image, image
        for callback in self._subscribers:
            callback(old, image)
        # Both would keep deleted topics in memory until the next image, or the next large one.
        image.delta = ImageDelta()
        self.prepared = None

    def must_prepare(self, image: ClusterImage, record_count: int) -> bool:
        """True if the subscribers should be prepared before an image that so many records have made is published."""
        if image is self.prepared or not self._preparers:
            return False
        delta = image.delta
        count = sum(len(topic.partitions) for topic in delta.created_topics)
        count += sum(len(after.partitions) - len(before.partitions) for before, after in delta.changed_topics)
        return (
            count >= LARGE
            or delta.is_large_deletion
            or (bool(delta.changed_topics) and record_count >= LARGE)
            or len(delta.configs) >= LARGE
            or (len(image.kept_records) >= LARGE and image.kept_records is not self.image.kept_records)
            or (len(image.topics_by_id) >= LARGE and any(kind == BROKER_RESOURCE for kind, _ in delta.configs))
        )

    def prepare_in_steps(self, image: ClusterImage, record_count: int) -> Steps[None]:
        """Prepares the subscribers for an image that so many committed records have made; it is published next."""
        if self.must_prepare(image, record_count):
            for prepare in self._preparers:
                for _ in prepare(self.image, image):
                    yield
        self.prepared = image

    def read(self, storage: RaftStorage, end_offset: int) -> tuple[ClusterImage | None, OffsetAndEpoch, OffsetAndEpoch]:
        """As `read_in_steps`, at once."""
        return finished(self.read_in_steps(storage, end_offset))

    def read_in_steps(
        self, storage: RaftStorage, end_offset: int
    ) -> Steps[tuple[ClusterImage | None, OffsetAndEpoch, OffsetAndEpoch]]:
        """The image after the log's records from `applied` to `end_offset`, in steps. It is not published.

        Returns:
            The image, None without records; and the beginning and end of the part of the log that was read.

        Raises:
            StorageError: the records cannot be read.
        """
        offset = epoch = timestamp_ms = -1
        builder, first = ImageBuilder(self.image), self.applied
        last = first
        for batch in storage.read(first.offset, end_offset):
            last = OffsetAndEpoch(batch.last_offset + 1, batch.epoch)
            if batch.values:
                # Record by record: to free thousands of them at once would take longer than a turn.
                yield from builder.replay_in_steps(map(decode_record, batch.values))
                offset, epoch, timestamp_ms = batch.last_offset, batch.epoch, batch.timestamp_ms
        assert last.offset == end_offset, (last, end_offset)
        if offset < 0:
            return None, first, last
        return builder.build(offset=offset, epoch=epoch, timestamp_ms=timestamp_ms), first, last

    def publish_read(self, image: ClusterImage | None, first: OffsetAndEpoch, last: OffsetAndEpoch) -> bool:
        """Publishes the result of `read_in_steps`. Does nothing and returns False if a snapshot has come since."""
        if self.applied != first:
            return False
        self.applied = last
        if image is not None:
            self.publish(image, last)
        return True

    def replace(self, image: ClusterImage, applied: OffsetAndEpoch) -> None:
        """Publishes the image of a snapshot, which does not result from the present one."""
        _set_delta(self.image, image)
        self.publish(image, applied)


def _set_delta(old: ClusterImage, new: ClusterImage) -> None:
    from pykbroker.controller.metadata.image_delta import delta_between

    new.delta = delta_between(old, new)
