"""ImagePublisher: the newest image of the cluster, and the subscribers that are called for each new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykbroker.controller.metadata.image import EMPTY_IMAGE, ClusterImage, UnsupportedMetadataVersion
from pykbroker.controller.metadata.image_builder import apply_records
from pykbroker.controller.metadata.metadata_versions import METADATA_VERSION, not_supported
from pykbroker.controller.metadata.record_framing import decode_record
from pykbroker.controller.raft.log_view import OffsetAndEpoch
from pykbroker.controller.raft_storage import RaftStorage

ImageCallback = Callable[[ClusterImage, ClusterImage], None]


class ImagePublisher:
    """The newest image and its subscribers.

    Attributes:
        image: state of the cluster after the committed records below `applied`.
        applied: end of the applied log, including control records, which do not change `image`.
    """

    def __init__(self, metadata_version_max: int) -> None:
        """A publisher of a node that supports levels of metadata.version up to this one."""
        self._metadata_version_max = metadata_version_max
        self.image = EMPTY_IMAGE
        self.applied = OffsetAndEpoch(0, 0)
        self._subscribers: list[ImageCallback] = []

    def subscribe(self, callback: ImageCallback) -> None:
        """Calls `callback(old image, new image)` for each new image, and at once if there is one."""
        self._subscribers.append(callback)
        image = self.image
        if image is not EMPTY_IMAGE:
            first = apply_records(image, (), offset=image.offset, epoch=image.epoch, timestamp_ms=image.timestamp_ms)
            _set_delta(EMPTY_IMAGE, first)
            callback(EMPTY_IMAGE, first)

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

    def replay(self, storage: RaftStorage, end_offset: int) -> None:
        """Applies the records of the log from `applied` to `end_offset`, as one new image.

        Raises:
            StorageError: the records cannot be read. The image is unchanged.
        """
        records: list[Any] = []
        offset = epoch = timestamp_ms = -1
        last = self.applied
        for batch in storage.read(self.applied.offset, end_offset):
            last = OffsetAndEpoch(batch.last_offset + 1, batch.epoch)
            if batch.values:
                records += map(decode_record, batch.values)
                offset, epoch, timestamp_ms = batch.last_offset, batch.epoch, batch.timestamp_ms
        assert last.offset == end_offset, (last, end_offset)
        self.applied = last
        if records:
            self.publish(
                apply_records(self.image, records, offset=offset, epoch=epoch, timestamp_ms=timestamp_ms), last
            )

    def replace(self, image: ClusterImage, applied: OffsetAndEpoch) -> None:
        """Publishes the image of a snapshot, which does not result from the present one."""
        _set_delta(self.image, image)
        self.publish(image, applied)


def _set_delta(old: ClusterImage, new: ClusterImage) -> None:
    from pykbroker.controller.metadata.image_delta import delta_between

    new.delta = delta_between(old, new)
