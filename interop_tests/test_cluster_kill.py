"""kill -9, SIGSTOP and restarts of the nodes of a cluster while all clients work: nothing acknowledged is lost."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop_tests.cluster import Cluster
from interop_tests.cluster_load import Load, clients_at_work
from interop_tests.conftest import StartCluster
from interop_tests.kafka_jars import JAVA
from interop_tests.report import Tables

pytestmark = [pytest.mark.own_broker, pytest.mark.area("several nodes"), pytest.mark.client("several clients")]


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster) -> Iterator[Cluster]:
    cluster: Cluster = start_cluster("kill")
    yield cluster
    cluster.close()


@pytest.fixture
def load(
    cluster: Cluster,
    unique: Callable[[str], str],
    target: str,
    summary_tables: Tables,
    request: pytest.FixtureRequest,
) -> Iterator[Load]:
    """All clients at work on the whole cluster; those of Java where there is one."""
    libs: Path | None = request.getfixturevalue("java_libs") if shutil.which(JAVA) else None
    for node in cluster.nodes.values():
        # What a test that failed has left.
        if node.is_running:
            node.resume()
        else:
            node.start()
    with clients_at_work(cluster, unique, libs, target, summary_tables) as load:
        yield load


def victims(cluster: Cluster, load: Load) -> list[tuple[str, Callable[[], int]]]:
    """Role and node id of each node to kill; the id comes from a function, as leaders move until it is called."""
    return [
        ("the leader of a partition", lambda: cluster.leader(load.topics[0], 0)),
        ("the active controller", cluster.controller),
        ("the coordinator of groups", lambda: cluster.leader("__consumer_offsets", 0)),
    ]


@pytest.mark.sample
@pytest.mark.fault("kill -9")
def test_kill(cluster: Cluster, load: Load) -> None:
    """kill -9 of a leader, the active controller, a coordinator: all clients go on by themselves on the other two."""
    moments = random.Random(20261122)
    for _, find in victims(cluster, load):
        time.sleep(moments.uniform(0.0, 0.5))
        victim = find()
        cluster.nodes[victim].kill()
        load.recover()
        load.check()
        cluster.nodes[victim].start()
        load.wait_for_progress()
        cluster.wait_until_whole()
    load.finish("kill -9 of each kind of leader")


@pytest.mark.sample
@pytest.mark.fault("SIGSTOP")
def test_pause(cluster: Cluster, load: Load) -> None:
    """A node stands still (SIGSTOP) and goes on when it is long replaced: nothing is lost or answered wrongly."""
    for _, find in victims(cluster, load)[:2]:
        victim = find()
        cluster.nodes[victim].pause()
        try:
            load.recover()
        finally:
            cluster.nodes[victim].resume()
        load.recover()
        cluster.wait_until_whole()
    load.finish("SIGSTOP of leader and controller")


@pytest.mark.sample
@pytest.mark.fault("restart in order")
def test_rolling_restart(cluster: Cluster, load: Load) -> None:
    """Each node in turn is stopped in order and started again: leaders move first, and clients hardly notice."""
    for node in cluster.nodes.values():
        # Java exits with 128 + SIGTERM after an orderly end.
        assert node.stop() in (0, 143)
        load.recover()
        node.start()
        cluster.wait_until_whole()
    load.finish("rolling restart")
