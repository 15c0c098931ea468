"""`pykbroker produce`: lines from standard input become records."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable
from typing import Any

import click

from pykbroker.cli.client.client_settings import connection_settings, timeout_ms
from pykbroker.cli.client.errors import explained_errors, prepare_client_library
from pykbroker.cli.completion import names as completion
from pykbroker.cli.errors import CliError
from pykbroker.cli.options import connection_options, parse_pairs
from pykbroker.cli.output import counted, note
from pykbroker.named_tuple import NamedTuple


class OutgoingRecord(NamedTuple):
    """Record of one input line. Key and value: None is null. Partition and timestamp: None lets the producer choose."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None = None
    timestamp_ms: int | None = None


class LineFormat(NamedTuple):
    """Format of one input line; a separator of None means that the lines do not contain this part."""

    key_separator: str | None = None
    headers_separator: str | None = None
    null_marker: str | None = None
    is_json: bool = False


@click.command()
@click.argument("topic", shell_complete=completion.topics)
@click.option("--key-separator", "-K", metavar="TEXT", help="A line is KEY, this text, VALUE.")
@click.option(
    "--headers-separator",
    metavar="TEXT",
    help="A line begins with NAME:VALUE,NAME:VALUE and this text, then key and value.",
)
@click.option(
    "--header", "-H", "headers", multiple=True, metavar="KEY=VALUE", help="A header for every record; repeatable."
)
@click.option("--null-marker", metavar="TEXT", help="A key or value equal to this text is null (a tombstone).")
@click.option("--json", "is_json", is_flag=True, help="Each line is an object as `pykbroker consume --json` prints it.")
@click.option("--partition", "-p", type=click.IntRange(min=0), help="Write to this partition [default: by key].")
@click.option(
    "--compression",
    "-z",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="How batches are compressed.",
)
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "all"]),
    default="all",
    show_default=True,
    help="Replicas that must have a record before it counts: none, the leader, or all in sync.",
)
@click.option("--verbose", "-v", is_flag=True, help="Print where each record went.")
@connection_options
def produce(
    topic: str,
    key_separator: str | None,
    headers_separator: str | None,
    headers: tuple[str, ...],
    null_marker: str | None,
    is_json: bool,
    partition: int | None,
    compression: str,
    acks: str,
    verbose: bool,
    bootstrap_servers: str,
    timeout_s: float,
) -> None:
    """Write lines from standard input to TOPIC, one record each.

    \b
    echo hello | pykbroker produce greetings
    printf 'de=hallo\\nen=hello\\n' | pykbroker produce greetings -K =
    """
    if is_json and (key_separator or headers_separator or null_marker):
        raise click.UsageError(
            "--json lines carry key and headers themselves: leave out the separators and --null-marker"
        )
    line_format = LineFormat(key_separator, headers_separator, null_marker, is_json)
    fixed_headers = [(key, value.encode()) for key, value in parse_pairs(headers, "--header").items()]
    prepare_client_library()
    if sys.stdin.isatty():
        note(f"each line becomes a record in {topic}; end with Ctrl-D")
    settings: dict[str, Any] = {
        "acks": acks if acks == "all" else int(acks),
        "enable_idempotence": acks == "all",
        "compression_type": None if compression == "none" else compression,
    }
    with explained_errors(bootstrap_servers):
        count = send_lines(
            open_producer(bootstrap_servers, timeout_s, settings),
            topic,
            (parse_line(line, number, line_format) for number, line in enumerate(sys.stdin.buffer, 1)),
            fixed_headers=fixed_headers,
            partition=partition,
            timeout_s=timeout_s,
            verbose=verbose,
        )
    note(f"produced {counted(count, 'record')} to {topic}")


