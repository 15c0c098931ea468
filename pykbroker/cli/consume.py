"""`pykbroker consume`: print the records of a topic."""

from __future__ import annotations

import base64
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click

from pykbroker.cli.client.client_settings import connection_settings
from pykbroker.cli.client.errors import explained_errors, prepare_client_library
from pykbroker.cli.completion import names as completion
from pykbroker.cli.errors import CliError
from pykbroker.cli.options import connection_options, json_option, timestamp_ms
from pykbroker.cli.output import counted, note, print_json_line

_POLL_MS = 200
# Until the consumer has partitions of its group: kafka-python 3.0.12 sometimes never uses its assignment if a poll ends
# between the responses to JoinGroup and SyncGroup, so a poll has to be longer than a join.
_JOIN_MS = 10_000
_POLL_RECORDS = 500


@click.command()
@click.argument("topic", shell_complete=completion.topics)
@click.option("--from-beginning", is_flag=True, help="Begin with the oldest record [default: only new records].")
@click.option("--offset", metavar="N", help="Begin at this offset of each partition; -N begins N before the end.")
@click.option(
    "--timestamp",
    metavar="TIME",
    callback=timestamp_ms,
    help="Begin with the first record at or after this time (ms or ISO 8601).",
)
@click.option(
    "--partition",
    "-p",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this partition; repeatable.",
)
@click.option(
    "--group",
    "-g",
    metavar="ID",
    shell_complete=completion.groups,
    help="Be a member of this group: share the partitions, commit what was printed.",
)
@click.option("--max-messages", "-n", type=click.IntRange(min=1), help="End after this many records.")
@click.option(
    "--timeout",
    "idle_s",
    type=click.FloatRange(min=0, min_open=True),
    help="End after this many seconds without a record.",
)
@click.option("--until-end", is_flag=True, help="End at the records that are there now.")
@click.option("--read-committed", is_flag=True, help="Leave out records of open and aborted transactions.")
@click.option(
    "--format",
    "-f",
    "template",
    metavar="TEXT",
    help=r"Line to print, from {topic} {partition} {offset} {timestamp} {key} {value} {headers}; \n and \t work.",
)
@click.option("--print-key", is_flag=True, help="Short for --format '{key}\\t{value}'.")
@json_option
@connection_options
def consume(
    topic: str,
    from_beginning: bool,
    offset: str | None,
    timestamp: int | None,
    partitions: tuple[int, ...],
    group: str | None,
    max_messages: int | None,
    idle_s: float | None,
    until_end: bool,
    read_committed: bool,
    template: str | None,
    print_key: bool,
    as_json: bool,
    bootstrap_servers: str,
    timeout_s: float,
) -> None:
    """Print the records of TOPIC until Ctrl-C or SIGTERM, --max-messages, --timeout or --until-end.

    An --offset behind the end of every partition is an error; one before a partition's first record begins there.
    """
    start = _start_position(from_beginning, offset, timestamp)
    if group and (partitions or offset is not None or timestamp is not None or until_end):
        raise click.UsageError(
            "a group keeps its own position: with --group only --from-beginning is possible "
            "(see `pykbroker group reset-offsets`)"
        )
    show = print_json_line_of if as_json else line_printer(template or (r"{key}\t{value}" if print_key else "{value}"))
    prepare_client_library()
    with explained_errors(bootstrap_servers), sigterm_as_ctrl_c():
        consumer = open_consumer(bootstrap_servers, timeout_s, group, from_beginning, read_committed)
        try:
            ends: dict[Any, int] | None = None
            if group:
                consumer.subscribe([topic])
                # A group leader that assigns before its first metadata assigns no partitions, and kafka-python does not
                # correct that later: the command would wait for ever. It would also do so for an unknown topic.
                if not consumer.partitions_for_topic(topic):
                    raise CliError(f"topic {topic} does not exist")
            else:
                ends = _assign(consumer, topic, partitions, start, until_end)
            count = _print_records(consumer, show, max_messages=max_messages, idle_s=idle_s, ends=ends)
        finally:
            consumer.close()
    note(f"consumed {counted(count, 'record')} from {topic}")


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Lets SIGTERM raise KeyboardInterrupt, so that a consumer that `timeout` ends commits and leaves its group.

    Kafka's console consumer does that in a shutdown hook. Only the first SIGTERM counts: `timeout` sends two, one to
    the process and one to its group, and the second would interrupt the commit.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def open_consumer(
    bootstrap_servers: str, timeout_s: float, group: str | None, from_beginning: bool, read_committed: bool
) -> Any:
    """Returns a connected kafka-python consumer without topics."""
    from kafka import KafkaConsumer

    return KafkaConsumer(
        group_id=group,
        auto_offset_reset="earliest" if from_beginning else "latest",
        isolation_level="read_committed" if read_committed else "read_uncommitted",
        # A consumer that only reads a topic must not create it.
        allow_auto_create_topics=False,
        exclude_internal_topics=False,
        **connection_settings(bootstrap_servers, timeout_s),
    )


