"""Rules of topic names (P-143), with the texts that Kafka's clients show."""

from __future__ import annotations

import re

CLUSTER_METADATA_TOPIC = "__cluster_metadata"

NAME_LENGTH_MAX = 249

_legal = re.compile(r"[a-zA-Z0-9._-]+").fullmatch


def reason_invalid(name: str) -> str | None:
    """Reason, in Kafka's words, that a name is no legal topic name; None for a legal one."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    if not _legal(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def collision_form(name: str) -> str:
    """The form in which two topics collide: metric names cannot tell "." from "_"."""
    return name.replace(".", "_")
