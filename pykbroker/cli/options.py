"""Options and value types that several client commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from pykbroker.cli.client.client_settings import command_config_option

if TYPE_CHECKING:
    from pykbroker.cli.client.cluster import Cluster

Command = TypeVar("Command", bound=Callable[..., Any])
Connect = Callable[[], "Cluster"]
"""Function that connects to the cluster that the options of a command name."""

DEFAULT_BOOTSTRAP_SERVERS = "localhost:9092"


def bootstrap_server_option(help_text: str) -> Callable[[Command], Command]:
    """Returns the decorator that adds `--bootstrap-server`."""
    return click.option(
        "--bootstrap-server",
        "-b",
        "bootstrap_servers",
        envvar="PYKBROKER_BOOTSTRAP_SERVERS",
        default=DEFAULT_BOOTSTRAP_SERVERS,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT[,...]",
        help=help_text,
    )


def connection_options(command: Command) -> Command:
    """Adds `--bootstrap-server`, `--request-timeout` and `--command-config` to a command."""
    command = command_config_option(command)
    command = bootstrap_server_option("Brokers to ask first; any Kafka cluster will do.")(command)
    return click.option(
        "--request-timeout",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True),
        default=15.0,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for the cluster.",
    )(command)


def cluster_options(command: Command) -> Command:
    """Adds the options of a connection to a command, which gets `connect` in their place."""

    @wraps(command)
    def run(*, bootstrap_servers: str, timeout_s: float, **options: Any) -> Any:
        from pykbroker.cli.client.cluster import Cluster

        return command(connect=partial(Cluster, bootstrap_servers, timeout_s), **options)

    return connection_options(cast("Command", run))


def json_option(command: Command) -> Command:
    """Adds `--json`."""
    return click.option("as_json", "--json", is_flag=True, help="Print JSON for programs in place of tables.")(command)


def execute_option(command: Command) -> Command:
    """Adds `--execute`."""
    return click.option("--execute", is_flag=True, help="Do it; without this nothing is changed, only shown.")(command)


def parse_pairs(pairs: Iterable[str], option: str) -> dict[str, str]:
    """Turns `key=value` texts into a dict; raises click.UsageError naming `option` otherwise."""
    values: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise click.UsageError(f"{option} {pair!r}: expected KEY=VALUE")
        values[key.strip()] = value
    return values


def timestamp_ms(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Option callback: turn milliseconds since 1970, or ISO 8601 (without a zone: local time), into milliseconds."""
    if value is None or (value.isascii() and value.isdigit()):
        return None if value is None else int(value)
    try:
        return round(datetime.fromisoformat(value).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{value!r} is neither milliseconds nor a time like 2026-01-31T12:00:00") from None
