"""`pykbroker start --tls`: TLS for development, with certificates of an authority of the data directory."""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING

from pykbroker.cli.errors import EXIT_USAGE, CliError
from pykbroker.config.listener_addresses import is_every_address
from pykbroker.security.tls import development
from pykbroker.security.tls.development import (
    CA_FILE,
    LOCAL_HOSTS,
    SETTINGS_WRITTEN_HERE,
    broker_settings,
    client_settings,
    prepare,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.controller.node_client import OpenStream


def check_settings(properties: Mapping[str, str]) -> None:
    """Refuses settings that `--tls` makes itself.

    Raises:
        CliError: one of them is given.
    """
    given = next((key for key in SETTINGS_WRITTEN_HERE if key in properties), None)
    if given is not None:
        raise CliError(
            f"--tls sets {given} itself, which the configuration has too: leave out one of the two", EXIT_USAGE
        )


def tls_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Settings of a broker with TLS; makes the certificates in its data directory.

    Args:
        properties: settings of the broker with absolute `log.dirs` and its one listener.

    Raises:
        CliError: the package `cryptography` is missing, or a file cannot be read or written.
    """
    directory = properties["log.dirs"].split(",")[0]
    host = properties["listeners"].partition("://")[2].rpartition(":")[0].strip("[]")
    own_names = [socket.gethostname()] if is_every_address(host) else [host]
    try:
        prepare(directory, list(dict.fromkeys((*LOCAL_HOSTS, *own_names))))
    except ImportError:
        raise CliError("--tls needs the package cryptography: pip install 'pykbroker[tls]'") from None
    except (OSError, ValueError) as error:
        raise CliError(f"--tls: the certificates in {directory} cannot be made: {error}") from None
    return broker_settings(directory)


ONE_NODE_PROPERTIES = {
    "security.inter.broker.protocol": "SSL",
    "listener.security.protocol.map": "SSL:SSL,CONTROLLER:SSL",
}
"""Further settings of a single node; those of several nodes are made by `cluster_layout`."""


def write_client_files(directory: str, bootstrap_servers: str) -> str:
    """Writes client settings into the data directory; returns lines for the user, each with a line break.

    Raises:
        CliError: a file cannot be written.
    """
    try:
        paths = development.write_client_files(directory, bootstrap_servers)
    except OSError as error:
        raise CliError(f"{error.filename}: {error.strerror}") from None
    lines = [f"  TLS         clients trust {directory}/{CA_FILE}"]
    lines += [f"              settings for {kind}: {path}" for kind, path in paths.items()]
    return "".join(f"{line}\n" for line in lines)


def stream_opener(directory: str) -> OpenStream:
    """Function that connects to the broker as a client with the certificates of its data directory."""
    texts = client_settings(directory).java | {"ssl.endpoint.identification.algorithm": "https"}
    return _stream_opener("--topic", texts.get)


def stream_opener_of_node(
    config: BrokerConfig, listener_name: str
) -> OpenStream:  # pragma: no cover: TLS is tested with processes
    """Function that connects to a listener of the broker as another node would, with the broker's own certificate."""
    return _stream_opener(listener_name, partial(config.listener_property, listener_name))


def _stream_opener(name: str, text: Callable[[str], str | None]) -> OpenStream:
    import trio

    from pykbroker.security.tls.connecting import with_tls
    from pykbroker.security.tls.listener_tls import ListenerTls
    from pykbroker.security.tls.settings import TlsSettings

    return with_tls(partial(trio.open_tcp_stream), ListenerTls(name, TlsSettings.read(text)))
