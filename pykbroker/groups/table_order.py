"""Orders of Java's hash tables with thousands of keys, computed in steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from pykbroker.java_order import TABLE_SIZE_DEFAULT, grown_table_size, slot_of_hash
from pykbroker.protocol.steps import PIECE, Steps

_Key = TypeVar("_Key")


def table_order_in_steps(
    keys: Iterable[_Key], hash_of: Callable[[_Key], int], table_size: int = TABLE_SIZE_DEFAULT
) -> Steps[list[_Key]]:
    """As `java_order.table_order`, in steps."""
    put = list(keys)
    table_size = grown_table_size(len(put), table_size)
    slots = {}
    for count, key in enumerate(put, 1):
        slots[key] = slot_of_hash(hash_of(key), table_size)
        if not count % PIECE:
            yield
    return sorted(put, key=slots.__getitem__)
