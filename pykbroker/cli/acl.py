"""`pykbroker acl ...`"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, TypeVar

import click

from pykbroker.cli.client.acls import OPERATIONS, Entry
from pykbroker.cli.command_group import CommandGroup
from pykbroker.cli.completion import names as completion
from pykbroker.cli.errors import CliError
from pykbroker.cli.options import Connect, cluster_options, execute_option, json_option
from pykbroker.cli.output import NOTHING_CHANGED, counted, headings, note, print_json, print_rows
from pykbroker.protocol.acl_codes import CLUSTER_NAME

Command = TypeVar("Command", bound=Callable[..., Any])

_KEYS = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
_COLUMNS = dict(zip(headings(_KEYS), _KEYS, strict=True))
_OPERATIONS = [name for name in OPERATIONS if name != "any"]
_OPERATION_CHOICE = click.Choice(_OPERATIONS, case_sensitive=False)


@click.group(cls=CommandGroup)
def acl() -> None:
    """List, add and remove access control entries."""


def _resource_options(command: Command) -> Command:
    """Adds the options that name resources; the command gets them as `topics`, `groups` and so on."""
    for name, variable, words, completer in (
        ("--user", "users", "User whose delegation tokens the entry is about; repeatable.", None),
        ("--delegation-token", "tokens", "Delegation token; repeatable.", None),
        ("--transactional-id", "transactional_ids", "Transactional id; repeatable.", completion.transactional_ids),
        ("--group", "groups", "Consumer group; repeatable.", completion.groups),
        ("--topic", "topics", "Topic; repeatable. * stands for all.", completion.topics),
    ):
        command = click.option(name, variable, multiple=True, metavar="NAME", help=words, shell_complete=completer)(
            command
        )
    return click.option("--cluster", "is_cluster", is_flag=True, help="The cluster itself.")(command)


def _filter_options(command: Command) -> Command:
    """Adds the options with which `list` and `remove` select entries."""
    command = click.option(
        "--pattern",
        "pattern_type",
        type=click.Choice(["any", "literal", "prefixed", "match"]),
        default="any",
        show_default=True,
        help="Pattern type of the entry; match: every entry that applies to a resource of this name.",
    )(command)
    command = click.option("--deny", "permission", flag_value="deny", help="Only entries that deny.")(command)
    command = click.option("--allow", "permission", flag_value="allow", help="Only entries that allow.")(command)
    command = _resource_options(command)
    command = click.option(
        "--operation",
        "operations",
        multiple=True,
        type=_OPERATION_CHOICE,
        metavar="NAME",
        help="Only this operation; repeatable.",
    )(command)
    command = click.option("--host", "hosts", multiple=True, metavar="ADDRESS", help="Only this host; repeatable.")(
        command
    )
    return click.option(
        "--principal", "principals", multiple=True, metavar="User:NAME", help="Only this principal; repeatable."
    )(command)


@acl.command("list")
@_filter_options
@json_option
@cluster_options
def list_entries(as_json: bool, connect: Connect, **options: Any) -> None:
    """List the entries, or those that the options name.

    \b
    pykbroker acl list
    pykbroker acl list --principal User:alice
    pykbroker acl list --topic orders --pattern match
    """
    with connect() as cluster:
        found = cluster.acls(_filters(options))
    print_rows(found, _COLUMNS, as_json=as_json, if_none="no entries")


@acl.command()
@click.option(
    "--principal",
    "principals",
    multiple=True,
    required=True,
    metavar="User:NAME",
    help="User that the entry is about; repeatable. User:* stands for all.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    default=("*",),
    show_default=True,
    metavar="ADDRESS",
    help="Address that the user connects from; repeatable. * stands for all.",
)
@click.option(
    "--operation",
    "operations",
    multiple=True,
    required=True,
    type=_OPERATION_CHOICE,
    metavar="NAME",
    help=f"May do this; repeatable: {', '.join(_OPERATIONS)}.",
)
@_resource_options
@click.option("--prefixed", is_flag=True, help="The names are prefixes of names.")
@click.option("--deny", is_flag=True, help="Deny the operation; that overrides entries that allow it.")
@json_option
@cluster_options
def add(prefixed: bool, deny: bool, as_json: bool, connect: Connect, **options: Any) -> None:
    """Add an entry for each principal, host, operation and resource that the options name.

    \b
    pykbroker acl add --principal User:alice --operation read --topic orders --group shop
    pykbroker acl add --principal User:bob --operation write --operation create --topic bob- --prefixed
    pykbroker acl add --principal User:eve --operation all --topic '*' --deny
    """
    resources = _resources(options)
    if not resources:
        raise click.UsageError("name a resource: --topic, --group, --transactional-id, --cluster, ...")
    if prefixed and options["is_cluster"]:
        raise click.UsageError("--cluster has no name that could be --prefixed")
    for principal in options["principals"]:
        if ":" not in principal:
            raise click.UsageError(f"--principal {principal!r}: expected User:NAME")
    entries = [
        _entry(resource, "prefixed" if prefixed else "literal", principal, host, operation, "deny" if deny else "allow")
        for resource, principal, host, operation in product(
            resources, options["principals"], options["hosts"], options["operations"]
        )
    ]
    with connect() as cluster:
        cluster.create_acls(entries)
    print_rows(entries, _COLUMNS, as_json=as_json, if_none="")
    if not as_json:
        note(f"added {counted(len(entries), 'entry', 'entries')}")


@acl.command()
@_filter_options
@click.option("--all", "is_all", is_flag=True, help="Every entry: for a command without other options.")
@execute_option
@json_option
@cluster_options
def remove(is_all: bool, execute: bool, as_json: bool, connect: Connect, **options: Any) -> None:
    """Remove the entries that the options name. Shows which; `--execute` does it.

    \b
    pykbroker acl remove --principal User:alice --topic orders
    pykbroker acl remove --principal User:alice --topic orders --execute
    """
    is_narrowed = any(value for name, value in options.items() if name != "pattern_type")
    if is_narrowed == is_all:
        raise click.UsageError("name the entries to remove by options, or give --all")
    filters = _filters(options)
    with connect() as cluster:
        found = cluster.delete_acls(filters) if execute else cluster.acls(filters)
    if as_json:
        print_json({"executed": execute, "entries": found})
        return
    if not found:
        raise CliError("no ACL entry matches the options")
    print_rows(found, _COLUMNS, as_json=False, if_none="")
    note(f"removed {counted(len(found), 'entry', 'entries')}" if execute else NOTHING_CHANGED)


def _resources(options: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns the types and names that the options name."""
    types = {
        "topic": "topics",
        "group": "groups",
        "transactional-id": "transactional_ids",
        "delegation-token": "tokens",
        "user": "users",
    }
    found = [(resource_type, name) for resource_type, variable in types.items() for name in options[variable]]
    return [*found, ("cluster", CLUSTER_NAME)] if options["is_cluster"] else found


def _filters(options: dict[str, Any]) -> list[Entry]:
    """Returns one filter for each combination of the resources, principals, hosts and operations in the options."""
    resources: list[tuple[str | None, str | None]] = [*_resources(options)] or [(None, None)]
    return [
        _entry(resource, options["pattern_type"], principal, host, operation, options["permission"])
        for resource, principal, host, operation in product(
            resources,
            options["principals"] or [None],
            options["hosts"] or [None],
            options["operations"] or [None],
        )
    ]


def _entry(
    resource: tuple[str | None, str | None],
    pattern_type: str,
    principal: str | None,
    host: str | None,
    operation: str | None,
    permission: str | None,
) -> Entry:
    values = (*resource, pattern_type, principal, host, operation, permission)
    return dict(zip(_KEYS, values, strict=True))
