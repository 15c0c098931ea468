"""Sequences of requests of consumer groups (KIP-848), whose answers should be the same from every Kafka broker.

Member ids are chosen so that Kafka's hash tables keep them in the order in which they join: where an assignor has a
choice, both brokers then take the same one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pykbroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from pykbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from pykbroker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from pykbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from pykbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker.protocol.messages.list_groups import ListGroupsRequest
from pykbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.differential.scenarios.groups import NEVER_MS, GroupWorld, join, protocols, sync
from tests.pykbroker.groups.driver import subscription

GROUP_RESOURCE = 32
STALE_OR_ASSIGNED_S = 8.0


class Member:
    """A member that sends heartbeats and takes what it is given, as far as the scenario lets it."""

    def __init__(self, world: GroupWorld, group_id: str, member_id: str, **fields: Any) -> None:
        self.world = world
        self.group_id = group_id
        self.member_id = member_id
        self.fields = fields
        self.epoch = 0
        self.owned: list[TopicPartitions] = []
        self.given: list[TopicPartitions] = []

    def join(self, topics: list[str] | None = None, **fields: Any) -> Any:
        names = ["clicks"] if topics is None and "subscribed_topic_regex" not in fields else topics
        self.epoch, self.owned = 0, []
        return self.beat(subscribed_topic_names=names, rebalance_timeout_ms=NEVER_MS, **fields)

    def beat(self, version: int = 1, **fields: Any) -> Any:
        given = {"member_id": self.member_id, "member_epoch": self.epoch, "topic_partitions": self.owned}
        request = ConsumerGroupHeartbeatRequest(group_id=self.group_id, **{**given, **self.fields, **fields})
        answer = self.world.call("consumer beat", request, version)
        if answer.error_code == 0:
            self.epoch = max(answer.member_epoch, 0)
            if answer.assignment is not None:
                self.given = answer.assignment.topic_partitions
        return answer

    def take(self) -> Any:
        """Owns what it was given, and says so."""
        self.owned = self.given
        return self.beat()

    def leave(self, epoch: int = -1) -> Any:
        return self.beat(member_epoch=epoch, topic_partitions=None)


def describe(world: GroupWorld, *group_ids: str, version: int = 1) -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=list(group_ids), include_authorized_operations=True)
    return world.call("describe consumer groups", request, version)


def listed(world: GroupWorld, **filters: Any) -> None:
    world.call("list", ListGroupsRequest(**filters), 5)


def one_member(world: GroupWorld) -> None:
    member = Member(world, "c-one", "a")
    member.join()
    member.take()
    member.beat(topic_partitions=None)
    describe(world, "c-one", "c-none", "")
    describe(world, "c-one", version=0)
    listed(world, types_filter=["consumer"])
    world.describe("c-one")
    world.describe("c-one", version=5)
    member.beat(subscribed_topic_names=["clicks", "views"], rebalance_timeout_ms=NEVER_MS)
    member.take()
    member.beat(subscribed_topic_names=[])
    member.take()
    member.beat(subscribed_topic_names=["views", "not there"])
    describe(world, "c-one")
    world.call("delete", DeleteGroupsRequest(groups_names=["c-one"]), 2)
    member.leave()
    describe(world, "c-one")
    listed(world, states_filter=["Empty"], types_filter=["Consumer"])
    world.call("delete", DeleteGroupsRequest(groups_names=["c-one"]), 2)
    describe(world, "c-one")


def three_members(world: GroupWorld) -> None:
    first, second, third = (Member(world, "c-three", name) for name in "abc")
    first.join()
    first.take()
    second.join()
    first.beat()
    describe(world, "c-three")
    second.beat()
    first.take()
    second.beat()
    second.take()
    third.join()
    for member in (first, second, third):
        member.beat()
        member.take()
    describe(world, "c-three")
    second.leave()
    for _ in range(2):
        for member in (first, third):
            member.beat()
            member.take()
    describe(world, "c-three")
    first.leave()
    third.beat()
    third.take()
    third.leave()


def malformed(world: GroupWorld) -> None:
    member = Member(world, "c-bad", "a")
    member.beat(member_epoch=5)
    member.leave()
    member.leave(-2)
    member.leave(-3)
    member.join(member_id="")
    member.join(instance_id="")
    member.join(rack_id=" ")
    member.join(server_assignor="mine")
    member.beat(subscribed_topic_names=["clicks"])
    member.beat(rebalance_timeout_ms=1_000)
    member.beat(rebalance_timeout_ms=1_000, topic_partitions=None)
    member.join(subscribed_topic_regex="(unfinished")
    Member(world, "", "a").join()
    Member(world, " ", "a").join()
    member.join()
    member.beat(member_epoch=1)
    member.beat(member_epoch=9)
    member.beat(member_id="b")
    member.beat(instance_id="i")
    member.beat(member_id="", version=0)
    describe(world, "c-bad")
    world.leave("c-bad", 5, ("a", None), ("b", None))
    world.call("join", join("c-bad", "a"), 9)


def static_members(world: GroupWorld) -> None:
    first = Member(world, "c-static", "a", instance_id="i")
    first.join()
    first.take()
    Member(world, "c-static", "b", instance_id="i").join()
    first.leave(-2)
    describe(world, "c-static")
    second = Member(world, "c-static", "b", instance_id="i")
    second.join()
    second.take()
    first.beat()
    first.leave()
    second.beat(subscribed_topic_names=["views"])
    second.take()
    second.take()
    world.leave("c-static", 5, ("", "i"))
    describe(world, "c-static")


def assignors(world: GroupWorld) -> None:
    first, second = Member(world, "c-range", "a", server_assignor="range"), Member(world, "c-range", "b")
    first.join(["clicks", "views"])
    first.take()
    second.join(["clicks", "views"])
    first.beat()
    first.take()
    second.beat()
    describe(world, "c-range")
    second.beat(server_assignor="range")
    describe(world, "c-range")


def offsets(world: GroupWorld) -> None:
    member = Member(world, "c-offsets", "a")
    world.commit("c-offsets", 9, {"clicks": [(0, 1)]})
    member.join()
    member.take()
    epoch = member.epoch
    for version in (8, 9, 10):
        for generation, name in ((epoch, "a"), (epoch - 1, "a"), (epoch + 1, "a"), (epoch, "b"), (-1, "a"), (-1, "")):
            world.commit(
                "c-offsets",
                version,
                {"clicks": [(0, 10), (1, 11)]},
                generation_id_or_member_epoch=generation,
                member_id=name,
            )
    member.beat(subscribed_topic_names=["clicks", "views"])
    member.take()
    for offsets_of in ({"clicks": [(0, 20)]}, {"views": [(0, 20)]}):
        world.commit("c-offsets", 10, offsets_of, generation_id_or_member_epoch=epoch, member_id="a")
    asked: tuple[tuple[str | None, int], ...] = (
        ("a", member.epoch),
        ("a", epoch),
        ("b", 1),
        (None, -1),
        (None, 1),
        ("a", -1),
    )
    for asker, generation in asked:
        topics = [OffsetFetchRequestTopics(name="clicks", partition_indexes=[0, 1])]
        group = OffsetFetchRequestGroup(group_id="c-offsets", member_id=asker, member_epoch=generation, topics=topics)
        world.call("fetch with epoch", OffsetFetchRequest(groups=[group]), 9)
    world.delete_offsets("c-offsets", {"clicks": [0]})
    member.leave()
    world.delete_offsets("c-offsets", {"clicks": [0]})
    world.fetch("c-offsets", 8, None)
    world.commit("c-offsets", 9, {"clicks": [(1, 30)]})
    world.call("delete", DeleteGroupsRequest(groups_names=["c-offsets"]), 2)
    world.fetch("c-offsets", 8, None)


def regular_expressions(world: GroupWorld) -> None:
    member = Member(world, "c-regex", "a")
    member.join(subscribed_topic_regex="cli.*")
    deadline = time.monotonic() + STALE_OR_ASSIGNED_S
    # It is resolved beside the heartbeat: the answers between are not the same on two brokers.
    while not member.given and time.monotonic() < deadline:
        request = ConsumerGroupHeartbeatRequest(
            group_id="c-regex", member_id="a", member_epoch=member.epoch, topic_partitions=[]
        )
        answer = world.admin.call(request, 1)
        member.epoch = answer.member_epoch
        if answer.assignment is not None:
            member.given = answer.assignment.topic_partitions
        time.sleep(0.05)
    world.note("resolved", member.given)
    member.take()
    describe(world, "c-regex")
    Member(world, "c-regex", "b").join(subscribed_topic_regex="*bad")
    member.beat(subscribed_topic_regex="")
    member.take()
    describe(world, "c-regex")


def group_settings(world: GroupWorld) -> None:
    configs = [
        AlterableConfig(name="consumer.heartbeat.interval.ms", value="6000"),
        AlterableConfig(name="consumer.session.timeout.ms", value="50000"),
    ]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name="c-settings", configs=configs)
    world.call("alter", IncrementalAlterConfigsRequest(resources=[resource]), 1)
    world.settle()
    Member(world, "c-settings", "a").join()


def more_partitions(world: GroupWorld) -> None:
    """The last scenario: it changes a topic."""
    member = Member(world, "c-more", "a")
    member.join(["views"])
    member.take()
    topics = [CreatePartitionsTopic(name="views", count=3)]
    world.call("partitions", CreatePartitionsRequest(topics=topics, timeout_ms=5_000), 3)
    world.settle()
    member.beat()
    member.take()
    describe(world, "c-more")


def upgrade_and_downgrade(world: GroupWorld) -> None:
    """A classic member, a consumer that joins, and the way back when it leaves."""
    first = Member(world, "c-change", "zz")
    joined = world.call("join", join("c-change", protocols=protocols("range", metadata=subscription("clicks"))), 9)
    fields: dict[str, Any] = {"protocols": protocols("range", metadata=subscription("clicks"))}
    joined = world.call("join with id", join("c-change", joined.member_id, **fields), 9)
    world.call("sync", sync("c-change", joined.member_id, 1, {joined.member_id: ASSIGNMENT}), 5)
    first.join()
    describe(world, "c-change")
    world.beat("c-change", 1, joined.member_id)
    world.call("sync", sync("c-change", joined.member_id, 1), 5)
    again = world.call("join again", join("c-change", joined.member_id, **fields), 9)
    world.call("sync", sync("c-change", joined.member_id, again.generation_id), 5)
    world.call("sync", sync("c-change", joined.member_id, again.generation_id + 1), 5)
    world.call("sync", sync("c-change", joined.member_id, again.generation_id, protocol_name="other"), 5)
    world.call("sync", sync("c-change", "zz", again.generation_id), 5)
    world.beat("c-change", again.generation_id, joined.member_id)
    world.beat("c-change", again.generation_id, "zz")
    first.beat()
    first.take()
    describe(world, "c-change")
    world.call("join", join("c-change", "", protocols=protocols("other")), 9)
    world.call("join", join("c-change", "", protocol_type="connect"), 9)
    first.leave()
    world.describe("c-change")
    describe(world, "c-change")
    world.beat("c-change", again.generation_id, joined.member_id)
    rejoined = world.call("join after downgrade", join("c-change", joined.member_id, **fields), 9)
    world.call("sync", sync("c-change", joined.member_id, rejoined.generation_id), 5)


ASSIGNMENT = bytes.fromhex("0001000000010006") + b"clicks" + bytes.fromhex("000000020000000000000001ffffffff")

SCENARIOS: tuple[Callable[[GroupWorld], None], ...] = (
    one_member,
    three_members,
    malformed,
    static_members,
    assignors,
    offsets,
    regular_expressions,
    group_settings,
    upgrade_and_downgrade,
    more_partitions,
)
