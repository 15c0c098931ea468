"""Effect of `controller.quorum.*` on the settings of the quorum's state machine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.controller.settings import ControllerSettings
from pykbroker.node.quorum_node import _settings


def settings(**properties: str) -> ControllerSettings:
    identity: Any = SimpleNamespace(directory_id="AAAAAAAAAAAAAAAAAAAAAQ")
    given = {f"controller.quorum.{key.replace('_', '.')}": text for key, text in properties.items()}
    return _settings(BrokerConfig.from_properties(given), "/data", identity)


@pytest.mark.parametrize(("properties", "linger_ms"), [({}, 0), ({"append_linger_ms": "25"}, 25)])
def test_writes_are_gathered_only_where_it_was_asked_for(properties: dict[str, str], linger_ms: int) -> None:
    """Kafka's default of 25 ms would make everything slower that is slower by it."""
    assert settings(**properties).append_linger_ms == linger_ms


def test_limits_of_elections_and_fetches_have_kafkas_defaults_and_an_effect() -> None:
    raft = settings().raft
    assert (raft.election_backoff_max_ms, raft.fetch_max_bytes) == (1000, 1 << 20)
    raft = settings(election_backoff_max_ms="70", fetch_max_bytes="4000").raft
    assert (raft.election_backoff_max_ms, raft.fetch_max_bytes) == (70, 4000)
