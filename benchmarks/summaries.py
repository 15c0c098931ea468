"""Medians of measured results, as the reports' JSON has them; nothing but the standard library is needed to read them.

A result is a dictionary with `case` and `broker`; every other number in it is a figure. None is a figure that the case
does not have.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

Label = tuple[str, str]
"""Case and broker."""


def medians(results: Iterable[dict[str, Any]]) -> dict[Label, dict[str, float]]:
    """The median of each figure over the rounds, by case and broker, in the order of the results.

    A pair whose broker could not do the case has no figures, and is there.
    """
    values: dict[Label, dict[str, list[float]]] = {}
    for result in results:
        mine = values.setdefault((result["case"], result["broker"]), defaultdict(list))
        for name, value in result.items():
            if isinstance(value, int | float):
                mine[name].append(value)
    return {label: {name: statistics.median(found) for name, found in mine.items()} for label, mine in values.items()}


def missing(results: Iterable[dict[str, Any]]) -> list[str]:
    """A line for each case that a broker could not do, with its reason; one line even if it failed in all rounds."""
    lines = {
        (result["case"], result["broker"]): f"{result['case']} on {result['broker']}: {result['missing']}"
        for result in results
        if result.get("missing")
    }
    return list(lines.values())
