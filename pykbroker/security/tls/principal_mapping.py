"""`ssl.principal.mapping.rules` (KIP-371, P-242): the user name of a certificate's distinguished name. Pure.

A rule is ``DEFAULT``, or ``RULE:pattern/replacement/`` with ``L`` or ``U`` behind it for lower or upper case. The first
rule whose pattern matches the whole name gives the user name.
"""

from __future__ import annotations

import re

from pykbroker.named_tuple import NamedTuple
from pykbroker.security.java_patterns import compile_java_pattern

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|.*?"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(?:,\s*|\Z)")
_WHOLE = re.compile(_RULE)
_REFERENCE = re.compile(r"\\(.)|\$(\d+)|\$\{([a-zA-Z][a-zA-Z0-9]*)\}", re.DOTALL)


class NoMatchingRule(Exception):
    """No rule matches a distinguished name, so that its certificate gives no principal."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        found = self.pattern.sub(self._replaced, name)
        return found.lower() if self.case == "L" else found.upper() if self.case == "U" else found

    def _replaced(self, match: re.Match[str]) -> str:
        groups = match.re.groups

        def text(reference: re.Match[str]) -> str:
            escaped, digits, name = reference.groups()
            if escaped is not None:
                return str(escaped)
            if name is not None:
                return match.group(name) or "" if name in match.re.groupindex else reference.group()
            # As many digits as make the number of a group, but at least one.
            used = next((n for n in range(len(digits), 1, -1) if int(digits[:n]) <= groups), 1)
            if int(digits[:used]) > groups:
                return f"${digits}"
            return (match.group(int(digits[:used])) or "") + digits[used:]

        return _REFERENCE.sub(text, self.replacement)


class PrincipalMapping:
    """The rules of one listener.

    Raises:
        ValueError: the text has something that is no rule, or a pattern that is no regular expression.
    """

    def __init__(self, rules: str) -> None:
        self._text = rules
        self._rules = [rule for text in _split(rules) if (rule := _parse(text)) is not None]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrincipalMapping) and other._text == self._text

    def __hash__(self) -> int:  # pragma: no cover: equal values must have equal hashes, though none is needed yet
        return hash(self._text)

    def user_name(self, distinguished_name: str) -> str:
        """The user name of a distinguished name.

        Raises:
            NoMatchingRule: no rule applies.
        """
        for rule in self._rules:
            found = rule.apply(distinguished_name)
            if found is not None:
                return found
        raise NoMatchingRule(f"no rule of ssl.principal.mapping.rules applies to {distinguished_name}: {self._text}")


def _split(rules: str) -> list[str]:
    return [match.group(1) for match in _SPLITTER.finditer(rules.strip())]


def _parse(text: str) -> _Rule | None:
    match = _WHOLE.match(text)
    if match is None or match.end() != len(text):
        rest = "" if match is None else text[match.end() :]
        raise ValueError(f"Invalid rule: `{text}`, unmatched substring: `{rest}`")
    is_default, pattern, replacement, case = match.groups()
    if is_default is not None:
        return _Rule(None, "", "")
    if pattern is None:
        return None
    try:
        return _Rule(compile_java_pattern(pattern), replacement, case)
    except re.error as error:
        raise ValueError(f"Invalid rule: `{text}`: {error}") from None
