"""CreatePartitions (key 37): add partitions to topics."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, boolean, int16, int32, string


class CreatePartitionsAssignment(Message):
    broker_ids: list[int] = array(int32, "0+")


class CreatePartitionsTopic(Message):
    name: str = string("0+")
    count: int = int32("0+")
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, "0+", nullable="0+")


class CreatePartitionsRequest(Message, versions="0-3", flexible="2+", key=37):
    """CreatePartitions request (API key 37): add partitions to topics."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic, "0+")
    timeout_ms: int = int32("0+")
    validate_only: bool = boolean("0+")


class CreatePartitionsTopicResult(Message):
    name: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")


class CreatePartitionsResponse(Message, versions="0-3", flexible="2+", key=37):
    """CreatePartitions response (API key 37)."""

    throttle_time_ms: int = int32("0+")
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult, "0+")
