"""Requests of the new groups and of telemetry for scripts made by chance, whole, as their fields belong together.

Members choose their ids themselves, and their epochs follow from the answers. An assignor that has a choice takes what
Kafka's hash tables put first, of topic ids too, which are random; so a share group has one member, or members that
subscribe to one topic of one partition each.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages import (
    alter_share_group_offsets,
    create_topics,
    delete_share_group_offsets,
    delete_share_group_state,
    describe_share_group_offsets,
    get_telemetry_subscriptions,
    incremental_alter_configs,
    initialize_share_group_state,
    produce,
    push_telemetry,
    read_share_group_state,
    read_share_group_state_summary,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    write_share_group_state,
)
from tests.differential.draws import Draws
from tests.differential.script import Records, Ref, Step

GROUPS = ("~g0", "~g1")
LONELY_GROUP, SHARED_GROUP = GROUPS
STATE_GROUPS = ("~p0", "~p1")
"""Of share states without a group."""
MEMBERS = ("m0", "m1", "m2")
FIRST_MEMBER_CONNECTION = 10
"""Number of the first connection that belongs to one member of a share group."""
FIRST_KEEPER_CONNECTION = 30
"""Number of the first connection that only keeps a session of a share group."""
NARROW_TOPICS = ("~t0", "~t1")
WIDE_TOPIC = "~t2"
CLIENT_METRICS = 16
SHORT_MS = 50
LONG_MS = 3_000
UNLIMITED = 0x7FFFFFFF
ACKNOWLEDGE_TYPES = (1, 1, 1, 2, 2, 3, 0, 4, 5, -1)
CLIENTS = 3
DRAWN_CLIENT = -1
"""Number of the client instance id that the broker drew last."""


class GroupValues(Draws):
    """Draws requests; all of them come from one random source."""

    def __init__(self, source: random.Random, theme: str) -> None:
        super().__init__(source)
        self.theme = theme
        self._by_api: dict[str, Callable[[int], Any]] = {
            "share_group_heartbeat": self._share_heartbeat,
            "share_group_describe": lambda v: share_group_describe.ShareGroupDescribeRequest(
                group_ids=self._groups(), include_authorized_operations=self._chance(0.5)
            ),
            "share_fetch": self._share_fetch,
            "share_acknowledge": self._share_acknowledge,
            "describe_share_group_offsets": self._describe_offsets,
            "alter_share_group_offsets": self._alter_offsets,
            "delete_share_group_offsets": self._delete_offsets,
            "initialize_share_group_state": self._state(initialize_share_group_state, "Initialize"),
            "read_share_group_state": self._state(read_share_group_state, "Read"),
            "write_share_group_state": self._state(write_share_group_state, "Write"),
            "delete_share_group_state": self._state(delete_share_group_state, "Delete"),
            "read_share_group_state_summary": self._state(read_share_group_state_summary, "ReadSummary"),
            "streams_group_heartbeat": self._streams_heartbeat,
            "streams_group_describe": lambda v: streams_group_describe.StreamsGroupDescribeRequest(
                group_ids=self._groups(), include_authorized_operations=self._chance(0.5)
            ),
            "get_telemetry_subscriptions": lambda v: get_telemetry_subscriptions.GetTelemetrySubscriptionsRequest(
                client_instance_id=self._client(new=0.2)
            ),
            "push_telemetry": self._push_telemetry,
        }
        if theme == "telemetry":
            self._by_api["incremental_alter_configs"] = self._client_metrics

    def request(self, api: str, version: int) -> Message | None:
        """A request that makes sense, or None for an API that is not of these."""
        draw = self._by_api.get(api)
        return draw(version) if draw is not None else None

    def connection(self, api: str, request: Any) -> int | None:
        """The connection of a member with a share session, which ends with it; None if any connection will do.

        Each member of each group has its own, as each client has. Of several sessions on one connection Kafka forgets
        the connection of the last one when another ends, and keeps that session when the connection is closed.
        """
        if api in ("share_fetch", "share_acknowledge") and request.member_id in MEMBERS:
            group = GROUPS.index(request.group_id) if request.group_id in GROUPS else len(GROUPS)
            return FIRST_MEMBER_CONNECTION + group * len(MEMBERS) + MEMBERS.index(request.member_id)
        return None

    def finish(self, api: str, request: Any) -> None:
        """Keeps a request, spoiled or not, from what would make its answer a matter of chance."""
        if api == "share_group_heartbeat":
            self._finish_share_heartbeat(request)
        if (
            api in self._by_api
            and api.endswith(("_group_state", "_group_state_summary"))
            and request.group_id in GROUPS
        ):
            request.group_id = STATE_GROUPS[0]
        if api in ("share_fetch", "share_acknowledge"):
            _keep_known_partitions(request)
        if api == "describe_share_group_offsets":
            for group in request.groups:
                for topic in group.topics or ():
                    # Both brokers look for the state of a partition that does not exist until the client gives up.
                    count = 2 if topic.topic_name == WIDE_TOPIC or self.theme != "share" else 1
                    topic.partitions = [index if index < count else 0 for index in topic.partitions]
        if api == "streams_group_heartbeat" and request.topology is not None and not isinstance(request.topology, Ref):
            _keep_own_topics(request.topology)

    def preparations(self) -> list[Step]:
        """First requests of a script about share groups: topics, records, start offsets, and states that are loaded."""
        if self.theme != "share":
            return []
        names = {NARROW_TOPICS[0]: 1, NARROW_TOPICS[1]: 1, WIDE_TOPIC: 2}
        topics = [
            create_topics.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in names.items()
        ]
        steps = [Step(0, "create_topics", 7, create_topics.CreateTopicsRequest(topics=topics, timeout_ms=10_000))]
        data = [
            produce.TopicProduceData(
                name=name,
                partition_data=[produce.PartitionProduceData(index=index, records=Records()) for index in range(count)],
            )
            for name, count in names.items()
        ]
        steps.append(Step(0, "produce", 9, produce.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=data)))
        for group_id, wanted in ((LONELY_GROUP, names), (SHARED_GROUP, dict.fromkeys(NARROW_TOPICS, 1))):
            m = alter_share_group_offsets
            altered = [
                m.AlterShareGroupOffsetsRequestTopic(
                    topic_name=name,
                    partitions=[
                        m.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=0)
                        for index in range(count)
                    ],
                )
                for name, count in wanted.items()
            ]
            request = m.AlterShareGroupOffsetsRequest(group_id=group_id, topics=altered)
            steps.append(Step(0, "alter_share_group_offsets", 0, request))
            # One after another, as the answer to a fetch does not have partitions that are still being loaded.
            places = [(name, index) for name, count in wanted.items() for index in range(count)]
            fetches = [_first_fetch(group_id, epoch, name, index) for epoch, (name, index) in enumerate(places)]
            steps += [Step(3, "share_fetch", 2, fetch) for fetch in (*fetches, _first_fetch(group_id, -1))]
            # A session that stays: a group without any would have to load its share partitions again.
            keeper = _first_fetch(group_id, 0, member_id="keeper")
            steps.append(Step(FIRST_KEEPER_CONNECTION + GROUPS.index(group_id), "share_fetch", 2, keeper))
        return steps

    # Drawing

    def _groups(self) -> list[str]:
        return [self._pick((*GROUPS, *GROUPS, "~g9", "")) for _ in range(self._pick((1, 1, 2)))]

    def _topic(self) -> str:
        return self._known_topic() if self._chance(0.85) else "~none"

    def _known_topic(self) -> str:
        name: str = self._pick((*NARROW_TOPICS, *NARROW_TOPICS, WIDE_TOPIC if self.theme == "share" else "~t0"))
        return name

    def _member(self) -> tuple[str, str, str]:
        """A group, one of its members, and both as the name of what the broker has told the member."""
        group_id = self._pick(GROUPS)
        member_id = self._pick(MEMBERS)
        return group_id, member_id, f"{group_id} {member_id}"

    # Share groups

    def _share_heartbeat(self, version: int) -> Message:
        group_id, member_id, name = self._member()
        epoch: Any = self._pick((0, 0, *[Ref("member_epoch", name)] * 5, Ref("member_epoch", name, 0, 1), -1))
        topics = None
        if epoch == 0 or self._chance(0.2):
            topics = [self._topic() for _ in range(self._pick((1, 1, 2, 3)))]
        return share_group_heartbeat.ShareGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            rack_id=self._mostly(None, "rack"),
            subscribed_topic_names=topics,
        )

    def _finish_share_heartbeat(self, request: Any) -> None:
        names = request.subscribed_topic_names
        if self.theme == "share" and request.group_id == SHARED_GROUP:
            if names:
                request.subscribed_topic_names = [names[0] if names[0] in NARROW_TOPICS else NARROW_TOPICS[0]]
            return
        if request.member_id in MEMBERS[1:]:
            epoch = request.member_epoch
            request.member_id = MEMBERS[0]
            if isinstance(epoch, Ref):
                request.member_epoch = epoch._replace(name=f"{request.group_id} {MEMBERS[0]}")
        elif 0 < len(request.member_id) <= 36 and request.member_epoch == 0:
            request.member_id = MEMBERS[0]

    def _batches(self, module: Any, name: str) -> Any:
        """Acknowledgements: of what the member holds, or of some offsets."""
        if self._chance(0.6):
            return Ref("acquired", name, self._pick(ACKNOWLEDGE_TYPES))
        batches = []
        for _ in range(self._pick((0, 0, 1, 1, 2))):
            first = self._pick((0, 0, 1, 2, 3, 5))
            last = first + self._pick((0, 0, 0, 1, 2, -1))
            count = self._pick((1, 1, 1, max(last - first + 1, 1), 0, 2))
            types = [self._pick(ACKNOWLEDGE_TYPES) for _ in range(count)]
            batches.append(module.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types))
        return batches

    def _asked(self, module: Any, topic_class: Any, partition_class: Any, name: str) -> list[Any]:
        # A partition without a state fails when it is loaded, sometime during the fetch or after it.
        group_id = name.partition(" ")[0]
        topics = []
        for _ in range(self._pick((1, 1, 1, 2, 0))):
            topic = self._known_topic() if group_id == LONELY_GROUP else self._pick(NARROW_TOPICS)
            partitions = []
            for index in self._pick(((0,), (0,), (0,), (0, 1), (1,), (9,))):
                batches = self._batches(module, f"{name} {topic} {index}") if self._chance(0.5) else []
                partitions.append(partition_class(partition_index=index, acknowledgement_batches=batches))
            topics.append(topic_class(topic_id=Ref("topic_id", topic), partitions=partitions))
        return topics

    def _share_fetch(self, version: int) -> Message:
        group_id, member_id, name = self._member()
        m = share_fetch
        epoch: Any = self._pick((0, *[Ref("share_epoch", name)] * 10, Ref("share_epoch", name, 0, 1), -1))
        topics = self._asked(m, m.FetchTopic, m.FetchPartition, name)
        forgotten = []
        if self._chance(0.1):
            forgotten = [m.ForgottenTopic(topic_id=Ref("topic_id", self._topic()), partitions=[0])]  # type: ignore[arg-type]
        return m.ShareFetchRequest(
            group_id=group_id,
            member_id=member_id,
            share_session_epoch=epoch,
            max_wait_ms=SHORT_MS,
            min_bytes=1,
            max_bytes=self._mostly(UNLIMITED, 0, 100, 300),
            max_records=self._mostly(500, 1, 2, 0),
            batch_size=self._mostly(500, 1, 3),
            share_acquire_mode=self._mostly(0, 1) if version >= 2 else 0,
            is_renew_ack=version >= 2 and self._chance(0.1),
            topics=topics,
            forgotten_topics_data=forgotten,
        )

    def _share_acknowledge(self, version: int) -> Message:
        group_id, member_id, name = self._member()
        m = share_acknowledge
        return m.ShareAcknowledgeRequest(
            group_id=group_id,
            member_id=member_id,
            share_session_epoch=self._pick((*[Ref("share_epoch", name)] * 12, Ref("share_epoch", name, 0, 1), 0, -1)),
            is_renew_ack=version >= 2 and self._chance(0.2),
            topics=self._asked(m, m.AcknowledgeTopic, m.AcknowledgePartition, name),
        )

    def _indexes(self) -> list[int]:
        return list(self._pick(((0,), (0,), (0, 1), (1,), (9,), (), (-1,))))

    def _describe_offsets(self, version: int) -> Message:
        m = describe_share_group_offsets
        groups = []
        for group_id in self._groups():
            topics = None
            if self._chance(0.7):
                topics = [
                    m.DescribeShareGroupOffsetsRequestTopic(topic_name=self._topic(), partitions=self._indexes())
                    for _ in range(self._pick((1, 1, 2)))
                ]
            groups.append(m.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics))
        return m.DescribeShareGroupOffsetsRequest(groups=groups)

    def _alter_offsets(self, version: int) -> Message:
        m = alter_share_group_offsets
        topics = [
            m.AlterShareGroupOffsetsRequestTopic(
                topic_name=self._topic(),
                partitions=[
                    m.AlterShareGroupOffsetsRequestPartition(
                        partition_index=index, start_offset=self._pick((0, 0, 1, 2, 9))
                    )
                    for index in self._indexes()
                ],
            )
            for _ in range(self._pick((1, 1, 2)))
        ]
        return m.AlterShareGroupOffsetsRequest(group_id=self._pick(GROUPS), topics=topics)

    def _delete_offsets(self, version: int) -> Message:
        m = delete_share_group_offsets
        topics = [m.DeleteShareGroupOffsetsRequestTopic(topic_name=self._topic()) for _ in range(self._pick((1, 1, 2)))]
        return m.DeleteShareGroupOffsetsRequest(group_id=self._pick(GROUPS), topics=topics)

    # States of share partitions, without a group

    def _state(self, module: Any, kind: str) -> Callable[[int], Message]:
        """Draws requests of one of the five APIs of the share coordinator."""
        start = kind.removesuffix("Summary")
        summary = kind[len(start) :]
        request_class = getattr(module, f"{start}ShareGroupState{summary}Request")
        topic_class = getattr(module, f"{start}State{summary}Data")

        def partition(version: int) -> Any:
            fields: dict[str, Any] = {"partition": self._mostly(self._pick((0, 0, 1)), 5, -1)}
            if kind in ("Initialize", "Write"):
                fields["state_epoch"] = self._pick((0, 0, 1, 1, 2, -1))
                fields["start_offset"] = self._pick((0, 0, 2, 5, -1))
            if kind in ("Read", "Write", "ReadSummary"):
                fields["leader_epoch"] = self._pick((0, 0, 1, 1, 2, -1))
            if kind == "Write":
                if version >= 1:
                    fields["delivery_complete_count"] = self._pick((0, 1, 3, -1))
                fields["state_batches"] = [self._state_batch() for _ in range(self._pick((0, 1, 1, 2, 4)))]
            return module.PartitionData(**fields)

        def request(version: int) -> Message:
            topics = [
                topic_class(
                    topic_id=Ref("topic_id", self._pick((*NARROW_TOPICS, *NARROW_TOPICS, "~none"))),
                    partitions=[partition(version) for _ in range(self._pick((1, 1, 1, 2, 0)))],
                )
                for _ in range(self._pick((1, 1, 1, 2)))
            ]
            made: Message = request_class(group_id=self._pick((*STATE_GROUPS, *STATE_GROUPS, "")), topics=topics)
            return made

        return request

    def _state_batch(self) -> Any:
        first = self._pick((0, 0, 1, 2, 3, 5, 10))
        return read_share_group_state.StateBatch(
            first_offset=first,
            last_offset=first + self._pick((0, 0, 1, 2, 5, 9)),
            delivery_state=self._pick((0, 0, 2, 2, 4)),
            delivery_count=self._pick((0, 1, 1, 2, 3)),
        )

    # Streams groups

    def _streams_heartbeat(self, version: int) -> Message:
        group_id, member_id, name = self._member()
        epoch: Any = self._pick(
            (0, 0, *[Ref("member_epoch", name)] * 6, Ref("member_epoch", name, 0, self._pick((1, -1))), -1, -2)
        )
        request = streams_group_heartbeat.StreamsGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            endpoint_information_epoch=self._pick((-1, 0, 0, 1)),
            process_id=self._mostly(member_id, "p"),
        )
        if epoch == 0:
            request.topology = self._topology(group_id)
            request.rebalance_timeout_ms = self._mostly(20_000, 30_000)
            request.active_tasks, request.standby_tasks, request.warmup_tasks = [], [], []
            request.user_endpoint = self._mostly(None, streams_group_heartbeat.Endpoint(host="one.example", port=80))
            if self._chance(0.2):
                request.client_tags = [streams_group_heartbeat.KeyValue(key="zone", value="z")]
        elif isinstance(epoch, Ref) and self._chance(0.6):
            request.active_tasks = Ref("active_tasks", name)  # type: ignore[assignment]
            request.standby_tasks = Ref("standby_tasks", name)  # type: ignore[assignment]
            request.warmup_tasks = []
        elif isinstance(epoch, Ref) and self._chance(0.2):
            tasks = streams_group_heartbeat.TaskIds(subtopology_id=self._mostly("0", "1", "9"), partitions=[0])
            request.active_tasks = [tasks]
            request.standby_tasks, request.warmup_tasks = [], []
        request.shutdown_application = self._chance(0.02)
        return request

    def _topology(self, group_id: str) -> Any:
        """A topology that an application of this group may have; most members have the same one."""
        m = streams_group_heartbeat
        epoch = self._mostly(0, 1)
        kind = self._mostly(
            "plain" if group_id == GROUPS[0] else "count", "joined", "later", "broken", "count", "plain"
        )
        if kind == "plain":
            return m.Topology(epoch=epoch, subtopologies=[m.Subtopology(subtopology_id="0", source_topics=["~t0"])])
        if kind == "joined":
            joined = m.Subtopology(
                subtopology_id="0",
                source_topics=["~t0", "~t1"],
                copartition_groups=[m.CopartitionGroup(source_topics=[0, 1])],
            )
            return m.Topology(epoch=epoch, subtopologies=[joined])
        if kind == "later":
            return m.Topology(epoch=epoch, subtopologies=[m.Subtopology(subtopology_id="0", source_topics=["~t2"])])
        if kind == "broken":
            broken = m.Subtopology(
                subtopology_id="0", repartition_source_topics=[m.TopicInfo(name="~none-repartition")]
            )
            return m.Topology(epoch=epoch, subtopologies=[broken])
        repartition, store = f"{group_id}-words-repartition", f"{group_id}-store-changelog"
        changelog = m.TopicInfo(name=store, topic_configs=[m.KeyValue(key="cleanup.policy", value="compact")])
        return m.Topology(
            epoch=epoch,
            subtopologies=[
                m.Subtopology(subtopology_id="0", source_topics=["~t0"], repartition_sink_topics=[repartition]),
                m.Subtopology(
                    subtopology_id="1",
                    repartition_source_topics=[m.TopicInfo(name=repartition)],
                    state_changelog_topics=[changelog],
                ),
            ],
        )

    # Metrics of clients

    def _client(self, new: float = 0.05) -> Any:
        if self._chance(new):
            return bytes(16)
        return Ref("client", "", self._pick((*range(CLIENTS), DRAWN_CLIENT)))

    def _push_telemetry(self, version: int) -> Message:
        client = self._client()
        number = client.number if isinstance(client, Ref) else 0
        return push_telemetry.PushTelemetryRequest(
            client_instance_id=client,
            subscription_id=Ref("subscription", "", number, self._mostly(0, 1)),  # type: ignore[arg-type]
            terminating=self._chance(0.3),
            compression_type=self._mostly(0, 1, 4, 9, -1),
            metrics=self._mostly(b"metrics", b"", bytes(1 << 20), bytes((1 << 20) + 1)),
        )

    def _client_metrics(self, version: int) -> Message:
        m = incremental_alter_configs
        values = {
            "metrics": ("org.apache.kafka.", "a.b,c", "*", "", "z,y,x,a"),
            "interval.ms": ("100000", "200000", "3600000", "99", "3600001", "x"),
            "match": ("client_id=app", "client_id=no.*", "client_source_address=127.*", "client_id=(", "nope=1", ""),
        }
        configs = []
        for key in self._pick((("metrics",), ("interval.ms",), ("match",), ("metrics", "interval.ms"), tuple(values))):
            operation = self._mostly(0, 0, 1, 2, 3)
            value = None if operation == 1 else self._pick(values[key])
            configs.append(m.AlterableConfig(name=key, config_operation=operation, value=value))
        resource = m.AlterConfigsResource(
            resource_type=CLIENT_METRICS, resource_name=self._pick(("~c0", "~c1")), configs=configs
        )
        return m.IncrementalAlterConfigsRequest(resources=[resource])


def _first_fetch(group_id: str, epoch: int, topic: str = "", index: int = 0, *, member_id: str = "loader") -> Message:
    """A fetch that has one more partition loaded, or with epoch -1 the end of the session."""
    asked = share_fetch.FetchTopic(
        topic_id=Ref("topic_id", topic),  # type: ignore[arg-type]
        partitions=[share_fetch.FetchPartition(partition_index=index)],
    )
    return share_fetch.ShareFetchRequest(
        group_id=group_id,
        member_id=member_id,
        share_session_epoch=epoch,
        max_wait_ms=LONG_MS,
        min_bytes=1,
        max_records=1,
        batch_size=1,
        topics=[asked] if topic else [],
    )


def _keep_known_partitions(request: Any) -> None:
    """Keeps a request of a share session from two exceptions of Kafka, after which some of its records stay locked.

    With an authorizer it fails on an id of no topic; and it fails on a partition that comes twice.
    """
    seen = set()
    for topic in (*request.topics, *getattr(request, "forgotten_topics_data", ())):
        if not isinstance(topic.topic_id, Ref):
            topic.topic_id = Ref("topic_id", NARROW_TOPICS[0])
    for topic in request.topics:
        kept = []
        for partition in topic.partitions:
            place = (topic.topic_id.name, partition.partition_index)
            if place not in seen:
                kept.append(partition)
            seen.add(place)
        topic.partitions = kept


def _keep_own_topics(topology: Any) -> None:
    """Gives internal topics names of the script, so that none is left over for the next; and few partitions."""
    for subtopology in topology.subtopologies:
        for topic in (*subtopology.state_changelog_topics, *subtopology.repartition_source_topics):
            if topic.name and not topic.name.startswith("~"):
                topic.name = f"~{topic.name}"[:200]
            topic.partitions = min(topic.partitions, 20)
        subtopology.repartition_sink_topics = [
            name if not name or name.startswith("~") else f"~{name}"[:200]
            for name in subtopology.repartition_sink_topics
        ]