def _start_position(from_beginning: bool, offset: str | None, timestamp: int | None) -> tuple[str, int]:
    """Returns how to find the first offset: ("beginning" | "end" | "offset" | "before_end" | "timestamp", number)."""
    if sum([from_beginning, offset is not None, timestamp is not None]) > 1:
        raise click.UsageError("--from-beginning, --offset and --timestamp exclude one another")
    if timestamp is not None:
        return "timestamp", timestamp
    if offset is None:
        return ("beginning" if from_beginning else "end"), 0
    if offset in ("earliest", "latest"):
        return ("beginning" if offset == "earliest" else "end"), 0
    try:
        number = int(offset)
    except ValueError:
        raise click.UsageError(f"--offset {offset!r}: expected a number, earliest or latest") from None
    return ("offset", number) if number >= 0 and not offset.startswith("-") else ("before_end", -number)


def _assign(
    consumer: Any, topic: str, partitions: tuple[int, ...], start: tuple[str, int], until_end: bool
) -> dict[Any, int] | None:
    """Assigns partitions without a group and seeks to the first offsets; returns the ends if `until_end`, else None."""
    from kafka import TopicPartition

    known = consumer.partitions_for_topic(topic)
    if not known:
        raise CliError(f"topic {topic} does not exist")
    unknown = sorted(set(partitions) - set(known))
    if unknown:
        raise CliError(f"topic {topic} has partitions 0 to {max(known)}, not {unknown[0]}")
    assigned = [TopicPartition(topic, partition) for partition in sorted(partitions or known)]
    consumer.assign(assigned)
    first, ends = consumer.beginning_offsets(assigned), consumer.end_offsets(assigned)
    later = consumer.offsets_for_times(dict.fromkeys(assigned, start[1])) if start[0] == "timestamp" else {}
    _check_start(topic, start, first, ends, later)
    for topic_partition in assigned:
        first_offset, end = first[topic_partition], ends[topic_partition]
        consumer.seek(topic_partition, _first_offset(start, first_offset, end, later.get(topic_partition)))
    return dict(ends) if until_end else None


def _check_start(
    topic: str, start: tuple[str, int], first: dict[Any, int], ends: dict[Any, int], later: dict[Any, Any]
) -> None:
    """Prints a note on standard error for each partition that does not have the requested start.

    Without this check the consumer goes to the end, as `auto.offset.reset` says, and waits there without a message.

    Raises:
        CliError: the offset is beyond the end of every partition.
    """
    kind, number = start
    if kind == "timestamp" and not any(later.values()):
        note(f"topic {topic} has no record at or after that time")
    if kind != "offset":
        return
    ranges = {
        partition: f"partition {partition.partition} {_range_words(first[partition], ends[partition])}"
        for partition in sorted(ends)
    }
    behind = [partition for partition in ranges if number > ends[partition]]
    if behind and len(behind) == len(ends):
        raise CliError(
            f"offset {number} is beyond the end of topic {topic}: {', '.join(ranges.values())}; "
            "--offset latest waits for the records to come"
        )
    for partition in behind:
        note(f"{ranges[partition]}: begins at its end, {ends[partition]}")
    for partition, offset in sorted(first.items()):
        if number < offset:
            note(f"partition {partition.partition} has no offset {number} any more: begins at its first, {offset}")


