"""Requests of consumer groups (KIP-848) and their offsets for scripts made by chance, whole, as fields belong together.

Members choose their ids themselves; where an assignor has a choice it takes what Kafka's hash tables put first, of
topic ids too, which are random. So a group either has several members that subscribe to one topic, or one member that
subscribes to any; and one group has a static member that comes back with either protocol.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages import (
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_topics,
    describe_groups,
    heartbeat,
    incremental_alter_configs,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from tests.differential.draws import Draws
from tests.differential.script import Ref, Step

GROUPS = ("~g0", "~g0", "~g1", "~g2")
SHARED_GROUP, LONELY_GROUP, STATIC_GROUP = "~g0", "~g1", "~g2"
MEMBERS = ("m0", "m1", "m2")
INSTANCE = "i0"
PARTITION_COUNTS = {"~t0": 3, "~t1": 1, "~t2": 2}
SHARED_TOPIC = "~t0"
LATER_TOPIC = "~t3"
TIMEOUT_MS = 45_000
"""Longer than a script takes, so that no member is fenced by time."""
REGEXES = ("~t.*", "~t[12]", "~none", "(", "")
GROUP_RESOURCE = 32
GROUP_CONFIGS = (
    ("consumer.session.timeout.ms", "50000"),
    ("consumer.session.timeout.ms", "60001"),
    ("consumer.heartbeat.interval.ms", "6000"),
    ("consumer.heartbeat.interval.ms", "1"),
    ("consumer.assignment.interval.ms", "0"),
)


class ConsumerValues(Draws):
    """Draws requests; all of them come from one random source."""

    def __init__(self, source: random.Random) -> None:
        super().__init__(source)
        self._by_api: dict[str, Callable[[int], Message]] = {
            "consumer_group_heartbeat": self._heartbeat,
            "consumer_group_describe": lambda v: consumer_group_describe.ConsumerGroupDescribeRequest(
                group_ids=self._groups(), include_authorized_operations=self._chance(0.3)
            ),
            "describe_groups": lambda v: describe_groups.DescribeGroupsRequest(groups=self._groups()),
            "delete_groups": lambda v: delete_groups.DeleteGroupsRequest(groups_names=self._groups()),
            "list_groups": self._list,
            "join_group": self._join,
            "sync_group": self._sync,
            "heartbeat": self._classic_heartbeat,
            "leave_group": self._leave,
            "offset_commit": self._commit,
            "offset_fetch": self._fetch_offsets,
            "offset_delete": self._delete_offsets,
            "create_topics": self._create_topic,
            "create_partitions": self._create_partitions,
            "delete_topics": self._delete_topic,
            "incremental_alter_configs": self._group_config,
        }

    def request(self, api: str, version: int) -> Message:
        """A request that makes sense."""
        return self._by_api[api](version)

    def finish(self, api: str, version: int, request: Any) -> None:
        """Keeps a request, spoiled or not, from what would make its answer a matter of chance."""
        if api == "consumer_group_heartbeat":
            self._finish_heartbeat(request)
        if api == "join_group":
            request.group_id = request.group_id if request.group_id in ("", STATIC_GROUP) else STATIC_GROUP
            request.group_instance_id = INSTANCE if version >= 5 else None
            if version < 5:
                # Without an instance id it would be a further member.
                request.session_timeout_ms = 1
        if api in ("create_topics", "create_partitions"):
            for topic in request.topics:
                topic.name = topic.name if topic.name in (*PARTITION_COUNTS, LATER_TOPIC, "") else LATER_TOPIC

    def preparations(self) -> list[Step]:
        """The first requests of a script create its topics, and members join."""
        topics = [
            create_topics.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in PARTITION_COUNTS.items()
        ]
        joining = [(SHARED_GROUP, member_id) for member_id in MEMBERS] + [(LONELY_GROUP, MEMBERS[0])]
        return [
            Step(0, "create_topics", 7, create_topics.CreateTopicsRequest(topics=topics, timeout_ms=10_000)),
            *(Step(0, "consumer_group_heartbeat", 1, self._first_heartbeat(*pair)) for pair in joining),
        ]

    def _groups(self) -> list[str]:
        return [self._pick((*GROUPS, "~g9", "")) for _ in range(self._pick((1, 1, 2, 3)))]

    def _topic(self) -> str:
        name: str = self._pick((*PARTITION_COUNTS, *PARTITION_COUNTS, LATER_TOPIC, "~none"))
        return name

    def _member(self) -> tuple[str, str]:
        """A group and one of its members."""
        group_id = self._pick(GROUPS)
        return group_id, self._pick(MEMBERS) if group_id == SHARED_GROUP else MEMBERS[0]

    # Members

    def _heartbeat(self, version: int) -> Message:
        group_id, member_id = self._member()
        name = f"{group_id} {member_id}"
        known = Ref("member_epoch", name)
        epoch: Any = self._pick((*[0] * 4, *[known] * 16, known._replace(shift=1), known._replace(shift=-1), -1, -2))
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=epoch
        )
        if epoch == 0:
            request = self._first_heartbeat(group_id, member_id)
            request.rack_id = self._mostly(None, "rack", "")
        elif isinstance(epoch, Ref):
            if self._chance(0.6):
                request.topic_partitions = Ref("assigned", name)  # type: ignore[assignment]
            elif self._chance(0.2):
                request.topic_partitions = self._some_partitions()
            if self._chance(0.15):
                request.subscribed_topic_names = self._subscription(group_id)
            if self._chance(0.1):
                request.server_assignor = self._pick(("range", "uniform", "none"))
            if self._chance(0.2):
                request.rebalance_timeout_ms = TIMEOUT_MS
        if version >= 1 and (epoch == 0 or isinstance(epoch, Ref)) and self._chance(0.08):
            request.subscribed_topic_regex = self._mostly(SHARED_TOPIC, *REGEXES)
            if self._chance(0.5):
                request.subscribed_topic_names = None
        if group_id == STATIC_GROUP or (group_id == LONELY_GROUP and self._chance(0.05)):
            request.instance_id = INSTANCE
        return request

    def _first_heartbeat(self, group_id: str, member_id: str) -> Any:
        return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout_ms=TIMEOUT_MS,
            subscribed_topic_names=self._subscription(group_id),
            server_assignor=self._mostly(None, "range", "uniform", "range", "none"),
            topic_partitions=[],
        )

    def _subscription(self, group_id: str) -> list[str]:
        if group_id == SHARED_GROUP:
            return self._mostly([SHARED_TOPIC], [], [SHARED_TOPIC, SHARED_TOPIC])  # type: ignore[no-any-return]
        return [self._topic() for _ in range(self._pick((1, 1, 2, 3, 0)))]

    def _some_partitions(self) -> list[Any]:
        return [
            consumer_group_heartbeat.TopicPartitions(
                topic_id=Ref("topic_id", self._pick(tuple(PARTITION_COUNTS))),  # type: ignore[arg-type]
                partitions=list(self._pick(((0,), (0, 1), (2,), (9,), ()))),
            )
            for _ in range(self._pick((0, 1, 1, 2)))
        ]

    def _finish_heartbeat(self, request: Any) -> None:
        if request.member_id not in MEMBERS and len(request.member_id) <= 36:
            request.member_id = "" if request.member_epoch != 0 else MEMBERS[0]
        if request.group_id in (LONELY_GROUP, STATIC_GROUP):
            request.member_id = MEMBERS[0] if request.member_id in MEMBERS else request.member_id
        elif request.group_id == SHARED_GROUP:
            request.subscribed_topic_names = request.subscribed_topic_names and [SHARED_TOPIC]
            if request.subscribed_topic_regex and len(request.subscribed_topic_regex) > 1:
                request.subscribed_topic_regex = SHARED_TOPIC
        if request.rebalance_timeout_ms > 0:
            request.rebalance_timeout_ms = TIMEOUT_MS
        if request.group_id == STATIC_GROUP:
            request.instance_id = INSTANCE

    def _join(self, version: int) -> Message:
        m = join_group
        names = self._mostly("~t0", "~t2", "~t0 ~t2", "~none", "")
        protocols = [
            m.JoinGroupRequestProtocol(name=name, metadata=Ref("subscribed", names))  # type: ignore[arg-type]
            for name in self._mostly(("range",), ("range", "roundrobin"), ("cooperative-sticky",), ())
        ]
        return m.JoinGroupRequest(
            group_id=STATIC_GROUP,
            session_timeout_ms=self._mostly(TIMEOUT_MS, 1),
            rebalance_timeout_ms=TIMEOUT_MS,
            member_id=self._mostly("", self._classic_member(), "m0"),
            protocol_type=self._mostly("consumer", "connect"),
            protocols=protocols,
        )

    def _classic_member(self) -> Any:
        return Ref("member", STATIC_GROUP, self._mostly(-1, 0))

    def _generation(self) -> Any:
        return Ref("generation", STATIC_GROUP, 0, self._mostly(0, 1, -1))

    def _sync(self, version: int) -> Message:
        m = sync_group
        assignments = [m.SyncGroupRequestAssignment(member_id=self._classic_member(), assignment=b"\0\1")]
        return m.SyncGroupRequest(
            group_id=STATIC_GROUP,
            generation_id=self._generation(),
            member_id=self._classic_member(),
            group_instance_id=self._mostly(INSTANCE, None) if version >= 3 else None,
            protocol_type=self._mostly("consumer", None, "connect") if version >= 5 else None,
            protocol_name=self._mostly("range", None, "roundrobin") if version >= 5 else None,
            assignments=self._mostly(assignments, []),
        )

    def _classic_heartbeat(self, version: int) -> Message:
        return heartbeat.HeartbeatRequest(
            group_id=self._mostly(STATIC_GROUP, SHARED_GROUP),
            generation_id=self._generation(),
            member_id=self._mostly(self._classic_member(), "m0", ""),
            group_instance_id=self._mostly(INSTANCE, None) if version >= 3 else None,
        )

    def _leave(self, version: int) -> Message:
        if version < 3:
            return leave_group.LeaveGroupRequest(group_id=STATIC_GROUP, member_id=self._classic_member())
        group_id = self._pick((STATIC_GROUP, STATIC_GROUP, *GROUPS))
        member_id = self._pick(("", self._classic_member(), "m0", "m1"))
        leaving = leave_group.MemberIdentity(member_id=member_id, group_instance_id=self._mostly(None, INSTANCE))
        return leave_group.LeaveGroupRequest(group_id=group_id, members=[leaving])

    def _list(self, version: int) -> Message:
        request = list_groups.ListGroupsRequest()
        if version >= 4:
            request.states_filter = self._pick(([], ["Stable"], ["empty", "Dead"], ["Assigning", "reconciling"], ["x"]))
        if version >= 5:
            request.types_filter = self._pick(([], ["classic"], ["Consumer"], ["consumer", "share"], ["x"]))
        return request

    # Offsets

    def _asker(self, version: int) -> tuple[str, Any, Any]:
        """A group, a member of it and the member's epoch or generation, which mostly belong together."""
        group_id, member_id = self._member()
        if group_id == STATIC_GROUP and self._chance(0.4):
            return group_id, self._classic_member(), self._generation()
        epoch = Ref("member_epoch", f"{group_id} {member_id}", 0, self._mostly(0, 1, -1))
        return self._pick(((group_id, member_id, epoch), (group_id, member_id, epoch), (group_id, "", -1)))  # type: ignore[no-any-return]

    def _name_or_id(self, version: int) -> dict[str, Any]:
        name = self._topic()
        return {"topic_id": Ref("topic_id", name)} if version >= 10 else {"name": name}

    def _commit(self, version: int) -> Message:
        m = offset_commit
        group_id, member_id, epoch = self._asker(version)
        topics = [
            m.OffsetCommitRequestTopic(
                partitions=[
                    m.OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=self._pick((0, 5, 7)), committed_metadata=""
                    )
                    for index in self._pick(((0,), (0, 1), (2,), (9,)))
                ],
                **self._name_or_id(version),
            )
            for _ in range(self._pick((1, 1, 2)))
        ]
        return m.OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            group_instance_id=INSTANCE if group_id == STATIC_GROUP and version >= 7 and self._chance(0.5) else None,
            topics=topics,
        )

    def _fetch_offsets(self, version: int) -> Message:
        m = offset_fetch
        indexes = list(self._pick(((0,), (0, 1), (2, 9))))
        if version < 8:
            topics = [m.OffsetFetchRequestTopic(name=self._topic(), partition_indexes=indexes)]
            return m.OffsetFetchRequest(
                group_id=self._pick(GROUPS), topics=None if version >= 2 and self._chance(0.3) else topics
            )
        groups = []
        for _ in range(self._pick((1, 1, 2))):
            group_id, member_id, epoch = self._asker(version)
            asked = [m.OffsetFetchRequestTopics(partition_indexes=indexes, **self._name_or_id(version))]
            group = m.OffsetFetchRequestGroup(group_id=group_id, topics=None if self._chance(0.3) else asked)
            if version >= 9 and self._chance(0.7):
                group.member_id, group.member_epoch = member_id or None, epoch
            groups.append(group)
        return m.OffsetFetchRequest(groups=groups, require_stable=self._chance(0.3))

    def _delete_offsets(self, version: int) -> Message:
        m = offset_delete
        topics = [
            m.OffsetDeleteRequestTopic(
                name=self._topic(),
                partitions=[
                    m.OffsetDeleteRequestPartition(partition_index=index) for index in self._pick(((0,), (0, 1), (9,)))
                ],
            )
        ]
        return m.OffsetDeleteRequest(group_id=self._pick(GROUPS), topics=topics)

    # What groups follow

    def _create_topic(self, version: int) -> Message:
        topic = create_topics.CreatableTopic(name=LATER_TOPIC, num_partitions=2, replication_factor=1)
        return create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)

    def _create_partitions(self, version: int) -> Message:
        topic = create_partitions.CreatePartitionsTopic(name=self._pick(tuple(PARTITION_COUNTS)), count=4)
        return create_partitions.CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)

    def _delete_topic(self, version: int) -> Message:
        m = delete_topics
        name = self._pick((LATER_TOPIC, LATER_TOPIC, "~t2"))
        if version >= 6:
            return m.DeleteTopicsRequest(topics=[m.DeleteTopicState(name=name)], timeout_ms=10_000)
        return m.DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)

    def _group_config(self, version: int) -> Message:
        m = incremental_alter_configs
        key, value = self._pick(GROUP_CONFIGS)
        config = m.AlterableConfig(name=key, config_operation=0, value=value)
        resource = m.AlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=self._pick(GROUPS), configs=[config]
        )
        return m.IncrementalAlterConfigsRequest(resources=[resource])
