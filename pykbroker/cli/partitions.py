"""Partitions as commands name them: TOPIC for all of a topic, TOPIC:0,1 for some."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from pykbroker.cli.errors import CliError
from pykbroker.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pykbroker.cli.client.cluster import Cluster


def partitions_of(cluster: Cluster, topics: Iterable[str], option: str) -> list[TopicPartition]:
    """Turns `topic` and `topic:0,1` into partitions, sorted.

    Raises:
        click.UsageError: a text is malformed; names `option`.
        CliError: a topic or a partition does not exist.
    """
    wanted: dict[str, list[int] | None] = {}
    for text in topics:
        name, separator, numbers = text.partition(":")
        try:
            wanted[name] = [int(number) for number in numbers.split(",")] if separator else None
        except ValueError:
            raise click.UsageError(f"{option} {text!r}: expected TOPIC or TOPIC:0,1") from None
    found: list[TopicPartition] = []
    for item in cluster.describe_topics(wanted):
        known = [part["partition"] for part in item["partitions"]]
        chosen = wanted[item["name"]]
        for partition in known if chosen is None else chosen:
            if partition not in known:
                raise CliError(f"topic {item['name']} has partitions 0 to {max(known)}, not {partition}")
            found.append((item["name"], partition))
    return sorted(found)
