"""`pykbroker config ...`"""

from __future__ import annotations

from typing import Any

import click

from pykbroker.cli.client.cluster import Cluster
from pykbroker.cli.client.configs import DEFAULT, RESOURCE_TYPES
from pykbroker.cli.command_group import CommandGroup, suggestion
from pykbroker.cli.completion import names as completion
from pykbroker.cli.errors import CliError
from pykbroker.cli.options import Connect, cluster_options, json_option, parse_pairs
from pykbroker.cli.output import note, print_json, print_table

_RESOURCE = click.argument("resource_type", metavar="TYPE", type=click.Choice(list(RESOURCE_TYPES)))


@click.group(cls=CommandGroup)
def config() -> None:
    """Show and change settings of topics, brokers, the cluster, groups and client metrics."""


@config.command()
@_RESOURCE
@click.argument("words", nargs=-1, metavar="[NAME] [KEY...]", shell_complete=completion.config_words)
@click.option("--all", "show_all", is_flag=True, help="Every setting, not only those that differ from the default.")
@json_option
@cluster_options
def get(resource_type: str, words: tuple[str, ...], show_all: bool, as_json: bool, connect: Connect) -> None:
    """Show settings of a topic, broker, group, client-metrics subscription or broker-logger, by its NAME.

    The TYPE cluster has no NAME: its settings apply to all brokers that have no value of their own. Without a KEY the
    settings that differ from their defaults are shown.

    \b
    pykbroker config get topic orders
    pykbroker config get topic orders retention.ms cleanup.policy
    pykbroker config get broker 1 --all
    pykbroker config get cluster
    """
    name, keys = _split_name(resource_type, words)
    with connect() as cluster:
        found = cluster.configs(resource_type, name, keys or None)
        missing = [key for key in keys if key not in {item["name"] for item in found}]
        if missing:
            raise CliError(_missing(cluster, resource_type, name, missing[0]))
    if not keys and not show_all:
        found = [item for item in found if item["source"] != DEFAULT]
    if as_json:
        print_json({"resource_type": resource_type, "resource_name": name, "configs": found})
    elif not found:
        click.echo("no setting differs from its default")
    else:
        print_table(
            ["setting", "value", "source", "remark"],
            [[item["name"], _shown(item), item["source"], _remark(item)] for item in found],
        )


@config.command("set")
@_RESOURCE
@click.argument("words", nargs=-1, metavar="[NAME] [KEY=VALUE...]", shell_complete=completion.config_words)
@click.option(
    "--unset",
    multiple=True,
    metavar="KEY",
    shell_complete=completion.config_keys,
    help="Return a setting to its default; repeatable.",
)
@click.option("--append", multiple=True, metavar="KEY=VALUE", help="Add to a setting that is a list; repeatable.")
@click.option("--subtract", multiple=True, metavar="KEY=VALUE", help="Take from a setting that is a list; repeatable.")
@click.option("--dry-run", is_flag=True, help="Only let the cluster check the change.")
@cluster_options
def set_configs(
    resource_type: str,
    words: tuple[str, ...],
    unset: tuple[str, ...],
    append: tuple[str, ...],
    subtract: tuple[str, ...],
    dry_run: bool,
    connect: Connect,
) -> None:
    """Change settings, all together or none; those that are not named stay as they are.

    \b
    pykbroker config set topic orders retention.ms=86400000
    pykbroker config set topic orders --append cleanup.policy=compact --unset retention.ms
    pykbroker config set broker 1 log.cleaner.threads=2 --dry-run
    pykbroker config set cluster message.max.bytes=2000000
    pykbroker config set group shop consumer.session.timeout.ms=50000
    """
    name, pairs = _split_name(resource_type, words)
    changes = parse_pairs(pairs, "the setting")
    appended, subtracted = parse_pairs(append, "--append"), parse_pairs(subtract, "--subtract")
    keys = [*changes, *unset, *appended, *subtracted]
    if not keys:
        raise click.UsageError("nothing to change: give KEY=VALUE, --unset, --append or --subtract")
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise click.UsageError(f"{twice} is changed twice")
    with connect() as cluster:
        cluster.alter_configs(
            resource_type, name, changes, unset, append=appended, subtract=subtracted, validate_only=dry_run
        )
    if dry_run:
        note("the cluster accepts it; nothing was changed")
    else:
        click.echo(f"altered {resource_type} {name}".rstrip())


def _split_name(resource_type: str, words: tuple[str, ...]) -> tuple[str, list[str]]:
    """Returns the resource's name, empty for the cluster, and the words after it."""
    if resource_type == "cluster":
        return "", list(words)
    if not words or "=" in words[0]:
        raise click.UsageError(f"the name of the {resource_type} is missing")
    return words[0], list(words[1:])


def _missing(cluster: Cluster, resource_type: str, name: str, key: str) -> str:
    if resource_type == "cluster":
        return f"the cluster has no value for {key}: brokers have their own, see `pykbroker config get broker ID {key}`"
    known = [str(item["name"]) for item in cluster.configs(resource_type, name)]
    return f"{resource_type} {name} has no setting {key!r}.{suggestion(key, known)}"


def _shown(item: dict[str, Any]) -> str | None:
    return "(hidden)" if item["is_sensitive"] else item["value"]


def _remark(item: dict[str, Any]) -> str | None:
    return "read-only" if item["is_read_only"] else None
