"""Random entries and questions, decided by Apache Kafka's own StandardAuthorizer and by ours."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pykbroker.controller.metadata.image import Acl
from pykbroker.protocol.acl_codes import ALL, ALLOW, ALTER, DELETE, DENY, DESCRIBE, GROUP, LITERAL, PREFIXED, READ
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.support.java_programs import ask

pytestmark = pytest.mark.java

NAMES = ("a", "ab", "abc", "b", "*", "*a", "**", "!a", "+", "A", "é")
USERS = ("alice", "bob", "*")
HOSTS = ("10.0.0.1", "10.0.0.2", "::1")
WORLDS = 400
QUESTIONS = 60


def random_world(seed: int) -> dict[str, Any]:
    """Entries for groups, and what clients ask about them; a question without a name is about any group."""
    chance = random.Random(seed)
    names = chance.sample(NAMES, chance.randrange(2, len(NAMES)))
    acls = [
        {
            "name": chance.choice((*names, "*")),
            "pattern": chance.choice((LITERAL, LITERAL, PREFIXED)),
            "principal": f"User:{chance.choice(USERS)}",
            "host": chance.choice((*HOSTS[:2], "0:0:0:0:0:0:0:1", "*", "*", "*")),
            "operation": chance.choice((ALL, READ, DELETE, ALTER, DESCRIBE)),
            "permission": chance.choice((ALLOW, ALLOW, DENY)),
        }
        for _ in range(chance.randrange(7))
    ]
    questions = [
        {
            "user": chance.choice(USERS[:2]),
            "host": chance.choice(HOSTS),
            "operation": chance.choice((READ, DELETE, DESCRIBE)),
            "name": chance.choice((*names, "abcd", "*a*", None)),
        }
        for _ in range(QUESTIONS)
    ]
    # Kafka has no entry twice.
    distinct = [acl for number, acl in enumerate(acls) if acl not in acls[:number]]
    return {"default": chance.choice(("true", "false")), "acls": distinct, "questions": questions}


def decisions(world: dict[str, Any]) -> list[bool]:
    """The decisions of our authorizer."""
    acls = {
        bytes([number]): Acl(
            GROUP, acl["name"], acl["pattern"], acl["principal"], acl["host"], acl["operation"], acl["permission"]
        )
        for number, acl in enumerate(world["acls"])
    }
    authorizer = StandardAuthorizer(lambda: acls, frozenset(), world["default"] == "true")
    return [
        authorizer.allows_any(f"User:{asked['user']}", asked["host"], asked["operation"], GROUP)
        if asked["name"] is None
        else authorizer.allows(f"User:{asked['user']}", asked["host"], asked["operation"], GROUP, asked["name"])
        for asked in world["questions"]
    ]


def is_denied_everywhere(world: dict[str, Any], asked: dict[str, Any]) -> bool:
    """True for a name that begins with the wildcard, where an entry denies something about all groups."""
    name = asked["name"]
    return (
        name is not None
        and len(name) > 1
        and name[0] == "*"
        and any(acl["name"] == "*" and acl["pattern"] == LITERAL and acl["permission"] == DENY for acl in world["acls"])
    )


def test_decisions_as_apache_kafka() -> None:
    """P-444: also for names that begin with the wildcard, but that a deny entry for all of them holds here; where Kafka
    fails with an exception ours decides."""
    worlds = [random_world(seed) for seed in range(WORLDS)]
    compared = 0
    for seed, (world, answers) in enumerate(zip(worlds, ask("AuthorizerCheck", worlds), strict=True)):
        for asked, ours, theirs in zip(world["questions"], decisions(world), answers, strict=True):
            if theirs and not ours and is_denied_everywhere(world, asked):
                continue
            if theirs is not None:
                compared += 1
                assert ours == theirs, (seed, asked, world["default"], world["acls"])
    assert compared > WORLDS * QUESTIONS * 0.9
