"""`pykbroker topic trim`"""

from __future__ import annotations

import click

from pykbroker.cli.client.cluster import EARLIEST, LATEST
from pykbroker.cli.completion import names as completion
from pykbroker.cli.errors import CliError
from pykbroker.cli.options import Connect, cluster_options, execute_option, json_option, timestamp_ms
from pykbroker.cli.output import print_changes
from pykbroker.cli.partitions import partitions_of
from pykbroker.protocol.topic_partition import TopicPartition


@click.command()
@click.argument("name", metavar="TOPIC", shell_complete=completion.topics)
@click.option("--offset", metavar="N", help="Remove the records before this offset; latest removes all.")
@click.option(
    "--timestamp",
    metavar="TIME",
    callback=timestamp_ms,
    help="Remove the records before the first one at or after this time (ms or ISO 8601).",
)
@click.option(
    "--partition", "-p", "numbers", type=click.IntRange(min=0), multiple=True, help="Only this partition; repeatable."
)
@execute_option
@json_option
@cluster_options
def trim(
    name: str,
    offset: str | None,
    timestamp: int | None,
    numbers: tuple[int, ...],
    execute: bool,
    as_json: bool,
    connect: Connect,
) -> None:
    """Remove the oldest records of a topic. Shows what would go; `--execute` does it.

    Records are gone for every reader, at once. Offsets of other records stay as they are.

    \b
    pykbroker topic trim orders --offset 5000 -p 0
    pykbroker topic trim orders --timestamp 2026-01-31T12:00 --execute
    """
    if (offset is None) == (timestamp is None):
        raise click.UsageError("give either --offset or --timestamp")
    number = None if offset is None else _parsed(offset)
    with connect() as cluster:
        text = f"{name}:{','.join(map(str, numbers))}" if numbers else name
        partitions = partitions_of(cluster, [text], "--partition")
        [policy] = cluster.configs("topic", name, ["cleanup.policy"])
        if "delete" not in str(policy["value"]):
            raise CliError(f"topic {name} has cleanup.policy={policy['value']}: only delete lets records be removed")
        first, ends = cluster.offsets(partitions, EARLIEST), cluster.offsets(partitions, LATEST)
        later = cluster.offsets(partitions, timestamp) if timestamp is not None else {}
        new = {
            item: _new_start(item, first[item] or 0, ends[item] or 0, number if timestamp is None else later[item])
            for item in partitions
        }
        changed = {item: start for item, start in new.items() if start > (first[item] or 0)}
        if execute and changed:
            new |= cluster.delete_records(changed)
    keys = ("topic", "partition", "start_offset", "end_offset", "new_start_offset")
    rows = [(*item, first[item], ends[item], new[item]) for item in partitions]
    print_changes(keys, rows, is_executed=execute, as_json=as_json)


def _parsed(offset: str) -> int | None:
    """Returns the number of `--offset`, None for the end."""
    if offset == "latest":
        return None
    if not (offset.isascii() and offset.isdigit()):
        raise click.UsageError(f"--offset {offset!r}: expected a number or latest")
    return int(offset)


def _new_start(topic_partition: TopicPartition, first: int, end: int, wanted: int | None) -> int:
    """Returns the new start offset; with `wanted` None (the end, or no record that late) all records are removed."""
    if wanted is not None and wanted > end:
        raise CliError(
            f"offset {wanted} is beyond the end of {topic_partition[0]}-{topic_partition[1]}, which is {end}"
        )
    return end if wanted is None else max(wanted, first)
