"""`pykbroker cluster health` while a node of three is away."""

from __future__ import annotations

import time

import pytest

from pykbroker.testing.local_cluster import LocalCluster
from tests.support.command_line import Cli

pytestmark = pytest.mark.usefixtures("collect_client_sockets")


def test_a_node_goes_and_comes_back(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalCluster(nodes=3, topics={"orders": 2}) as cluster:
        cli = Cli(cluster.bootstrap_servers, capsys, monkeypatch)
        assert cli.json("cluster", "health", "--wait", "30")["is_healthy"]
        cluster.kill(3)
        # The controller has to notice it first; a busy machine's client may find nobody meanwhile.
        deadline = time.monotonic() + 60
        while True:
            code, output, errors = cli.run("cluster", "health")
            if (code, errors) == (1, "") or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        assert (code, errors) == (1, "")
        assert "NOT healthy" in output
        cluster.start(3)
        found = cli.json("cluster", "health", "--wait", "30")
        assert (found["brokers"], found["under_replicated_partitions"]) == ([1, 2, 3], [])
