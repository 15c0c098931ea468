"""Patterns for transactional ids: the same as Python's on what both can do, and never slow."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.transactions.id_pattern import IdPattern, InvalidPattern

ATOMS = st.sampled_from(["a", "b", "-", ".", "[ab]", "[^a]", "[a-c]", r"\d", r"\w", r"\.", "[a-]", "(?:a)"])
QUANTIFIERS = st.sampled_from(["", "", "*", "+", "?", "*?", "{2}", "{1,2}", "{0,}"])


def pieces(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    one = st.builds(lambda atom, quantifier: f"({atom}){quantifier}", inner, QUANTIFIERS)
    return st.builds("".join, st.lists(one, max_size=3)) | st.builds("{}|{}".format, inner, inner)


PATTERNS = st.recursive(
    st.builds("".join, st.lists(st.builds(str.__add__, ATOMS, QUANTIFIERS), max_size=4)), pieces, max_leaves=6
)


@given(PATTERNS, st.text("ab-.1c", max_size=8))
def test_it_matches_what_re_matches(pattern: str, text: str) -> None:
    assert IdPattern(pattern).matches(text) == (re.fullmatch(pattern, text) is not None), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text", "is_match"),
    [
        ("", "", True),
        ("", "x", False),
        ("app", "app-1", False),
        ("^app-.*$", "app-1", True),
        ("^a|b$", "b", True),
        (r"\Qa.b*\E.", "a.b*c", True),
        (r"\Qa.b", "a.b", True),
        (r"[\d\-]+", "1-2", True),
        ("[]a]+", "]a", True),
        (r"a\tb", "a\tb", True),
        (".", "\n", False),
        ("\N{GRINNING FACE}{2}", "\N{GRINNING FACE}" * 2, True),
    ],
)
def test_single_patterns(pattern: str, text: str, is_match: bool) -> None:
    assert IdPattern(pattern).matches(text) is is_match


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "[",
        "[a",
        "[b-a]",
        "[a[b]]",
        "*",
        "a**",
        "a{2}{3}",
        "a{2,1}",
        "a{x}",
        "a{1",
        "\\",
        r"(a)\1",
        r"\bword",
        "(?=a)",
        "(?i)a",
        "a^",
        "$a",
        "(^a)",
        "a{3000}",
        "(){9999}",
        "((((a{99}){99}){99}){99}){99}",
        "(" * 60 + ")" * 60,
    ],
)
def test_malformed_too_large_or_not_available(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        IdPattern(pattern)


def test_what_stops_a_backtracking_matcher_does_not_stop_this_one() -> None:
    """`re` would take more steps than there are atoms."""
    assert not IdPattern("(a+)+b").matches("a" * 5_000)
    assert not IdPattern("(a|aa)*c").matches("a" * 5_000)
    assert not IdPattern("(.*.*.*)*x").matches("ab" * 2_000)


def test_remembered_steps_are_bounded() -> None:
    pattern = IdPattern(".*a.{12}")
    text = "".join("ab"[(number * number) % 7 % 2] for number in range(6_000))
    assert pattern.matches(text) == (text[-13] == "a")
    assert len(pattern._steps) <= 1_000


def test_what_cannot_be_remembered_ends_when_it_has_cost_too_much() -> None:
    pattern = IdPattern(".*a.{600}")
    rest = 12345
    text = ""
    for _ in range(32_000):
        rest = rest * 1103515245 + 12345 & 0x7FFFFFFF
        text += "ab"[rest >> 16 & 1]
    with pytest.raises(InvalidPattern, match="too much"):
        pattern.matches(text)
