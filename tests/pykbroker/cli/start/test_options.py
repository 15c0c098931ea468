"""The parser of `pykbroker start`: click is not used, so that a broker does not load it."""

from __future__ import annotations

import pytest

from pykbroker.cli.start.options import TopicSpec, UsageError, help_text, parse_start_options, parse_topic_spec


def test_nothing_is_required() -> None:
    options = parse_start_options([])
    assert (options.port, options.host, options.data_dir, options.config_file) == (None, None, None, None)
    assert (options.overrides, options.topics, options.stop_with_stdin, options.help) == ({}, [], False, False)


def test_values_come_as_the_next_word_or_after_an_equals_sign() -> None:
    options = parse_start_options(
        ["--port", "0", "--host=::1", "--port-file=/x/y=z", "--data-dir", "d", "--config", "c", "--stop-with-stdin"]
    )
    assert (options.port, options.host, options.port_file) == (0, "::1", "/x/y=z")
    assert (options.data_dir, options.config_file, options.stop_with_stdin) == ("d", "c", True)


def test_override_and_topic_repeat() -> None:
    options = parse_start_options(
        ["--override", "a=1", "--override=b = x=y ", "--topic", "t", "--topic=u:2", "--override", "a=2"]
    )
    assert options.overrides == {"a": "2", "b": "x=y"}
    assert options.topics == [TopicSpec("t", -1, {}), TopicSpec("u", 2, {})]


def test_levels_of_a_new_cluster() -> None:
    options = parse_start_options(["--release-version", "3.9", "--feature", "a=1", "--feature=b=2"])
    assert (options.release_version, options.features) == ("3.9", ["a=1", "b=2"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t", TopicSpec("t", -1, {})),
        ("t:3", TopicSpec("t", 3, {})),
        ("t:3:cleanup.policy=compact,delete", TopicSpec("t", 3, {"cleanup.policy": "compact,delete"})),
        ("t:1:retention.ms=5:segment.bytes=6", TopicSpec("t", 1, {"retention.ms": "5", "segment.bytes": "6"})),
        ("t:retention.ms=5", TopicSpec("t", -1, {"retention.ms": "5"})),
        # A value may hold colons: a part without = belongs to the value before it.
        (
            "t:1:leader.replication.throttled.replicas=0:1,1:2",
            TopicSpec("t", 1, {"leader.replication.throttled.replicas": "0:1,1:2"}),
        ),
        ("t:1:retention.ms=", TopicSpec("t", 1, {"retention.ms": ""})),
    ],
)
def test_topic_specs(text: str, expected: TopicSpec) -> None:
    assert parse_topic_spec(text) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--bogus"], "unknown option --bogus"),
        (["--prot", "9092"], "unknown option --prot; did you mean --port?"),
        (["--por", "1"], "did you mean --port?"),
        (["word"], "unexpected word 'word'"),
        (["--port"], "--port needs a value: --port PORT"),
        (["--port", "x"], "expected a number from 0 to 65535"),
        (["--port", "65536"], "expected a number from 0 to 65535"),
        (["--port", "-1"], "expected a number from 0 to 65535"),
        (["--override", "novalue"], "expected KEY=VALUE"),
        (["--stop-with-stdin=yes"], "takes no value"),
        (["--topic", ":3"], "the name is missing"),
        (["--topic", "t:0"], "'0' is not a number of partitions"),
        (["--topic", "t:many"], "'many' is not a number of partitions"),
        (["--topic", "t:1:novalue"], "expected KEY=VALUE, found 'novalue'"),
    ],
)
def test_errors_name_the_word_and_what_is_expected(words: list[str], expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_start_options(words)
    assert expected in str(caught.value)


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help(word: str) -> None:
    assert parse_start_options([word]).help
    text = help_text()
    for name in ("--port", "--host", "--port-file", "--data-dir", "--config", "--override", "--topic", "CLUSTER_ID"):
        assert name in text


def test_a_topic_is_no_text() -> None:
    assert TopicSpec("t", 1, {}) != "t"
    assert TopicSpec("t", 1, {}) == TopicSpec("t", 1, {})
