"""The limit that a client gets, of those that are set for users and client ids."""

from __future__ import annotations

import pytest

from pykbroker.quotas.limits import DEFAULT, ClientLimits, Place

USER_AND_CLIENT = Place("alice", "app")

# In Kafka's order: (user, client id), the rate that then counts.
LEVELS = [
    ("alice", "app", USER_AND_CLIENT),
    ("alice", DEFAULT, USER_AND_CLIENT),
    ("alice", None, Place("alice", "")),
    (DEFAULT, "app", USER_AND_CLIENT),
    (DEFAULT, DEFAULT, USER_AND_CLIENT),
    (DEFAULT, None, Place("alice", "")),
    (None, "app", Place("", "app")),
    (None, DEFAULT, Place("", "app")),
]


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_the_most_specific_limit_counts(first: int) -> None:
    """P-266."""
    limits = ClientLimits()
    for rank in range(first, len(LEVELS)):
        user, client_id, _ = LEVELS[rank]
        limits.set(user, client_id, 100.0 + rank)
    assert limits.find("alice", "app") == (LEVELS[first][2], 100.0 + first)


def test_others_have_no_limit() -> None:
    limits = ClientLimits()
    assert not limits
    assert limits.find("alice", "app") is None
    limits.set("alice", "app", 1.0)
    assert limits
    assert limits.find("alice", "other") is None
    assert limits.find("bob", "app") is None


def test_an_empty_client_id_gets_the_limit_of_its_user() -> None:
    """P-266: Kafka tells no client id from none only by its being empty."""
    limits = ClientLimits()
    limits.set("alice", DEFAULT, 5.0)
    assert limits.find("alice", "") is None
    limits.set("alice", None, 7.0)
    assert limits.find("alice", "") == (Place("alice", ""), 7.0)
    assert limits.find("alice", "app") == (USER_AND_CLIENT, 5.0)


def test_a_user_may_have_the_name_of_the_default() -> None:
    limits = ClientLimits()
    limits.set("<default>", None, 5.0)
    assert limits.find("alice", "app") is None
    assert limits.find("<default>", "app") == (Place("<default>", ""), 5.0)


def test_clients_of_a_user_share_one_rate() -> None:
    limits = ClientLimits()
    limits.set(DEFAULT, None, 5.0)
    first, second = limits.find("alice", "a"), limits.find("alice", "b")
    assert first is not None
    assert first == second
    assert limits.find("bob", "a") != first
    assert limits.limit_of(first[0]) == 5.0
