"""Sequences of group requests, good and bad, whose answers should be the same from every Kafka broker.

A scenario is a function of a `GroupWorld`. It names its groups itself, so that several run on one broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from pykbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from pykbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykbroker.protocol.messages.heartbeat import HeartbeatRequest
from pykbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker.protocol.messages.list_groups import ListGroupsRequest
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
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
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from pykbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.differential.barrier import Barrier
from tests.differential.plain import Names
from tests.pykbroker.groups.driver import subscription
from tests.support.wire_client import WireClient

TOPICS = ("clicks", "views")
UNKNOWN_ID = bytes(15) + b"\x63"
NEVER_MS = 1_800_000
"""Limit of what must not happen while a scenario runs, however slow the machine is: the longest session."""


class GroupWorld:
    """One broker with two topics; notes every answer in a form that two brokers can have in common."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.answers: list[tuple[str, Any]] = []
        self.topic_ids: dict[str, bytes] = {}
        self.names = Names(address)
        self._clients: list[WireClient] = []
        self.admin = self.client()
        self._barrier = Barrier(self.admin.call)

    def client(self, client_id: str = "app") -> WireClient:
        client = WireClient(self.address, client_id)
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def prepare(self) -> None:
        """Makes the topics and waits until groups can be coordinated."""
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in TOPICS]
        self.admin.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
        asked = [MetadataRequestTopic(name=name) for name in TOPICS]
        while not self.topic_ids:
            found = self.admin.call(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12).topics
            if all(topic.error_code == 0 for topic in found):
                self.topic_ids = {topic.name: topic.topic_id for topic in found}
                for topic in found:
                    self.names.add_topic(topic.name, topic.topic_id)
        while self.admin.call(DescribeGroupsRequest(groups=["any"]), 6).groups[0].error_code != 69:
            self.admin.call(FindCoordinatorRequest(coordinator_keys=["any"]), 4)
            time.sleep(0.05)

    def settle(self) -> None:
        """Returns when the broker goes by all metadata that was written so far."""
        self._barrier.pass_through()

    def wait_for_group(self, group_id: str, state: str, member_count: int) -> None:
        """Waits until a classic group is in a state with a number of members; DescribeGroups is not noted."""
        deadline = time.monotonic() + 30
        while True:
            group = self.admin.call(DescribeGroupsRequest(groups=[group_id]), 5).groups[0]
            if (group.group_state, len(group.members)) == (state, member_count):
                return
            assert time.monotonic() < deadline, group
            time.sleep(0.01)

    def call(self, label: str, request: Message, version: int, client: WireClient | None = None) -> Any:
        """Sends, receives and notes."""
        return self.note(f"{label} v{version}", (client or self.admin).call(request, version))

    def note(self, label: str, response: Any) -> Any:
        self.answers.append((label, self.names.plain(response)))
        return response

    # Requests

    def commit(self, group_id: str, version: int, offsets: dict[str, list[tuple[int, int]]], **fields: Any) -> Any:
        """Offsets by topic as (partition, offset)."""
        metadata = fields.pop("metadata", "m")
        topics = [
            OffsetCommitRequestTopic(
                name=name if version < 10 else "",
                topic_id=self.topic_ids.get(name, UNKNOWN_ID) if version >= 10 else bytes(16),
                partitions=[
                    OffsetCommitRequestPartition(partition_index=p, committed_offset=o, committed_metadata=metadata)
                    for p, o in partitions
                ],
            )
            for name, partitions in offsets.items()
        ]
        return self.call("commit", OffsetCommitRequest(group_id=group_id, topics=topics, **fields), version)

    def fetch(self, group_id: str, version: int, partitions: dict[str, list[int]] | None, **fields: Any) -> Any:
        """Partitions by topic, None for all."""
        named = None if partitions is None else list(partitions.items())
        if version < 8:
            old = None if named is None else [OffsetFetchRequestTopic(name=n, partition_indexes=p) for n, p in named]
            return self.call("fetch", OffsetFetchRequest(group_id=group_id, topics=old, **fields), version)
        topics = (
            None
            if named is None
            else [
                OffsetFetchRequestTopics(
                    name=name if version < 10 else "",
                    topic_id=self.topic_ids.get(name, UNKNOWN_ID) if version >= 10 else bytes(16),
                    partition_indexes=indexes,
                )
                for name, indexes in named
            ]
        )
        groups = [OffsetFetchRequestGroup(group_id=group_id, topics=topics)]
        return self.call("fetch", OffsetFetchRequest(groups=groups, **fields), version)

    def leave(self, group_id: str, version: int, *members: tuple[str, str | None]) -> Any:
        """Members as (member id, instance id)."""
        if version < 3:
            return self.call("leave", LeaveGroupRequest(group_id=group_id, member_id=members[0][0]), version)
        identities = [MemberIdentity(member_id=m, group_instance_id=i) for m, i in members]
        return self.call("leave", LeaveGroupRequest(group_id=group_id, members=identities), version)

    def beat(self, group_id: str, generation_id: int, member_id: str, version: int = 4, **fields: Any) -> Any:
        request = HeartbeatRequest(group_id=group_id, generation_id=generation_id, member_id=member_id, **fields)
        return self.call("beat", request, version)

    def delete_offsets(self, group_id: str, partitions: dict[str, list[int]]) -> Any:
        topics = [
            OffsetDeleteRequestTopic(name=n, partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in ps])
            for n, ps in partitions.items()
        ]
        return self.call("delete offsets", OffsetDeleteRequest(group_id=group_id, topics=topics), 0)

    def describe(self, *group_ids: str, version: int = 6) -> Any:
        request = DescribeGroupsRequest(groups=list(group_ids), include_authorized_operations=version >= 3)
        return self.call("describe", request, version)

    def stable(self, group_id: str, version: int = 9, sync_version: int = 5, **fields: Any) -> Any:
        """One member alone in a stable group; its join answer."""
        joined = self.call("join", join(group_id, **fields), version)
        if joined.error_code == 79:
            joined = self.call("join with id", join(group_id, joined.member_id, **fields), version)
        assigned = {joined.member_id: b"assigned"}
        request = sync(group_id, joined.member_id, 1, assigned, sync_version)
        if sync_version >= 5:
            request.protocol_type = fields.get("protocol_type", "consumer")
        self.call("sync", request, sync_version)
        return joined


