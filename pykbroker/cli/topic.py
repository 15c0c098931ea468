"""`pykbroker topic ...`"""

from __future__ import annotations

from typing import Any

import click

from pykbroker.cli.client.cluster import EARLIEST, LATEST
from pykbroker.cli.command_group import CommandGroup
from pykbroker.cli.completion import names as completion
from pykbroker.cli.errors import CliError
from pykbroker.cli.options import Connect, cluster_options, json_option, parse_pairs
from pykbroker.cli.output import print_json, print_rows, print_table
from pykbroker.cli.topic_trim import trim

_TOPIC_ALREADY_EXISTS = 36
_UNKNOWN_TOPIC_OR_PARTITION = 3


@click.group(cls=CommandGroup)
def topic() -> None:
    """Create, list, describe, alter, trim and delete topics."""


topic.add_command(trim)


@topic.command()
@click.argument("name")
@click.option("--partitions", "-p", type=click.IntRange(min=1), help="Number of partitions [default: the broker's].")
@click.option("--replication-factor", "-r", type=click.IntRange(min=1), help="Copies of each [default: the broker's].")
@click.option(
    "--config",
    "-c",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=completion.topic_pairs,
    help="A topic setting; repeatable.",
)
@click.option("--if-not-exists", is_flag=True, help="Succeed when the topic is there already.")
@json_option
@cluster_options
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    as_json: bool,
    connect: Connect,
) -> None:
    """Create a topic."""
    settings = parse_pairs(configs, "--config")
    with connect() as cluster:
        error_code, words = cluster.create_topic(name, partitions or -1, replication_factor or -1, settings)
    if error_code and not (if_not_exists and error_code == _TOPIC_ALREADY_EXISTS):
        raise CliError(f"topic {name} was not created: {words}")
    if as_json:
        print_json({"name": name, "created": not error_code})
    else:
        click.echo(f"topic {name} exists already" if error_code else f"created topic {name}")


@topic.command("list")
@click.option("--internal", is_flag=True, help="Also the cluster's own topics, such as __consumer_offsets.")
@json_option
@cluster_options
def list_topics(internal: bool, as_json: bool, connect: Connect) -> None:
    """List the topics."""
    with connect() as cluster:
        topics = [item for item in cluster.topics() if internal or not item["is_internal"]]
    rows = [
        {
            "name": item["name"],
            "partitions": len(item["partitions"]),
            "replication_factor": max((len(partition["replicas"]) for partition in item["partitions"]), default=0),
            "topic_id": item["topic_id"],
            "is_internal": item["is_internal"],
        }
        for item in topics
    ]
    columns = {"topic": "name", "partitions": "partitions", "replicas": "replication_factor"}
    print_rows(rows, columns, as_json=as_json, if_none="no topics")


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=completion.topics)
@click.option("--all-configs", is_flag=True, help="Every setting with its value, not only those set on the topic.")
@json_option
@cluster_options
def describe(names: tuple[str, ...], all_configs: bool, as_json: bool, connect: Connect) -> None:
    """Show partitions, offsets and settings of topics."""
    with connect() as cluster:
        topics = cluster.describe_topics(names)
        configs = cluster.topic_configs(names, modified_only=not all_configs)
        # A partition without a leader has no offsets to show; the rest of the topic is shown all the same.
        partitions = [
            (item["name"], part["partition"]) for item in topics for part in item["partitions"] if part["leader"] >= 0
        ]
        first = cluster.offsets(partitions, EARLIEST)
        end = cluster.offsets(partitions, LATEST)
    for item in topics:
        item["configs"] = configs.get(item["name"], {})
        for part in item["partitions"]:
            key = (item["name"], part["partition"])
            part["start_offset"], part["end_offset"] = first.get(key), end.get(key)
    if as_json:
        print_json(topics)
        return
    for item in topics:
        _print_topic(item)


def _print_topic(item: dict[str, Any]) -> None:
    click.echo(f"topic {item['name']}  id {item['topic_id'] or '-'}")
    for key, value in sorted(item["configs"].items()):
        click.echo(f"  {key}={value}")
    print_table(
        ["partition", "leader", "replicas", "in sync", "start offset", "end offset"],
        [
            [
                part["partition"],
                part["leader"] if part["leader"] >= 0 else "none",
                ",".join(map(str, part["replicas"])),
                ",".join(map(str, part["isr"])),
                part["start_offset"],
                part["end_offset"],
            ]
            for part in item["partitions"]
        ],
    )


@topic.command()
@click.argument("name", shell_complete=completion.topics)
@click.option("--partitions", "-p", type=click.IntRange(min=1), help="Grow to this many partitions.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=completion.topic_pairs,
    help="Set a topic setting; repeatable.",
)
@click.option(
    "--unset",
    multiple=True,
    metavar="KEY",
    shell_complete=completion.topic_keys,
    help="Return a setting to the broker's default; repeatable.",
)
@cluster_options
def alter(
    name: str,
    partitions: int | None,
    changes: tuple[str, ...],
    unset: tuple[str, ...],
    connect: Connect,
) -> None:
    """Add partitions to a topic or change its settings."""
    settings = parse_pairs(changes, "--set")
    if partitions is None and not settings and not unset:
        raise click.UsageError("nothing to change: give --partitions, --set or --unset")
    with connect() as cluster:
        if settings or unset:
            cluster.alter_configs("topic", name, settings, unset)
        if partitions is not None:
            error_code, words = cluster.create_partitions(name, partitions)
            if error_code:
                raise CliError(f"topic {name} was not changed: {words}")
    click.echo(f"altered topic {name}")


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=completion.topics)
@click.option("--if-exists", is_flag=True, help="Succeed when a topic is not there.")
@cluster_options
def delete(names: tuple[str, ...], if_exists: bool, connect: Connect) -> None:
    """Delete topics with all their records."""
    failures = []
    with connect() as cluster:
        for name in names:
            error_code, words = cluster.delete_topic(name)
            if not error_code:
                click.echo(f"deleted topic {name}")
            elif error_code == _UNKNOWN_TOPIC_OR_PARTITION and if_exists:
                click.echo(f"topic {name} does not exist")
            elif error_code == _UNKNOWN_TOPIC_OR_PARTITION:
                failures.append(f"{name} does not exist")
            else:
                failures.append(f"{name}: {words}")
    if failures:
        raise CliError("not deleted: " + "; ".join(failures))
