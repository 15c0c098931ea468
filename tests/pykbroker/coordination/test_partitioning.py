"""The partition that coordinates a key (P-88)."""

from __future__ import annotations

import pytest

from pykbroker.coordination.partitioning import OFFSETS_TOPIC, coordinator_partition, keys_by_partition
from pykbroker.java_order import string_hash, utf16_length
from pykbroker.protocol.steps import finished
from pykbroker.security.client_address import java_address


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("Aa", 2112),
        ("BB", 2112),
        ("\N{EURO SIGN}", 0x20AC),
        ("\N{GRINNING FACE}", 0xD83D * 31 + 0xDE00),
        ("\ud83d", 0xD83D),
    ],
)
def test_java_string_hash_p_88(text: str, value: int) -> None:
    """P-88: over UTF-16 units; the values are Java's."""
    assert string_hash(text) == value


def test_the_smallest_hash_goes_to_partition_0_p_88() -> None:
    """P-88."""
    assert coordinator_partition("polygenelubricants", 50) == 0


def test_negative_hashes_p_88() -> None:
    """P-88: the absolute value, not Python's modulo."""
    name = next(name for name in map("group-{}".format, range(1000)) if string_hash(name) < 0)
    assert coordinator_partition(name, 50) == -string_hash(name) % 50


def test_lengths_as_java_counts_them() -> None:
    assert [utf16_length(text) for text in ("", "ab", "\N{EURO SIGN}", "\N{GRINNING FACE}")] == [0, 2, 1, 2]


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("127.0.0.1", "/127.0.0.1"),
        ("::1", "/0:0:0:0:0:0:0:1"),
        ("2001:db8::a", "/2001:db8:0:0:0:0:0:a"),
        ("fe80::1%eth0", "/fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_addresses_as_java_writes_them(host: str, text: str) -> None:
    assert java_address(host) == text


def test_keys_by_partition_p_651() -> None:
    """P-651: the order of a HashMap of Kafka's TopicPartitions; the values are Java's."""
    groups = [f"group-{number * 7 % 40}" for number in range(40)]
    found = finished(keys_by_partition(groups, OFFSETS_TOPIC, 5))
    assert [[group.removeprefix("group-") for group in some] for some in found] == [
        ["7", "2", "15", "29", "10", "24", "38", "33"],
        ["0", "18", "13", "27", "22", "36", "31", "5"],
        ["14", "28", "23", "37", "32", "6", "1", "19"],
        ["16", "11", "25", "39", "20", "34", "8", "3"],
        ["21", "35", "9", "30", "4", "17", "12", "26"],
    ]