def protocols(*names: str, metadata: bytes = b"") -> list[JoinGroupRequestProtocol]:
    return [JoinGroupRequestProtocol(name=name, metadata=metadata or subscription("clicks")) for name in names]


def join(group_id: str, member_id: str = "", **fields: Any) -> JoinGroupRequest:
    options = {
        "session_timeout_ms": NEVER_MS,
        "rebalance_timeout_ms": NEVER_MS,
        "protocol_type": "consumer",
        "protocols": protocols("range"),
        **fields,
    }
    return JoinGroupRequest(group_id=group_id, member_id=member_id, **options)


def sync(
    group_id: str,
    member_id: str,
    generation_id: int,
    assignments: dict[str, bytes] | None = None,
    version: int = 5,
    **fields: Any,
) -> SyncGroupRequest:
    named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=generation_id,
        member_id=member_id,
        assignments=[SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in (assignments or {}).items()],
        **{**named, **fields},
    )


def find_coordinator(world: GroupWorld) -> None:
    for version in range(7):
        for key_type, key in ((0, "g"), (0, ""), (9, "g")):
            if version >= 4:
                world.call("find", FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key, "h"]), version)
            elif version or not key_type:
                world.call("find", FindCoordinatorRequest(key_type=key_type, key=key), version)
    for version, key in ((5, "g:AAAAAAAAAAAAAAAAAAAAAA:0"), (6, "g"), (6, "g:x:0"), (6, ":AAAAAAAAAAAAAAAAAAAAAA:0")):
        found = world.call("share", FindCoordinatorRequest(key_type=2, coordinator_keys=[key]), version)
        assert found.coordinators[0].error_code == 42
        world.answers.pop()  # the message of Kafka is empty here, ours says why


