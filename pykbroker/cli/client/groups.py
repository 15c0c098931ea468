"""Groups of every kind: classic, consumer (KIP-848), share (KIP-932) and Streams groups (KIP-1071)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykbroker.cli.client.calls import GROUP, ClusterCalls
from pykbroker.cli.client.errors import error_name, error_number, refusal_text
from pykbroker.cli.client.library_messages import request_class
from pykbroker.cli.errors import CliError
from pykbroker.protocol.topic_partition import TopicPartition

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"


class ClusterGroups(ClusterCalls):
    """The operations on groups."""

    def groups(self) -> list[dict[str, Any]]:
        """Returns every group: group_id, protocol_type, group_state, group_type, sorted by id."""
        found = self._ask(lambda: self._admin.list_groups())
        keys = ("group_id", "protocol_type", "group_state", "group_type")
        return sorted(
            ({key: item.get(key) for key in keys} for item in found), key=lambda group: str(group["group_id"])
        )

    def describe_group(self, group_id: str) -> dict[str, Any]:
        """Returns group_id, group_type, group_state, protocol_type, protocol, members with their partitions.

        A group that does not exist has the state Dead, as in Kafka. The members of a Streams group have `tasks` too.

        Raises:
            CliError: refused, or the group is of a type that is not known here.
        """
        found = self._ask(lambda: self._admin.describe_groups([group_id]))[group_id]
        if found["group_state"] == "Dead" and (modern := self._describe_modern_group(group_id)):
            return modern
        return {
            "group_id": group_id,
            "group_type": CLASSIC,
            "group_state": found["group_state"] or "Dead",
            "protocol_type": found["protocol_type"],
            "protocol": found["protocol_data"],
            "members": [_member(item) for item in found["members"]],
        }

    def _describe_modern_group(self, group_id: str) -> dict[str, Any] | None:
        """Returns a group that is not classic, None if it is classic or does not exist."""
        known = next((item for item in self.groups() if item["group_id"] == group_id), None)
        group_type = str((known or {}).get("group_type") or CLASSIC).lower()
        if group_type == CLASSIC:
            return None
        if group_type not in (CONSUMER, SHARE, STREAMS):
            raise CliError(f"group {group_id} is a {group_type} group, which cannot be shown")
        describe = request_class(f"{group_type}_group_describe")
        request = describe(group_ids=[group_id], include_authorized_operations=False)
        _, response = self._ask_coordinator(GROUP, group_id, request, lambda answer: answer.groups[0].error_code)
        [found] = response.groups
        if found.error_code:
            raise CliError(f"group {group_id}: {refusal_text(found)}")
        member = _streams_member(found) if group_type == STREAMS else _consumer_member
        return {
            "group_id": group_id,
            "group_type": group_type,
            "group_state": found.group_state,
            "protocol_type": group_type,
            "protocol": None if group_type == STREAMS else found.assignor_name,
            "members": [member(item) for item in found.members],
        }

    def group_offsets(self, group_id: str, group_type: str) -> dict[TopicPartition, int]:
        """Returns the committed offsets of a group; of a share group the offsets at which its partitions start."""
        if group_type == SHARE:
            return self._share_group_offsets(group_id)
        found = self._ask(lambda: self._admin.list_group_offsets(group_id)).get(group_id, {})
        return {
            (topic_partition.topic, topic_partition.partition): item.offset
            for topic_partition, item in found.items()
            if item.offset >= 0
        }

    def alter_group_offsets(self, group_id: str, group_type: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Sets offsets of a group without members; raises CliError naming the partitions that were refused."""
        if group_type == SHARE:
            self._alter_share_group_offsets(group_id, offsets)
            return
        import kafka
        from kafka.structs import OffsetAndMetadata

        wanted = {
            kafka.TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)
            for (topic, partition), offset in offsets.items()
        }
        found = self._ask(lambda: self._admin.alter_group_offsets(group_id, wanted))
        refused = [
            f"{topic_partition.topic}-{topic_partition.partition}: {error_name(item)}"
            for topic_partition, item in found.items()
            if error_number(item)
        ]
        if refused:
            raise CliError(f"group {group_id}: not committed: " + ", ".join(refused))

    def delete_group(self, group_id: str) -> str | None:
        """Deletes a group; returns the name of the error, None when it is deleted."""
        outcome = self._ask(lambda: self._admin.delete_groups([group_id]))[group_id]
        return None if outcome == "OK" else str(outcome)

    def _share_group_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        request = request_class("describe_share_group_offsets")(groups=[(group_id, None)])
        _, response = self._ask_coordinator(GROUP, group_id, request, lambda answer: answer.groups[0].error_code)
        [found] = response.groups
        if found.error_code:
            raise CliError(f"group {group_id}: {refusal_text(found)}")
        return {
            (topic.topic_name, partition.partition_index): partition.start_offset
            for topic in found.topics
            for partition in topic.partitions
            if not partition.error_code and partition.start_offset >= 0
        }

    def _alter_share_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        topics: dict[str, list[tuple[int, int]]] = {}
        for (topic, partition), offset in sorted(offsets.items()):
            topics.setdefault(topic, []).append((partition, offset))
        request = request_class("alter_share_group_offsets")(group_id=group_id, topics=list(topics.items()))
        _, response = self._ask_coordinator(GROUP, group_id, request, lambda answer: int(answer.error_code))
        if response.error_code:
            raise CliError(f"group {group_id}: {refusal_text(response)}")
        refused = [
            f"{topic.topic_name}-{item.partition_index}: {refusal_text(item)}"
            for topic in response.responses
            for item in topic.partitions
            if item.error_code
        ]
        if refused:
            raise CliError(f"group {group_id}: not reset: " + ", ".join(refused))


