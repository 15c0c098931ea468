"""Sequences of requests of Streams groups (KIP-1071), whose answers should be the same from every Kafka broker.

Internal topics are created after the answer that names them, so a scenario waits for them before its next heartbeat.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from pykbroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pykbroker.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from pykbroker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from pykbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from pykbroker.protocol.messages.delete_topics import DeleteTopicsRequest
from pykbroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pykbroker.protocol.messages.list_groups import ListGroupsRequest
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from pykbroker.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from pykbroker.protocol.messages.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from pykbroker.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.differential.scenarios.consumer_groups import Member as Consumer
from tests.differential.scenarios.consumer_groups import describe as describe_consumer_groups
from tests.differential.scenarios.groups import NEVER_MS, GroupWorld, join
from tests.pykbroker.groups.streams.topologies import stateless, word_count

GROUP_RESOURCE = 32
TOPIC_RESOURCE = 2
TOPICS_S = 15.0


class StreamsMember:
    """A member that sends heartbeats and takes what it is given, as far as the scenario lets it."""

    def __init__(self, world: GroupWorld, group_id: str, member_id: str, topology: Topology, **fields: Any) -> None:
        self.world = world
        self.group_id = group_id
        self.member_id = member_id
        self.topology = topology
        self.fields = {"process_id": f"process-{member_id}", **fields}
        self.epoch = 0
        self.owned: dict[str, list[TaskIds]] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
        self.given = dict(self.owned)

    def join(self, **fields: Any) -> Any:
        self.epoch, self.owned = 0, {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
        first = {"topology": self.topology, "rebalance_timeout_ms": NEVER_MS, "endpoint_information_epoch": -1}
        return self.beat(**{**self.fields, **first, **fields})

    def beat(self, **fields: Any) -> Any:
        given = {"member_id": self.member_id, "member_epoch": self.epoch, **self.owned}
        request = StreamsGroupHeartbeatRequest(group_id=self.group_id, **{**given, **fields})
        answer = self.world.call("streams beat", request, 0)
        if answer.error_code == 0:
            self.epoch = max(answer.member_epoch, 0)
            if answer.active_tasks is not None:
                self.given = {role: getattr(answer, role) for role in self.owned}
        return answer

    def take(self) -> Any:
        """Owns what it was given, and says so."""
        self.owned = self.given
        return self.beat()

    def leave(self, epoch: int = -1, **fields: Any) -> Any:
        no_tasks = dict.fromkeys(self.owned)
        return self.beat(**{"member_epoch": epoch, **no_tasks, **fields})


def describe(world: GroupWorld, *group_ids: str) -> Any:
    request = StreamsGroupDescribeRequest(group_ids=list(group_ids), include_authorized_operations=True)
    return world.call("describe streams groups", request, 0)


def listed(world: GroupWorld, **filters: Any) -> None:
    world.call("list", ListGroupsRequest(**filters), 5)


def delete(world: GroupWorld, *group_ids: str) -> None:
    world.call("delete", DeleteGroupsRequest(groups_names=list(group_ids)), 2)


def configure(world: GroupWorld, group_id: str, **values: int) -> None:
    configs = [
        AlterableConfig(name=f"streams.{name.replace('_', '.')}", value=str(value)) for name, value in values.items()
    ]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group_id, configs=configs)
    world.call("alter", IncrementalAlterConfigsRequest(resources=[resource]), 1)
    world.settle()


def create(world: GroupWorld, **partitions: int) -> None:
    topics = [
        CreatableTopic(name=name.replace("_", "-"), num_partitions=count, replication_factor=1)
        for name, count in partitions.items()
    ]
    world.admin.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
    wait_for(world, *(topic.name for topic in topics))


def wait_for(world: GroupWorld, *names: str) -> None:
    """Waits for topics, and until the coordinator knows them; notes their partition counts."""
    asked = [MetadataRequestTopic(name=name) for name in names]
    deadline = time.monotonic() + TOPICS_S
    counts: dict[str, int] = {}
    while len(counts) < len(names) and time.monotonic() < deadline:
        found = world.admin.call(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12).topics
        counts = {topic.name or "": len(topic.partitions) for topic in found if topic.error_code == 0}
        for topic in found:
            if topic.error_code == 0:
                world.names.add_topic(topic.name, topic.topic_id)
        time.sleep(0.05)
    world.note("topics", [f"{name} {count}" for name, count in sorted(counts.items())])
    world.settle()


def settle(*members: StreamsMember, rounds: int = 2) -> None:
    for _ in range(rounds):
        for member in members:
            member.beat()
            member.take()


# Scenarios


def one_member(world: GroupWorld) -> None:
    member = StreamsMember(world, "s-one", "a", stateless("clicks"), client_tags=[KeyValue(key="zone", value="z")])
    member.join()
    member.take()
    member.beat(**dict.fromkeys(member.owned))
    describe(world, "s-one", "s-none", "")
    listed(world, types_filter=["streams"])
    listed(world, types_filter=["Streams"], states_filter=["Stable"])
    world.describe("s-one")
    world.describe("s-one", version=5)
    describe_consumer_groups(world, "s-one")
    member.beat(rack_id="rack", client_tags=[KeyValue(key="b", value="2"), KeyValue(key="a", value="1")])
    describe(world, "s-one")
    member.join()
    member.take()
    delete(world, "s-one")
    world.beat("s-one", 1, "a")
    world.leave("s-one", 5, ("a", None))
    member.leave()
    describe(world, "s-one")
    listed(world, states_filter=["Empty"], types_filter=["streams"])
    member.join()
    member.leave()
    delete(world, "s-one")
    describe(world, "s-one")


def members_and_threads(world: GroupWorld) -> None:
    """Four threads in two processes come and go."""
    topology = stateless("clicks")
    first, second = (StreamsMember(world, "s-many", name, topology, process_id="p") for name in "ab")
    third = StreamsMember(world, "s-many", "c", topology, process_id="q")
    first.join()
    first.take()
    second.join()
    describe(world, "s-many")
    first.beat()
    describe(world, "s-many")
    second.beat()
    first.take()
    second.beat()
    second.take()
    third.join()
    settle(first, second, third)
    describe(world, "s-many")
    second.leave()
    settle(first, third)
    describe(world, "s-many")
    first.leave()
    settle(third)
    third.leave()


def word_count_with_state(world: GroupWorld) -> None:
    topology = word_count("s-count", "clicks")
    first = StreamsMember(world, "s-count", "a", topology, user_endpoint=Endpoint(host="one.example", port=80))
    first.join()
    listed(world, states_filter=["Not_Ready"])
    describe(world, "s-count")
    wait_for(world, "s-count-store-changelog", "s-count-words-repartition")
    resource = DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE,
        resource_name="s-count-store-changelog",
        configuration_keys=["cleanup.policy", "retention.ms"],
    )
    world.call("configs", DescribeConfigsRequest(resources=[resource]), 4)
    first.beat()
    first.take()
    first.beat(endpoint_information_epoch=1)
    describe(world, "s-count")
    second = StreamsMember(world, "s-count", "b", topology, user_endpoint=Endpoint(host="two.example", port=81))
    second.join()
    settle(first, second, rounds=3)
    first.beat(endpoint_information_epoch=2)
    describe(world, "s-count")
    configure(world, "s-count", num_standby_replicas=1)
    settle(first, second, rounds=3)
    describe(world, "s-count")
    second.leave()
    settle(first, rounds=3)
    describe(world, "s-count")
    configure(world, "s-count", num_standby_replicas=9)
    first.beat()
    first.leave()
    delete(world, "s-count")


def malformed(world: GroupWorld) -> None:
    topology = stateless("clicks")
    member = StreamsMember(world, "s-bad", "a", topology)
    member.beat(member_epoch=5)
    member.leave()
    member.leave(-2)
    member.leave(-2, instance_id="i")
    member.leave(-3)
    wrong: tuple[dict[str, Any], ...] = (
        {"member_id": ""},
        {"member_id": " "},
        {"instance_id": "i"},
        {"instance_id": ""},
        {"rack_id": " "},
        {"rebalance_timeout_ms": -1},
        {"topology": None},
        {"active_tasks": None},
        {"standby_tasks": [TaskIds(subtopology_id="0", partitions=[0])]},
        {"active_tasks": [TaskIds(subtopology_id="0", partitions=[0])]},
        {"warmup_tasks": [TaskIds(subtopology_id="0", partitions=[0])]},
        {"warmup_tasks": None},
        {"task_offsets": []},
        {"task_end_offsets": [TaskOffset(subtopology_id="0", partition=0, offset=1)]},
    )
    for fields in wrong:
        member.join(**fields)
    StreamsMember(world, "", "a", topology).join()
    StreamsMember(world, " ", "a", topology).join()
    member.join()
    member.beat(topology=topology)
    member.beat(active_tasks=None)
    member.beat(warmup_tasks=[TaskIds(subtopology_id="0", partitions=[0])])
    member.beat(active_tasks=[TaskIds(subtopology_id="9", partitions=[0])])
    member.beat(active_tasks=[TaskIds(subtopology_id="0", partitions=[7, 8])])
    member.beat(standby_tasks=[TaskIds(subtopology_id="0", partitions=[-1])])
    member.beat(member_epoch=9)
    member.beat(member_epoch=1)
    member.beat(member_epoch=0)
    member.beat(member_id="b")
    member.take()
    member.beat(member_epoch=0, **dict.fromkeys(member.owned))
    world.call("join", join("s-bad", "a"), 9)
    world.call("join", join("s-bad"), 9)


def topologies(world: GroupWorld) -> None:
    """Topologies that cannot be served, and the reasons that members are told."""

    def attempt(name: str, *subtopologies: Subtopology, epoch: int = 0) -> None:
        topology = Topology(epoch=epoch, subtopologies=list(subtopologies))
        member = StreamsMember(world, f"s-topology-{name}", "a", topology)
        member.join()
        member.beat()
        describe(world, f"s-topology-{name}")

    create(world, s_three=3, s_old_changelog=1, s_old_repartition=5)
    internal = TopicInfo(name="s-x-repartition")
    attempt("internal", Subtopology(subtopology_id="0", source_topics=["__consumer_offsets", "clicks"]))
    attempt("invalid", Subtopology(subtopology_id="0", source_topics=["a b"], repartition_sink_topics=["", "c/d"]))
    attempt("regex", Subtopology(subtopology_id="0", source_topics=["clicks"], source_topic_regex=["c.*"]))
    attempt("missing", *(Subtopology(subtopology_id=f"{n}", source_topics=[f"s-gone-{n}"]) for n in range(5)))
    attempt("empty")
    attempt("no-source", Subtopology(subtopology_id="0"))
    attempt("twice", *(Subtopology(subtopology_id="0", source_topics=[name]) for name in ("clicks", "views")))
    attempt("negative", Subtopology(subtopology_id="0", source_topics=["clicks"]), epoch=-1)
    attempt(
        "changelog",
        Subtopology(
            subtopology_id="0",
            source_topics=["clicks"],
            state_changelog_topics=[TopicInfo(name="s-x-changelog", partitions=2)],
        ),
    )
    attempt("no-sink", Subtopology(subtopology_id="0", source_topics=["clicks"], repartition_source_topics=[internal]))
    attempt(
        "loop",
        Subtopology(
            subtopology_id="0", repartition_source_topics=[internal], repartition_sink_topics=["s-x-repartition"]
        ),
    )
    joined = ["clicks", "s-three"]
    attempt(
        "copartition",
        Subtopology(
            subtopology_id="0",
            source_topics=joined,
            copartition_groups=[CopartitionGroup(source_topics=[0, 1])],
        ),
    )
    attempt(
        "copartition-position",
        Subtopology(
            subtopology_id="0",
            source_topics=joined,
            copartition_groups=[CopartitionGroup(source_topics=[0, 5])],
        ),
    )
    fixed = [TopicInfo(name="s-x-repartition", partitions=4), TopicInfo(name="s-y-repartition", partitions=5)]
    sinks = [topic.name for topic in fixed]
    attempt(
        "fixed",
        Subtopology(subtopology_id="0", source_topics=["clicks"], repartition_sink_topics=sinks),
        Subtopology(
            subtopology_id="1",
            repartition_source_topics=fixed,
            copartition_groups=[CopartitionGroup(repartition_source_topics=[0, 1])],
        ),
    )
    attempt(
        "fixed-with-source",
        Subtopology(subtopology_id="0", source_topics=["clicks"], repartition_sink_topics=sinks),
        Subtopology(
            subtopology_id="1",
            source_topics=["views"],
            repartition_source_topics=fixed[:1],
            copartition_groups=[CopartitionGroup(source_topics=[0], repartition_source_topics=[0])],
        ),
    )
    attempt(
        "existing",
        Subtopology(
            subtopology_id="0",
            source_topics=["clicks"],
            state_changelog_topics=[TopicInfo(name="s-old-changelog")],
        ),
    )
    attempt(
        "existing-repartition",
        Subtopology(subtopology_id="0", source_topics=["clicks"], repartition_sink_topics=["s-old-repartition"]),
        Subtopology(subtopology_id="1", repartition_source_topics=[TopicInfo(name="s-old-repartition")]),
    )


def copartitioned_topics(world: GroupWorld) -> None:
    """A repartition topic gets the count of the topic that it is joined with; many changelogs are missing."""
    changelogs = [TopicInfo(name=f"s-join-{number}-changelog", replication_factor=1) for number in range(6)]
    topology = Topology(
        epoch=3,
        subtopologies=[
            Subtopology(subtopology_id="0", source_topics=["clicks"], repartition_sink_topics=["s-join-repartition"]),
            Subtopology(
                subtopology_id="1",
                source_topics=["s-three"],
                repartition_source_topics=[TopicInfo(name="s-join-repartition")],
                state_changelog_topics=changelogs,
                copartition_groups=[CopartitionGroup(source_topics=[0], repartition_source_topics=[0])],
            ),
        ],
    )
    member = StreamsMember(world, "s-join", "a", topology)
    member.join()
    wait_for(world, "s-join-repartition", *(topic.name for topic in changelogs))
    member.beat()
    member.take()
    describe(world, "s-join")
    member.leave()


def stale_and_new_topologies(world: GroupWorld) -> None:
    new = Topology(epoch=2, subtopologies=[Subtopology(subtopology_id="0", source_topics=["clicks"])])
    old = Topology(epoch=1, subtopologies=[Subtopology(subtopology_id="0", source_topics=["views"])])
    first, second = StreamsMember(world, "s-stale", "a", new), StreamsMember(world, "s-stale", "b", old)
    first.join()
    first.take()
    second.join()
    settle(first, second)
    describe(world, "s-stale")
    other = Topology(epoch=2, subtopologies=[Subtopology(subtopology_id="0", source_topics=["views"])])
    StreamsMember(world, "s-stale", "c", other).join()
    newest = Topology(epoch=3, subtopologies=[Subtopology(subtopology_id="0", source_topics=["clicks"])])
    StreamsMember(world, "s-stale", "c", newest).join()
    first.leave()
    second.leave()
    StreamsMember(world, "s-stale", "c", newest).join()


def shutdown(world: GroupWorld) -> None:
    first, second = (StreamsMember(world, "s-stop", name, stateless("clicks")) for name in "ab")
    first.join()
    second.join()
    first.beat(shutdown_application=True)
    second.beat()
    second.beat(shutdown_application=True)
    first.leave()
    second.beat()
    second.leave(shutdown_application=True)
    first.join()
    first.beat()
    first.leave()


def delays(world: GroupWorld) -> None:
    """The first assignment waits for members, later ones for the assignment interval."""
    configure(world, "s-delay", initial_rebalance_delay_ms=4_000)
    first, second = (StreamsMember(world, "s-delay", name, stateless("clicks")) for name in "ab")
    first.join()
    first.beat()
    second.join()
    describe(world, "s-delay")
    time.sleep(5.0)
    describe(world, "s-delay")
    settle(first, second)
    describe(world, "s-delay")
    configure(world, "s-delay", assignment_interval_ms=NEVER_MS)
    third = StreamsMember(world, "s-delay", "c", stateless("clicks"))
    third.join()
    settle(first, third)
    describe(world, "s-delay")
    alone = StreamsMember(world, "s-alone", "a", stateless("clicks"))
    configure(world, "s-alone", initial_rebalance_delay_ms=500, heartbeat_interval_ms=6_000)
    alone.join()
    time.sleep(2.0)
    describe(world, "s-alone")
    alone.beat()
    alone.take()
    alone.leave()
    alone.join()
    delete(world, "s-alone")
    alone.leave()
    delete(world, "s-alone")


def transactional_producer(world: GroupWorld, group_id: str) -> InitProducerIdResponse:
    """A producer whose transaction may have offsets of the group; its transactional id is that of the group."""
    ready = False
    while not ready:
        found = world.admin.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[group_id]), 4)
        ready = found.coordinators[0].error_code == 0
        time.sleep(0.05)
    producer = None
    while producer is None or producer.error_code != 0:
        request = InitProducerIdRequest(transactional_id=group_id, transaction_timeout_ms=60_000)
        producer = world.admin.call(request, 4)
        time.sleep(0.05)
    world.call(
        "add offsets",
        AddOffsetsToTxnRequest(
            transactional_id=group_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            group_id=group_id,
        ),
        3,
    )
    assert isinstance(producer, InitProducerIdResponse)
    return producer


def offsets(world: GroupWorld) -> None:
    world.commit("s-offsets", 9, {"views": [(0, 1)]})
    member = StreamsMember(world, "s-offsets", "a", stateless("clicks"))
    member.join()
    describe(world, "s-offsets")
    epoch = member.epoch
    for version in (8, 9, 10):
        for generation, name in ((epoch, "a"), (epoch - 1, "a"), (epoch + 1, "a"), (epoch, "b"), (-1, "a"), (-1, "")):
            world.commit(
                "s-offsets",
                version,
                {"clicks": [(0, 10), (1, 11)]},
                generation_id_or_member_epoch=generation,
                member_id=name,
            )
    second = StreamsMember(world, "s-offsets", "b", stateless("clicks"))
    second.join()
    settle(member, second)
    for committed in ({"clicks": [(0, 20)]}, {"clicks": [(1, 20)]}, {"views": [(0, 20)]}, {"clicks": [(0, 9), (1, 9)]}):
        world.commit("s-offsets", 10, committed, generation_id_or_member_epoch=epoch, member_id="a")
    producer = transactional_producer(world, "s-offsets")
    for generation, name in ((member.epoch, "a"), (epoch, "a"), (99, "a"), (1, "z"), (-1, "")):
        partitions = [TxnOffsetCommitRequestPartition(partition_index=1, committed_offset=7)]
        topic = TxnOffsetCommitRequestTopic(name="views", partitions=partitions)
        request = TxnOffsetCommitRequest(
            transactional_id="s-offsets",
            group_id="s-offsets",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            generation_id=generation,
            member_id=name,
            topics=[topic],
        )
        world.call("txn commit", request, 3)
    asked: tuple[tuple[str | None, int], ...] = (("a", member.epoch), ("a", epoch), ("z", 1), (None, -1), ("a", -1))
    for asker, generation in asked:
        topics = [OffsetFetchRequestTopics(name="clicks", partition_indexes=[0, 1])]
        group = OffsetFetchRequestGroup(group_id="s-offsets", member_id=asker, member_epoch=generation, topics=topics)
        world.call("fetch with epoch", OffsetFetchRequest(groups=[group]), 9)
    world.delete_offsets("s-offsets", {"clicks": [0], "views": [0]})
    member.leave()
    second.leave()
    world.delete_offsets("s-offsets", {"clicks": [0]})
    world.fetch("s-offsets", 8, None)
    world.commit("s-offsets", 9, {"clicks": [(1, 30)]})
    delete(world, "s-offsets")
    world.fetch("s-offsets", 8, None)


def other_types(world: GroupWorld) -> None:
    """An empty classic group becomes a Streams group and back; no other group changes."""
    consumer = Consumer(world, "s-consumer", "a")
    consumer.join()
    StreamsMember(world, "s-consumer", "b", stateless("clicks")).join()
    StreamsMember(world, "s-consumer", "b", stateless("clicks")).beat(member_epoch=1)
    StreamsMember(world, "s-consumer", "b", stateless("clicks")).leave()
    describe(world, "s-consumer")
    consumer.leave()
    StreamsMember(world, "s-consumer", "b", stateless("clicks")).join()
    classic = world.stable("s-classic")
    StreamsMember(world, "s-classic", "b", stateless("clicks")).join()
    describe(world, "s-classic")
    world.leave("s-classic", 5, (classic.member_id, None))
    member = StreamsMember(world, "s-classic", "b", stateless("clicks"))
    member.join()
    member.take()
    describe(world, "s-classic")
    Consumer(world, "s-classic", "c").join()
    world.call("join", join("s-classic"), 9)
    member.leave()
    Consumer(world, "s-classic", "c").join()
    world.stable("s-classic")
    world.describe("s-classic")
    describe(world, "s-classic")
    listed(world, types_filter=["classic"])


def endpoints_without_topics(world: GroupWorld) -> None:
    """Kafka fails to tell the partitions of an endpoint while source topics are missing."""
    topology = stateless("s-later")
    member = StreamsMember(world, "s-endpoint", "a", topology, user_endpoint=Endpoint(host="one.example", port=80))
    member.join()
    plain = StreamsMember(world, "s-late", "a", topology)
    plain.join()
    create(world, s_later=2)
    plain.beat()
    plain.take()
    describe(world, "s-late")
    member.join()
    member.take()
    member.beat(endpoint_information_epoch=0)
    member.leave()
    plain.leave()


def topics_change(world: GroupWorld) -> None:
    create(world, s_change=2)
    topology = stateless("s-change")
    first, second = (StreamsMember(world, "s-grow", name, topology) for name in "ab")
    first.join()
    first.take()
    second.join()
    settle(first, second)
    stateful = StreamsMember(world, "s-grown", "a", word_count("s-grown", "s-change"))
    stateful.join()
    wait_for(world, "s-grown-store-changelog", "s-grown-words-repartition")
    stateful.beat()
    stateful.take()
    topics = [CreatePartitionsTopic(name="s-change", count=5)]
    world.call("partitions", CreatePartitionsRequest(topics=topics, timeout_ms=5_000), 3)
    world.settle()
    settle(first, second, rounds=3)
    describe(world, "s-grow")
    stateful.beat()
    stateful.take()
    describe(world, "s-grown")
    world.admin.call(DeleteTopicsRequest(topic_names=["s-change"], timeout_ms=5_000), 5)
    world.settle()
    first.beat()
    first.take()
    describe(world, "s-grow")
    listed(world, states_filter=["not_ready"])
    listed(world, states_filter=["NotReady"])


def permissions(world: GroupWorld) -> None:
    """Users without a permission; the ACLs are gone afterwards."""
    member = StreamsMember(world, "s-acl", "a", word_count("s-acl", "clicks"))
    for operation, resource_type, name in (
        (AclOperation.READ, GROUP_ACL, "s-acl"),
        (AclOperation.DESCRIBE, TOPIC_ACL, "clicks"),
        (AclOperation.DESCRIBE, TOPIC_ACL, "s-acl-store-changelog"),
    ):
        change_acl(world, resource_type, name, operation, is_allowed=False)
        member.join()
        forget_acls(world)
    # Once a resource has an ACL, nobody may do what no ACL allows.
    change_acl(world, CLUSTER_ACL, "kafka-cluster", AclOperation.ALL, is_allowed=True)
    change_acl(world, CLUSTER_ACL, "kafka-cluster", AclOperation.CREATE, is_allowed=False)
    for name in ("s-acl-store-changelog", "s-acl-words-repartition"):
        change_acl(world, TOPIC_ACL, name, AclOperation.DESCRIBE, is_allowed=True)
    member.join()
    member.beat()
    forget_acls(world)
    member.beat()
    wait_for(world, "s-acl-store-changelog", "s-acl-words-repartition")
    member.beat()
    change_acl(world, GROUP_ACL, "s-acl", AclOperation.DESCRIBE, is_allowed=False)
    describe(world, "s-acl", "s-none")
    listed(world, types_filter=["streams"], states_filter=["stable"])
    forget_acls(world)
    change_acl(world, TOPIC_ACL, "s-acl-store-changelog", AclOperation.DESCRIBE, is_allowed=False)
    describe(world, "s-acl")
    member.beat()
    forget_acls(world)
    describe(world, "s-acl")
    member.leave()


def change_acl(world: GroupWorld, resource_type: int, name: str, operation: int, *, is_allowed: bool) -> None:
    creation = AclCreation(
        resource_type=resource_type,
        resource_name=name,
        resource_pattern_type=3,
        principal="User:ANONYMOUS",
        host="*",
        operation=operation,
        permission_type=3 if is_allowed else 2,
    )
    results = world.admin.call(CreateAclsRequest(creations=[creation]), 3).results
    assert [result.error_code for result in results] == [0]
    world.settle()


def forget_acls(world: GroupWorld) -> None:
    everything = DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    results = world.admin.call(DeleteAclsRequest(filters=[everything]), 3).filter_results
    assert [result.error_code for result in results] == [0]
    world.settle()


class AclOperation(IntEnum):
    """Operations of ACLs, with their numbers in requests."""

    ALL = 2
    READ = 3
    CREATE = 5
    DESCRIBE = 8


TOPIC_ACL, GROUP_ACL, CLUSTER_ACL = 2, 3, 4


SCENARIOS: tuple[Callable[[GroupWorld], None], ...] = (
    one_member,
    members_and_threads,
    word_count_with_state,
    malformed,
    topologies,
    copartitioned_topics,
    stale_and_new_topologies,
    shutdown,
    delays,
    offsets,
    other_types,
    endpoints_without_topics,
    permissions,
    topics_change,
)
