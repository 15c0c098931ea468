"""Random crashes, cut links, and lost, doubled and late messages; when they end, the cluster must make progress.

At every step the cluster asserts that no epoch has two leaders, that committed records are the same on all nodes, that
a log is cut only above the high watermark, and that the high watermark never goes back.
"""

from __future__ import annotations

import random

import pytest

from pykbroker.controller.raft.roles import Role
from tests.controller.raft.cluster import Cluster

EVENTS = [
    "deliver",
    "deliver any",
    "lose",
    "double",
    "pass",
    "propose",
    "crash",
    "start",
    "cut",
    "mend",
    "snapshot",
    "change",
]
CALM = [300, 60, 15, 15, 60, 60, 4, 8, 3, 6, 3, 10]
STORM = [300, 200, 30, 30, 60, 60, 40, 60, 6, 20, 3, 20]


CHANGES = [400, 100, 10, 10, 40, 40, 15, 40, 20, 20, 2, 80]


def disturb(cluster: Cluster, rng: random.Random, number: int, weights: list[int]) -> None:
    """One random event."""
    node_ids = list(cluster.members)
    node_id = rng.choice(node_ids)
    member = cluster.members[node_id]
    event = rng.choices(EVENTS, weights)[0]
    network = cluster.network
    if event == "deliver" and network:
        cluster.deliver(*network.pop(0))
    elif event == "deliver any" and network:
        cluster.deliver(*network.pop(rng.randrange(len(network))))
    elif event == "lose" and network:
        network.pop(rng.randrange(len(network)))
    elif event == "double" and network:
        network.append(rng.choice(network))
    elif event == "pass":
        cluster.advance(rng.choice([1, 50, 500, 1500]), is_settling=False)
    elif event == "propose":
        for other in cluster.members.values():  # an old leader that does not know of the new one may be asked too
            if other.core is not None and other.core.role is Role.LEADER and rng.random() < 0.7:
                cluster.propose(other.key.node_id, [f"{number}-{index}" for index in range(rng.randint(1, 3))])
    elif event == "crash" and member.core is not None:
        member.crash()
        # Its unsent messages are lost.
        cluster.network = [entry for entry in network if entry[0] != node_id or rng.random() < 0.5]
    elif event == "start" and member.core is None:
        member.start()
    elif event == "cut":
        cluster.cut_off.add(node_id)
    elif event == "mend":
        cluster.cut_off.discard(node_id)
    elif event == "change" and cluster.is_dynamic:
        for other in list(cluster.members.values()):
            if other.core is not None and other.core.role is Role.LEADER:
                change = cluster.remove_voter if node_id in other.core.voters.ids else cluster.add_voter
                change(other.key.node_id, node_id)
    elif event == "snapshot" and member.core is not None and member.core.high_watermark > member.disk.snapshot.offset:
        member.take_snapshot()


def recover(cluster: Cluster) -> None:
    """Starts all nodes and repairs all links: a leader must be elected, and all nodes must get the same records."""
    cluster.cut_off.clear()
    for member in cluster.members.values():
        if member.core is None:
            member.start()
    for _ in range(30):
        cluster.settle(message_count_max=20_000)
        cluster.advance(1000)
        leader = cluster.leader
        if leader is not None and leader.core is not None and leader.core.high_watermark == leader.core.log.end_offset:
            break
    for _ in range(3):  # a leader that removes itself takes the proposal with it
        leader = cluster.leader
        assert leader is not None
        cluster.propose(leader.key.node_id, ["last"])
        cluster.settle(message_count_max=20_000)
        cluster.advance(5000)
        if "last" in cluster.committed:
            break
    for member in cluster.members.values():
        assert member.core is not None
        assert "last" in member.applied
        assert member.applied == cluster.committed


@pytest.mark.parametrize("seed", range(60))
def test_random_runs(seed: int) -> None:
    rng = random.Random(seed)
    voter_count = rng.choice([1, 2, 3, 3, 4, 5])
    observers = [9] if rng.random() < 0.4 else []
    is_dynamic = rng.random() < 0.5
    if is_dynamic:
        observers += [10, 11]
    cluster = Cluster(range(1, voter_count + 1), observers, seed=seed, is_silent=True, is_dynamic=is_dynamic)
    cluster.refuses = rng.random() < 0.5
    cluster.settings = cluster.settings._replace(lost_leader_ms=rng.choice([0, 100]), auto_join=rng.random() < 0.2)
    for member in cluster.members.values():
        member.start()
    weights = rng.choice([CALM, STORM])
    for number in range(600):
        disturb(cluster, rng, number, weights)
    recover(cluster)


@pytest.mark.parametrize("seed", range(60))
def test_random_changes_of_voters(seed: int) -> None:
    """Voters come and go among the same disturbances, fewer records and more cuts between them."""
    rng = random.Random(seed)
    cluster = Cluster(range(1, rng.choice([1, 2, 3]) + 1), [4, 5], seed=seed, is_silent=True, is_dynamic=True)
    cluster.settings = cluster.settings._replace(request_timeout_ms=rng.choice([200, 2000]), lost_leader_ms=100)
    for member in cluster.members.values():
        member.start()
    for number in range(600):
        disturb(cluster, rng, number, CHANGES)
    recover(cluster)
