"""Java's .properties format."""

from __future__ import annotations

import pytest

from pykbroker.config.properties_file import PropertiesError, parse_properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=1\nb = 2\nc:3\nd 4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# comment\n  ! another\n\n  a=1", {"a": "1"}),
        ("a=1\\\n   ,2\\\n   ,3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a\\ b=1\na\\=b=2", {"a b": "1", "a=b": "2"}),
        ("path=C\\:\\\\x\\ty", {"path": "C:\\x\ty"}),
        ("a=\\u00e4\\u20ac\nb=\\ud83d\\ude00", {"a": "ä€", "b": "😀"}),
        ("a=x\r\nb=y\rc=z", {"a": "x", "b": "y", "c": "z"}),
        ("a\nb=\n", {"a": "", "b": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("a = b # not a comment", {"a": "b # not a comment"}),
        ("listeners=PLAINTEXT://:9092,CONTROLLER://:9093", {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}),
        ("a=1\\", {"a": "1"}),
    ],
)
def test_parse(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


def test_a_malformed_escape_names_its_line() -> None:
    with pytest.raises(PropertiesError, match=r"line 2.*setting b$") as caught:
        parse_properties("a=1\nb=SECRET\\u12")
    assert "SECRET" not in str(caught.value)
