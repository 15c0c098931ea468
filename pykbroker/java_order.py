"""Java's strings, numbers and collections: lengths, hash codes, iteration orders, where Kafka's results depend on them.

The hash code of a key decides its partition of an internal topic. The iteration orders decide which of several equals
Kafka chooses, so that a group gets the same assignment here and from Apache Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from operator import mul
from struct import unpack
from typing import Generic, TypeVar

_Item = TypeVar("_Item")
_Key = TypeVar("_Key")

_HASHED_PER_STEP = 64
_POWERS = [31**exponent & 0xFFFFFFFF for exponent in reversed(range(_HASHED_PER_STEP))]  # the factors of characters
_KNOWN_LENGTH = 128  # of a text whose hash code is kept: ids of groups and members, with which it is asked often
_FIBONACCI = 0x9E37_79B9_7F4A_7C15  # 2**64 divided by the golden ratio: the top bits of a product choose the slot

_SPACES = "\t\n\x0b\f\r\x1c\x1d\x1e\x1f "
_comma = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")

TABLE_SIZE_DEFAULT = 16
"""The table of a `new HashMap<>()`."""


def utf16_length(text: str) -> int:
    """Java's ``String.length``: the number of UTF-16 units, by which Kafka limits texts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2


def split_at_commas(text: str) -> list[str]:
    """Java's ``String.split(",")``: without empty parts at the end; the empty string has one part."""
    parts = text.split(",")
    while text and parts and not parts[-1]:
        parts.pop()
    return parts


def trim(text: str) -> str:
    """Java's ``String.trim``, for settings: Python's `strip` would take U+00A0 and other spaces, too.

    Control characters that are no white space stay, and so are refused: Java takes them away, but `int` and `float`, by
    which stored texts are read, do not.
    """
    return text.strip(_SPACES)


def list_entries(text: str) -> list[str]:
    """Kafka's split of a setting's list: at commas with Java's white space (``\\s``) around them."""
    return _comma.split(text)


def is_blank(text: str) -> bool:
    """Java's ``trim().isEmpty()``: no character above U+0020. So U+00A0 is not blank, and U+0000 is."""
    return all(character <= " " for character in text)


_is_integer = re.compile(r"[+-]?\d{1,99}").fullmatch


def java_int(text: str, bits: int = 32) -> int | None:
    """The number that Java's Integer.parseInt returns (Short's for 16 bits, Long's for 64).

    None for a text that it refuses, such as "1_0", " 1" or 2**31.
    """
    limit = 1 << (bits - 1)
    return int(text) if _is_integer(text) and -limit <= int(text) < limit else None


def string_hash(text: str) -> int:
    """Java's ``String.hashCode``, a signed 32-bit integer.

    It is computed over UTF-16 units: a character outside the basic plane counts as its two surrogates, a lone surrogate
    as itself.
    """
    return _known_hash(text) if len(text) <= _KNOWN_LENGTH else _compute_hash(text)


def _compute_hash(text: str) -> int:
    encoded = text.encode("utf-16-le", "surrogatepass")
    units = unpack(f"<{len(encoded) // 2}H", encoded)
    value = 0
    for start in range(0, len(units), _HASHED_PER_STEP):
        part = units[start : start + _HASHED_PER_STEP]
        powers = _POWERS[-len(part) :]
        value = (value * 31 * powers[0] + sum(map(mul, part, powers))) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


_known_hash = lru_cache(maxsize=8192)(_compute_hash)


def to_signed_long(value: int) -> int:
    """The value of a long of 64 bits to which Java's arithmetic comes with this exact result."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def string_order(text: str) -> bytes:
    """A sort key for the order of String.compareTo, by UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def hash_order(keys: Iterable[str], table_size: int = TABLE_SIZE_DEFAULT) -> list[str]:
    """Strings in the order of a HashMap's iterator; keys of one bucket in the order of `keys`.

    Args:
        keys: the keys in the order in which they were put, none twice.
        table_size: the size of the table before the first key, a power of two.
    """
    return table_order(keys, string_hash, table_size)


