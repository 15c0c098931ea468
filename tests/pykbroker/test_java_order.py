"""Orders of Java's and Kafka's collections, against what their own code printed."""

from __future__ import annotations

import pytest

from pykbroker.java_order import (
    copied_order,
    copied_table_size,
    is_blank,
    list_entries,
    number_order,
    partition_hash,
    partition_order,
    scala_hash_order,
    scala_number_order,
    string_hash,
    table_order,
    table_size_of_items,
    timeline_order,
    trim,
    uuid_hash,
)

# The numbers of keys "member-N", put in order, as Kafka 4.3.1's TimelineHashMap iterates over them.
OF_KAFKA = {
    2: "0,1",
    3: "0,2,1",
    5: "3,0,2,4,1",
    6: "3,0,5,2,4,1",
    11: "3,10,8,0,5,2,7,4,9,1,6",
}


@pytest.mark.parametrize("count", OF_KAFKA)
def test_the_order_of_a_timeline_hash_map(count: int) -> None:
    """P-330."""
    keys = [f"member-{number}" for number in range(count)]
    assert timeline_order(keys) == [f"member-{number}" for number in OF_KAFKA[count].split(",")]


def test_blank_text_is_what_javas_trim_leaves_nothing_of() -> None:
    assert all(map(is_blank, ("", " ", "\t\r\n", "\0\x1f")))
    assert not any(map(is_blank, ("a", " a ", "\u00a0", "\u2003", "\x7f")))


def test_texts_are_trimmed_as_java_does() -> None:
    """White space up to U+0020 goes, and no other; lists are split with the white space of Java's patterns."""
    assert trim("\r\n a b\x1f\t") == "a b"
    assert trim("\0a") == "\0a"
    assert trim("\u00a0a\u2003\x85") == "\u00a0a\u2003\x85"
    assert list_entries("a \t,\r\nb,,c\u00a0,\x01d") == ["a", "b", "", "c\u00a0", "\x01d"]


def test_hash_codes() -> None:
    """P-384: of texts of any length, of Kafka's Uuid and of its TopicIdPartition."""
    for length in (0, 1, 63, 64, 65, 300):
        expected = 0
        for character in (text := "ab\uffff" * length):
            expected = (31 * expected + ord(character)) & 0xFFFFFFFF
        assert string_hash(text) & 0xFFFFFFFF == expected
    topic_id = (0x8000_0000_0000_0001).to_bytes(8, "big") + (2).to_bytes(8, "big")
    assert uuid_hash(topic_id) == 0x8000_0003
    assert partition_hash((topic_id, 5)) == (31 * 0x8000_0003 + 5) % 2**32


def test_sets_of_numbers_and_partitions() -> None:
    """P-384: a number beyond the table comes with those of its bucket; a table has room for more than its items."""
    assert number_order([3, 16, 0]) == [16, 0, 3]
    assert number_order([3, 0, 16]) == [0, 16, 3]
    assert number_order(range(40)) == list(range(40))
    assert number_order([3, 16, 0], 32) == [0, 3, 16]
    assert table_order([16, 3, 0], int) == [16, 0, 3]
    assert [copied_table_size(count) for count in (0, 11, 12, 23, 24)] == [16, 16, 32, 32, 64]
    assert [table_size_of_items(count) for count in (0, 4, 5, 10, 11)] == [2, 8, 16, 16, 32]


def test_numbers_beyond_the_table_share_its_buckets() -> None:
    """A HashSet of 16 buckets: 17 is behind 1, and 16 behind 0."""
    assert number_order([17, 1, 0, 16]) == [0, 16, 17, 1]
    assert number_order([3, 1, 2]) == [1, 2, 3]


OF_SCALA = (
    """compression.type,log.cleaner.backoff.ms,log.segment.bytes,listener.name.plaintext.max.connections,
    log.flush.interval.messages,log.retention.bytes,log.cleaner.delete.retention.ms,min.insync.replicas,log.preallocate,
    max.connections,log.index.interval.bytes""",
    # Twelve keys have a table of 32, eleven one of 16.
    """compression.type,listener.name.plaintext.max.connections,log.flush.interval.messages,
    log.cleaner.delete.retention.ms,min.insync.replicas,log.index.interval.bytes,log.cleaner.backoff.ms,log.segment.bytes,
    log.retention.bytes,log.preallocate,max.connections,background.threads""",
)


@pytest.mark.parametrize("text", OF_SCALA)
def test_the_order_of_a_map_of_scala(text: str) -> None:
    """P-613: dynamic defaults of brokers, as Kafka 4.3.1 describes them."""
    expected = "".join(text.split()).split(",")
    assert scala_hash_order(sorted(expected)) == expected


def test_the_order_of_partitions_in_a_concurrent_hash_map() -> None:
    """P-615: as `new ConcurrentHashMap<TopicPartition, ...>` of Java has them."""
    assert partition_order("__consumer_offsets", range(11)) == [0, 9, 10, 7, 8, 5, 6, 3, 4, 1, 2]
    assert partition_order("__consumer_offsets", range(12)) == [11, 9, 10, 0, 7, 8, 5, 6, 3, 4, 1, 2]


def test_copied_order() -> None:
    """P-651: of `new HashSet<>(list)`; the order is Java's."""
    keys = [f"group-{number}" for number in (7, 2, 15, 29, 10, 24, 38, 33)]
    assert [key.removeprefix("group-") for key in copied_order(keys)] == ["10", "33", "7", "29", "2", "24", "38", "15"]


@pytest.mark.parametrize(
    ("put", "expected", "is_copy"),
    [
        ([4811, 443], [443, 4811], True),
        ([3, 1], [1, 3], True),
        ([69, 54, 60], [60, 69, 54], True),
        ([1442824, 1026570, 1762638], [1762638, 1026570, 1442824], True),
        ([9, 7, 3], [9, 3, 7], True),
        ([1401074, 1032499, 1246873, 675565, 1827006], [1246873, 1032499, 1827006, 675565, 1401074], True),
        ([74, 24, 106, 5, 54, 91, 122], [5, 54, 24, 74, 106, 122, 91], True),
        (
            [
                546182,
                803235,
                468388,
                848389,
                463502,
                1159944,
                879571,
                1674172,
                1995409,
                1365220,
                795864,
                170827,
                607823,
            ],
            [
                468388,
                1674172,
                607823,
                170827,
                463502,
                848389,
                546182,
                803235,
                1995409,
                1365220,
                795864,
                1159944,
                879571,
            ],
            True,
        ),
        ([24, 5, 91], [5, 24, 91], False),
        ([4, 2, 1], [1, 2, 4], False),
        ([4925, 1805, 2637], [1805, 2637, 4925], False),
        ([1, 3, 9, 19, 2, 10, 13, 8, 5, 11, 18, 14], [1, 2, 3, 5, 8, 9, 10, 11, 13, 14, 18, 19], False),
        ([1240360, 1119413], [1119413, 1240360], False),
    ],
)
def test_numbers_are_in_the_order_of_scalas_sets(put: list[int], expected: list[int], is_copy: bool) -> None:
    """P-674: as Scala 2.13.18 printed them; in an in-sync set of less than five with ids below 8 they ascend."""
    assert scala_number_order(put, is_copy=is_copy) == expected