def _member(item: Mapping[str, Any]) -> dict[str, Any]:
    assignment = item.get("member_assignment")
    partitions: list[TopicPartition] = []
    if isinstance(assignment, Mapping):
        for topic in assignment.get("assigned_partitions", ()):
            partitions += [(topic["topic"], partition) for partition in topic["partitions"]]
    return {
        "member_id": item["member_id"],
        "group_instance_id": item.get("group_instance_id"),
        "client_id": item["client_id"],
        "client_host": item["client_host"],
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in sorted(partitions)],
    }


def _modern_member(item: Any, partitions: list[TopicPartition]) -> dict[str, Any]:
    return {
        "member_id": item.member_id,
        "group_instance_id": getattr(item, "instance_id", None),
        "client_id": item.client_id,
        "client_host": item.client_host,
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in sorted(partitions)],
    }


def _consumer_member(item: Any) -> dict[str, Any]:
    topics = item.assignment.topic_partitions
    return _modern_member(item, [(topic.topic_name, partition) for topic in topics for partition in topic.partitions])


def _streams_member(group: Any) -> Any:
    """Returns a function that describes a member; its tasks read partitions of their subtopology's topics."""
    sources: dict[str, list[str]] = {}
    for part in () if group.topology is None else group.topology.subtopologies or ():
        repartitioned = [topic.name for topic in part.repartition_source_topics]
        sources[part.subtopology_id] = [*part.source_topics, *repartitioned]

    def describe(item: Any) -> dict[str, Any]:
        partitions = [
            (topic, partition)
            for task in item.assignment.active_tasks
            for topic in sources.get(task.subtopology_id, ())
            for partition in task.partitions
        ]
        found = _modern_member(item, partitions)
        found["tasks"] = {
            kind: sorted(
                f"{task.subtopology_id}_{partition}"
                for task in getattr(item.assignment, f"{kind}_tasks")
                for partition in task.partitions
            )
            for kind in ("active", "standby", "warmup")
        }
        return found

    return describe
