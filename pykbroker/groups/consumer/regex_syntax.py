"""Syntax of regular expressions of subscriptions: RE2, as in Kafka, so a match takes time linear in the name."""

from __future__ import annotations

from collections.abc import Callable

from pykbroker.groups.modern.errors import GroupError
from pykbroker.protocol.error_codes import ErrorCode

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


def compile_regex(text: str) -> Callable[[str], bool]:
    """A test of topic names, which must match as a whole.

    Raises:
        GroupError: INVALID_REGULAR_EXPRESSION.
    """
    import re2  # type: ignore[import-untyped]

    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile(text, options)
    except re2.error as error:
        text_of_re2 = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        reason = next((ours for theirs, ours in _REASONS.items() if text_of_re2.startswith(theirs)), text_of_re2)
        message = f"SubscribedTopicRegex `{text}` is not a valid regular expression: {reason}."
        raise GroupError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None
    return lambda name: pattern.fullmatch(name) is not None