def refused_joins(world: GroupWorld) -> None:
    for version in range(10):
        world.call("no group", join("", "m"), version)
        world.call("short session", join("refused", "m", session_timeout_ms=5_999), version)
        world.call("long session", join("refused", session_timeout_ms=1_800_001), version)
        world.call("unknown member", join("refused-none", "ghost"), version)
        world.call("no protocols", join("refused-a", protocols=[]), version)
        world.call("no protocol type", join("refused-b", protocol_type=""), version)
    world.describe("refused", "refused-none", "refused-a", "refused-b")
    pending = world.call("id", join("refused-c"), 9).member_id
    world.call("pending with instance", join("refused-c", pending, group_instance_id="i"), 9)
    world.call("unknown instance", join("refused-c", "ghost", group_instance_id="i"), 9)
    world.leave("refused-c", 5, (pending, None))


def one_member(world: GroupWorld) -> None:
    """Every version of every API through the life of a group."""
    for version in range(10):
        group_id = f"one-{version}"
        sync_version, beat_version, leave_version = min(version, 5), min(version, 4), min(version, 5)
        commit_version, fetch_version = max(version + 1, 2), version + 1
        member_id = world.stable(group_id, version, sync_version).member_id
        for generation_id, who in ((1, member_id), (0, member_id), (1, "ghost")):
            world.beat(group_id, generation_id, who, beat_version)
            fields = {"generation_id_or_member_epoch": generation_id, "member_id": who}
            offsets = {"clicks": [(0, 5), (1, 6), (9, 7)], "nope": [(0, 1)]}
            world.commit(group_id, commit_version, offsets, **fields)
            world.call("sync again", sync(group_id, who, generation_id, version=sync_version), sync_version)
        world.commit(group_id, commit_version, {"clicks": [(0, 9)]})
        world.fetch(group_id, fetch_version, {"clicks": [0, 1, 9], "nope": [0]})
        world.fetch("nogroup", fetch_version, {"clicks": [0]})
        if fetch_version >= 2:
            world.fetch(group_id, fetch_version, None)
            world.fetch("nogroup", fetch_version, None)
        world.describe(group_id, "nogroup", version=min(version, 6))
        for who in ("ghost", member_id, member_id):
            world.leave(group_id, leave_version, (who, None))
        world.leave("nogroup", leave_version, ("m", None))
        world.describe(group_id, version=min(version, 6))
        world.beat(group_id, 2, member_id, beat_version)
        world.call("sync left", sync(group_id, member_id, 2, version=sync_version), sync_version)
        world.commit(group_id, commit_version, {"clicks": [(0, 9)]}, member_id="whoever")
        world.commit(group_id, commit_version, {"clicks": [(0, 9)]}, generation_id_or_member_epoch=2, member_id="w")


def rebalancing_alone(world: GroupWorld) -> None:
    member_id = world.stable("alone").member_id
    for fields in ({"protocol_type": None}, {"protocol_name": None}, {"protocol_type": "x"}, {"protocol_name": "x"}):
        world.call(f"sync {fields}", sync("alone", member_id, 1, **fields), 5)
    world.call("sync instance", sync("alone", member_id, 1, group_instance_id="z"), 5)
    world.call("sync nothing", sync("nogroup", "m", 1), 5)
    world.call("sync no group", sync("", "m", 1), 5)
    world.beat("", 1, "m")
    world.beat("nogroup", 1, "m")
    world.beat("alone", 1, member_id, group_instance_id="z")
    for version in (0, 5):
        world.leave("", version, ("m", None))
    world.leave("alone", 5)
    world.leave("alone", 5, ("", None), ("", "q"), (member_id, "q"), ("zz", None))
    world.call("leader again", join("alone", member_id), 9)
    world.call("unchanged", join("alone", member_id), 9)
    world.beat("alone", 2, member_id)
    world.commit("alone", 9, {"clicks": [(0, 9)]}, generation_id_or_member_epoch=2, member_id=member_id)
    world.describe("alone")
    world.delete_offsets("alone", {"clicks": [0], "views": [0]})
    world.call("delete", DeleteGroupsRequest(groups_names=["alone"]), 2)
    world.call("changed", join("alone", member_id, protocols=protocols("range", metadata=bytes(10))), 9)
    world.call("no common protocol", join("alone", member_id, protocols=protocols("other")), 9)
    world.call("no common protocol", join("alone", protocols=protocols("other")), 9)
    world.call("other type", join("alone", protocol_type="connect"), 9)


