"""The rule about two members with one partition counts from requests, as an answer may lie unread for long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.consumer_groups import Roster

PLACE = ("orders", 0)


@pytest.fixture
def complaints() -> list[str]:
    return []


@pytest.fixture
def roster(complaints: list[str]) -> Roster:
    client: Any = SimpleNamespace(world=SimpleNamespace(broken=complaints.append))
    history: Any = SimpleNamespace(count=lambda _what: None)
    return Roster(client, history, [PLACE])


def test_a_partition_given_to_a_second_member_is_found(roster: Roster, complaints: list[str]) -> None:
    roster.takes("c1", PLACE, roster.count)
    roster.takes("c2", PLACE, roster.count)
    roster.confirmed("c1", {PLACE}, roster.count)
    assert complaints == ["c1 has ('orders', 0) by an accepted heartbeat, and ['c2'] took it meanwhile"]


def test_an_old_answer_read_late_is_no_second_assignment(roster: Roster, complaints: list[str]) -> None:
    asked_long_ago = roster.count
    roster.takes("c1", PLACE, roster.count)
    roster.takes("c2", PLACE, asked_long_ago)
    roster.confirmed("c1", {PLACE}, roster.count)
    assert complaints == []


def test_the_first_of_two_holders_is_refused_later(roster: Roster, complaints: list[str]) -> None:
    """The heartbeat that was sent before the other had the partition may be accepted."""
    roster.takes("c1", PLACE, roster.count)
    sent = roster.count
    roster.takes("c2", PLACE, roster.count)
    roster.confirmed("c1", {PLACE}, sent)
    roster.gives_up("c1", PLACE)
    roster.confirmed("c2", {PLACE}, roster.count)
    assert complaints == []
