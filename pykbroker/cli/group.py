"""`pykbroker group ...`"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pykbroker.cli.client.cluster import EARLIEST, LATEST, Cluster
from pykbroker.cli.command_group import CommandGroup
from pykbroker.cli.completion import names as completion
from pykbroker.cli.errors import CliError
from pykbroker.cli.options import Connect, cluster_options, execute_option, json_option, timestamp_ms
from pykbroker.cli.output import counted, print_changes, print_json, print_table
from pykbroker.cli.partitions import partitions_of
from pykbroker.protocol.topic_partition import TopicPartition

_PARTITION_KEYS = ("topic", "partition", "committed", "end_offset", "lag", "member_id", "client_id", "client_host")


@click.group(cls=CommandGroup)
def group() -> None:
    """List, describe, reset and delete groups: classic, consumer, share and Streams groups."""


@group.command("list")
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Only this type (classic, consumer, share, streams); repeatable.",
)
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only this state (Stable, Empty); repeatable.")
@json_option
@cluster_options
def list_groups(types: tuple[str, ...], states: tuple[str, ...], as_json: bool, connect: Connect) -> None:
    """List the groups."""
    with connect() as cluster:
        groups = cluster.groups()
    for key, wanted in (("group_type", types), ("group_state", states)):
        names = {name.lower() for name in wanted}
        groups = [item for item in groups if not names or str(item[key]).lower() in names]
    if as_json:
        print_json(groups)
    elif not groups:
        click.echo("no groups")
    else:
        print_table(
            ["group", "protocol type", "state", "type"],
            [
                [item["group_id"], item["protocol_type"] or None, item["group_state"], item["group_type"]]
                for item in groups
            ],
        )


@group.command()
@click.argument("group_id", metavar="GROUP", shell_complete=completion.groups)
@click.option("--members", is_flag=True, help="A line for each member, also for those without partitions.")
@json_option
@cluster_options
def describe(group_id: str, members: bool, as_json: bool, connect: Connect) -> None:
    """Show a group's state, committed offsets, lag, and the member that reads each partition."""
    with connect() as cluster:
        found = cluster.describe_group(group_id)
        committed = cluster.group_offsets(group_id, found["group_type"])
        _require_group(group_id, found, committed)
        owners = {
            (part["topic"], part["partition"]): member for member in found["members"] for part in member["partitions"]
        }
        partitions = sorted(set(committed) | set(owners))
        ends = _existing_offsets(cluster, partitions, LATEST)
    found["partitions"] = [_partition_row(item, committed, ends, owners) for item in partitions]
    for member in found["members"]:
        member["lag"] = _lag_of(member, found["partitions"])
    if as_json:
        print_json(found)
        return
    kind = "" if found["group_type"] in ("classic", "consumer") else f"{found['group_type']} "
    click.echo(f"{kind}group {group_id}: {found['group_state']}, {counted(len(found['members']), 'member')}")
    if members:
        _print_members(found)
    elif partitions:
        print_table(
            ["topic", "partition", "committed", "end offset", "lag", "member", "client", "host"],
            [[row[key] for key in _PARTITION_KEYS] for row in found["partitions"]],
        )


def _partition_row(
    topic_partition: TopicPartition,
    committed: dict[TopicPartition, int],
    ends: dict[TopicPartition, int | None],
    owners: dict[TopicPartition, dict[str, Any]],
) -> dict[str, Any]:
    offset, end, owner = committed.get(topic_partition), ends.get(topic_partition), owners.get(topic_partition, {})
    return {
        "topic": topic_partition[0],
        "partition": topic_partition[1],
        "committed": offset,
        "end_offset": end,
        "lag": None if offset is None or end is None else max(0, end - offset),
        "member_id": owner.get("member_id"),
        "client_id": owner.get("client_id"),
        "client_host": owner.get("client_host"),
    }


def _lag_of(member: dict[str, Any], partitions: list[dict[str, Any]]) -> int | None:
    """Returns the sum of a member's lags in its partitions, None if no lag is known."""
    lags = [row["lag"] for row in partitions if row["member_id"] == member["member_id"] and row["lag"] is not None]
    return sum(lags) if lags else None


def _print_members(found: dict[str, Any]) -> None:
    rows = []
    for member in found["members"]:
        parts = ", ".join(f"{part['topic']}-{part['partition']}" for part in member["partitions"])
        place = [member[key] for key in ("member_id", "group_instance_id", "client_id", "client_host")]
        tasks = member.get("tasks")
        rows.append([*place, member["lag"], parts or None, *(() if tasks is None else (_tasks(tasks),))])
    headings = ["member", "instance", "client", "host", "lag", "partitions"]
    print_table(headings + (["tasks"] if found["group_type"] == "streams" else []), rows)