def two_members(world: GroupWorld) -> None:
    a, b = world.client("a"), world.client("b")
    a_id = world.call("a", join("two"), 9, a).member_id
    b_id = world.call("b", join("two"), 9, b).member_id
    a.send(join("two", a_id), 9)
    world.wait_for_group("two", "PreparingRebalance", 1)
    b.send(join("two", b_id, protocols=protocols("sticky", "range")), 9)
    world.wait_for_group("two", "PreparingRebalance", 2)
    world.describe("two")
    world.call("list", ListGroupsRequest(states_filter=["preparingREBALANCE"]), 5)
    world.note("a joined", a.receive())
    world.note("b joined", b.receive())
    b.send(sync("two", b_id, 1), 5)
    time.sleep(0.1)
    world.beat("two", 1, b_id)
    world.call("a synced", sync("two", a_id, 1, {a_id: b"A", b_id: b"B"}), 5, a)
    world.note("b synced", b.receive())
    world.call("b unchanged", join("two", b_id, protocols=protocols("sticky", "range")), 9, b)
    a.send(join("two", a_id), 9)
    world.wait_for_group("two", "PreparingRebalance", 2)
    world.beat("two", 1, b_id)
    world.call("b syncs", sync("two", b_id, 1), 5)
    world.commit("two", 9, {"clicks": [(0, 3)]}, generation_id_or_member_epoch=1, member_id=b_id)
    world.commit("two", 9, {"clicks": [(0, 3)]})
    world.leave("two", 5, (b_id, None))
    world.note("a alone", a.receive())


def static_members(world: GroupWorld) -> None:
    for version in (5, 8, 9):
        group_id = f"static-{version}"
        a, b = world.client("a"), world.client("b")
        a.send(join(group_id, group_instance_id="ia"), version)
        world.wait_for_group(group_id, "PreparingRebalance", 1)
        b.send(join(group_id, group_instance_id="ib"), version)
        a_id = world.note("a joined", a.receive()).member_id
        b_id = world.note("b joined", b.receive()).member_id
        assigned = {a_id: b"A", b_id: b"B"}
        world.call("a synced", sync(group_id, a_id, 1, assigned, 3, group_instance_id="ia"), 3, a)
        world.call("b synced", sync(group_id, b_id, 1, {}, 3, group_instance_id="ib"), 3, b)
        b_new = world.call("b is back", join(group_id, group_instance_id="ib"), version, b).member_id
        world.call("b synced", sync(group_id, b_new, 1, {}, 3, group_instance_id="ib"), 3, b)
        world.beat(group_id, 1, b_id, group_instance_id="ib")
        world.call("fenced", join(group_id, b_id, group_instance_id="ib"), version)
        fields = {"generation_id_or_member_epoch": 1, "member_id": b_id, "group_instance_id": "ib"}
        world.commit(group_id, 9, {"clicks": [(0, 3)]}, **fields)
        a_new = world.call("a is back", join(group_id, group_instance_id="ia"), version, a).member_id
        world.call("a synced", sync(group_id, a_new, 1, {}, 3, group_instance_id="ia"), 3, a)
        world.describe(group_id)
        world.leave(group_id, 5, ("", "ib"), (b_id, "ia"))
        world.describe(group_id)
        world.call("a joins", join(group_id, a_new, group_instance_id="ia"), version, a)
        world.leave(group_id, 5, ("", "ia"))
        world.describe(group_id)


