"""AlterPartitionReassignments on clusters of several brokers (P-157)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.controller.metadata.brokers import FenceBroker, UnfenceBroker
from pykbroker.controller.metadata.commands import ApiError
from pykbroker.controller.metadata.image import ClusterImage, PartitionImage
from pykbroker.controller.metadata.partition_changes import Assignment, change_partition
from pykbroker.controller.metadata.reassignments import AlterPartitionReassignments, Reassignment
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import PartitionChangeRecord
from tests.controller.world import World, directory_id


def world_with(*replicas: int, unclean: bool = False) -> World:
    world = World([1, 2, 3, 4, 5])
    configs = [("unclean.leader.election.enable", "true")] if unclean else []
    world.do(CreateTopics([NewTopic("t", assignments=[(0, replicas)], configs=configs)]))
    return world


def partition(world: World) -> PartitionImage:
    return world.image.topics_by_name["t"].partitions[0]


def alter(world: World, replicas: list[int] | None, *, may_change_factor: bool = True) -> ApiError:
    command = AlterPartitionReassignments([("t", [Reassignment(0, replicas)])], may_change_factor)
    ((_, (result,)),) = world.do(command)
    return result.error


def in_sync(world: World, *isr: int) -> None:
    """Change the in-sync set as AlterPartition does; a reassignment may end by it."""
    topic = world.image.topics_by_name["t"]
    target = Assignment.of(partition(world))._replace(isr=isr)
    record = change_partition(world.image, world.context(), topic, partition(world), target)
    assert record is not None
    world.apply([record])


def assignment(world: World) -> Assignment:
    return Assignment.of(partition(world))


def test_the_same_replicas_are_accepted_and_change_nothing() -> None:
    """P-157."""
    world = world_with(1, 2)
    before = world.image.offset
    assert alter(world, [1, 2]).code == ErrorCode.NONE
    assert world.image.offset == before


def test_another_order_is_one_record_and_leaves_the_leader() -> None:
    world = world_with(1, 2, 3)
    assert alter(world, [3, 1, 2]).code == ErrorCode.NONE
    after = partition(world)
    assert (after.replicas, after.isr, after.leader, after.leader_epoch) == ((3, 1, 2), (1, 2, 3), 1, 0)
    assert after.directories == tuple(directory_id(broker) for broker in (3, 1, 2))
    assert assignment(world) == ((3, 1, 2), (1, 2, 3), (), ())


def test_a_move_holds_both_until_the_new_replicas_are_in_sync() -> None:
    """P-157."""
    world = world_with(1, 2)
    assert alter(world, [3, 4]).code == ErrorCode.NONE
    assert assignment(world) == ((3, 4, 1, 2), (1, 2), (1, 2), (3, 4))
    assert (partition(world).leader, partition(world).leader_epoch) == (1, 0)
    in_sync(world, 1, 2, 3)
    assert assignment(world) == ((3, 4, 1, 2), (1, 2, 3), (1, 2), (3, 4))
    in_sync(world, 1, 2, 3, 4)
    assert assignment(world) == ((3, 4), (3, 4), (), ())
    after = partition(world)
    assert (after.leader, after.leader_epoch) == (3, 1)  # the old leader is not among the new replicas
    assert after.directories == (directory_id(3), directory_id(4))


def test_replicas_that_go_end_the_leader_epoch_though_the_leader_stays() -> None:
    world = world_with(1, 2, 3)
    assert alter(world, [1, 2]).code == ErrorCode.NONE
    assert assignment(world) == ((1, 2), (1, 2), (), ())
    assert (partition(world).leader, partition(world).leader_epoch) == (1, 1)


def test_fewer_replicas_wait_until_all_that_remain_are_in_sync() -> None:
    world = world_with(1, 2, 3)
    in_sync(world, 1, 3)
    assert alter(world, [2, 3]).code == ErrorCode.NONE
    assert assignment(world) == ((2, 3, 1), (1, 3), (1,), ())
    in_sync(world, 1, 3, 2)
    assert assignment(world) == ((2, 3), (3, 2), (), ())


def test_nobody_is_removed_while_none_that_stays_is_in_sync() -> None:
    world = world_with(1, 2)
    in_sync(world, 1)
    assert alter(world, [2]).code == ErrorCode.NONE
    assert assignment(world) == ((2, 1), (1,), (1,), ())


def test_null_cancels_and_needs_something_to_cancel() -> None:
    """P-157."""
    world = world_with(1, 2)
    assert alter(world, None) == ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    alter(world, [1, 3])
    in_sync(world, 1)
    assert assignment(world) == ((1, 3, 2), (1,), (2,), (3,))
    assert alter(world, None).code == ErrorCode.NONE
    assert assignment(world) == ((1, 2), (1,), (), ())
    assert partition(world).leader_epoch == 1  # 3 is out, and must not be taken for a replica any more


@pytest.mark.parametrize("unclean", [False, True])
def test_a_cancel_that_leaves_nobody_in_sync_is_an_unclean_election(unclean: bool) -> None:
    world = world_with(1, 2, unclean=unclean)
    alter(world, [3, 4])
    in_sync(world, 1, 2, 3)
    in_sync(world, 3)
    assert partition(world).leader == 3
    before = assignment(world)
    error = alter(world, None)
    if unclean:
        assert error.code == ErrorCode.NONE
        assert assignment(world) == ((1, 2), (1,), (), ())
        assert partition(world).leader == 1
    else:
        assert error.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert error.message is not None
        assert "unclean leader election" in error.message
        assert assignment(world) == before


def test_a_cancel_that_leaves_no_replica_is_refused() -> None:
    """Kafka's PartitionReassignmentRevert, with its text; Kafka's own reassignments never come to this."""
    world = world_with(1, 2)
    topic = world.image.topics_by_name["t"]
    world.apply([PartitionChangeRecord(topic_id=topic.topic_id, partition_id=0, adding_replicas=[1, 2])])
    before = assignment(world)
    assert alter(world, None) == ApiError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "Invalid replica assignment: addingReplicas contains all replicas.",
    )
    assert assignment(world) == before


def test_a_reassignment_can_be_replaced_by_another_or_by_its_reverse() -> None:
    world = world_with(1, 2)
    alter(world, [1, 3])
    alter(world, [1, 4])
    assert assignment(world) == ((1, 4, 2, 3), (1, 2), (2, 3), (4,))
    alter(world, [1, 2])
    assert assignment(world) == ((1, 2), (1, 2), (), ())
    alter(world, [1, 2, 3])
    alter(world, [1, 2, 3])
    assert assignment(world) == ((1, 2, 3), (1, 2), (), (3,))
    alter(world, [1, 2])
    assert assignment(world) == ((1, 2), (1, 2), (), ())


@pytest.mark.parametrize(
    ("replicas", "text"),
    [
        ([], "an empty replica list."),
        ([1, 9], "broker 9, but no such broker is registered."),
        ([2, 1, 2], "the broker 2 more than once."),
        ([-1], "broker -1, but no such broker is registered."),
    ],
)
def test_bad_replicas_are_refused_with_kafkas_words(replicas: list[int], text: str) -> None:
    """P-157."""
    error = alter(world_with(1, 2), replicas)
    assert error == ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {text}")


def test_the_replication_factor_can_be_held_fast() -> None:
    """P-157, KIP-860."""
    world = world_with(1, 2)
    error = alter(world, [1, 2, 3], may_change_factor=False)
    assert error == ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "The replication factor is changed from 2 to 3")
    assert alter(world, [1, 3], may_change_factor=False).code == ErrorCode.NONE
    # Replicas that are being removed do not count, although the partition has three replicas now.
    assert alter(world, [1, 4], may_change_factor=False).code == ErrorCode.NONE
    assert alter(world, [1, 2, 3], may_change_factor=False).code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_each_partition_is_judged_by_itself() -> None:
    world = world_with(1)
    command = AlterPartitionReassignments(
        [("nope", [Reassignment(0, [1])]), ("t", [Reassignment(7, None), Reassignment(0, [2])])]
    )
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [(name, [tuple(result.error) for result in results]) for name, results in world.do(command)] == [
        ("nope", [(code, "Unable to find a topic named nope.")]),
        ("t", [(code, "Unable to find partition t:7."), (ErrorCode.NONE, None)]),
    ]
    assert assignment(world) == ((2, 1), (1,), (1,), (2,))


def test_what_is_too_much_for_one_request_is_left_out() -> None:
    world = World([1, 2])
    for number in range(2):
        world.do(CreateTopics([NewTopic(f"t{number}", assignments=[(n, (1, 2)) for n in range(6_000)])]))
    topics = [(f"t{number}", [Reassignment(n, [2, 1]) for n in range(6_000)]) for number in range(2)]
    results = [result for _, of_topic in world.do(AlterPartitionReassignments(topics)) for result in of_topic]
    codes = [result.error.code for result in results]
    assert codes == [ErrorCode.NONE] * 10_000 + [ErrorCode.UNKNOWN_SERVER_ERROR] * 2_000


def test_a_leader_that_is_out_of_service_is_replaced_on_the_way() -> None:
    world = world_with(1, 2, 3)
    world.do(FenceBroker(1, world.image.brokers[1].epoch))
    assert partition(world).leader == 2
    alter(world, [3, 1])
    # 1 stays a replica, but neither leads nor is in sync; all that remain must be in sync before 2 may go.
    assert assignment(world) == ((3, 1, 2), (2, 3), (2,), ())
    in_sync(world, 2, 3, 1)
    assert assignment(world) == ((3, 1), (3, 1), (), ())
    assert partition(world).leader == 3


def test_a_change_to_what_is_already_so_needs_no_record() -> None:
    world = world_with(1, 2)
    image: ClusterImage = world.image
    topic = image.topics_by_name["t"]
    assert change_partition(image, world.context(), topic, partition(world), assignment(world)) is None


BROKERS = st.permutations([1, 2, 3, 4, 5]).flatmap(
    lambda brokers: st.integers(1, 5).map(lambda count: list(brokers[:count]))
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("alter"), BROKERS),
        st.tuples(st.just("cancel"), st.none()),
        st.tuples(st.just("join"), st.integers(1, 5)),
        st.tuples(st.just("fence"), st.integers(1, 5)),
        st.tuples(st.just("unfence"), st.integers(1, 5)),
    ),
    max_size=25,
)


@given(start=BROKERS, steps=STEPS, unclean=st.booleans())
def test_whatever_is_asked_a_partition_stays_whole(
    start: list[int], steps: list[tuple[str, Any]], unclean: bool
) -> None:
    world = world_with(*start, unclean=unclean)
    wanted = tuple(start)  # the target of the reassignment
    before_move = tuple(start)
    for step, argument in steps:
        broker = world.image.brokers.get(argument) if isinstance(argument, int) else None
        old = partition(world)
        if step == "alter":
            if not old.adding_replicas and not old.removing_replicas:
                before_move = old.replicas
            assert alter(world, argument).code == ErrorCode.NONE
            wanted = tuple(argument)
        elif step == "cancel":
            if alter(world, None).code == ErrorCode.NONE:
                # And, as in Kafka, what a reassignment that was replaced meanwhile had begun to add.
                assert set(before_move) <= set(partition(world).replicas)
                wanted = partition(world).replicas
        elif broker is not None and step == "join":
            if broker.is_active and old.leader != -1 and argument in old.replicas and argument not in old.isr:
                in_sync(world, *old.isr, argument)
        elif broker is not None and broker.is_fenced == (step == "unfence"):
            world.do((FenceBroker if step == "fence" else UnfenceBroker)(argument, broker.epoch))
        check_whole(world, old)
    # When all brokers are active and in sync, the partition has the replicas that were requested last.
    for broker in list(world.image.brokers.values()):
        if broker.is_fenced:
            world.do(UnfenceBroker(broker.broker_id, broker.epoch))
    for broker_id in partition(world).replicas:
        if broker_id in partition(world).replicas and broker_id not in partition(world).isr:
            in_sync(world, *partition(world).isr, broker_id)
    assert assignment(world)[0] == wanted
    assert assignment(world)[2:] == ((), ())


def check_whole(world: World, old: PartitionImage) -> None:
    now = partition(world)
    assert now.isr
    assert len(set(now.replicas)) == len(now.replicas) == len(now.directories)
    assert set(now.isr) | set(now.adding_replicas) | set(now.removing_replicas) <= set(now.replicas)
    assert not set(now.adding_replicas) & set(now.removing_replicas)
    if now.leader != -1:
        assert now.leader in now.isr
        assert world.image.brokers[now.leader].is_active
    if not set(old.replicas) <= set(now.replicas) or now.leader != old.leader:
        assert now.leader_epoch == old.leader_epoch + 1
    else:
        assert now.leader_epoch == old.leader_epoch
