"""Tables of results: comparison, fingerprint, records that must be there once."""

from __future__ import annotations

import pytest
from pipeline.records import differences, digest, last_per_key, rows_once
from pipeline.schemas import MEASUREMENT, at, floor, iso, ms


def test_equal_results_have_no_differences_and_one_digest() -> None:
    one = {"counts": {"a": {"n": 1}, "b": {"n": 2}}}
    other = {"counts": {"b": {"n": 2}, "a": {"n": 1}}}
    assert differences(one, other) == []
    assert digest(one) == digest(other)


@pytest.mark.parametrize(
    ("got", "shown"),
    [
        ({"a": 1}, "counts: b: expected 2, got nothing"),
        ({"a": 1, "b": 3}, "counts: b: expected 2, got 3"),
        ({"a": 1, "b": 2, "c": 0}, "counts: c: expected nothing, got 0"),
    ],
)
def test_a_row_that_is_missing_wrong_or_too_many_is_a_difference(got: dict[str, int], shown: str) -> None:
    found = differences({"counts": got}, {"counts": {"a": 1, "b": 2}})
    assert [str(one) for one in found] == [shown]


def test_a_table_that_is_missing_is_a_difference_for_each_of_its_rows() -> None:
    assert len(differences({}, {"counts": {"a": 1, "b": 2}})) == 2


def test_a_record_that_is_there_twice_is_a_difference() -> None:
    table = rows_once([("a", 1), ("b", 2), ("a", 1)])
    assert table == {"a": 1, "b": 2, "a (copy 2)": 1}
    assert len(differences({"t": table}, {"t": {"a": 1, "b": 2}})) == 1


def test_the_last_value_of_a_key_counts_and_a_tombstone_deletes() -> None:
    assert last_per_key([("a", 1), ("b", 2), ("a", 3), ("b", None)]) == {"a": 3}


def test_an_event_has_the_fields_of_its_schema_only() -> None:
    assert MEASUREMENT.encode(host="h", metric="cpu", value=1, ts=at(1.5)) == (
        b'{"host": "h", "metric": "cpu", "value": 1, "ts": "2026-01-05T12:00:01.500Z"}'
    )
    with pytest.raises(TypeError, match="user"):
        MEASUREMENT.encode(user="u")
    assert MEASUREMENT.ddl == "host STRING, metric STRING, value LONG, ts TIMESTAMP"


def test_times() -> None:
    assert ms(at(1.5)) - ms(at(0)) == 1500
    assert iso(floor(at(659.9), 600)) == "2026-01-05T12:10:00.000Z"
