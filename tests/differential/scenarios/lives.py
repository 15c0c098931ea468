"""Random lives of groups: members, commits and transactions while topics, settings and the broker itself change.

What scripts of single requests do not reach: restarts between steps, sessions and rebalance timeouts that end, topics
that are deleted and made again with another id, new partitions, settings that change. A life is drawn from a seed as a
list of steps without any answer in it, so that it is the same on each broker; members act by what they were told.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pykbroker.protocol.codec import encode
from pykbroker.protocol.log_messages.consumer_protocol import AssignedTopicPartition, ConsumerProtocolAssignment
from pykbroker.protocol.messages import read_share_group_state_summary, streams_group_heartbeat
from pykbroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pykbroker.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from pykbroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pykbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykbroker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from pykbroker.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from pykbroker.protocol.messages.delete_topics import DeleteTopicsRequest
from pykbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from pykbroker.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from pykbroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from pykbroker.protocol.messages.end_txn import EndTxnRequest
from pykbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykbroker.protocol.messages.heartbeat import HeartbeatRequest
from pykbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pykbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker.protocol.messages.list_groups import ListGroupsRequest
from pykbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pykbroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from pykbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from pykbroker.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from pykbroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from pykbroker.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from pykbroker.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from pykbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pykbroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pykbroker.protocol.uuids import uuid_to_text
from tests.differential.script import Ref
from tests.differential.world import World
from tests.pykbroker.groups.driver import subscription

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "metadata.max.idle.interval.ms": "500",
    "controller.quorum.append.linger.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.consumer.migration.policy": "bidirectional",
    **{
        f"group.{kind}.{rest}": value
        for kind in ("consumer", "share", "streams")
        for rest, value in (
            ("min.session.timeout.ms", "1000"),
            ("min.heartbeat.interval.ms", "100"),
            ("session.timeout.ms", "1800000"),
            ("max.session.timeout.ms", "1800000"),
        )
    },
}
NEVER_MS = 1_800_000
TRANSACTION_MS = 900_000
"""The longest that brokers allow."""
SHORT_MS = 1_000
AFTER_SHORT_S = 1.4
EXPIRED_S = 10.0
"""Longest wait for the end of a session of `SHORT_MS`, on a slow machine."""
TOPICS = ("~t0", "~t1", "~t2")
GROUP_RESOURCE = 32
KINDS = ("consumer", "streams", "share")

Step = tuple[str, tuple[Any, ...]]


@dataclass
class Told:
    """Facts that a broker has told one member."""

    epoch: int = 0
    owned: Any = field(default_factory=list)
    given: Any = field(default_factory=list)


class Life:
    """The groups of one life on one broker."""

    def __init__(self, world: World, restart: Callable[[], None], kind: str) -> None:
        self.world = world
        self.restart_broker = restart
        self.kind = kind
        self.members: dict[tuple[str, str], Told] = {}
        self.classic: dict[tuple[str, str], tuple[str, int, str]] = {}
        """Id, generation and protocol of members of the classic protocol."""

    def run(self, steps: list[Step]) -> None:
        for name, arguments in steps:
            self.world.answers.append(("step", f"{name}{arguments}"))
            getattr(self, name)(*arguments)

    def _member(self, group: str, member: str) -> Told:
        return self.members.setdefault((group, member), Told())

    # Topics, settings, the broker

    def create(self, topic: str, count: int) -> None:
        topics = [CreatableTopic(name=topic, num_partitions=count, replication_factor=1)]
        self.world.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)

    def delete(self, topic: str) -> None:
        self.world.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5)

    def widen(self, topic: str, count: int) -> None:
        topics = [CreatePartitionsTopic(name=topic, count=count)]
        self.world.call(CreatePartitionsRequest(topics=topics, timeout_ms=10_000), 3)

    def configure(self, group: str, key: str, value: str | None) -> None:
        config = AlterableConfig(name=key, value=value, config_operation=1 if value is None else 0)
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=[config])
        self.world.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)

    def restart(self) -> None:
        """Stops the broker in order and starts it again."""
        self.world.hang_up()
        self.restart_broker()
        self.wait_for_coordinators()

    def wait_for_coordinators(self) -> None:
        """Waits until the broker coordinates groups and transactions, and the state of share partitions."""
        ask = self.world.ask
        deadline = time.monotonic() + 30
        while True:
            ask(FindCoordinatorRequest(coordinator_keys=["any"]), 4)
            ask(FindCoordinatorRequest(coordinator_keys=["any"], key_type=1), 4)
            errors = {
                ask(DescribeGroupsRequest(groups=["any"]), 6).groups[0].error_code,
                ask(DescribeTransactionsRequest(transactional_ids=["any"]), 0).transaction_states[0].error_code,
            }
            if self.kind == "share":
                errors.add(self._share_state_error())
            if not errors & {14, 15, 16}:
                break
            assert time.monotonic() < deadline, errors
            time.sleep(0.05)
        self.world.settle(set())

    def _share_state_error(self) -> int:
        """Error of the share coordinator when it is asked for a state that does not exist."""
        m = read_share_group_state_summary
        topic_id = bytes(15) + b"\x63"
        topic = m.ReadStateSummaryData(topic_id=topic_id, partitions=[m.PartitionData(partition=0, leader_epoch=0)])
        key = f"any:{uuid_to_text(topic_id)}:0"
        self.world.ask(FindCoordinatorRequest(coordinator_keys=[key], key_type=2), 6)
        request = m.ReadShareGroupStateSummaryRequest(group_id="any", topics=[topic])
        error: int = self.world.ask(request, 0).results[0].partitions[0].error_code
        return error

    # Members of modern groups

    def join(self, group: str, member: str, topics: tuple[str, ...], instance: str | None = None) -> None:
        told = self._member(group, member)
        told.epoch, told.owned, told.given = 0, [], []
        self._beat(group, member, told, topics=topics, instance=instance, full=True)

    def beat(self, group: str, member: str, takes: bool, shift: int = 0, instance: str | None = None) -> None:
        told = self._member(group, member)
        if takes:
            told.owned = told.given
        self._beat(group, member, told, shift=shift, instance=instance)

    def quiet(self, group: str, member: str, instance: str | None = None) -> None:
        """A heartbeat that says nothing of what the member owns."""
        told = self._member(group, member)
        self._beat(group, member, told, is_quiet=True, instance=instance)

    def leave(self, group: str, member: str, epoch: int = -1, instance: str | None = None, stops: bool = False) -> None:
        told = self._member(group, member)
        self._beat(group, member, told, leaving=epoch, instance=instance, stops=stops)

    def expire(self, group: str, member: str, instance: str | None = None) -> None:
        """Ends the session of one member."""
        if not self._member(group, member).epoch:
            return
        key = f"{self.kind}.session.timeout.ms"
        self.configure(group, key, str(SHORT_MS))
        self.quiet(group, member, instance)
        self.configure(group, key, None)
        # A member whose heartbeat was refused has no short session, and may stay.
        deadline = time.monotonic() + (EXPIRED_S if self._member(group, member).epoch > 0 else AFTER_SHORT_S)
        while member in self._member_ids(group) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _member_ids(self, group: str) -> set[str]:
        """Ids of a group's members as the broker describes them, which is not noted."""
        describe, version = {
            "consumer": (ConsumerGroupDescribeRequest, 1),
            "share": (ShareGroupDescribeRequest, 1),
            "streams": (StreamsGroupDescribeRequest, 0),
        }[self.kind]
        name = group.replace("~", self.world.names.tilde)
        answer = self.world.ask(describe(group_ids=[name]), version)
        return {member.member_id for member in answer.groups[0].members}

    def hurry(self, group: str, member: str, instance: str | None = None) -> None:
        """Ends the rebalance timeout of a member that has something to give up; another one only tells it."""
        told = self._member(group, member)
        if not told.epoch:
            return
        self._beat(group, member, told, instance=instance, rebalance_ms=SHORT_MS)
        time.sleep(AFTER_SHORT_S)
        self._beat(group, member, told, instance=instance, rebalance_ms=NEVER_MS)

    def _beat(
        self,
        group: str,
        member: str,
        told: Told,
        *,
        topics: tuple[str, ...] | None = None,
        instance: str | None = None,
        full: bool = False,
        is_quiet: bool = False,
        shift: int = 0,
        leaving: int = 0,
        rebalance_ms: int = -1,
        stops: bool = False,
    ) -> None:
        if not told.epoch and not leaving and not full:
            # It was fenced, or has left: it joins again.
            full, topics = True, TOPICS[:2] if self.kind == "streams" else TOPICS[:1]
            told.owned, told.given, shift, is_quiet = [], [], 0, False
        epoch = leaving or (told.epoch + shift)
        rebalance_ms = NEVER_MS if full else rebalance_ms
        request: Any
        if self.kind == "consumer":
            request = ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id=member,
                member_epoch=epoch,
                instance_id=instance,
                rebalance_timeout_ms=rebalance_ms,
                subscribed_topic_names=None if topics is None else list(topics),
                server_assignor="range" if full else None,
                topic_partitions=None if is_quiet or leaving else told.owned,
            )
            answer = self.world.call(request, 1)
        elif self.kind == "share":
            request = ShareGroupHeartbeatRequest(
                group_id=group,
                member_id=member,
                member_epoch=epoch,
                subscribed_topic_names=None if topics is None else list(topics),
            )
            answer = self.world.call(request, 1)
        else:
            request = StreamsGroupHeartbeatRequest(
                group_id=group,
                member_id=member,
                member_epoch=epoch,
                endpoint_information_epoch=-1 if full else 0,
                rebalance_timeout_ms=rebalance_ms,
                process_id=f"p{member}" if full else None,
                topology=_topology(topics or TOPICS[:1]) if full else None,
                user_endpoint=streams_group_heartbeat.Endpoint(host=f"{member}.example", port=80)
                if full and member != "b"
                else None,
                shutdown_application=stops,
            )
            if not is_quiet and not leaving:
                active, standby = told.owned or ([], [])
                request.active_tasks, request.standby_tasks, request.warmup_tasks = active, standby, []
            answer = self.world.call(request, 0)
        if getattr(answer, "error_code", 1) != 0:
            if getattr(answer, "error_code", 1) in (25, 69, 110):
                told.epoch = 0
            return
        told.epoch = max(answer.member_epoch, 0)
        if self.kind == "streams":
            if answer.active_tasks is not None:
                told.given = (answer.active_tasks, answer.standby_tasks)
        elif answer.assignment is not None:
            told.given = answer.assignment.topic_partitions

    # Members of the classic protocol

    def classic_join(self, group: str, member: str, topics: tuple[str, ...], version: int, stale: bool = False) -> None:
        known = self.classic.get((group, member), ("", 0, "range"))
        member_id = "nobody" if stale else known[0]
        for _ in range(2):
            request = JoinGroupRequest(
                group_id=group,
                member_id=member_id,
                session_timeout_ms=NEVER_MS,
                rebalance_timeout_ms=NEVER_MS,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(*self._named(topics)))],
            )
            answer = self.world.call(request, version, self._connection(member))
            if getattr(answer, "error_code", 1) not in (0, 79):
                if getattr(answer, "error_code", 1) == 25:
                    self.classic.pop((group, member), None)
                return
            member_id = answer.member_id
            generation = answer.generation_id if answer.error_code == 0 else 0
            self.classic[group, member] = (member_id, generation, answer.protocol_name or "range")
            if answer.error_code == 0:
                return

    def classic_sync(self, group: str, member: str, version: int) -> None:
        member_id, generation, protocol = self.classic.get((group, member), ("nobody", 1, "range"))
        assigned = [AssignedTopicPartition(topic=self._named(TOPICS[:1])[0], partitions=[0])]
        data = (1).to_bytes(2, "big") + encode(ConsumerProtocolAssignment(assigned_partitions=assigned), 1)
        named = {"protocol_type": "consumer", "protocol_name": protocol} if version >= 5 else {}
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=data)],
            **named,
        )
        self.world.call(request, version, self._connection(member))

    def classic_beat(self, group: str, member: str) -> None:
        member_id, generation, _ = self.classic.get((group, member), ("nobody", 1, ""))
        request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
        self.world.call(request, 4, self._connection(member))

    def classic_leave(self, group: str, member: str) -> None:
        member_id = self.classic.pop((group, member), ("nobody", 1, ""))[0]
        request = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member_id)])
        self.world.call(request, 5, self._connection(member))

    def _connection(self, member: str) -> int:
        return 5 + ord(member[0]) - ord("k")

    def _named(self, topics: tuple[str, ...]) -> list[str]:
        return [topic.replace("~", self.world.names.tilde) for topic in topics]

    # Offsets

    def _identity(self, group: str, who: str, shift: int) -> tuple[str, int]:
        if (group, who) in self.classic:
            member_id, generation, _ = self.classic[group, who]
            return member_id, generation + shift
        if who:
            return who, self._member(group, who).epoch + shift
        return "", -1

    def commit(self, group: str, who: str, shift: int, version: int, topic: str, partition: int, offset: int) -> None:
        member_id, epoch = self._identity(group, who, shift)
        partitions = [OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)]
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            topics=[OffsetCommitRequestTopic(partitions=partitions, **_place(topic, version))],
        )
        self.world.call(request, version)

    def fetch(self, group: str, who: str, shift: int, version: int, is_stable: bool, is_all: bool) -> None:
        member_id, epoch = self._identity(group, who, shift)
        topics = None
        if not is_all:
            topics = [OffsetFetchRequestTopics(partition_indexes=[0, 1, 2], **_place(name, version)) for name in TOPICS]
        asked = OffsetFetchRequestGroup(group_id=group, topics=topics)
        if version >= 9 and who:
            asked.member_id, asked.member_epoch = member_id, epoch
        self.world.call(OffsetFetchRequest(groups=[asked], require_stable=is_stable), version)

    def forget(self, group: str, topic: str) -> None:
        partitions = [OffsetDeleteRequestPartition(partition_index=number) for number in (0, 1)]
        topics = [OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
        self.world.call(OffsetDeleteRequest(group_id=group, topics=topics), 0)

    def transaction(self, group: str, who: str, shift: int, version: int, topic: str, offset: int) -> None:
        """A transaction that commits an offset and stays open."""
        name = f"{group}-tx"
        answer = self.world.call(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TRANSACTION_MS), 4)
        producer: Any = {"transactional_id": name, "producer_id": Ref("producer_id", name)}
        producer["producer_epoch"] = Ref("producer_epoch", name)
        if getattr(answer, "error_code", 1) != 0:
            return
        self.world.call(AddOffsetsToTxnRequest(group_id=group, **producer), 3)
        member_id, epoch = self._identity(group, who, shift)
        partitions = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
        if version >= 3:
            producer |= {"member_id": member_id, "generation_id": epoch}
        topics = [TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)]
        request = TxnOffsetCommitRequest(group_id=group, topics=topics, **producer)
        self.world.call(request, version)

    def end(self, group: str, is_commit: bool) -> None:
        name = f"{group}-tx"
        producer: Any = {"producer_id": Ref("producer_id", name), "producer_epoch": Ref("producer_epoch", name)}
        self.world.call(EndTxnRequest(transactional_id=name, committed=is_commit, **producer), 3)

    # Offsets of share groups

    def alter_shares(self, group: str, topic: str, offset: int) -> None:
        partitions = [AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)]
        topics = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)]
        self.world.call(AlterShareGroupOffsetsRequest(group_id=group, topics=topics), 0)

    def delete_shares(self, group: str, topic: str) -> None:
        topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=topic)]
        self.world.call(DeleteShareGroupOffsetsRequest(group_id=group, topics=topics), 0)

    def describe_shares(self, group: str) -> None:
        groups = [DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)]
        self.world.call(DescribeShareGroupOffsetsRequest(groups=groups), 0)

    # Looking

    def describe(self, group: str) -> None:
        if self.kind == "consumer":
            self.world.call(ConsumerGroupDescribeRequest(group_ids=[group]), 1)
            self.world.call(DescribeGroupsRequest(groups=[group]), 6)
        elif self.kind == "share":
            self.world.call(ShareGroupDescribeRequest(group_ids=[group]), 1)
        else:
            self.world.call(StreamsGroupDescribeRequest(group_ids=[group]), 0)

    def list_all(self) -> None:
        self.world.call(ListGroupsRequest(), 5)

    def delete_group(self, group: str) -> None:
        self.world.call(DeleteGroupsRequest(groups_names=[group]), 2)


