"""`pykbroker dump-log`: the contents of the files of a data directory, pykbroker's or Apache Kafka's."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import click

from pykbroker.cli.output import counted, note, print_json_line

# Flags that a batch's one-line summary shows if they are set, and their words.
_FLAGS = (("is_transactional", "transactional"), ("is_control", "control"))


@click.command("dump-log")
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIRECTORY...")
@click.option("--batches", "only_batches", is_flag=True, help="Leave out the records.")
@click.option(
    "--as",
    "contents",
    type=click.Choice(["text", "offsets", "transactions", "share-state", "metadata"]),
    help="What the records are [default: by the directory's name].",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per batch or entry, one per line.")
def dump_log(paths: tuple[str, ...], only_batches: bool, contents: str | None, as_json: bool) -> None:
    """Print segments, indexes, producer snapshots and metadata snapshots; check every CRC.

    A directory of a partition stands for all its segments. Records of __consumer_offsets, __transaction_state,
    __share_group_state and __cluster_metadata are decoded. Exit code 1 when something in a file is damaged. The broker
    may be running.
    """
    from pykbroker.cli.dump_log.files import find_files, read_file

    problems = 0
    files = {given: find_files(given) for given in paths}
    for given in [given for given, found in files.items() if not found]:
        note(f"pykbroker: {given}: nothing was written to this partition")
    for path in [path for found in files.values() for path in found]:
        if not as_json:
            click.echo(path)
        for item in read_file(path, contents, with_records=not only_batches):
            problems += len(_problems(item))
            if as_json:
                print_json_line({"file": path, **item})
            else:
                click.echo(describe_item(item))
    if problems:
        note(f"pykbroker: {counted(problems, 'problem')} found")
        raise click.exceptions.Exit(1)


def describe_item(item: dict[str, Any]) -> str:
    """Returns one batch with its records, or one entry of another file, as lines for people."""
    if "base_offset" in item:
        return "\n".join([_describe_batch(item), *map(_describe_record, item.get("records", ()))])
    if list(item) == ["problem"]:
        return f"  PROBLEM: {item['problem']}"
    return "  " + "  ".join(
        f"{key} {_time(value) if key.endswith('timestamp') else value}" for key, value in item.items()
    )


def _describe_batch(item: dict[str, Any]) -> str:
    words = [
        f"batch {item['base_offset']}..{item['last_offset']}",
        f"at byte {item['position']}",
        f"{item['size_bytes']} bytes",
        f"{item['record_count']} records",
        f"epoch {item['leader_epoch']}",
        item["compression"],
        f"{item['timestamp_type']} {_time(item['max_timestamp'])}",
    ]
    if item["producer_id"] >= 0:
        words.append(f"producer {item['producer_id']}/{item['producer_epoch']} sequence {item['base_sequence']}")
    words += [word for key, word in _FLAGS if item[key]]
    if "problem" in item:
        words.append(f"PROBLEM: {item['problem']}")
    return "  " + ", ".join(words)


def _describe_record(item: dict[str, Any]) -> str:
    words = [f"    {item['offset']}", _time(item["timestamp"])]
    for key, value in item.items():
        if key == "headers":
            words.append("headers " + ",".join(f"{header['key']}:{header['value']}" for header in value))
        elif key == "type":
            words.append(str(value))
        elif key == "problem":
            words.append(f"PROBLEM: {value}")
        elif key not in ("offset", "timestamp"):
            words.append(f"{key} {json.dumps(value, ensure_ascii=False)}")
    return "  ".join(words)


def _time(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "no time"
    try:
        return (
            datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )
    except (OverflowError, ValueError, OSError):
        # A client may send any 64 bits as its timestamp.
        return f"{timestamp_ms} ms"


def _problems(item: dict[str, Any]) -> list[str]:
    return [part["problem"] for part in (item, *item.get("records", ())) if "problem" in part]
