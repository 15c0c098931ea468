"""StandardAuthorizer: what Kafka's documentation of ACLs says, case by case and against a model without an index."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.controller.metadata.image import Acl
from pykbroker.protocol.acl_codes import (
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    CREATE,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
)
from pykbroker.security import standard_authorizer
from pykbroker.security.standard_authorizer import StandardAuthorizer

HOST = "10.0.0.1"


def acl(
    name: str = "t",
    pattern_type: int = LITERAL,
    *,
    principal: str = "User:a",
    host: str = "*",
    operation: int = READ,
    permission_type: int = ALLOW,
    resource_type: int = TOPIC,
) -> Acl:
    return Acl(resource_type, name, pattern_type, principal, host, operation, permission_type)


def authorizer(*acls: Acl, super_users: frozenset[str] = frozenset(), default: bool = False) -> StandardAuthorizer:
    table = {bytes([number]) * 16: entry for number, entry in enumerate(acls)}
    return StandardAuthorizer(lambda: table, super_users, default)


def allowed(
    what: StandardAuthorizer, name: str = "t", *, operation: int = READ, principal: str = "User:a", host: str = HOST
) -> bool:
    return what.allows(principal, host, operation, TOPIC, name)


def test_without_an_entry_the_default_holds() -> None:
    assert not allowed(authorizer())
    assert allowed(authorizer(default=True))


def test_an_entry_on_the_resource_ends_the_default() -> None:
    """Also one for another principal, another operation, or a whole prefix; not one for another resource."""
    for about in (acl(principal="User:b"), acl(operation=WRITE), acl("", PREFIXED, principal="User:b"), acl("*")):
        assert not allowed(authorizer(about, default=True), operation=DELETE)
    for beside in (acl("tt"), acl("tt", PREFIXED), acl(resource_type=GROUP)):
        assert allowed(authorizer(beside, default=True), operation=DELETE)


def test_super_users_may_do_everything() -> None:
    what = authorizer(acl(permission_type=DENY, operation=ALL), super_users=frozenset({"User:a"}))
    assert allowed(what)
    assert what.allows_any("User:a", HOST, WRITE, TOPIC)
    assert not allowed(what, principal="User:b")


def test_denying_wins() -> None:
    for denying in (acl("*"), acl("t", PREFIXED), acl(principal="User:*"), acl(host=HOST), acl(operation=ALL)):
        what = authorizer(acl(), denying._replace(permission_type=DENY))
        assert not allowed(what)


@pytest.mark.parametrize(
    ("given_operation", "implied"),
    [
        (READ, DESCRIBE),
        (WRITE, DESCRIBE),
        (DELETE, DESCRIBE),
        (ALTER, DESCRIBE),
        (ALTER_CONFIGS, DESCRIBE_CONFIGS),
    ],
)
def test_some_operations_imply_others_when_allowed(given_operation: int, implied: int) -> None:
    assert allowed(authorizer(acl(operation=given_operation)), operation=implied)
    denying = acl(operation=given_operation, permission_type=DENY)
    assert allowed(authorizer(acl(operation=implied), denying), operation=implied)
    assert not allowed(authorizer(acl(operation=implied)), operation=given_operation)


def test_create_and_configs_imply_no_describe() -> None:
    for operation in (CREATE, ALTER_CONFIGS, DESCRIBE_CONFIGS):
        assert not allowed(authorizer(acl(operation=operation)), operation=DESCRIBE)


def test_hosts_are_compared_as_texts() -> None:
    assert allowed(authorizer(acl(host=HOST)))
    assert not allowed(authorizer(acl(host="10.0.0.2")))
    assert not allowed(authorizer(acl(host="10.0.0")))


def test_ipv6_hosts_are_as_java_writes_them() -> None:
    entry = acl(host="0:0:0:0:0:0:0:1", operation=WRITE)
    assert allowed(authorizer(entry), host="::1", operation=WRITE)
    assert authorizer(entry).allows_any("User:a", "::1", WRITE, TOPIC)
    assert not allowed(authorizer(acl(host="::1")), host="::1")


def test_changed_entries_hold_at_once() -> None:
    table = {b"1" * 16: acl()}
    what = StandardAuthorizer(lambda: table, frozenset(), False)
    assert allowed(what)
    table = {}
    assert not allowed(what)


def test_answers_are_remembered_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard_authorizer, "REMEMBERED_ANSWERS_MAX", 3)
    what = authorizer(acl("t1"))
    for _ in range(2):
        assert [allowed(what, f"t{number}") for number in range(5)] == [False, True, False, False, False]
    assert len(what._answers) <= 3
    assert not allowed(what, "t" * 250)
    assert all(len(name) < 250 for *_, name in what._answers)


def test_refusals_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        what = authorizer(acl())
        for _ in range(2):
            assert not allowed(what, operation=WRITE)
            assert allowed(what)
    assert caplog.messages == ["User:a from 10.0.0.1 was refused WRITE on TOPIC 't'"]


def test_any_topic_will_do() -> None:
    """KIP-679: a principal that may write to some topic may use idempotence."""
    cases = [
        ([acl(operation=WRITE)], True),
        ([acl("*", operation=WRITE)], True),
        ([acl("p", PREFIXED, operation=ALL)], True),
        ([acl(operation=READ)], False),
        ([acl(operation=WRITE, resource_type=GROUP)], False),
        ([acl(operation=WRITE, principal="User:b")], False),
        ([acl(operation=WRITE, host="10.0.0.2")], False),
        ([acl(operation=WRITE), acl("*", operation=WRITE, permission_type=DENY)], False),
        ([acl(operation=WRITE), acl(operation=WRITE, permission_type=DENY)], False),
        ([acl("tt", operation=WRITE), acl("t", PREFIXED, operation=WRITE, permission_type=DENY)], False),
        ([acl("tt", operation=WRITE), acl("t", operation=WRITE, permission_type=DENY)], True),
        ([acl("*", operation=WRITE), acl("t", PREFIXED, operation=WRITE, permission_type=DENY)], True),
        # The name that the default is examined with is refused, and yet no refusal covers every topic.
        ([acl("*", operation=WRITE), acl("hard", PREFIXED, operation=WRITE, permission_type=DENY)], True),
    ]
    for entries, expected in cases:
        assert authorizer(*entries).allows_any("User:a", HOST, WRITE, TOPIC) is expected, entries
    assert authorizer(default=True).allows_any("User:a", HOST, WRITE, TOPIC)


# Against a model

names = st.text("ab*", min_size=1, max_size=4)
principals = st.sampled_from(["User:a", "User:b"])
hosts = st.sampled_from([HOST, "10.0.0.2"])
operations = st.sampled_from([READ, WRITE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS])
entries = st.builds(
    Acl,
    st.sampled_from([TOPIC, GROUP]),
    names,
    st.sampled_from([LITERAL, PREFIXED]),
    st.one_of(principals, st.just("User:*")),
    st.one_of(hosts, st.just("*")),
    st.one_of(operations, st.just(ALL)),
    st.sampled_from([ALLOW, DENY]),
)


def model(acls: list[Acl], default: bool, principal: str, host: str, operation: int, kind: int, name: str) -> bool:
    about = [
        entry
        for entry in acls
        if entry.resource_type == kind
        and (
            name.startswith(entry.resource_name)
            if entry.pattern_type == PREFIXED
            else entry.resource_name == name or (entry.resource_name == "*" and not name.startswith("*"))
        )
    ]
    # P-444: only these entries for all resources hold for a name that begins with the wildcard.
    about += [
        entry
        for entry in acls
        if name.startswith("*")
        and (entry.resource_type, entry.resource_name, entry.pattern_type) == (kind, "*", LITERAL)
        and entry.permission_type == DENY
        and entry.principal in (principal, "User:*")
        and entry.host in (host, "*")
        and entry.operation in (operation, ALL)
    ]
    if not about:
        return default
    implied_by = {DESCRIBE: {READ, WRITE, DELETE, ALTER}, DESCRIBE_CONFIGS: {ALTER_CONFIGS}}.get(operation, set())
    ours = [entry for entry in about if entry.principal in (principal, "User:*") and entry.host in (host, "*")]
    if any(entry.permission_type == DENY and entry.operation in (operation, ALL) for entry in ours):
        return False
    return any(entry.permission_type == ALLOW and entry.operation in {operation, ALL, *implied_by} for entry in ours)


@given(st.lists(entries, max_size=8), st.booleans(), principals, hosts)
def test_as_the_model_says(acls: list[Acl], default: bool, principal: str, host: str) -> None:
    what = authorizer(*acls, default=default)
    texts = {acl.resource_name for acl in acls} | {"a", "ab", "*", "abab"}
    for operation, name in itertools.product((READ, ALTER, DESCRIBE, DESCRIBE_CONFIGS), texts):
        expected = model(acls, default, principal, host, operation, TOPIC, name)
        assert what.allows(principal, host, operation, TOPIC, name) is expected
        assert what.allows(principal, host, operation, TOPIC, name) is expected, "the remembered answer"


def test_names_that_begin_with_the_wildcard() -> None:
    """P-444: the entry for all resources allows nothing on them, and denies."""
    everything = authorizer(acl("*"))
    assert allowed(everything, "a")
    assert allowed(everything, "*")
    assert not allowed(everything, "*a")
    assert allowed(authorizer(acl("*a")), "*a")
    assert allowed(authorizer(acl("*", PREFIXED)), "*a")
    assert allowed(authorizer(acl("*"), default=True), "*a")
    denied = acl("*", permission_type=DENY)
    assert not allowed(authorizer(denied, acl("*a")), "*a")
    assert not allowed(authorizer(denied, default=True), "*a")
    assert allowed(authorizer(acl("*", permission_type=DENY, principal="User:b"), default=True), "*a")


@pytest.mark.parametrize("seed", range(10))
def test_entries_that_come_and_go(seed: int) -> None:
    """The decisions are those of an authorizer that has only seen the last table."""
    chooser = random.Random(seed)
    table: dict[bytes, Acl] = {}
    followed = StandardAuthorizer(lambda: table, frozenset(), False)
    names = ["t", "to", "topic", "u", "*"]
    for number in range(60):
        table = {acl_id: entry for acl_id, entry in table.items() if chooser.random() < 0.8}
        for count in range(chooser.randrange(4)):
            table[bytes([number, count]) * 8] = acl(
                chooser.choice(names),
                chooser.choice([LITERAL, PREFIXED]),
                operation=chooser.choice([READ, WRITE, ALL]),
                permission_type=chooser.choice([ALLOW, ALLOW, DENY]),
                resource_type=chooser.choice([TOPIC, GROUP]),
            )
        fresh = authorizer(*table.values())
        for kind, operation, name in itertools.product((TOPIC, GROUP), (READ, WRITE, DESCRIBE), (*names, "other")):
            asked = "User:a", HOST, operation, kind, name
            assert followed.allows(*asked) == fresh.allows(*asked)
            assert followed.allows_any(*asked[:4]) == fresh.allows_any(*asked[:4])


def test_a_change_of_one_of_many_entries_indexes_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {number.to_bytes(16, "big"): acl(f"t{number}", PREFIXED) for number in range(100)}
    indexed: list[tuple[str, bytes]] = []
    for name in ("add", "remove"):
        method = getattr(standard_authorizer._Entries, name)

        def noted(self: Any, acl_id: bytes, entry: Acl, name: str = name, method: Any = method) -> None:
            indexed.append((name, acl_id))
            method(self, acl_id, entry)

        monkeypatch.setattr(standard_authorizer._Entries, name, noted)
    table = dict(entries)
    followed = StandardAuthorizer(lambda: table, frozenset(), False)
    assert allowed(followed, "t7-x")
    indexed.clear()
    gone, new = (7).to_bytes(16, "big"), (200).to_bytes(16, "big")
    table = {acl_id: entry for acl_id, entry in entries.items() if acl_id != gone} | {new: acl("new")}
    assert not allowed(followed, "t7-x")
    assert allowed(followed, "new")
    assert indexed == [("remove", gone), ("add", new)]


def test_an_entry_that_takes_the_id_of_another_one_replaces_it() -> None:
    acl_id = bytes(16)
    table = {acl_id: acl("t1")}
    followed = StandardAuthorizer(lambda: table, frozenset(), False)
    assert allowed(followed, "t1")
    table = {acl_id: acl("t2")}
    assert not allowed(followed, "t1")
    assert allowed(followed, "t2")
