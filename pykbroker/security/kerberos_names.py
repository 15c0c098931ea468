"""`sasl.kerberos.principal.to.local.rules` (P-321): the user name of a Kerberos principal. Pure.

The first rule that applies gives the name. A rule is ``DEFAULT``, which takes the first component of a principal of the
default realm, or ``RULE:[n:format](pattern)s/from/to/g/L``, of which all but the brackets is optional:

- It applies to principals of n components; the realm does not count.
- `format` makes a text of the realm ``$0`` and the components ``$1`` and ``$2``.
- With a `pattern` the rule applies only if that matches the whole text.
- The substitution changes the text, and ``L`` or ``U`` puts it in lower or upper case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pykbroker.named_tuple import NamedTuple
from pykbroker.security.java_patterns import compile_java_pattern

_NAME = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE = re.compile(
    r"(DEFAULT)|RULE:\[([0-9]*):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?(L|U)?", re.DOTALL
)
_PARAMETER = re.compile(r"([^$]*)(?:\$([0-9]*))?", re.DOTALL)
_REFERENCE = re.compile(r"\\(.?)|\$\{([a-zA-Z][a-zA-Z0-9]*)\}|\$([0-9]*)", re.DOTALL)
_INT_MAX = 2**31 - 1


class NoUserName(Exception):
    """A principal has no user name by the rules. The text is for the log of the server."""


class KerberosName(NamedTuple):
    """The parts of a principal, as in ``service/host@REALM``; None for a part that is missing."""

    service: str
    host: str | None
    realm: str | None


def parse_name(principal: str) -> KerberosName:
    """The parts of a principal; a text without a realm is a service alone.

    Raises:
        NoUserName: there is a realm, but not one or two components before it.
    """
    found = _NAME.fullmatch(principal)
    if found is not None:
        return KerberosName(*found.groups())
    if "@" in principal:
        raise NoUserName(f"Malformed Kerberos name: {principal}")
    return KerberosName(principal, None, None)


class _Rule(NamedTuple):
    """One rule; `most` is the number of substitutions, 0 for all."""

    components: int
    format: str
    pattern: re.Pattern[str] | None
    replaced: re.Pattern[str] | None
    replacement: str
    most: int
    case: str

    def apply(self, parts: Sequence[str]) -> str | None:
        if len(parts) - 1 != self.components:
            return None
        name = _filled(self.format, parts)
        if self.pattern is not None and self.pattern.fullmatch(name) is None:
            return None
        if self.replaced is not None:
            name = self.replaced.sub(lambda match: _expanded(self.replacement, match), name, count=self.most)
        _check_simple(name)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


class UserNames:
    """The rules of one listener.

    Args:
        rules: the rules in order.
        default_realm: realm of the machine's Kerberos configuration; "" if it names none.

    Raises:
        ValueError: a text is not a rule; the error's text is Kafka's where Kafka has one.
    """

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        self._texts = list(rules)
        self._default_realm = default_realm
        self._rules = [_parse(rule) for rule in rules]

    def of_principal(self, principal: str) -> str:
        """The user name of a principal such as ``alice/host@REALM``.

        Raises:
            NoUserName: no rule applies, or the first one that applies gives an invalid name.
        """
        name = parse_name(principal)
        if name.realm is None:
            return name.service
        parts = [name.realm, name.service] if name.host is None else [name.realm, name.service, name.host]
        for rule in self._rules:
            found = rule.apply(parts) if rule is not None else self._by_default(parts)
            if found is not None:
                return found
        raise NoUserName(f"No rules apply to {principal}, rules [{', '.join(self._texts)}]")

    def _by_default(self, parts: Sequence[str]) -> str | None:
        if parts[0] != self._default_realm:
            return None
        _check_simple(parts[1])
        return parts[1]


def _parse(text: str) -> _Rule | None:
    """The rule of a text; None for DEFAULT."""
    found = _RULE.match(text)
    if found is None:
        raise ValueError(f"Invalid rule: {text}")
    if found.end() != len(text):
        raise ValueError(f"Invalid rule: `{text}`, unmatched substring: `{text[found.end() :]}`")
    is_default, components, layout, pattern, replaced, replacement, every, case = found.groups()
    if is_default is not None:
        return None
    if not components or int(components) > _INT_MAX:
        raise ValueError(f"Invalid rule: `{text}`, `{components}` is not a number of components")
    try:
        return _Rule(
            int(components),
            layout,
            None if pattern is None else compile_java_pattern(pattern),
            None if replaced is None else compile_java_pattern(replaced),
            replacement or "",
            0 if every else 1,
            case or "",
        )
    except re.error as error:
        raise ValueError(f"Invalid rule: `{text}`: {error}") from None


def _filled(layout: str, parts: Sequence[str]) -> str:
    """The format of a rule with the parts of a name in place of ``$n``."""
    text = ""
    for found in _PARAMETER.finditer(layout):
        plain, number = found.groups()
        text += plain
        if number is None:
            continue
        if not number or int(number) >= len(parts):
            raise NoUserName(f"index {number} from {layout} is outside of the valid range 0 to {len(parts) - 1}")
        text += parts[int(number)]
    return text


def _expanded(replacement: str, match: re.Match[str]) -> str:
    """A replacement as Java reads it: ``$n`` and ``${name}`` are groups, a backslash keeps the next character."""
    groups = match.re.groups

    def text(reference: re.Match[str]) -> str:
        escaped, name, digits = reference.groups()
        if escaped:
            return str(escaped)
        if name is not None and name in match.re.groupindex:
            return match.group(name) or ""
        # As many digits as make the number of a group, but at least one.
        used = next((n for n in range(len(digits or ""), 1, -1) if int(digits[:n]) <= groups), 1)
        if not digits or int(digits[:used]) > groups:
            raise NoUserName(f"illegal group reference in the replacement {replacement}")
        return (match.group(int(digits[:used])) or "") + str(digits[used:])

    return _REFERENCE.sub(text, replacement)


def _check_simple(name: str) -> None:
    if "/" in name or "@" in name:
        raise NoUserName(f"Non-simple name {name} after a rule of sasl.kerberos.principal.to.local.rules")
