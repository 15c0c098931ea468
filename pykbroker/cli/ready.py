"""`pykbroker ready`: one ApiVersions request on a plain socket, until a broker answers.

No client library: this is what scripts and container health checks call in a loop, so it starts fast.
"""

from __future__ import annotations

import re
import socket
import struct
import time

import click

from pykbroker.cli.errors import CliError
from pykbroker.cli.options import bootstrap_server_option
from pykbroker.cli.output import note

_RETRY_S = 0.05
_ATTEMPT_S = 2.0
_CLIENT_ID = b"pykbroker-ready"
_CORRELATION_ID = 1
_API_VERSIONS = 18


@click.command()
@bootstrap_server_option("Any of these has to answer (plain TCP).")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up after this long; 0 asks once.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print nothing; the exit code is the answer.")
def ready(bootstrap_servers: str, timeout_s: float, quiet: bool) -> None:
    """Wait until a broker answers: exit code 0 when one did, 1 when none did in time."""
    addresses = [parse_address(text) for text in bootstrap_servers.split(",")]
    deadline = time.monotonic() + timeout_s
    while True:
        reasons = []
        for host, port in addresses:
            # A single attempt (timeout 0) has to allow for a round trip.
            attempt_s = min(_ATTEMPT_S, max(deadline - time.monotonic(), 1.0))
            try:
                ask_api_versions(host, port, attempt_s)
            except OSError as error:
                reasons.append(f"{host}:{port}: {error.strerror or error}")
                continue
            if not quiet:
                note(f"ready: {host}:{port}")
            return
        if time.monotonic() + _RETRY_S > deadline:
            if quiet:
                raise click.exceptions.Exit(1)
            raise CliError(f"no broker answered within {timeout_s:g} s ({'; '.join(reasons)})")
        time.sleep(_RETRY_S)


def parse_address(text: str) -> tuple[str, int]:
    """Splits `host:port` or `[ipv6]:port`; raises click.UsageError."""
    host, separator, port = text.strip().rpartition(":")
    if not separator or not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise click.UsageError(f"--bootstrap-server {text!r}: expected HOST:PORT")
    return host.strip("[]"), int(port)


def ask_api_versions(host: str, port: int, timeout_s: float) -> None:
    """Sends ApiVersions version 0, which every broker since 0.10 answers.

    Raises:
        OSError: refused, closed, silent for `timeout_s`, or answered by something that is not a Kafka broker.
    """
    body = struct.pack(">hhih", _API_VERSIONS, 0, _CORRELATION_ID, len(_CLIENT_ID)) + _CLIENT_ID
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        size, correlation_id, error_code = struct.unpack(">iih", _receive(connection, 10))
    if size < 10 or correlation_id != _CORRELATION_ID or error_code != 0:
        raise OSError("the response is not that of a Kafka broker")


def _receive(connection: socket.socket, size_bytes: int) -> bytes:
    data = b""
    while len(data) < size_bytes:
        piece = connection.recv(size_bytes - len(data))
        if not piece:
            raise OSError("closed the connection without a response")
        data += piece
    return data
