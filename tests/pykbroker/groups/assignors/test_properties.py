"""Properties of the assignors over random histories of groups, each result fed back as the present assignment."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker.groups.assignors.range import assign_range
from pykbroker.groups.assignors.simple import assign_simple
from pykbroker.groups.assignors.spec import Assignment, Assignor, GroupSpec, MemberSpec, Partitions
from pykbroker.groups.assignors.uniform import assign_uniform
from pykbroker.protocol.steps import finished

TOPIC_IDS = [bytes(15) + bytes((number,)) for number in range(1, 6)]


def _topics(counts: list[int]) -> dict[bytes, int]:
    return dict(zip(TOPIC_IDS, counts, strict=False))


def _group(seed: int, topics: dict[bytes, int], is_homogeneous: bool, before: dict[str, Assignment]) -> GroupSpec:
    chooser = random.Random(seed)
    common = frozenset(chooser.sample(sorted(topics), chooser.randint(1, len(topics))))
    members = {}
    for number in sorted(chooser.sample(range(12), chooser.randint(1, 9))):
        own = frozenset(chooser.sample(sorted(topics), chooser.randint(1, len(topics))))
        member_id = f"member-{number:02}"
        subscribed = common if is_homogeneous else own
        members[member_id] = MemberSpec(None, subscribed, before.get(member_id, {}))
    return GroupSpec(members, is_homogeneous)


def _again(group: GroupSpec, result: dict[str, Assignment]) -> GroupSpec:
    """The group with its target assignments as the present ones."""
    members = {member_id: spec._replace(assigned=result[member_id]) for member_id, spec in group.members.items()}
    return group._replace(members=members)


def _size(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


COUNTS = st.lists(st.integers(1, 20), min_size=1, max_size=5)
SEEDS = st.lists(st.integers(0, 2**32), min_size=1, max_size=4)


@pytest.mark.parametrize("assign", [assign_uniform, assign_range])
@given(counts=COUNTS, seeds=SEEDS, is_homogeneous=st.booleans())
@settings(max_examples=100, deadline=None)
def test_each_partition_goes_to_one_subscriber(
    assign: Assignor, counts: list[int], seeds: list[int], is_homogeneous: bool
) -> None:
    topics = _topics(counts)
    result: dict[str, Assignment] = {}
    for seed in seeds:
        group = _group(seed, topics, is_homogeneous, result)
        members = group.members
        result = finished(assign(group, topics))
        owned = Counter((t, p) for target in result.values() for t, partitions in target.items() for p in partitions)
        subscribed = frozenset[bytes]().union(*(member.topic_ids for member in members.values()))
        assert owned == Counter((t, p) for t in subscribed for p in range(topics[t]))
        assert all(result[member_id].keys() <= member.topic_ids for member_id, member in members.items())
        if assign is assign_uniform and is_homogeneous:
            sizes = [_size(target) for target in result.values()]
            assert max(sizes) - min(sizes) <= 1


@given(counts=COUNTS, seeds=SEEDS)
@settings(max_examples=200, deadline=None)
def test_uniform_leaves_no_move_that_makes_it_better(counts: list[int], seeds: list[int]) -> None:
    """Of members with different subscriptions: none has two more than another that may have one of its partitions."""
    topics = _topics(counts)
    result: dict[str, Assignment] = {}
    for seed in seeds:
        group = _group(seed, topics, False, result)
        members = group.members
        result = finished(assign_uniform(group, topics))
        for giver, target in result.items():
            for topic_id in target:
                least = min(_size(result[taker]) for taker, spec in members.items() if topic_id in spec.topic_ids)
                assert _size(target) - least <= 1, giver


@given(counts=COUNTS, seeds=SEEDS, is_homogeneous=st.booleans())
@settings(max_examples=100, deadline=None)
def test_uniform_moves_nothing_in_an_unchanged_group(counts: list[int], seeds: list[int], is_homogeneous: bool) -> None:
    topics = _topics(counts)
    group = _group(seeds[0], topics, True, {})
    first = finished(assign_uniform(group, topics))
    again = _again(group, first)._replace(is_homogeneous=is_homogeneous)
    assert finished(assign_uniform(again, topics)) == first


@given(counts=COUNTS, seeds=SEEDS)
@settings(max_examples=100, deadline=None)
def test_simple_gives_all_members_as_much(counts: list[int], seeds: list[int]) -> None:
    topics = _topics(counts)
    group = _group(seeds[0], topics, True, {})
    result = finished(assign_simple(group, topics))
    sizes = [_size(target) for target in result.values()]
    subscribed = next(iter(group.members.values())).topic_ids
    shared = Counter((t, p) for target in result.values() for t, partitions in target.items() for p in partitions)
    assert max(sizes) - min(sizes) <= 1
    assert shared.keys() == {(t, p) for t in subscribed for p in range(topics[t])}
    assert finished(assign_simple(_again(group, result), topics)) == result


def test_simple_takes_partitions_of_which_too_many_members_have_each() -> None:
    """No member has too much, but all three have the same partition; two are to have each. The first one moves."""
    topic_id = TOPIC_IDS[0]
    assigned = {topic_id: Partitions([0])}
    members = {name: MemberSpec(None, frozenset((topic_id,)), assigned) for name in ("a", "b", "c")}
    result = finished(assign_simple(GroupSpec(members, True), _topics([2])))
    assert result == {"a": {topic_id: {1}}, "b": {topic_id: {0}}, "c": {topic_id: {0}}}


@given(counts=COUNTS, seeds=SEEDS)
@settings(max_examples=100, deadline=None)
def test_simple_gives_subscribed_topics_alone(counts: list[int], seeds: list[int]) -> None:
    topics = _topics(counts)
    result: dict[str, Assignment] = {}
    for seed in seeds:
        group = _group(seed, topics, False, result)
        members = group.members
        still = frozenset[bytes]().union(*(member.topic_ids for member in members.values()))
        result = finished(assign_simple(group, topics))
        for member_id, member in members.items():
            given = {topic_id for topic_id, partitions in result[member_id].items() if partitions}
            assert given & still <= member.topic_ids


@pytest.mark.parametrize("partitions", [(13, 29), (29, 13)])
def test_p384_partitions_of_one_bucket_are_kept_in_the_order_of_the_record(partitions: tuple[int, int]) -> None:
    """P-384: 13 and 29 share a bucket of a table of 16."""
    topic_id = TOPIC_IDS[0]
    topics = {topic_id: 30}
    members = {f"m{number}": MemberSpec(None, frozenset(topics), {}) for number in range(30)}
    members["m0"] = members["m0"]._replace(assigned={topic_id: Partitions(partitions)})
    assert finished(assign_uniform(GroupSpec(members, True), topics))["m0"] == {topic_id: {partitions[0]}}


def test_nobody_and_nothing() -> None:
    """A group whose last member leaves, and members of topics that do not exist."""
    topics = _topics([3])
    assert finished(assign_uniform(GroupSpec({}, True), topics)) == {}
    member = MemberSpec(None, frozenset({bytes(16)}), {})
    assert finished(assign_simple(GroupSpec({"a": member}, True), topics)) == {}


@given(counts=COUNTS, seed=st.integers(0, 2**32), is_homogeneous=st.booleans())
@settings(max_examples=100, deadline=None)
def test_a_range_is_of_the_subscribers_of_its_topic_in_order(
    counts: list[int], seed: int, is_homogeneous: bool
) -> None:
    """The first subscribers get one partition more than the others, as in Kafka's RangeAssignor."""
    topics = _topics(counts)
    group = _group(seed, topics, is_homogeneous, {})
    members = group.members
    result = finished(assign_range(group, topics))
    for topic_id, partition_count in topics.items():
        subscribers = [member_id for member_id in sorted(members) if topic_id in members[member_id].topic_ids]
        ranges = [sorted(result[member_id].get(topic_id, ())) for member_id in subscribers]
        assert [number for part in ranges for number in part] == list(range(partition_count if subscribers else 0))
        sizes = [len(part) for part in ranges]
        assert sizes == sorted(sizes, reverse=True)
        assert not sizes or sizes[0] - sizes[-1] <= 1


