"""`pykbroker cluster ...`"""

from __future__ import annotations

import time
from typing import Any

import click

from pykbroker.cli.client.health import health_of, problems_of
from pykbroker.cli.command_group import CommandGroup
from pykbroker.cli.errors import CliError
from pykbroker.cli.options import Connect, cluster_options, json_option
from pykbroker.cli.output import print_json, print_table

_POLL_S = 0.2


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Show a cluster's brokers and whether they are well."""


@cluster.command()
@json_option
@cluster_options
def info(as_json: bool, connect: Connect) -> None:
    """Show the cluster's id, controller, brokers, features, and how many topics and partitions it has."""
    with connect() as connected:
        found = connected.brokers()
        topics = connected.topics()
        features = connected.features()
        quorum = connected.quorum()
    partitions = [part for item in topics for part in item["partitions"]]
    for broker in found["brokers"]:
        broker["leaders"] = sum(part["leader"] == broker["broker_id"] for part in partitions)
        broker["replicas"] = sum(broker["broker_id"] in part["replicas"] for part in partitions)
    shown = {
        **found,
        "controller_id": quorum["leader_id"] if quorum else found["controller_id"],
        "features": features,
        "topics": len(topics),
        "internal_topics": sum(item["is_internal"] for item in topics),
        "partitions": len(partitions),
        "quorum": quorum,
    }
    if as_json:
        print_json(shown)
        return
    controller = shown["controller_id"] if shown["controller_id"] >= 0 else "none"
    click.echo(f"cluster {shown['cluster_id']}  controller {controller}")
    click.echo(f"  topics {shown['topics']} ({shown['internal_topics']} internal)  partitions {shown['partitions']}")
    if features:
        click.echo("  " + "  ".join(f"{name} {level}" for name, level in features.items()))
    print_table(
        ["broker", "host", "port", "rack", "state", "leads", "replicas"],
        [
            [
                *(broker[key] for key in ("broker_id", "host", "port", "rack")),
                "fenced" if broker["is_fenced"] else "active",
                broker["leaders"],
                broker["replicas"],
            ]
            for broker in found["brokers"]
        ],
    )


@cluster.command()
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Ask again for so long, until the cluster is healthy.",
)
@json_option
@cluster_options
def health(wait_s: float, as_json: bool, connect: Connect) -> None:
    """Say whether the cluster is healthy: exit code 0 if it is, 1 if it is not.

    Healthy: a controller leads, every known broker is there, each partition has a leader and all its replicas in
    sync, and every voter of the metadata quorum keeps up.
    """
    deadline = time.monotonic() + wait_s
    while True:
        is_last = time.monotonic() + _POLL_S > deadline
        try:
            with connect() as connected:
                found = health_of(connected)
        except CliError:
            if is_last:
                raise
        else:
            if found["is_healthy"] or is_last:
                break
        time.sleep(_POLL_S)
    if as_json:
        print_json(found)
    else:
        _print_health(found)
    if not found["is_healthy"]:
        raise click.exceptions.Exit(1)


def _print_health(found: dict[str, Any]) -> None:
    click.echo(f"cluster {found['cluster_id']}: {'healthy' if found['is_healthy'] else 'NOT healthy'}")
    for problem in problems_of(found):
        click.echo(f"  {problem}")
    if found["quorum"] and found["quorum"]["voters"]:
        rows = [
            [
                node["node_id"],
                "leader" if node["node_id"] == found["quorum"]["leader_id"] else role,
                node["lag"],
                node["caught_up_ms_ago"],
            ]
            for role, nodes in (("voter", found["quorum"]["voters"]), ("observer", found["quorum"]["observers"]))
            for node in nodes
        ]
        print_table(["quorum node", "role", "lag", "caught up ms ago"], rows)