def _tasks(tasks: dict[str, list[str]]) -> str | None:
    """Returns a member's tasks in one line, those of standby and of warm-up in brackets; None if it has none."""
    parts = tasks["active"] + [f"{task} ({kind})" for kind in ("standby", "warmup") for task in tasks[kind]]
    return ", ".join(parts) or None


@group.command("reset-offsets")
@click.argument("group_id", metavar="GROUP", shell_complete=completion.groups)
@click.option(
    "--topic",
    "-t",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,1]",
    shell_complete=completion.topics,
    help="Only these; repeatable.",
)
@click.option("--all-topics", is_flag=True, help="Every partition the group has committed for.")
@click.option("--to-earliest", is_flag=True, help="To the oldest record.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-offset", type=click.IntRange(min=0), help="To this offset.")
@click.option(
    "--to-timestamp",
    metavar="TIME",
    callback=timestamp_ms,
    help="To the first record at or after this time (ms or ISO 8601).",
)
@click.option("--shift-by", type=int, help="This many records on, or back if negative.")
@execute_option
@json_option
@cluster_options
def reset_offsets(
    group_id: str,
    topics: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_timestamp: int | None,
    shift_by: int | None,
    execute: bool,
    as_json: bool,
    connect: Connect,
) -> None:
    """Move a group's committed offsets, or where a share group starts. Shows what would change; `--execute` does it.

    The group must have no running members. Offsets are kept within what each partition holds.
    """
    targets = [to_earliest, to_latest, to_offset is not None, to_timestamp is not None, shift_by is not None]
    if sum(targets) != 1:
        raise click.UsageError("give one of --to-earliest, --to-latest, --to-offset, --to-timestamp, --shift-by")
    if bool(topics) == all_topics:
        raise click.UsageError("give either --topic or --all-topics")
    with connect() as cluster:
        found = cluster.describe_group(group_id)
        if found["members"]:
            raise CliError(f"group {group_id} has {len(found['members'])} running members: stop them first")
        committed = cluster.group_offsets(group_id, found["group_type"])
        if all_topics:
            _require_group(group_id, found, committed)
        partitions = sorted(committed) if all_topics else partitions_of(cluster, topics, "--topic")
        first = _existing_offsets(cluster, partitions, EARLIEST)
        ends = _existing_offsets(cluster, partitions, LATEST)
        later = _existing_offsets(cluster, partitions, to_timestamp) if to_timestamp is not None else {}
        partitions = [item for item in partitions if item in ends]
        new = {
            item: _new_offset(
                first[item] or 0,
                ends[item] or 0,
                wanted=_wanted(to_earliest, to_offset, shift_by, committed.get(item), later.get(item)),
            )
            for item in partitions
        }
        if execute and new:
            cluster.alter_group_offsets(group_id, found["group_type"], new)
    rows = [(*item, committed.get(item), new[item]) for item in partitions]
    print_changes(("topic", "partition", "committed", "new_offset"), rows, is_executed=execute, as_json=as_json)


def _wanted(
    to_earliest: bool, to_offset: int | None, shift_by: int | None, committed: int | None, later: int | None
) -> int | None:
    """Returns the requested offset, None for the end of the partition."""
    if to_earliest:
        return 0
    if to_offset is not None:
        return to_offset
    if shift_by is not None:
        # Without a committed offset there is nothing to shift: the partition goes to the end.
        return None if committed is None else committed + shift_by
    return later


def _new_offset(first: int, end: int, *, wanted: int | None) -> int:
    return end if wanted is None else min(max(wanted, first), end)


@group.command()
@click.argument("group_ids", nargs=-1, required=True, metavar="GROUP...", shell_complete=completion.groups)
@cluster_options
def delete(group_ids: tuple[str, ...], connect: Connect) -> None:
    """Delete groups that have no members, with their committed offsets."""
    reasons: dict[str, Callable[[str], str]] = {
        "GroupIdNotFoundError": "{} does not exist".format,
        "NonEmptyGroupError": "{} has running members".format,
    }
    failures = []
    with connect() as cluster:
        for group_id in group_ids:
            error = cluster.delete_group(group_id)
            if error is None:
                click.echo(f"deleted group {group_id}")
            else:
                failures.append(reasons[error](group_id) if error in reasons else f"{group_id}: {error}")
    if failures:
        raise CliError("not deleted: " + "; ".join(failures))


def _require_group(group_id: str, found: dict[str, Any], committed: dict[TopicPartition, int]) -> None:
    if found["group_state"] == "Dead" and not committed:
        raise CliError(f"group {group_id} does not exist")


def _existing_offsets(
    cluster: Cluster, partitions: list[TopicPartition], timestamp: int
) -> dict[TopicPartition, int | None]:
    """Returns offsets of the partitions that exist and have a leader: a group may have commits for a deleted topic."""
    known = {
        (item["name"], part["partition"])
        for item in cluster.topics()
        for part in item["partitions"]
        if part["leader"] >= 0
    }
    return cluster.offsets([item for item in partitions if item in known], timestamp)
