"""Orders of Java's sets of the many names in a request."""

from __future__ import annotations

from collections.abc import Iterable

from pykbroker.controller.turns import EachInTurns
from pykbroker.java_order import string_hash, table_order


async def hash_order_in_turns(names: Iterable[str]) -> list[str]:
    """As `hash_order`, for thousands of names, in turns with other requests."""
    hashes = {name: string_hash(name) async for name in EachInTurns(names)}
    return table_order(hashes, hashes.__getitem__)