def _range_words(first: int, end: int) -> str:
    return f"has offsets {first} to {end - 1}" if end > first else f"is empty and ends at {end}"


def _first_offset(start: tuple[str, int], first: int, end: int, later: Any) -> int:
    kind, number = start
    if kind == "beginning":
        return first
    if kind == "offset":
        return min(max(number, first), end)
    if kind == "before_end":
        return max(first, end - number)
    if kind == "timestamp":
        return end if later is None else int(later.offset)
    return end


def _print_records(
    consumer: Any,
    show: Callable[[Any], None],
    *,
    max_messages: int | None,
    idle_s: float | None,
    ends: dict[Any, int] | None,
) -> int:
    """Prints records until one of the limits is reached or KeyboardInterrupt is raised, and returns their number.

    A consumer of a group commits its position when it is closed, so the position must not be ahead of what was printed:
    a poll takes no more records than may be printed, and Ctrl-C in the middle of a batch seeks back to the first record
    that was not printed.
    """
    count = 0
    idle_since = time.monotonic()
    waiting: dict[Any, list[Any]] = {}
    try:
        while max_messages is None or count < max_messages:
            if ends is not None and all(consumer.position(partition) >= end for partition, end in ends.items()):
                break
            most = _POLL_RECORDS if max_messages is None else min(max_messages - count, _POLL_RECORDS)
            poll_ms = _POLL_MS if consumer.assignment() else _JOIN_MS
            if idle_s is not None:
                poll_ms = min(poll_ms, max(_POLL_MS, round(idle_s * 1000)))
            waiting = {
                partition: [record for record in records if ends is None or record.offset < ends[partition]]
                for partition, records in consumer.poll(timeout_ms=poll_ms, max_records=most).items()
            }
            if waiting:
                idle_since = time.monotonic()
            elif idle_s is not None and time.monotonic() - idle_since >= idle_s:
                break
            for records in waiting.values():
                while records:
                    show(records[0])
                    del records[0]
                    count += 1
    except KeyboardInterrupt:
        # The usual way to stop the command.
        for partition, records in waiting.items():
            if records:
                consumer.seek(partition, records[0].offset)
    return count


def record_as_json(record: Any) -> dict[str, Any]:
    """Returns a record as `--json` prints it; bytes that are not UTF-8 go under `key_base64` or `value_base64`."""
    headers = [{"key": key, **_text_or_base64("value", value)} for key, value in record.headers]
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_text_or_base64("key", record.key),
        **_text_or_base64("value", record.value),
        "headers": headers,
    }


def print_json_line_of(record: Any) -> None:
    """Prints a record as one line of JSON."""
    print_json_line(record_as_json(record))


def line_printer(template: str) -> Callable[[Any], None]:
    """Returns a function that prints a record by a template; raises click.UsageError for a malformed one."""
    template = template.replace("\\n", "\n").replace("\\t", "\t")
    fields = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    try:
        template.format(**dict.fromkeys(fields, ""))
    except KeyError as error:
        raise click.UsageError(f"--format {template!r}: {error} is not one of {', '.join(fields)}") from None
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise click.UsageError(f"--format {template!r}: {error}; its fields can be {', '.join(fields)}") from None

    def show(record: Any) -> None:
        headers = ",".join(f"{key}:{_text(value)}" for key, value in record.headers)
        line = template.format(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp=record.timestamp,
            key=_text(record.key),
            value=_text(record.value),
            headers=headers,
        )
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    return show


def _text(data: bytes | None) -> str:
    return "null" if data is None else data.decode(errors="backslashreplace")


def _text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
