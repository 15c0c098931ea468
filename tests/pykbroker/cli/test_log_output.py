"""Log lines that contain clients' texts: no line breaks, a limited length, a limited rate."""

from __future__ import annotations

import logging

from pykbroker.cli.log_output import (
    LINES_PER_SECOND,
    LINES_WITHOUT_LIMIT,
    MESSAGE_SIZE_MAX,
    FloodFilter,
    OneLineFormatter,
)


def record(message: str, *args: object, line: int = 1, at_s: float = 0.0) -> logging.LogRecord:
    made = logging.LogRecord("pykbroker", logging.WARNING, "connection.py", line, message, args, None)
    made.created = at_s
    return made


def test_a_name_cannot_make_a_line_of_its_own() -> None:
    text = OneLineFormatter("%(levelname)s %(message)s").format(
        record("topic %s", "a\n2026 INFO all is well\x1b[2J\x00\u2028")
    )
    assert text == r"WARNING topic a\n2026 INFO all is well\x1b[2J\x00\u2028"


def test_a_long_name_is_cut_off() -> None:
    text = OneLineFormatter("%(message)s").format(record("topic %s", "x" * 32_000))
    assert len(text) < MESSAGE_SIZE_MAX + 50
    assert text.endswith("... (32006 characters)")


def test_a_traceback_keeps_its_lines() -> None:
    failed = record("failed")
    failed.exc_text = "Traceback:\n  here"
    assert OneLineFormatter("%(message)s").format(failed) == "failed\nTraceback:\n  here"


def test_a_flood_is_thinned_out_and_counted() -> None:
    flood = FloodFilter()
    written = [one for second in range(100) for one in flooded(flood, second, 150)]
    assert len(written) == LINES_WITHOUT_LIMIT + int(99 * LINES_PER_SECOND)
    assert written[LINES_WITHOUT_LIMIT].endswith("100% of 0 (650 more like this were left out)")
    assert flood.filter(record("something else", line=2, at_s=99.0))
    assert sum(flood.filter(record("again", at_s=10_000.0)) for _ in range(100)) == LINES_WITHOUT_LIMIT


def flooded(flood: FloodFilter, second: int, count: int) -> list[str]:
    """The messages that are written of so many within a second."""
    records = [record("100%% of %d", number, at_s=float(second)) for number in range(count)]
    return [one.getMessage() for one in records if flood.filter(one)]
