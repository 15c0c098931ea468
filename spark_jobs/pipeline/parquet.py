"""Reading what Spark's file sink and Delta have written, without Spark: only files that their logs list count."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse


def listed_files(folder: Path) -> list[Path]:
    """The files that the sink's log lists; a trigger that was killed may have left others behind, which do not count.

    The log has a file for each trigger, and now and then one that ends in .compact, which has all before it.
    """
    log = folder / "_spark_metadata"
    if not log.exists():
        return []
    entries = sorted((int(path.stem), path) for path in log.iterdir() if path.stem.isdigit())
    compacted = max((number for number, path in entries if path.suffix == ".compact"), default=-1)
    found = []
    for number, path in entries:
        if number > compacted or (number == compacted and path.suffix == ".compact"):
            _version, *lines = path.read_text().splitlines()
            found += [Path(unquote(urlparse(json.loads(line)["path"]).path)) for line in lines]
    return found


def listed_delta_files(folder: Path) -> list[Path]:
    """The files of the newest version of a Delta table, by the JSON commits of its log.

    Raises ValueError for a table with deletion vectors, of which the files alone are not the rows.
    """
    files: dict[str, Path] = {}
    for commit in sorted((folder / "_delta_log").glob("*.json")):
        for action in map(json.loads, commit.read_text().splitlines()):
            if "add" in action:
                if action["add"].get("deletionVector"):
                    raise ValueError(f"{folder} has deletion vectors")
                files[action["add"]["path"]] = folder / unquote(action["add"]["path"])
            elif "remove" in action:
                files.pop(action["remove"]["path"], None)
    return list(files.values())


def read_delta_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of the newest version of a Delta table, read without Spark."""
    from pyarrow import parquet

    for path in listed_delta_files(folder):
        yield from parquet.ParquetFile(path).read().to_pylist()


def read_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of all files that count, with the columns that are in the names of their folders (name=value)."""
    from pyarrow import parquet

    for path in listed_files(folder):
        named = dict(part.split("=", 1) for part in path.relative_to(folder).parts[:-1])
        for row in parquet.ParquetFile(path).read().to_pylist():
            yield row | named
