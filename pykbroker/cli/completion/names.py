"""Completion of names in a shell: topics, groups, settings and so on, as the cluster has them.

A completion prints no errors: if no cluster answers in time there are no suggestions. The modules of the client library
are loaded when a name is completed.

While the value of an option is completed, click has not assigned the arguments to names yet: they are in `ctx.args`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pykbroker.cli.client.cluster import Cluster

TIMEOUT_S = 1.0

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def _asking(names_of: Callable[[Cluster, click.Context, str], Iterable[str]]) -> Completer:
    """Makes a click completer from a function that gets names from a cluster."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        from pykbroker.cli.client.cluster import Cluster
        from pykbroker.cli.options import DEFAULT_BOOTSTRAP_SERVERS

        given: Any = ctx.params.get("bootstrap_servers")
        try:
            # The command's context, which click has left already.
            with ctx.scope(cleanup=False), Cluster(given or DEFAULT_BOOTSTRAP_SERVERS, TIMEOUT_S) as cluster:
                names = list(names_of(cluster, ctx, incomplete))
        except Exception:
            # No traceback of any error: it would be printed in the middle of the user's command line.
            return []
        taken = _taken(ctx, param)
        return [name for name in names if name.startswith(incomplete) and name not in taken]

    return complete


def _taken(ctx: click.Context, param: click.Parameter) -> set[str]:
    """Returns the words that the command line already has for this parameter."""
    given = ctx.params.get(param.name or "")
    return set(given) if isinstance(given, tuple) else set()


def _topic_names(cluster: Cluster, ctx: click.Context, incomplete: str) -> list[str]:
    # Internal topics are rarely meant: they are suggested only after their first letter was typed.
    return [str(item["name"]) for item in cluster.topics() if not item["is_internal"] or incomplete.startswith("_")]


def _group_ids(cluster: Cluster, ctx: click.Context, incomplete: str) -> list[str]:
    return [str(item["group_id"]) for item in cluster.groups()]


def _transactional_ids(cluster: Cluster, ctx: click.Context, incomplete: str) -> list[str]:
    return [str(item["transactional_id"]) for item in cluster.transactions()]


def _resource_names(cluster: Cluster, resource_type: str, ctx: click.Context, incomplete: str) -> list[str]:
    if resource_type == "topic":
        return _topic_names(cluster, ctx, incomplete)
    if resource_type == "group":
        return _group_ids(cluster, ctx, incomplete)
    if resource_type in ("broker", "broker-logger"):
        return [str(item["broker_id"]) for item in cluster.brokers()["brokers"]]
    return []


def _keys(cluster: Cluster, resource_type: str, name: str) -> list[str]:
    if resource_type == "cluster":
        # The cluster resource lists only settings that are set; every setting of a broker can be set on it.
        resource_type, name = "broker", str(cluster.brokers()["brokers"][0]["broker_id"])
    return [str(item["name"]) for item in cluster.configs(resource_type, name)]


def _resource(ctx: click.Context) -> tuple[str, tuple[str, ...]]:
    """Returns the TYPE of `config get` and `config set`, and the words after it."""
    if ctx.params.get("resource_type") is not None:
        return str(ctx.params["resource_type"]), ctx.params.get("words") or ()
    return (ctx.args[0], tuple(ctx.args[1:])) if ctx.args else ("", ())


def _config_words(cluster: Cluster, ctx: click.Context, incomplete: str) -> list[str]:
    # The resource's name, which the cluster does not have, and then settings.
    resource_type, words = _resource(ctx)
    if resource_type != "cluster" and not words:
        return _resource_names(cluster, resource_type, ctx, incomplete)
    suffix = "=" if ctx.info_name == "set" else ""
    return [f"{key}{suffix}" for key in _keys(cluster, resource_type, words[0] if words else "")]


def _config_keys(cluster: Cluster, ctx: click.Context, incomplete: str) -> list[str]:
    resource_type, words = _resource(ctx)
    return _keys(cluster, resource_type, words[0] if words else "")


def _topic_keys(cluster: Cluster, ctx: click.Context, incomplete: str) -> list[str]:
    # A topic that is to be created has the same settings as any other.
    names = [str(item["name"]) for item in cluster.topics()]
    given = [name for name in (ctx.params.get("name"), *ctx.args) if name in names]
    return _keys(cluster, "topic", (given or names)[0])


def _topic_pairs(cluster: Cluster, ctx: click.Context, incomplete: str) -> list[str]:
    return [f"{key}=" for key in _topic_keys(cluster, ctx, incomplete)]


topics = _asking(_topic_names)
groups = _asking(_group_ids)
transactional_ids = _asking(_transactional_ids)
config_words = _asking(_config_words)
config_keys = _asking(_config_keys)
topic_keys = _asking(_topic_keys)
topic_pairs = _asking(_topic_pairs)