def _place(topic: str, version: int) -> dict[str, Any]:
    """A topic by its id, or in versions below 10 by its name."""
    return {"topic_id": Ref("topic_id", topic)} if version >= 10 else {"name": topic}


def _topology(topics: tuple[str, ...]) -> Any:
    m = streams_group_heartbeat
    changelog = m.TopicInfo(name="~g-store-changelog")
    subtopologies = [
        m.Subtopology(
            subtopology_id=str(number),
            source_topics=[topic],
            state_changelog_topics=[changelog] if number == 1 else [],
        )
        for number, topic in enumerate(topics)
    ]
    return m.Topology(epoch=0, subtopologies=subtopologies)


def drawn(seed: int, kind: str, length: int) -> list[Step]:
    """The steps of a life."""
    source = random.Random(seed)
    pick = source.choice
    groups = ("~g0",)
    steps: list[Step] = [("create", (TOPICS[0], 1)), ("create", (TOPICS[1], 2))]
    weights = {
        "join": 14,
        "beat": 30,
        "quiet": 3,
        "leave": 6,
        "expire": 2,
        "hurry": 2,
        "describe": 7,
        "list_all": 1,
        "delete_group": 2,
        "create": 2,
        "delete": 2,
        "widen": 2,
        "configure": 2,
        "restart": 2,
    }
    if kind != "share":
        weights |= {"commit": 12, "fetch": 8, "forget": 2, "transaction": 3, "end": 3}
    if kind == "consumer":
        weights |= {"classic_join": 8, "classic_sync": 6, "classic_beat": 3, "classic_leave": 3, "hurry": 3}
    if kind == "share":
        weights |= {"alter_shares": 3, "delete_shares": 2, "describe_shares": 4, "hurry": 0}
    configs = {
        "consumer": (("consumer.heartbeat.interval.ms", "3000"), ("consumer.assignment.interval.ms", "0")),
        "share": (("share.heartbeat.interval.ms", "3000"), ("share.auto.offset.reset", "earliest")),
        "streams": (("streams.heartbeat.interval.ms", "3000"), ("streams.num.standby.replicas", "1")),
    }[kind]
    restarts = 0
    topologies = (TOPICS[:2],) if kind == "streams" else ((TOPICS[0],), (TOPICS[1],), TOPICS[:2], TOPICS)
    while len(steps) < length:
        (name,) = source.choices(list(weights), list(weights.values()))
        group, member = pick(groups), pick("aab" if kind == "share" else "aabbc")
        instance = None
        if kind == "consumer" and source.random() < 0.2:
            member, instance = pick("sst"), "i"
        who = pick(("", "a", "b", "c", "k"))
        shift = pick((0, 0, 0, 0, -1, 1))
        topic = pick(TOPICS)
        arguments: tuple[Any, ...] = (group,)
        if name == "join":
            arguments = (group, member, pick(topologies), instance)
        elif name == "beat":
            # Most heartbeats come in a round of all members, so that groups get somewhere.
            if source.random() < 0.5:
                steps += [("beat", (group, each, True)) for each in "abc"]
                continue
            arguments = (group, member, source.random() < 0.8, shift, instance)
        elif name in ("quiet", "expire", "hurry"):
            arguments = (group, member, instance)
        elif name == "leave":
            epoch = pick((-1, -2)) if instance else -1
            arguments = (group, member, epoch, instance, kind == "streams" and source.random() < 0.1)
        elif name == "create":
            arguments = (topic, pick((1, 2, 3)))
        elif name == "delete":
            arguments = (topic,)
        elif name == "widen":
            arguments = (topic, pick((2, 3, 4)))
        elif name == "configure":
            key, value = pick(configs)
            arguments = (group, key, pick((value, None)))
        elif name in ("restart", "list_all"):
            arguments = ()
            restarts += name == "restart"
            if name == "restart" and restarts > 2:
                continue
        elif name == "commit":
            arguments = (group, who, shift, pick((2, 5, 8, 9, 9, 9, 10)), topic, pick((0, 0, 1)), source.randrange(90))
        elif name == "fetch":
            version = pick((8, 9, 9, 10))
            arguments = (group, who, shift, version, source.random() < 0.5, source.random() < 0.4)
        elif name == "forget":
            arguments = (group, topic)
        elif name == "transaction":
            arguments = (group, who, shift, pick((2, 3, 4)), topic, source.randrange(90))
        elif name == "end":
            arguments = (group, source.random() < 0.6)
        elif name == "classic_join":
            version = pick((2, 5, 9))
            arguments = (group, "k", pick(topologies[:3]), version, source.random() < 0.15)
            steps += [("classic_join", arguments), ("classic_sync", (group, "k", pick((3, 5))))]
            continue
        elif name == "classic_sync":
            arguments = (group, "k", pick((3, 5)))
        elif name in ("classic_beat", "classic_leave"):
            arguments = (group, "k")
        elif name == "alter_shares":
            arguments = (group, topic, source.randrange(5))
        elif name == "delete_shares":
            arguments = (group, topic)
        steps.append((name, arguments))
    return steps
