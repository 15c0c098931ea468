"""OffsetCommit, OffsetFetch and OffsetDelete at every version: P-107, P-111, P-112."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import trio

from pykbroker.controller import turns
from pykbroker.controller.metadata.image import Acl
from pykbroker.coordination.partitioning import OFFSETS_TOPIC
from pykbroker.handlers.offset_commit import handle_offset_commit
from pykbroker.handlers.offset_delete import handle_offset_delete
from pykbroker.handlers.offset_fetch import handle_offset_fetch
from pykbroker.protocol.acl_codes import ALLOW, DESCRIBE, GROUP, LITERAL, READ, TOPIC
from pykbroker.protocol.codec import encode
from pykbroker.protocol.error_codes import ErrorCode
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
from pykbroker.protocol.steps import PIECE
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.pykbroker.groups.rig import Rig
from tests.support.data_path import topic_id, topic_image

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def commit_request(version: int, topics: Iterable[tuple[str, list[int]]], **fields: Any) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name=name if version < 10 else "",
                topic_id=topic_id(name) if version >= 10 else bytes(16),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=100 + partition, committed_metadata="m"
                    )
                    for partition in partitions
                ],
            )
            for name, partitions in topics
        ],
        **fields,
    )


async def commit(rig: Rig, version: int, topics: dict[str, list[int]], **fields: Any) -> Any:
    response = await rig.call(handle_offset_commit, commit_request(version, topics.items(), **fields), version)
    encode(response, version)
    return response


def errors(response: Any) -> dict[tuple[str, int], int]:
    """(topic, partition) -> error; topics that came as an id by the name that the test gave it."""
    names = {topic_id(name): name for name in ("clicks", "ghost")}
    return {
        (names.get(topic.topic_id) or topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", range(2, 11))
async def test_only_partitions_that_exist_can_be_committed_p_111(tmp_path: Path, version: int) -> None:
    """P-111: an unknown topic is 3, by id 100; each partition has its error."""
    rig = Rig(tmp_path)
    async with rig.running():
        response = await commit(rig, version, {"clicks": [0, 7, 1], "ghost": [0]})
        assert errors(response) == {
            ("clicks", 0): ErrorCode.NONE,
            ("clicks", 7): UNKNOWN,
            ("clicks", 1): ErrorCode.NONE,
            ("ghost", 0): ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else UNKNOWN,
        }
        assert len(response.topics) == 2
        assert (await rig.fetch(), await rig.fetch(partition=1)) == (100, 101)


@pytest.mark.parametrize("version", [9, 10])
async def test_a_topic_that_is_named_twice_has_one_entry_for_its_refusals(tmp_path: Path, version: int) -> None:
    """P-377: what the coordinator answers follows in the same entry."""
    rig = Rig(tmp_path)
    async with rig.running():
        request = commit_request(version, [("clicks", [7]), ("clicks", [0]), ("clicks", [8, 1])])
        response = await rig.call(handle_offset_commit, request, version)
        (topic,) = response.topics
        found = [(partition.partition_index, partition.error_code) for partition in topic.partitions]
        assert found == [(7, UNKNOWN), (8, UNKNOWN), (0, 0), (1, 0)]


async def test_a_topic_without_a_name_needs_a_right_too(tmp_path: Path) -> None:
    """P-377: up to v9, where a topic has a name that may be empty."""
    rig = Rig(tmp_path)
    acls = {bytes(16): Acl(GROUP, "g", LITERAL, "User:ANONYMOUS", "*", READ, ALLOW)}
    rig.services = rig.services.replaced(authorizer=StandardAuthorizer(lambda: acls, frozenset(), False))
    async with rig.running():
        response = await rig.call(handle_offset_commit, commit_request(9, [("", [0])]), 9)
        assert errors(response) == {("", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED}


async def test_a_commit_of_nothing_that_exists(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        assert errors(await commit(rig, 9, {"ghost": [0]})) == {("ghost", 0): UNKNOWN}
        assert (await commit(rig, 9, {})).topics == []


async def test_an_error_of_the_group_is_each_partitions(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        response = await commit(rig, 8, {"clicks": [0, 7]}, generation_id_or_member_epoch=4, member_id="m")
        assert errors(response) == {("clicks", 0): ErrorCode.ILLEGAL_GENERATION, ("clicks", 7): UNKNOWN}


async def test_the_records_of_a_large_commit_are_made_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit of one partition waits for none of them, and what is stored is the same."""
    monkeypatch.setattr(turns, "TURN_S", -1.0)
    rig = Rig(tmp_path)
    count = 10 * PIECE
    (rig_topics,) = [rig.services.metadata.image.topics_by_name]
    assert isinstance(rig_topics, dict)
    rig_topics["many"] = topic_image("many", count)
    events: list[str] = []

    async def commit_many() -> None:
        response = await commit(rig, 9, {"many": list(range(count))})
        assert len(errors(response)) == count
        assert set(errors(response).values()) == {ErrorCode.NONE}
        events.append("many")

    async def commit_one() -> None:
        for _ in range(3):
            await commit(rig, 9, {"clicks": [0]})
            events.append("one")

    async with rig.running():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit_many)
            await trio.lowlevel.checkpoint()
            nursery.start_soon(commit_one)
        assert events[0] == "one"
        assert events.count("many") == 1
        stored = await fetch(rig, 8, {"many": [0, count - 1]})
        (topic,) = stored.topics
        assert [partition.committed_offset for partition in topic.partitions] == [100, 100 + count - 1]


