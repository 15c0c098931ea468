"""Subscriptions and assignments of consumers, as JoinGroup and SyncGroup carry them; opaque but for the topics."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, byte_string, int32, string


class TopicPartition(Message):
    topic: str = string("1+")
    partitions: list[int] = array(int32, "1+")


class ConsumerProtocolSubscription(Message, versions="0-3", flexible="none"):
    """The topics that a member subscribes to, and what it owns."""

    topics: list[str] = array(string, "0+")
    user_data: bytes | None = byte_string("0+", default=None, nullable="0+")
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", default=None, nullable="3+", ignorable=True)


class AssignedTopicPartition(Message):
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class ConsumerProtocolAssignment(Message, versions="0-3", flexible="none"):
    """The partitions a member was given."""

    assigned_partitions: list[AssignedTopicPartition] = array(AssignedTopicPartition, "0+")
    user_data: bytes | None = byte_string("0+", default=None, nullable="0+")