def table_order(
    keys: Iterable[_Key], hash_of: Callable[[_Key], int], table_size: int = TABLE_SIZE_DEFAULT
) -> list[_Key]:
    """As `hash_order`, for keys of any kind with their Java hash code; of a HashSet, too."""
    put = list(keys)
    if len(put) < 2:
        return put
    table_size = grown_table_size(len(put), table_size)
    return sorted(put, key=lambda key: _spread(hash_of(key)) & (table_size - 1))


def grown_table_size(count: int, table_size: int = TABLE_SIZE_DEFAULT) -> int:
    """The size of a HashMap's table after so many keys were put, which it keeps when keys are removed."""
    # Java doubles the table when more than three quarters of it, rounded down, are used.
    while count > table_size * 3 // 4:
        table_size *= 2
    return table_size


def uuid_hash(uuid: bytes) -> int:
    """The hash code of Kafka's Uuid, without its sign: the exclusive or of its four parts of 32 bits."""
    first, second, third, fourth = unpack(">4I", uuid)
    return int(first ^ second ^ third ^ fourth)


def partition_hash(partition: tuple[bytes, int]) -> int:
    """The hash code of Kafka's TopicIdPartition, a record of a Uuid and a number, without its sign."""
    topic_id, number = partition
    return (31 * uuid_hash(topic_id) + number) & 0xFFFFFFFF


def number_order(numbers: Iterable[int], table_size: int = TABLE_SIZE_DEFAULT) -> list[int]:
    """Numbers from 0 in the order of the iterator of a HashSet that got them in this order."""
    put = list(numbers)
    # Without numbers beyond the table, which may grow, each has a bucket of its own.
    return sorted(put) if not put or max(put) < table_size else table_order(put, int, table_size)


def scala_hash_order(keys: Iterable[str]) -> list[str]:
    """Strings in the order of Scala's mutable HashMap, in which keys of one bucket are sorted by their hash codes."""
    put = list(keys)
    table_size = eager_table_size(len(put))

    def place(key: str) -> tuple[int, int]:
        value = _spread(string_hash(key))
        return value & (table_size - 1), value - ((value & 0x8000_0000) << 1)

    return sorted(put, key=place)


def scala_number_order(numbers: Iterable[int], *, is_copy: bool = False) -> list[int]:
    """Numbers from 0 in the order of Scala's mutable HashSet.

    `is_copy`: the set was made from a collection of known size, and has a table for that many from the start.
    """
    put = list(numbers)
    # Scala asks for room for one more than there are, and has no table of four places.
    asked_size = (len(put) + 1) * 4 // 3
    last = eager_table_size(len(put), 1 << max(asked_size - 1, 4).bit_length() if is_copy else TABLE_SIZE_DEFAULT) - 1
    return sorted(put, key=lambda number: (_spread(number) & last, _spread(number)))


def eager_table_size(count: int, table_size: int = TABLE_SIZE_DEFAULT) -> int:
    """The size of the table of Scala's mutable HashMap and of a ConcurrentHashMap after so many keys were put.

    They double it with the key that fills three quarters of it, a HashMap with the one after that.
    """
    while count >= table_size * 3 // 4:
        table_size *= 2
    return table_size


def partition_order(topic: str, partitions: Iterable[int]) -> list[int]:
    """Partitions of one topic in the order of a ConcurrentHashMap of Kafka's TopicPartitions."""
    put = sorted(partitions)
    last, topic_hash = eager_table_size(len(put)) - 1, string_hash(topic)
    return sorted(put, key=lambda partition: _spread(31 * (31 + partition) + topic_hash) & last)


def hashed_partition_order(topic: str, partitions: Iterable[int]) -> list[int]:
    """Partitions of one topic, which were put in this order, in that of a HashMap of Kafka's TopicPartitions."""
    topic_hash = string_hash(topic)
    return table_order(partitions, lambda partition: 31 * (31 + partition) + topic_hash)


