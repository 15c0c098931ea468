"""Durations in the form of ISO 8601, as java.time.Duration reads them."""

from __future__ import annotations

import re

_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(?:T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+)(?:[.,](\d{0,9}))?S)?)?", re.IGNORECASE
)


def duration_ms(text: str) -> int:
    """An ISO 8601 duration as java.time.Duration reads it, in milliseconds.

    Raises:
        ValueError: the text is not a duration.
    """
    found = _DURATION.fullmatch(text)
    if found is None or text[-1] in "PpTt":
        raise ValueError(f"{text!r} is not an ISO 8601 duration")
    sign, days, hours, minutes, seconds, fraction = found.groups()
    total_ms = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60_000 + int(seconds or 0) * 1_000
    fraction_ms = int((fraction or "").ljust(9, "0")[:3])
    total_ms += -fraction_ms if (seconds or "").startswith("-") else fraction_ms
    return -total_ms if sign == "-" else total_ms