def open_producer(bootstrap_servers: str, timeout_s: float, settings: dict[str, Any]) -> Any:
    """Returns a connected kafka-python producer."""
    from kafka import KafkaProducer

    return KafkaProducer(
        request_timeout_ms=timeout_ms(timeout_s),
        # The library requires more than the request timeout plus the linger time.
        delivery_timeout_ms=timeout_ms(timeout_s) + 1000,
        max_block_ms=timeout_ms(timeout_s),
        linger_ms=5,
        **connection_settings(bootstrap_servers, timeout_s),
        **settings,
    )


def send_lines(
    producer: Any,
    topic: str,
    records: Iterable[OutgoingRecord],
    *,
    fixed_headers: list[tuple[str, bytes]],
    partition: int | None,
    timeout_s: float,
    verbose: bool,
) -> int:
    """Sends records until they end or one is refused, waits for the responses and returns the number written.

    Raises:
        CliError: a record was refused, or a line was malformed; the records before it are written.
    """
    from kafka.errors import KafkaTimeoutError

    failures: list[Exception] = []
    count = 0

    def print_position(metadata: Any) -> None:
        click.echo(f"partition {metadata.partition} offset {metadata.offset}")

    try:
        for record in records:
            future = producer.send(
                topic,
                key=record.key,
                value=record.value,
                headers=[*fixed_headers, *record.headers],
                partition=record.partition if partition is None else partition,
                timestamp_ms=record.timestamp_ms,
            )
            future.add_errback(failures.append)
            if verbose:
                future.add_callback(print_position)
            count += 1
            if failures:
                break
    except KafkaTimeoutError:
        # The producer is connected, so it has waited for the topic.
        raise CliError(
            f"topic {topic}: no partitions known within {timeout_s:g} s; it does not exist and was not created"
        ) from None
    finally:
        producer.flush(timeout_s)
        producer.close(timeout_s)
    if failures:
        raise failures[0]
    return count


def parse_line(line: bytes, number: int, line_format: LineFormat) -> OutgoingRecord:
    """Turns one input line into a record.

    Raises:
        CliError: the line lacks a separator or is not the JSON object it should be; names the line's number.
    """
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    if line_format.is_json:
        return _from_json(line, number)
    headers: list[tuple[str, bytes | None]] = []
    if line_format.headers_separator:
        text, line = _split(line, line_format.headers_separator, number, "headers")
        for pair in filter(None, text.split(b",")):
            name, _, header = pair.partition(b":")
            headers.append((name.decode(errors="replace"), header))
    key: bytes | None = None
    if line_format.key_separator:
        key, line = _split(line, line_format.key_separator, number, "key")
    content: bytes | None = line
    marker = line_format.null_marker
    if marker is not None:
        key = None if key == marker.encode() else key
        content = None if content == marker.encode() else content
    return OutgoingRecord(key, content, headers)


def _split(line: bytes, separator: str, number: int, part: str) -> tuple[bytes, bytes]:
    left, found, right = line.partition(separator.encode())
    if not found:
        raise CliError(f"line {number}: no {separator!r} after the {part}")
    return left, right


def _from_json(line: bytes, number: int) -> OutgoingRecord:
    try:
        item = json.loads(line)
        if not isinstance(item, dict):
            raise ValueError("not a JSON object")
        headers = [(str(header["key"]), _bytes_of(header, "value")) for header in item.get("headers") or ()]
        partition = None if item.get("partition") is None else int(item["partition"])
        timestamp_ms = None if item.get("timestamp") is None else int(item["timestamp"])
        return OutgoingRecord(_bytes_of(item, "key"), _bytes_of(item, "value"), headers, partition, timestamp_ms)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise CliError(f"line {number}: not a record as `consume --json` prints it: {error}") from None


def _bytes_of(item: dict[str, Any], name: str) -> bytes | None:
    """Returns the bytes under `name`, or under `name_base64` where they are not text."""
    if f"{name}_base64" in item:
        return base64.b64decode(item[f"{name}_base64"])
    value = item.get(name)
    if value is None:
        return None
    # A value given as a nested JSON value rather than as text is stored as its JSON text.
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()
