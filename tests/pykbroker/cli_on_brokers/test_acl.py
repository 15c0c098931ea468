"""`pykbroker acl` on any Kafka with an authorizer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.command_line import Cli

Name = Callable[[], str]


def short(entries: list[dict[str, str]]) -> list[tuple[str, ...]]:
    keys = ("resource_type", "resource_name", "pattern_type", "host", "operation", "permission")
    return [tuple(item[key] for key in keys) for item in entries]


def test_the_life_of_entries(cli: Cli, new_name: Name) -> None:
    user = f"User:{new_name()}"
    words = ["--principal", user, "--operation", "read", "--operation", "describe"]
    added = cli.json("acl", "add", *words, "--topic", "orders", "--group", "shop", "--host", "10.0.0.1")
    assert len(added) == 4
    listed = cli.json("acl", "list", "--principal", user)
    assert cli.ask("acl", "list", "--principal", user).count(user) == 4
    assert short(listed) == [
        ("group", "shop", "literal", "10.0.0.1", "describe", "allow"),
        ("group", "shop", "literal", "10.0.0.1", "read", "allow"),
        ("topic", "orders", "literal", "10.0.0.1", "describe", "allow"),
        ("topic", "orders", "literal", "10.0.0.1", "read", "allow"),
    ]
    assert listed[0]["principal"] == user
    assert short(cli.json("acl", "list", "--principal", user, "--topic", "orders", "--operation", "read")) == [
        ("topic", "orders", "literal", "10.0.0.1", "read", "allow")
    ]
    # Shown first, removed on demand.
    words = ["acl", "remove", "--principal", user, "--topic", "orders"]
    code, output, errors = cli.run(*words)
    assert (code, errors) == (0, "nothing was changed: add --execute to do it\n")
    assert output.count("orders") == 2
    assert len(cli.json("acl", "list", "--principal", user)) == 4
    done = cli.json(*words, "--execute")
    assert done["executed"]
    assert short(done["entries"]) == short(listed[2:])
    assert short(cli.json("acl", "list", "--principal", user)) == short(listed[:2])
    assert cli.run("acl", "remove", "--principal", user, "--execute")[2] == "removed 2 entries\n"
    assert cli.ask("acl", "list", "--principal", user) == "no entries\n"
    assert cli.run("acl", "remove", "--principal", user, "--execute")[::2] == (
        1,
        "pykbroker: no ACL entry matches the options\n",
    )


def test_prefixes_wildcards_and_denials(cli: Cli, new_name: Name) -> None:
    user, prefix = f"User:{new_name()}", new_name()
    words = ["acl", "add", "--principal", user, "--operation", "write"]
    cli.ask(*words, "--topic", prefix, "--prefixed")
    cli.ask(*words, "--topic", "*", "--deny")
    cli.ask(*words, "--topic", f"{prefix}-1")
    every = [
        ("topic", "*", "literal", "*", "write", "deny"),
        ("topic", prefix, "prefixed", "*", "write", "allow"),
        ("topic", f"{prefix}-1", "literal", "*", "write", "allow"),
    ]

    def found(*more: str) -> list[tuple[str, ...]]:
        return short(cli.json("acl", "list", "--principal", user, *more))

    assert found() == every
    assert found("--topic", f"{prefix}-1") == every[2:]
    assert found("--topic", f"{prefix}-1", "--pattern", "match") == every
    assert found("--topic", f"{prefix}-2", "--pattern", "match") == every[:2]
    assert found("--pattern", "prefixed") == every[1:2]
    assert found("--deny") == every[:1]
    assert found("--allow") == every[1:]
    cli.ask("acl", "remove", "--principal", user, "--execute")


def test_every_kind_of_resource(cli: Cli, new_name: Name) -> None:
    user = f"User:{new_name()}"
    words = ["acl", "add", "--principal", user, "--operation", "describe"]
    cli.ask(*words, "--cluster", "--transactional-id", "tx", "--delegation-token", "token")
    cli.ask("acl", "add", "--principal", user, "--operation", "create-tokens", "--user", user)
    assert [
        (item["resource_type"], item["resource_name"]) for item in cli.json("acl", "list", "--principal", user)
    ] == [
        ("cluster", "kafka-cluster"),
        ("delegation-token", "token"),
        ("transactional-id", "tx"),
        ("user", user),
    ]
    assert len(cli.json("acl", "list", "--principal", user, "--cluster")) == 1
    cli.ask("acl", "remove", "--principal", user, "--execute")


def test_refusals_in_the_brokers_words(cli: Cli) -> None:
    code, _, errors = cli.run("acl", "add", "--principal", "User:a", "--operation", "cluster-action", "--topic", "")
    assert code == 1
    assert errors.startswith("pykbroker: ACL entry not added: allow User:a from * to cluster-action topic  (literal): ")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["add", "--principal", "User:a", "--operation", "read"], "name a resource"),
        (["add", "--principal", "alice", "--operation", "read", "--topic", "t"], "expected User:NAME"),
        (["add", "--principal", "User:a", "--topic", "t"], "Missing option '--operation'"),
        (["add", "--principal", "User:a", "--operation", "all", "--cluster", "--prefixed"], "has no name"),
        (["remove"], "name the entries to remove by options, or give --all"),
        (["remove", "--execute"], "name the entries to remove by options, or give --all"),
        (["remove", "--topic", "t", "--all"], "name the entries to remove by options, or give --all"),
    ],
)
def test_wrong_usage(cli: Cli, words: list[str], text: str) -> None:
    code, _, errors = cli.run("acl", *words)
    assert code == 2
    assert text in errors
