"""Regular expressions of requests: RE2's syntax, whole texts, and no pattern that takes long."""

from __future__ import annotations

import pytest

from pykbroker.coordination.re2_pattern import InvalidPattern, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "text", "is_match"),
    [
        ("", "", True),
        ("", "x", False),
        ("app", "app-1", False),
        ("^app-.*$", "app-1", True),
        ("^a|b$", "b", True),
        (r"\Qa.b*\E.", "a.b*c", True),
        ("[]a]+", "]a", True),
        (".", "\n", False),
        ("\N{GRINNING FACE}{2}", "\N{GRINNING FACE}" * 2, True),
        ("(?i)APP-.*", "app-1", True),
        (r"app\b.1", "app-1", True),
        (r"\pL+", "\N{LATIN SMALL LETTER A WITH DIAERESIS}b", True),
        ("(?P<name>a)(?:b)", "ab", True),
    ],
)
def test_a_text_must_match_as_a_whole(pattern: str, text: str, is_match: bool) -> None:
    assert compile_pattern(pattern)(text) is is_match


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing closing )"),
        ("[a", "missing closing ]"),
        ("*", "missing argument to repetition operator"),
        ("a**", "invalid nested repetition operator"),
        ("a{1001}", "invalid repeat count"),
        ("[b-a]", "invalid character class range"),
        ("\\", "trailing backslash at end of expression"),
        (r"(a)\1", "invalid escape sequence"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("|".join(f".*a.{{{count}}}" for count in range(900, 1000)), "pattern too large"),
    ],
)
def test_malformed_or_too_large(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidPattern, match=f"^{reason}".replace(")", r"\)").replace("]", r"\]")):
        compile_pattern(pattern)


def test_what_stops_a_backtracking_matcher_does_not_stop_this_one() -> None:
    """`re` would take more steps than there are atoms."""
    assert not compile_pattern("(a+)+b")("a" * 5_000)
    assert not compile_pattern("(a|aa)*c")("a" * 5_000)
    assert not compile_pattern("(.*.*.*)*x")("ab" * 2_000)