def offsets_by_hand(world: GroupWorld) -> None:
    for version in range(2, 11):
        group_id = f"hand-{version}"
        world.commit(group_id, version, {"clicks": [(0, 3)]}, generation_id_or_member_epoch=3, member_id="m")
        world.commit(group_id, version, {"clicks": [(0, 3)]}, member_id="m")
        world.commit(group_id, version, {"clicks": [(0, 4), (1, -5)], "views": [(1, 2)], "nope": [(0, 0)]})
        world.commit(group_id, version, {"clicks": [(0, 3)]}, generation_id_or_member_epoch=0)
        world.commit(group_id, version, {"clicks": [(0, 3)]}, metadata="x" * 4097)
        world.commit(group_id, version, {"clicks": [(1, 8)]}, metadata="\N{EURO SIGN}" * 4096)
        world.commit(group_id, version, {"clicks": [(0, 6)]}, metadata=None)
        world.commit(group_id, version, {})
        world.commit(group_id, version, {"clicks": [], "nope": []})
        world.commit("", version, {"clicks": [(0, 3)]})
        world.fetch(group_id, version, {"clicks": [0, 1], "views": [1], "nope": [1]})
        world.fetch(group_id, version, {"clicks": [0]}, **({"require_stable": True} if version >= 7 else {}))
        world.fetch(group_id, version, {})
        world.fetch("", version, {"clicks": [0]})
    world.fetch("none", 1, {"clicks": [0]})
    world.call("no groups", OffsetFetchRequest(), 8)


def administration(world: GroupWorld) -> None:
    world.delete_offsets("nogroup", {"clicks": [0]})
    world.delete_offsets("", {"clicks": [0]})
    world.delete_offsets("nogroup", {})
    world.commit("admin", 9, {"clicks": [(0, 4), (1, 5)]})
    for partitions in ({"clicks": [0, 9], "nope": [0, 1], "views": [0]}, {}, {"nope": [0]}):
        world.delete_offsets("admin", partitions)
    world.fetch("admin", 8, None)
    member_id = world.stable("admin-live").member_id
    fields = {"generation_id_or_member_epoch": 1, "member_id": member_id}
    world.commit("admin-live", 9, {"clicks": [(0, 4)], "views": [(0, 4)]}, **fields)
    world.delete_offsets("admin-live", {"clicks": [0], "views": [0, 1]})
    world.fetch("admin-live", 8, {"clicks": [0], "views": [0]})
    world.stable("admin-connect", protocol_type="connect")
    world.delete_offsets("admin-connect", {"clicks": [0]})
    world.stable("admin-odd", protocols=protocols("range", metadata=b"\0"))
    world.delete_offsets("admin-odd", {"clicks": [0]})
    for version in range(3):
        names = ["admin-live", "nogroup", "admin", "admin"]
        world.call("delete", DeleteGroupsRequest(groups_names=names), version)
    for version in range(7):
        world.describe("admin-live", "", "admin", "admin-connect", "admin-odd", version=version)
    for version in range(6):
        world.call("list", ListGroupsRequest(), version)
    for states in (["Stable"], [" stable", "EMPTY "], ["nonsense"]):
        world.call(f"list {states}", ListGroupsRequest(states_filter=states), 4)
    for types in (["classic"], ["Consumer"], ["nonsense"], ["CLASSIC", "share"]):
        world.call(f"list {types}", ListGroupsRequest(types_filter=types), 5)


SCENARIOS: tuple[Callable[[GroupWorld], None], ...] = (
    find_coordinator,
    refused_joins,
    one_member,
    rebalancing_alone,
    two_members,
    static_members,
    offsets_by_hand,
    administration,
)
