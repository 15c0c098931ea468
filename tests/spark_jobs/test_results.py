"""Reading and comparing the demo's counts."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from results import TYPES, differences, digest, read_all

from tests.interop_tests.fake_clients import MARKER, Topic, use_confluent

KEY = ("2026-01-05T12:00Z", "/")
ROW = {"page_views": 2, "searches": 0, "clicks": 1, "events": 3}
EXPECTED = Counter({"page_view": 2, "click": 1, "events": 3})


def test_equal_counts_have_no_differences() -> None:
    assert differences({KEY: ROW}, {KEY: EXPECTED}) == []


def test_wrong_missing_and_additional_counts_are_named() -> None:
    other = ("2026-01-05T12:01Z", "/")
    assert len(differences({KEY: ROW | {"clicks": 2}}, {KEY: EXPECTED})) == 1
    assert len(differences({}, {KEY: EXPECTED})) == 1
    assert "12:01" in differences({KEY: ROW, other: ROW}, {KEY: EXPECTED})[0]


def test_digest_does_not_depend_on_order_but_on_every_count() -> None:
    other = ("2026-01-05T12:01Z", "/")
    assert digest({KEY: ROW, other: ROW}) == digest({other: ROW, KEY: ROW})
    assert len({digest({KEY: ROW | {name: 9}}) for name in TYPES}) == len(TYPES)


def test_all_counts_are_read_whatever_else_has_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control records are not delivered: a reader that counts records would wait for them, or stop early."""
    first, last = ROW | {"minute": KEY[0], "page": KEY[1], "events": 1}, ROW | {"minute": KEY[0], "page": KEY[1]}
    values = [json.dumps(row).encode() for row in (first, last)]
    use_confluent(monkeypatch, Topic([MARKER, values[0], *[MARKER] * 3], [], [MARKER, values[1], MARKER]))
    reader = read_all("", "counts")
    assert reader.counts == {KEY: ROW}
    assert reader.records == 2