def concurrent_order(keys: Iterable[str]) -> list[str]:
    """Strings in the order of a ConcurrentHashMap; keys of one slot in the order of `keys`, in which they were put."""
    put = list(keys)
    return table_order(put, string_hash, eager_table_size(len(put)))


def slot(text: str, table_size: int) -> int:
    """The slot of a string in a hash table of Java, which iterates over its slots in their order."""
    return slot_of_hash(string_hash(text), table_size)


def slot_of_hash(hash_code: int, table_size: int) -> int:
    """The slot of a key with a hash code, as `slot`."""
    return _spread(hash_code) & (table_size - 1)


def timeline_order(keys: Iterable[str], count: int = 0) -> list[str]:
    """Strings in the order in which Kafka's TimelineHashMap has them; keys of one slot in the reverse order of `keys`.

    Coordinators and controllers keep their state in such maps. A table never shrinks: after removals Kafka's order is
    that of the largest size, which is not known here.

    Args:
        keys: the keys in the order in which they were put, none twice.
        count: number of all keys of the map, if `keys` are some of them.
    """
    return _timeline_order(keys, string_hash, count)


def timeline_number_order(numbers: Iterable[int]) -> list[int]:
    """As `timeline_order`, for numbers."""
    return _timeline_order(numbers, int, 0)


def _timeline_order(keys: Iterable[_Key], hash_of: Callable[[_Key], int], count: int) -> list[_Key]:
    put = list(keys)
    table_size = 2
    while max(count, len(put)) * 3 > table_size * 4:
        table_size *= 2
    shift = 65 - table_size.bit_length()
    put.reverse()
    return sorted(put, key=lambda key: (hash_of(key) * _FIBONACCI & 0xFFFF_FFFF_FFFF_FFFF) >> shift)


def table_size_for(capacity: int) -> int:
    """The size of the table of a `new HashMap<>(capacity)`."""
    return 1 << max(0, capacity - 1).bit_length()


def table_size_of_items(count: int) -> int:
    """The size of the table that the helpers of Kafka's assignors make for so many items."""
    return table_size_for(int((count + 1) / 0.75 + 1))


def copied_order(keys: Iterable[str]) -> list[str]:
    """Strings in the order of a `new HashSet<>(collection)` of them."""
    put = list(keys)
    return hash_order(put, copied_table_size(len(put)))


def copied_table_size(count: int) -> int:
    """The size of the table of a `new HashSet<>(collection)` of so many items."""
    return table_size_for(max(int(count / 0.75) + 1, TABLE_SIZE_DEFAULT))


def _spread(hash_code: int) -> int:
    value = hash_code & 0xFFFFFFFF
    return value ^ (value >> 16)


class PriorityQueue(Generic[_Item]):
    """java.util.PriorityQueue: a heap whose order of equals is Java's, which heapq's is not."""

    def __init__(self, items: Iterable[_Item], weight: Callable[[_Item], float]) -> None:
        self._heap: list[_Item] = []
        self._weight = weight
        for item in items:
            self.add(item)

    def add(self, item: _Item) -> None:
        """Takes in an item; its weight must not change while it is in the queue."""
        heap, weight = self._heap, self._weight
        position = len(heap)
        heap.append(item)
        while position:
            parent = (position - 1) // 2
            if weight(item) >= weight(heap[parent]):
                break
            heap[position] = heap[parent]
            position = parent
        heap[position] = item

    def poll(self) -> _Item | None:
        """Removes and returns the lightest item; None if there is none."""
        heap, weight = self._heap, self._weight
        if not heap:
            return None
        lightest, last = heap[0], heap.pop()
        size, position = len(heap), 0
        if not size:
            return lightest
        while position < size // 2:
            child = 2 * position + 1
            if child + 1 < size and weight(heap[child]) > weight(heap[child + 1]):
                child += 1
            if weight(last) <= weight(heap[child]):
                break
            heap[position] = heap[child]
            position = child
        heap[position] = last
        return lightest
