"""One produce request for one record, and the real dispatch that serves it, without a cluster around it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from pykbroker.protocol.codec import encode
from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.data_path import DataPath, batch, cluster_image, topic_id, topic_image

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "t"
VERSION = 13
CLIENT = b"load"


def data_path(folder: Path, partitions: int) -> DataPath:
    """Partitions of one topic in real logs."""
    return DataPath(folder, cluster_image(topic_image(TOPIC, partitions)))


def produce_frame(partition: int, size: int) -> bytes:
    """A Produce request without its length: one record of so many bytes for one partition."""
    data = PartitionProduceData(index=partition, records=batch(1, size=size))
    topic = TopicProduceData(topic_id=topic_id(TOPIC), partition_data=[data])
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    header = struct.pack(">hhih", 0, VERSION, 1, len(CLIENT)) + CLIENT + b"\0"
    return header + bytes(encode(request, VERSION))


def partition_position(size: int) -> int:
    """Position of the partition's number in all frames of a size: the only byte that differs between two of them.

    A real broker would have to decode the request to find the owners of its partitions.
    """
    one, two = produce_frame(0, size), produce_frame(1, size)
    return next(place for place, pair in enumerate(zip(one, two, strict=True)) if pair[0] != pair[1])
