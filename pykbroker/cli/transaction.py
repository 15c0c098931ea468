"""`pykbroker transaction ...`"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import click

from pykbroker.cli.client.cluster import Cluster
from pykbroker.cli.client.hanging_transactions import find_hanging, owner_of
from pykbroker.cli.command_group import CommandGroup
from pykbroker.cli.completion import names as completion
from pykbroker.cli.errors import CliError
from pykbroker.cli.options import Connect, cluster_options, execute_option, json_option
from pykbroker.cli.output import NOTHING_CHANGED, headings, note, print_json, print_rows, print_table
from pykbroker.cli.partitions import partitions_of
from pykbroker.protocol.topic_partition import TopicPartition
from pykbroker.transactions.states import STATES_BY_TITLE

_PRODUCER_KEYS = (
    "topic",
    "partition",
    "producer_id",
    "producer_epoch",
    "coordinator_epoch",
    "last_sequence",
    "start_offset",
)
_PRODUCER_COLUMNS = dict(zip(headings(_PRODUCER_KEYS), _PRODUCER_KEYS, strict=True))


@click.group(cls=CommandGroup)
def transaction() -> None:
    """List, describe and abort transactions."""


@transaction.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(list(STATES_BY_TITLE), case_sensitive=False),
    help="Only in this state; repeatable.",
)
@click.option("--producer-id", "producer_ids", type=int, multiple=True, help="Only of this producer; repeatable.")
@click.option(
    "--longer-than",
    "longer_than_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Only transactions that are open for longer (Apache Kafka 3.8 and later).",
)
@click.option("--pattern", metavar="REGEX", help="Only ids that match it as a whole (Apache Kafka 4.1 and later).")
@json_option
@cluster_options
def list_transactions(
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than_s: float | None,
    pattern: str | None,
    as_json: bool,
    connect: Connect,
) -> None:
    """List the transactional ids, each with the state of its newest transaction."""
    longer_than_ms = None if longer_than_s is None else round(longer_than_s * 1000)
    with connect() as cluster:
        rows = cluster.transactions(states, producer_ids, longer_than_ms, pattern)
    columns = {
        "transactional id": "transactional_id",
        "coordinator": "coordinator_id",
        "producer id": "producer_id",
        "state": "state",
    }
    print_rows(rows, columns, as_json=as_json, if_none="no transactions")


@transaction.command()
@click.argument("transactional_id", metavar="ID", shell_complete=completion.transactional_ids)
@json_option
@cluster_options
def describe(transactional_id: str, as_json: bool, connect: Connect) -> None:
    """Show the newest transaction of a transactional id, and its partitions while it is open."""
    with connect() as cluster:
        found = _known(cluster, transactional_id)
    if as_json:
        print_json(found)
    else:
        _print_transaction(found)


@transaction.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC[:0,1]...", shell_complete=completion.topics)
@json_option
@cluster_options
def producers(topics: tuple[str, ...], as_json: bool, connect: Connect) -> None:
    """Show the idempotent and transactional producers of partitions, with the start of their open transactions."""
    with connect() as cluster:
        found = cluster.producers(partitions_of(cluster, topics, "TOPIC"))
    rows = [
        {"topic": topic_partition[0], "partition": topic_partition[1], **item}
        for topic_partition in sorted(found)
        for item in found[topic_partition]
    ]
    print_rows(rows, _PRODUCER_COLUMNS, as_json=as_json, if_none="no producers")


@transaction.command("find-hanging")
@click.argument("topics", nargs=-1, metavar="[TOPIC[:0,1]...]", shell_complete=completion.topics)
@click.option(
    "--longer-than",
    "longer_than_s",
    type=click.FloatRange(min=0),
    default=900.0,
    show_default=True,
    metavar="SECONDS",
    help="Only transactions without a record for longer; the default is that of transaction.max.timeout.ms.",
)
@json_option
@cluster_options
def find_hanging_transactions(topics: tuple[str, ...], longer_than_s: float, as_json: bool, connect: Connect) -> None:
    """Find transactions that are open in a partition and that no coordinator will end; in all topics by default."""
    with connect() as cluster:
        names = topics or tuple(item["name"] for item in cluster.topics())
        partitions = partitions_of(cluster, names, "TOPIC") if names else []
        rows = find_hanging(cluster, partitions, round(time.time() * 1000 - longer_than_s * 1000))
    print_rows(rows, _PRODUCER_COLUMNS, as_json=as_json, if_none="no hanging transactions")


@transaction.command()
@click.argument("transactional_id", required=False, metavar="[ID]", shell_complete=completion.transactional_ids)
@click.option(
    "--topic",
    "-t",
    metavar="TOPIC",
    shell_complete=completion.topics,
    help="Abort a hanging transaction in a partition of this topic.",
)
@click.option("--partition", "-p", type=click.IntRange(min=0), help="The partition.")
@click.option(
    "--start-offset", type=click.IntRange(min=0), help="First offset of the transaction, as find-hanging says."
)
@click.option("--producer-id", type=click.IntRange(min=0), help="Its producer, in place of the offset.")
@click.option("--force", is_flag=True, help="With --topic: abort it even if a coordinator will end it.")
@execute_option
@json_option
@cluster_options
def abort(
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    producer_id: int | None,
    force: bool,
    execute: bool,
    as_json: bool,
    connect: Connect,
) -> None:
    """Abort a transaction. Shows which; `--execute` does it.

    By its transactional ID: the coordinator aborts it in all partitions and fences the producer. A hanging transaction,
    which no coordinator has any more, is aborted by partition and start offset.

    \b
    pykbroker transaction abort shop-1 --execute
    pykbroker transaction abort --topic orders --partition 0 --start-offset 17 --execute
    """
    in_partition = topic is not None and partition is not None and (start_offset is None) != (producer_id is None)
    is_mixed = any(item is not None for item in (topic, partition, start_offset, producer_id)) or force
    if is_mixed == (transactional_id is not None):
        raise click.UsageError("give either an ID or --topic, --partition and --start-offset or --producer-id")
    if is_mixed and not in_partition:
        raise click.UsageError("give --topic, --partition and one of --start-offset and --producer-id")
    with connect() as cluster:
        if transactional_id is not None:
            shown = _abort_at_coordinator(cluster, transactional_id, execute)
        else:
            assert topic is not None
            assert partition is not None
            shown = _abort_in_partition(cluster, (topic, partition), start_offset, producer_id, force, execute)
    if as_json:
        print_json({"executed": execute, "transaction": shown})
        return
    if transactional_id is not None:
        _print_transaction(shown)
    else:
        print_rows([shown], _PRODUCER_COLUMNS, as_json=False, if_none="")
    note("aborted" if execute else NOTHING_CHANGED)


def _abort_at_coordinator(cluster: Cluster, transactional_id: str, execute: bool) -> dict[str, Any]:
    found = _known(cluster, transactional_id)
    if found["state"] != "Ongoing":
        raise CliError(f"transactional id {transactional_id} has no open transaction, it is {found['state']}")
    if execute:
        cluster.fence_producer(transactional_id)
    return found


def _abort_in_partition(
    cluster: Cluster,
    topic_partition: TopicPartition,
    start_offset: int | None,
    producer_id: int | None,
    force: bool,
    execute: bool,
) -> dict[str, Any]:
    [known] = partitions_of(cluster, (f"{topic_partition[0]}:{topic_partition[1]}",), "--topic")
    found = [
        item
        for item in cluster.producers([known])[known]
        if item["start_offset"] is not None
        and (item["start_offset"] == start_offset if producer_id is None else item["producer_id"] == producer_id)
    ]
    if not found:
        sought = f"producer {producer_id}" if producer_id is not None else f"start offset {start_offset}"
        raise CliError(f"{topic_partition[0]}-{topic_partition[1]} has no open transaction with {sought}")
    [item] = found
    owner = None if force else owner_of(cluster, topic_partition, item["producer_id"])
    if owner is not None:
        raise CliError(
            f"the transaction is not a hanging one, its coordinator will end it: `pykbroker transaction abort {owner}` "
            "aborts it in all its partitions"
        )
    if execute:
        cluster.abort_in_partition(
            topic_partition, item["producer_id"], item["producer_epoch"], item["coordinator_epoch"]
        )
    return {"topic": topic_partition[0], "partition": topic_partition[1], **item}


def _known(cluster: Cluster, transactional_id: str) -> dict[str, Any]:
    found = cluster.describe_transaction(transactional_id)
    if found is None:
        raise CliError(f"transactional id {transactional_id} does not exist")
    return found


def _print_transaction(found: dict[str, Any]) -> None:
    began = ""
    if found["start_ms"] is not None:
        began = "  began " + datetime.fromtimestamp(found["start_ms"] / 1000).astimezone().isoformat(" ", "seconds")
    click.echo(f"transactional id {found['transactional_id']}: {found['state']}{began}")
    click.echo(
        f"  coordinator {found['coordinator_id']}  producer id {found['producer_id']} epoch {found['producer_epoch']}"
        f"  timeout {found['timeout_ms'] / 1000:g} s"
    )
    if found["partitions"]:
        print_table(["topic", "partition"], [[part["topic"], part["partition"]] for part in found["partitions"]])