async def fetch(rig: Rig, version: int, topics: dict[str, list[int]] | None, group_id: str = "g") -> Any:
    """The answer for one group."""
    if version >= 8:
        wanted = (
            None
            if topics is None
            else [
                OffsetFetchRequestTopics(
                    name=name if version < 10 else "",
                    topic_id=topic_id(name) if version >= 10 else bytes(16),
                    partition_indexes=partitions,
                )
                for name, partitions in topics.items()
            ]
        )
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=wanted)])
    else:
        old = (
            None
            if topics is None
            else [
                OffsetFetchRequestTopic(name=name, partition_indexes=partitions) for name, partitions in topics.items()
            ]
        )
        request = OffsetFetchRequest(group_id=group_id, topics=old)
    response = await rig.call(handle_offset_fetch, request, version)
    encode(response, version)
    return response.groups[0] if version >= 8 else response


@pytest.mark.parametrize("version", range(1, 11))
async def test_every_version_of_fetch_p_112(tmp_path: Path, version: int) -> None:
    """P-112."""
    rig = Rig(tmp_path)
    async with rig.running():
        await commit(rig, 9, {"clicks": [1]})
        group = await fetch(rig, version, {"clicks": [0, 1]})
        assert group.error_code == ErrorCode.NONE
        assert [
            (p.partition_index, p.committed_offset, p.metadata, p.error_code) for p in group.topics[0].partitions
        ] == [
            (0, -1, "", 0),
            (1, 101, "m", 0),
        ]
        assert [p.committed_leader_epoch for p in group.topics[0].partitions] == [-1, -1]
        missing = await fetch(rig, version, {"clicks": [0]}, "none")
        assert (missing.error_code, missing.topics[0].partitions[0].committed_offset) == (0, -1)


@pytest.mark.parametrize("version", range(2, 11))
async def test_null_topics_are_all_p_112(tmp_path: Path, version: int) -> None:
    """P-112; by id only those that still exist can be named."""
    rig = Rig(tmp_path)
    async with rig.running():
        await commit(rig, 9, {"clicks": [0, 1]})
        group = await fetch(rig, version, None)
        assert [p.committed_offset for topic in group.topics for p in topic.partitions] == [100, 101]
        assert group.topics[0].topic_id == topic_id("clicks") if version >= 10 else group.topics[0].name == "clicks"
        shard = next(shard for shard in rig.groups.runtime.shards.values() if shard.groups)
        committed = shard.offsets.get("g", "clicks", 0)
        assert committed is not None
        shard.offsets.put("g", "gone", 0, committed)
        assert len((await fetch(rig, version, None)).topics) == (1 if version >= 10 else 2)


