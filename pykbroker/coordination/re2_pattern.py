"""Regular expressions of requests, in the syntax of RE2 as in Kafka: subscriptions, filters of transactional ids.

A match takes time linear in the length of the text, so no pattern of a client stalls the broker.
"""

from __future__ import annotations

from collections.abc import Callable

MAX_MEMORY_BYTES = 1 << 20
"""Limit of a compiled pattern and of its matcher; it bounds the time of a match, too."""

_REASONS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "unexpected )": "regexp/syntax: internal error",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid character class range": "invalid character class range",
    "trailing \\": "trailing backslash at end of expression",
    "invalid escape sequence": "invalid escape sequence",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
}
"""Beginning of an error of RE2 -> the words of RE2/J, which Kafka's clients get."""


class InvalidPattern(ValueError):
    """The pattern is malformed or too large; the text is the reason in the words of RE2/J."""


def compile_pattern(text: str) -> Callable[[str], bool]:
    """A test of texts, which must match the pattern as a whole.

    Raises:
        InvalidPattern: the pattern cannot be compiled.
    """
    import re2  # type: ignore[import-untyped]

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY_BYTES
    try:
        pattern = re2.compile(text, options)
    except re2.error as error:
        found = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        reason = next((words for beginning, words in _REASONS.items() if found.startswith(beginning)), found)
        raise InvalidPattern(reason) from None
    return lambda candidate: pattern.fullmatch(candidate) is not None
