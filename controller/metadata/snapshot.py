"""Conversion of a cluster image to metadata records, in the order of Kafka's ImageWriter.

Feature levels are first: the other records are read according to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pykbroker.controller.metadata.brokers import broker_record, controller_record
from pykbroker.controller.metadata.features import level_records
from pykbroker.controller.metadata.image import Acl, ClusterImage, PartitionImage
from pykbroker.controller.metadata.metadata_versions import DIRECTORY_ASSIGNMENT
from pykbroker.protocol.log_messages.metadata_records import (
    AccessControlEntryRecord,
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)


def image_to_records(image: ClusterImage) -> Iterator[Any]:
    """Records that make this image out of an empty one, to be written at its metadata.version.

    Log directories are left out at levels without them; an image of such a level has none.

    A snapshot must not be taken while a metadata transaction is open: its records would be lost.
    """
    assert image.open_transaction is None, "a snapshot inside a metadata transaction would lose what it holds"
    yield from level_records(image.features)
    for broker in image.brokers.values():
        yield broker_record(broker)
    for controller in image.controllers.values():
        yield controller_record(controller)
    for topic in image.topics_by_name.values():
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for partition in topic.partitions.values():
            record = partition_record(topic.topic_id, partition)
            if image.metadata_version < DIRECTORY_ASSIGNMENT:
                record.directories = []
            yield record
    for (resource_type, resource_name), configs in image.configs.items():
        for key, value in configs.items():
            yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=key, value=value)
    if image.next_producer_id:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    for acl_id, acl in image.acls.items():
        yield access_control_entry_record(acl_id, acl)
    yield from image.kept_records.values()


def partition_record(topic_id: bytes, partition: PartitionImage) -> PartitionRecord:
    """The record that makes this partition."""
    return PartitionRecord(
        partition_id=partition.partition,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.eligible_leader_replicas) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def access_control_entry_record(acl_id: bytes, acl: Acl) -> AccessControlEntryRecord:
    """The record that makes this entry."""
    return AccessControlEntryRecord(id=acl_id, **acl._asdict())
