"""ListPartitionReassignments (key 46): replicas that are being moved."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, int32, string


class ListPartitionReassignmentsTopics(Message):
    name: str = string("0+")
    partition_indexes: list[int] = array(int32, "0+")


class ListPartitionReassignmentsRequest(Message, versions="0", flexible="0+", key=46):
    """ListPartitionReassignments request (API key 46): replicas that are being moved."""

    timeout_ms: int = int32("0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, "0+", default=None, nullable="0+"
    )


class OngoingPartitionReassignment(Message):
    partition_index: int = int32("0+")
    replicas: list[int] = array(int32, "0+")
    adding_replicas: list[int] = array(int32, "0+")
    removing_replicas: list[int] = array(int32, "0+")


class OngoingTopicReassignment(Message):
    name: str = string("0+")
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment, "0+")


class ListPartitionReassignmentsResponse(Message, versions="0", flexible="0+", key=46):
    """ListPartitionReassignments response (API key 46)."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment, "0+")
