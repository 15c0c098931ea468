"""Orders of Java's and Kafka's collections, against what their own code printed."""

from __future__ import annotations

import pytest

from pykbroker.java_order import is_blank, timeline_order

# The numbers of keys "member-N", put in order, as Kafka 4.3.1's TimelineHashMap iterates over them.
OF_KAFKA = {
    2: "0,1",
    3: "0,2,1",
    5: "3,0,2,4,1",
    6: "3,0,5,2,4,1",
    11: "3,10,8,0,5,2,7,4,9,1,6",
}


@pytest.mark.parametrize("count", OF_KAFKA)
def test_the_order_of_a_timeline_hash_map(count: int) -> None:
    """P-330."""
    keys = [f"member-{number}" for number in range(count)]
    assert timeline_order(keys) == [f"member-{number}" for number in OF_KAFKA[count].split(",")]


def test_blank_text_is_what_javas_trim_leaves_nothing_of() -> None:
    assert all(map(is_blank, ("", " ", "\t\r\n", "\0\x1f")))
    assert not any(map(is_blank, ("a", " a ", "\u00a0", "\u2003", "\x7f")))
