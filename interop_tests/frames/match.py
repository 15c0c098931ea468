"""Expected replies with holes in them: filling the holes from what came, and making them when replies are recorded.

In an expected reply `$name` is the value of that variable, or becomes it when there is none yet; `$_` is anything;
a list that begins with `$any` may have other members besides those that follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from interop_tests.frames.layouts import Field, Message, default_of

ANYTHING, OTHERS = "$_", "$any"
RETRIABLE = {3, 5, 6, 9, 14, 15, 16, 51, 100}
"""Errors that go away when the broker has heard of a topic just made, or has loaded a group."""
_VARIABLE = re.compile(r"\$[a-z_]+")


def substitute(value: Any, variables: Mapping[str, Any]) -> Any:
    """A request with its variables filled in. Raises KeyError for one that has no value."""
    if isinstance(value, dict):
        return {key: substitute(member, variables) for key, member in value.items()}
    if isinstance(value, list):
        return [substitute(member, variables) for member in value]
    return variables[value] if isinstance(value, str) and _VARIABLE.fullmatch(value) else value


def fill(expected: Any, actual: Any, variables: dict[str, Any]) -> Any:
    """The expected value with its holes filled; what differs otherwise stays as it was expected."""
    if isinstance(expected, str):
        if expected == ANYTHING:
            return actual
        if _VARIABLE.fullmatch(expected):
            return variables.setdefault(expected, actual)
        return _VARIABLE.sub(lambda found: str(variables.get(found[0], found[0])), expected)
    if isinstance(expected, dict) and isinstance(actual, dict):
        return {
            key: fill(value, actual.get(key), variables)
            for key, value in expected.items()
            if key in actual or value != ANYTHING
        }
    if isinstance(expected, list) and isinstance(actual, list):
        if expected[:1] == [OTHERS]:
            wanted = [_among(value, actual, variables) for value in expected[1:]]
            return actual if all(value in actual for value in wanted) else wanted
        filled = [fill(value, found, variables) for value, found in zip(expected, actual, strict=False)]
        return filled + expected[len(actual) :]
    return expected


def _among(expected: Message, members: list[Any], variables: dict[str, Any]) -> Any:
    """The expected member filled from the first one that it fits, else filled from none."""
    for member in members:
        trial = dict(variables)
        # Fields that the version does not have are not in the member.
        if fill({key: value for key, value in expected.items() if key in member}, member, trial) == member:
            variables.update(trial)
            return member
    return fill(expected, None, dict(variables))


def differences(expected: Any, actual: Any, path: str = "") -> Iterator[str]:
    """Differences between two replies, one line each."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in actual | expected:
            if key in actual or expected[key] not in (None, [], {}):
                yield from differences(expected.get(key), actual.get(key), f"{path}.{key}")
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for number, (one, other) in enumerate(zip(expected, actual, strict=True)):
            yield from differences(one, other, f"{path}[{number}]")
    elif expected != actual:
        yield f"{path.removeprefix('.')}: expected {expected!r}, got {actual!r}"


def has_retriable_error(value: Any) -> bool:
    """True if a reply contains a retriable error code."""
    if isinstance(value, dict):
        return any(
            member in RETRIABLE if key.endswith("ErrorCode") else has_retriable_error(member)
            for key, member in value.items()
        )
    return isinstance(value, list) and any(has_retriable_error(member) for member in value)


def project(fields: tuple[Field, ...], version: int, message: Any, flexible: bool) -> Any:
    """The fields of an expected reply that exist in a version."""
    if not isinstance(message, dict):
        return message
    found: Message = {}
    for field in fields:
        if version not in field.versions or field.name not in message:
            continue
        value = message[field.name]
        if flexible and version in field.tagged and value == default_of(field, version):
            continue
        if field.members and isinstance(value, list):
            value = [project(field.members, version, member, flexible) for member in value]
        elif field.members:
            value = project(field.members, version, value, flexible)
        found[field.name] = value
    return found
