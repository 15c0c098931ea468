"""The rules about the epochs that members of a Streams group are told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.streams_groups import MemberEpochs


@pytest.fixture
def complaints() -> list[str]:
    return []


@pytest.fixture
def epochs(complaints: list[str]) -> MemberEpochs:
    client: Any = SimpleNamespace(world=SimpleNamespace(broken=complaints.append))
    return MemberEpochs(client)


def test_an_epoch_that_goes_back_is_found(epochs: MemberEpochs, complaints: list[str]) -> None:
    epochs.joined("c1-1", 3, 0)
    epochs.told("c1-1", 3)
    epochs.told("c1-1", 2)
    assert complaints == ["c1-1 is told epoch 2, it had 3"]


def test_a_new_member_in_an_old_epoch_is_found(epochs: MemberEpochs, complaints: list[str]) -> None:
    epochs.joined("c1-1", 3, 0)
    epochs.joined("c2-1", 2, epochs.newest)
    assert complaints == ["c2-1 joins in epoch 2, somebody was told 3 before"]


def test_members_may_be_behind_each_other(epochs: MemberEpochs, complaints: list[str]) -> None:
    """One has yet to give up tasks; another asked before the newest epoch was told."""
    asked = epochs.newest
    epochs.joined("c1-1", 3, 0)
    epochs.joined("c2-1", 2, asked)
    epochs.told("c1-1", 4)
    epochs.told("c2-1", 3)
    assert complaints == []