async def test_an_unknown_topic_id_in_a_fetch(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with rig.running():
        group = await fetch(rig, 10, {"ghost": [3], "clicks": [0]})
        got = {t.topic_id: [(p.partition_index, p.error_code) for p in t.partitions] for t in group.topics}
        assert got == {topic_id("clicks"): [(0, 0)], topic_id("ghost"): [(3, ErrorCode.UNKNOWN_TOPIC_ID)]}


@pytest.mark.parametrize("version", [9, 10])
async def test_refused_topics_of_a_fetch_come_last_in_the_order_of_the_request(tmp_path: Path, version: int) -> None:
    """P-652: hidden topics and unknown ids alike."""
    rig = Rig(tmp_path)
    rig.change(*(topic_image(name) for name in ("hidden", "clicks", "secret")), topic_image(OFFSETS_TOPIC, 5))
    acls = {
        bytes(16): Acl(GROUP, "g", LITERAL, "User:ANONYMOUS", "*", DESCRIBE, ALLOW),
        bytes(15) + b"1": Acl(TOPIC, "clicks", LITERAL, "User:ANONYMOUS", "*", DESCRIBE, ALLOW),
    }
    rig.services = rig.services.replaced(authorizer=StandardAuthorizer(lambda: acls, frozenset(), False))
    async with rig.running():
        group = await fetch(rig, version, {name: [0] for name in ("hidden", "ghost", "clicks", "secret")})
        codes = [topic.partitions[0].error_code for topic in group.topics]
        hidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert codes == [ErrorCode.NONE, hidden, ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else hidden, hidden]
        names = ("clicks", "hidden", "ghost", "secret")
        assert [topic.topic_id if version >= 10 else topic.name for topic in group.topics] == [
            topic_id(name) if version >= 10 else name for name in names
        ]


@pytest.mark.parametrize("version", [1, 2, 7, 8, 10])
async def test_where_the_error_of_a_group_stands(tmp_path: Path, version: int) -> None:
    """In version 1 at each partition, later once."""
    rig = Rig(tmp_path)
    async with rig.running():
        rig.change(topic_image("clicks", 2), topic_image(OFFSETS_TOPIC, 5, leader=2))
        group = await fetch(rig, version, {"clicks": [0]})
        if version == 1:
            assert group.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        else:
            assert (group.error_code, group.topics) == (ErrorCode.NOT_COORDINATOR, [])


async def test_stable_offsets_of_a_group_that_is_not_coordinated_here(tmp_path: Path) -> None:
    """P-369: as without `require_stable`, and without a wait."""
    rig = Rig(tmp_path)
    async with rig.running():
        rig.change(topic_image("clicks", 2), topic_image(OFFSETS_TOPIC, 5, leader=2))
        asked = OffsetFetchRequestGroup(group_id="g", topics=None)
        request = OffsetFetchRequest(groups=[asked], require_stable=True)
        [group] = (await rig.call(handle_offset_fetch, request, 9)).groups
        assert (group.error_code, group.topics) == (ErrorCode.NOT_COORDINATOR, [])


async def test_several_groups(tmp_path: Path) -> None:
    """KIP-709."""
    rig = Rig(tmp_path)
    async with rig.running():
        await commit(rig, 9, {"clicks": [0]})
        topics = [OffsetFetchRequestTopics(name="clicks", partition_indexes=[0])]
        groups = [OffsetFetchRequestGroup(group_id=group_id, topics=topics) for group_id in ("g", "h")]
        response = await rig.call(handle_offset_fetch, OffsetFetchRequest(groups=groups), 8)
        assert [(g.group_id, g.topics[0].partitions[0].committed_offset) for g in response.groups] == [
            ("g", 100),
            ("h", -1),
        ]


async def test_offset_delete_p_107(tmp_path: Path) -> None:
    """P-107."""
    rig = Rig(tmp_path)

    async def delete(topics: dict[str, list[int]]) -> Any:
        request = OffsetDeleteRequest(
            group_id="g",
            topics=[
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in partitions]
                )
                for name, partitions in topics.items()
            ],
        )
        response = await rig.answer(handle_offset_delete, request, 0)
        encode(response, 0)
        found = {(t.name, p.partition_index): p.error_code for t in response.topics for p in t.partitions}
        return response.error_code, found

    async with rig.running():
        assert await delete({"clicks": [0]}) == (ErrorCode.GROUP_ID_NOT_FOUND, {})
        await commit(rig, 9, {"clicks": [0, 1]})
        assert await delete({"clicks": [0, 7], "ghost": [0]}) == (
            0,
            {("clicks", 7): UNKNOWN, ("ghost", 0): UNKNOWN, ("clicks", 0): 0},
        )
        assert (await rig.fetch(), await rig.fetch(partition=1)) == (-1, 101)
        assert await delete({}) == (0, {})
        ghosts = OffsetDeleteRequestTopic(name="ghost", partitions=[OffsetDeleteRequestPartition(partition_index=1)])
        empty = OffsetDeleteRequestTopic(name="nothing")
        request = OffsetDeleteRequest(group_id="g", topics=[ghosts, ghosts, empty])
        named = (await rig.answer(handle_offset_delete, request, 0)).topics
        assert [(t.name, [p.partition_index for p in t.partitions]) for t in named] == [
            ("ghost", [1, 1]),
            ("nothing", []),
        ]
