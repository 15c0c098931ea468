"""Reading what Spark's streaming file sink has written, without Spark: only files that its log lists count."""

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


def read_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of all files that count, with the columns that are in the names of their folders (name=value)."""
    from pyarrow import parquet

    for path in listed_files(folder):
        named = dict(part.split("=", 1) for part in path.relative_to(folder).parts[:-1])
        for row in parquet.ParquetFile(path).read().to_pylist():
            yield row | named
