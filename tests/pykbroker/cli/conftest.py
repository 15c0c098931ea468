from __future__ import annotations

from collections.abc import Callable

import pytest

from pykbroker.cli import main
from tests.pykbroker.cli.fake_cluster import FakeCluster

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in this process: `code, output, errors = run("topic", "list")`."""

    def run_words(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_words


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Put a cluster in memory in the place of kafka-python."""
    fake = FakeCluster()
    monkeypatch.setattr("pykbroker.cli.client.cluster.Cluster", fake)
    monkeypatch.delenv("PYKBROKER_BOOTSTRAP_SERVERS", raising=False)
    return fake
