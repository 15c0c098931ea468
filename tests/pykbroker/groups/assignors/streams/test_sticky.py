"""Cases of the sticky assignor of tasks (P-230): one step of it each."""

from __future__ import annotations

import pytest

from pykbroker.groups.assignors.streams.spec import AssignmentMember, GroupSpec, TaskAssignorError
from pykbroker.groups.streams.tasks import Tasks
from tests.pykbroker.groups.assignors.streams.groups import Topology, after, assign, group, member, task_ids

FOUR_TASKS = Topology({"0": 4})
STATEFUL = Topology({"0": 3}, frozenset("0"))


def sizes(targets: dict[str, Tasks]) -> list[int]:
    return [len(task_ids(target.active)) for target in targets.values()]


def test_a_new_member_gets_every_task() -> None:
    targets = assign(group({"m": member("p")}), Topology({"0": 2, "1": 1}))
    assert targets == {"m": Tasks({"0": frozenset({0, 1}), "1": frozenset({0})})}


def test_tasks_go_to_processes_by_their_number_of_members() -> None:
    """Two threads of one process get twice what the one thread of another gets."""
    targets = assign(group({"a1": member("a"), "a2": member("a"), "b": member("b")}), Topology({"0": 9}))
    assert sizes(targets) == [3, 3, 3]


def test_members_keep_their_tasks() -> None:
    members = {"m": member("p", {"0": frozenset({0, 3})}), "n": member("q", {"0": frozenset({1, 2})})}
    targets = assign(group(members), FOUR_TASKS)
    assert {m: target.active for m, target in targets.items()} == {m: members[m].tasks.active for m in members}


def test_a_member_keeps_no_more_than_its_share() -> None:
    """Those with the lowest partitions stay."""
    targets = assign(group({"m": member("p", {"0": frozenset(range(4))}), "n": member("q")}), FOUR_TASKS)
    assert targets["m"].active == {"0": frozenset({0, 1})}
    assert targets["n"].active == {"0": frozenset({2, 3})}


def test_an_active_task_goes_to_its_standby_when_its_member_left() -> None:
    members = {"m": member("p", {"0": frozenset({0})}), "n": member("q", {}, {"0": frozenset({1})}), "o": member("r")}
    targets = assign(group(members, 1), Topology({"0": 2}, frozenset("0")))
    assert targets["m"].active == {"0": frozenset({0})}
    assert targets["n"].active == {"0": frozenset({1})}


def test_of_several_standbys_the_least_loaded_becomes_active() -> None:
    standby = {"0": frozenset({2})}
    members = {
        "m": member("p", {"0": frozenset({0, 1})}, standby),
        "n": member("q", {}, standby),
        "o": member("r", {"0": frozenset({3})}),
    }
    targets = assign(group(members, 1), Topology({"0": 4}, frozenset("0")))
    assert targets["n"].active == {"0": frozenset({2})}


def test_only_stateful_tasks_get_standbys() -> None:
    topology = Topology({"0": 2, "1": 2}, frozenset("1"))
    targets = assign(group({"m": member("p"), "n": member("q")}, 1), topology)
    assert sorted(task for target in targets.values() for task in task_ids(target.standby)) == [
        ("1", 0),
        ("1", 1),
    ]


def test_standbys_are_on_other_processes() -> None:
    """Threads of one process share a disk, on which the state is already."""
    targets = assign(group({"a1": member("a"), "a2": member("a")}, 1), STATEFUL)
    assert [target.standby for target in targets.values()] == [{}, {}]


def test_there_are_as_many_standbys_as_processes_allow(caplog: pytest.LogCaptureFixture) -> None:
    targets = assign(
        group({"m": member("p"), "n": member("q"), "o": member("r")}, 5), Topology({"0": 1}, frozenset("0"))
    )
    assert sorted(len(task_ids(target.standby)) for target in targets.values()) == [0, 1, 1]
    assert caplog.messages == ["Unable to assign 3 of 5 standby tasks for task [0_0]: there are too few processes"]


def test_a_task_that_moves_leaves_a_standby_behind() -> None:
    members = {"m": member("p", {"0": frozenset(range(3))}), "n": member("q")}
    targets = assign(group(members, 1), STATEFUL)
    assert targets["m"] == Tasks({"0": frozenset({0, 1})}, {"0": frozenset({2})}, {})
    assert targets["n"] == Tasks({"0": frozenset({2})}, {"0": frozenset({0, 1})}, {})


def test_standbys_stay() -> None:
    members = {
        "m": member("p", {"0": frozenset({0})}, {"0": frozenset({2})}),
        "n": member("q", {"0": frozenset({1})}, {"0": frozenset({0})}),
        "o": member("r", {"0": frozenset({2})}, {"0": frozenset({1})}),
    }
    targets = assign(group(members, 1), STATEFUL)
    assert after(members, targets) == members


def test_no_warm_up_tasks_are_assigned() -> None:
    """Not in Kafka 4.3.1 either; present ones end."""
    warming = AssignmentMember("p", Tasks(warmup={"0": frozenset({1})}))
    targets = assign(group({"m": warming, "n": member("q")}, 1), STATEFUL)
    assert [target.warmup for target in targets.values()] == [{}, {}]


def test_tasks_that_are_no_longer_in_the_topology_end() -> None:
    members = {"m": member("p", {"0": frozenset({0, 7}), "gone": frozenset({0})}, {"gone": frozenset({1})})}
    assert assign(group(members, 1), Topology({"0": 1}))["m"] == Tasks({"0": frozenset({0})})


def test_a_group_without_members_has_no_assignment() -> None:
    with pytest.raises(TaskAssignorError, match=r"No process available to assign active task 0_0\."):
        assign(group({}), FOUR_TASKS)
    assert assign(group({}), Topology({})) == {}


@pytest.mark.parametrize("configs", [{"num.standby.replicas": "many"}, {"acceptable.recovery.lag": "1"}])
def test_the_number_of_standbys_must_be_a_number(configs: dict[str, str]) -> None:
    with pytest.raises(TaskAssignorError, match=r"num\.standby\.replicas"):
        assign(GroupSpec({"m": member("p")}, configs), FOUR_TASKS)


def test_there_are_no_standbys_without_settings() -> None:
    targets = assign(GroupSpec({"m": member("p"), "n": member("q")}, {}), STATEFUL)
    assert [target.standby for target in targets.values()] == [{}, {}]
