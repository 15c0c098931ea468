"""Regular expressions in settings that Kafka gives to Java, in the form in which Python reads them. Pure.

Named groups, references to them and quoted text have another form there. What only Java has, such as ``\\p{Alpha}``, is
an error here.
"""

from __future__ import annotations

import re

_PARTS = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)"
    r"|\\k<(?P<reference>[a-zA-Z][a-zA-Z0-9]*)>"
    r"|\\."
    # A character class, in which a parenthesis is no group.
    r"|\[\^?\]?(?:\\.|[^\]\\])*\]"
    r"|\(\?<(?P<group>[a-zA-Z][a-zA-Z0-9]*)>",
    re.DOTALL,
)


def compile_java_pattern(text: str) -> re.Pattern[str]:
    """The compiled pattern.

    Raises:
        re.error: the text is not a regular expression.
    """
    return re.compile(_PARTS.sub(_in_python, text))


def _in_python(found: re.Match[str]) -> str:
    if found["group"] is not None:
        return f"(?P<{found['group']}>"
    if found["reference"] is not None:
        return f"(?P={found['reference']})"
    if found["quoted"] is not None:
        return re.escape(found["quoted"])
    return found[0]
