"""Keys and values of the `__consumer_offsets` records of Streams groups (KIP-1071); `key` is the key type."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int8, int16, int32, int64, string, struct, uint16


class StreamsGroupMetadataKey(Message, versions="0", flexible="none", key=17):
    """Key of a record with key type 17."""

    group_id: str = string("0")


class LastAssignmentConfig(Message):
    key: str = string("0+")
    value: str = string("0+")


class StreamsGroupMetadataValue(Message, versions="0", flexible="0+", key=17):
    """Value of a record with key type 17."""

    epoch: int = int32("0+")
    metadata_hash: int = int64("0+")
    validated_topology_epoch: int = int32("0+", default=-1, tag=0, tagged="0+")
    last_assignment_configs: list[LastAssignmentConfig] | None = array(
        LastAssignmentConfig, "0+", nullable="0+", tag=1, tagged="0+"
    )


class StreamsGroupMemberMetadataKey(Message, versions="0", flexible="none", key=19):
    """Key of a record with key type 19."""

    group_id: str = string("0")
    member_id: str = string("0")


class Endpoint(Message):
    host: str = string("0+")
    port: int = uint16("0+")


class KeyValue(Message):
    key: str = string("0+")
    value: str = string("0+")


class StreamsGroupMemberMetadataValue(Message, versions="0", flexible="0+", key=19):
    """Value of a record with key type 19."""

    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    topology_epoch: int = int32("0+")
    process_id: str = string("0+")
    user_endpoint: Endpoint | None = struct(Endpoint, "0+", default=None, nullable="0+")
    client_tags: list[KeyValue] = array(KeyValue, "0+")


class StreamsGroupTargetAssignmentMetadataKey(Message, versions="0", flexible="none", key=20):
    """Key of a record with key type 20."""

    group_id: str = string("0")


class StreamsGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+", key=20):
    """Value of a record with key type 20."""

    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", tag=0, tagged="0+", ignorable=True)


class StreamsGroupTargetAssignmentMemberKey(Message, versions="0", flexible="none", key=21):
    """Key of a record with key type 21."""

    group_id: str = string("0")
    member_id: str = string("0")


class TaskIds(Message):
    subtopology_id: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class StreamsGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+", key=21):
    """Value of a record with key type 21."""

    active_tasks: list[TaskIds] = array(TaskIds, "0+")
    standby_tasks: list[TaskIds] = array(TaskIds, "0+")
    warmup_tasks: list[TaskIds] = array(TaskIds, "0+")


class StreamsGroupCurrentMemberAssignmentKey(Message, versions="0", flexible="none", key=22):
    """Key of a record with key type 22."""

    group_id: str = string("0")
    member_id: str = string("0")


class StreamsGroupCurrentMemberAssignmentTaskIds(Message):
    subtopology_id: str = string("0+")
    partitions: list[int] = array(int32, "0+")
    assignment_epochs: list[int] | None = array(int32, "0+", nullable="0+", tag=0, tagged="0+")


class StreamsGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+", key=22):
    """Value of a record with key type 22."""

    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    active_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = array(
        StreamsGroupCurrentMemberAssignmentTaskIds, "0+"
    )
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = array(
        StreamsGroupCurrentMemberAssignmentTaskIds, "0+"
    )
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = array(
        StreamsGroupCurrentMemberAssignmentTaskIds, "0+"
    )
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = array(
        StreamsGroupCurrentMemberAssignmentTaskIds, "0+"
    )
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = array(
        StreamsGroupCurrentMemberAssignmentTaskIds, "0+"
    )
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = array(
        StreamsGroupCurrentMemberAssignmentTaskIds, "0+"
    )


class StreamsGroupTopologyKey(Message, versions="0", flexible="none", key=23):
    """Key of a record with key type 23."""

    group_id: str = string("0")


class TopicConfig(Message):
    key: str = string("0+")
    value: str = string("0+")


class TopicInfo(Message):
    name: str = string("0+")
    partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    topic_configs: list[TopicConfig] = array(TopicConfig, "0+")


class CopartitionGroup(Message):
    source_topics: list[int] = array(int16, "0+")
    source_topic_regex: list[int] = array(int16, "0+")
    repartition_source_topics: list[int] = array(int16, "0+")


class Subtopology(Message):
    subtopology_id: str = string("0+")
    source_topics: list[str] = array(string, "0+")
    source_topic_regex: list[str] = array(string, "0+")
    state_changelog_topics: list[TopicInfo] = array(TopicInfo, "0+")
    repartition_sink_topics: list[str] = array(string, "0+")
    repartition_source_topics: list[TopicInfo] = array(TopicInfo, "0+")
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup, "0+")


class StreamsGroupTopologyValue(Message, versions="0", flexible="0+", key=23):
    """Value of a record with key type 23."""

    epoch: int = int32("0+")
    subtopologies: list[Subtopology] = array(Subtopology, "0+")
