"""Regular expressions of subscriptions, in the syntax of RE2 as in Kafka: their time is linear in the topic's name."""

from __future__ import annotations

from collections.abc import Callable

from pykbroker.groups.modern.errors import GroupError
from pykbroker.protocol.error_codes import ErrorCode


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
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        message = f"SubscribedTopicRegex `{text}` is not a valid regular expression: {reason}."
        raise GroupError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None
    return lambda name: pattern.fullmatch(name) is not None
