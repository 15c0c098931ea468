"""Format of log lines, one line per entry whatever a client has put into it, and a limit to their number.

Clients choose names and cause errors, so they can cause log lines. Control characters are escaped, long lines are cut,
and the rate of lines that differ in their arguments only is limited; a later line has the number of those left out.
"""

from __future__ import annotations

import logging
import re

MESSAGE_SIZE_MAX = 1000
LINES_WITHOUT_LIMIT = 100
LINES_PER_SECOND = 0.2
"""Limits for the lines of one place in the code: a hundred at once, then twelve a minute."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class OneLineFormatter(logging.Formatter):
    """Escapes control characters and cuts long messages; a traceback follows unchanged."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging's name
        text = super().formatMessage(record)
        if len(text) > MESSAGE_SIZE_MAX:
            text = f"{text[:MESSAGE_SIZE_MAX]}... ({len(text)} characters)"
        return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


class FloodFilter(logging.Filter):
    """Lets through `LINES_WITHOUT_LIMIT` records from one place in the code, and then `LINES_PER_SECOND`.

    Time comes from the records. The first record after others were left out says how many.
    """

    def __init__(self) -> None:
        super().__init__()
        # By place in the code: lines that may still be written, time of the last record, lines left out.
        self._places: dict[tuple[str, int], tuple[float, float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        place = record.pathname, record.lineno
        left, looked_at, left_out = self._places.get(place, (float(LINES_WITHOUT_LIMIT), record.created, 0))
        left = min(float(LINES_WITHOUT_LIMIT), left + max(0.0, record.created - looked_at) * LINES_PER_SECOND)
        if left < 1:
            self._places[place] = left, record.created, left_out + 1
            return False
        self._places[place] = left - 1, record.created, 0
        if left_out:
            # Without arguments the message is not formatted once more: a percent sign in it stays one.
            record.msg, record.args = f"{record.getMessage()} ({left_out} more like this were left out)", None
        return True