def test_simple_leaves_a_partition_to_too_few_if_the_others_have_no_room() -> None:
    """Two are to have each partition; the only member with room has this one already."""
    topic_id = TOPIC_IDS[0]
    members = {
        name: MemberSpec(None, frozenset((topic_id,)), {topic_id: Partitions([number])})
        for name, number in (("a", 0), ("b", 1), ("c", 1))
    }
    result = finished(assign_simple(GroupSpec(members, True), _topics([2])))
    assert result == {"a": {topic_id: {0}}, "b": {topic_id: {1}}, "c": {topic_id: {1}}}


def test_simple_keeps_unsubscribed_topics_in_their_order() -> None:
    """Partitions of topics that no member subscribes to any more stay with a member, as in Kafka."""
    topics = _topics([1] * 40)
    assigned = {topic_id: frozenset({0}) for topic_id in reversed(topics)}
    subscribed, other = list(topics)[:2]
    members = {
        "a": MemberSpec(None, frozenset({subscribed}), assigned),
        "b": MemberSpec(None, frozenset({other}), {}),
    }
    result = finished(assign_simple(GroupSpec(members, False), topics))
    gone = [topic_id for topic_id in assigned if topic_id not in (subscribed, other)]
    assert [topic_id for topic_id in result["a"] if topic_id not in (subscribed, other)] == gone
