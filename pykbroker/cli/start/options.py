"""The options of `pykbroker start`: a table, a parser, the help text. Free of imports on purpose (see cli/__init__)."""

from __future__ import annotations

from pykbroker.named_tuple import NamedTuple

NODES_MAX = 9
"""A quorum of more voters is slower and hardly safer."""


class UsageError(Exception):
    """The command line cannot be understood; the text says which word and what is expected instead."""


class TopicSpec(NamedTuple):
    """A topic to create at start: `--topic name[:partitions[:key=value...]]`; partitions -1: the broker's default."""

    name: str
    partitions: int
    configs: dict[str, str]


class StartOptions:
    """Options on the command line of `start`; None where an option is not given."""

    def __init__(self) -> None:
        self.host: str | None = None
        self.port: int | None = None
        self.nodes: int | None = None
        self.port_file: str | None = None
        self.data_dir: str | None = None
        self.config_file: str | None = None
        self.overrides: dict[str, str] = {}
        self.topics: list[TopicSpec] = []
        self.release_version: str | None = None
        self.features: list[str] = []
        self.stop_with_stdin = False
        self.tls = False
        self.help = False


# (name, metavar or None for a flag, what it does)
OPTIONS: tuple[tuple[str, str | None, str], ...] = (
    ("--port", "PORT", "port to listen on; 0 takes a free one (default 9092)"),
    ("--host", "HOST", "address to listen on; 0.0.0.0 or :: opens it to other machines (default localhost)"),
    ("--port-file", "PATH", "write host:port here once the broker answers; removed when it ends"),
    ("--data-dir", "PATH", "where topics and metadata are kept (default ./pykbroker-data)"),
    ("--config", "FILE", "a server.properties file as Apache Kafka reads it"),
    ("--override", "KEY=VALUE", "set one broker config; may be given again"),
    ("--nodes", "COUNT", "run a cluster of so many nodes, a process each, on ports from --port on"),
    ("--topic", "NAME:PARTITIONS:KEY=VALUE", "create this topic if it is missing; may be given again"),
    ("--release-version", "RELEASE", "begin with the feature levels of a release, 3.9 for example, where all is new"),
    ("--feature", "NAME=LEVEL", "begin with a feature at this level where all is new; may be given again"),
    ("--tls", None, "TLS for development: make certificates and client settings in the data directory"),
    ("--stop-with-stdin", None, "stop when standard input is closed (for programs that start a broker)"),
    ("--help", None, "show this text"),
)


def help_text() -> str:
    """Returns the text of `pykbroker start --help`."""
    rows = [(f"{name} {metavar}" if metavar else name, text) for name, metavar, text in OPTIONS]
    width = max(len(left) for left, _ in rows)
    options = "\n".join(f"  {left:<{width}}  {text}" for left, text in rows)
    return f"""Usage: pykbroker start [OPTIONS]

Start a broker in the foreground. No option is needed: it listens on localhost:9092, keeps its data in
./pykbroker-data and formats that directory when it is empty. Ctrl-C or SIGTERM stops it in order.

Options:
{options}

Settings are taken, later ones winning, from: Kafka's defaults, the --config file, the environment (KAFKA_* names as
in Apache Kafka's container image, and CLUSTER_ID), --override, and the options above. Without --config,
group.initial.rebalance.delay.ms is 0 (Kafka's default is 3000): a new consumer group has its partitions at once.
So is metadata.max.idle.interval.ms (Kafka's default is 500): an idle node writes nothing to its disk.

Examples:
  pykbroker start
  pykbroker start --port 0 --port-file broker.address --data-dir /tmp/kafka
  pykbroker start --nodes 3 --data-dir /tmp/cluster
  pykbroker start --tls
  pykbroker start --topic orders:3 --topic audit:1:cleanup.policy=compact:segment.bytes=1048576
  pykbroker start --config server.properties --override log.retention.hours=1
"""


def parse_start_options(words: list[str]) -> StartOptions:
    """Parses the words after `pykbroker start`.

    Raises:
        UsageError: an unknown option, a missing or malformed value.
    """
    options = StartOptions()
    metavars = {name: metavar for name, metavar, _ in OPTIONS}
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        name, has_value, value = word.partition("=")
        name = "--help" if name == "-h" else name
        if name not in metavars:
            raise UsageError(_unknown(word, list(metavars)))
        metavar = metavars[name]
        if metavar is None:
            if has_value:
                raise UsageError(f"{name} takes no value, but {value!r} was given")
        elif not has_value:
            if position == len(words):
                raise UsageError(f"{name} needs a value: {name} {metavar}")
            value = words[position]
            position += 1
        _set_option(options, name, value, is_flag=metavar is None)
    return options


def _unknown(word: str, names: list[str]) -> str:
    if not word.startswith("-"):
        return f"unexpected word {word!r}: `pykbroker start` takes options only"
    from difflib import get_close_matches  # late: only a mistyped start needs it

    close = [name for name in names if name.startswith(word) or word.startswith(name)] or get_close_matches(word, names)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"unknown option {word}{hint}"


def _set_option(options: StartOptions, name: str, value: str, *, is_flag: bool) -> None:
    if name == "--port":
        options.port = parse_port(value)
    elif name == "--nodes":
        options.nodes = parse_nodes(value)
    elif name == "--override":
        key, separator, text = value.partition("=")
        if not separator or not key.strip():
            raise UsageError(f"--override {value!r}: expected KEY=VALUE, for example num.partitions=3")
        options.overrides[key.strip()] = text.strip()
    elif name == "--topic":
        options.topics.append(parse_topic_spec(value))
    elif name == "--feature":
        options.features.append(value)
    elif name == "--config":
        options.config_file = value
    else:
        setattr(options, name.removeprefix("--").replace("-", "_"), True if is_flag else value)


def parse_port(text: str) -> int:
    """Returns the port number in `text`; raises UsageError outside 0..65535."""
    if not (text.isascii() and text.isdigit()) or int(text) > 65535:
        raise UsageError(f"--port {text!r}: expected a number from 0 to 65535 (0 takes a free port)")
    return int(text)


def parse_nodes(text: str) -> int:
    """Returns the number of nodes in `text`; raises UsageError outside 1..NODES_MAX."""
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= NODES_MAX:
        raise UsageError(
            f"--nodes {text!r}: expected a number from 1 to {NODES_MAX}; 3 is what most clusters begin with"
        )
    return int(text)


def parse_topic_spec(text: str) -> TopicSpec:
    """Parses `name[:partitions[:key=value...]]`.

    Pairs are separated by colons; a colon not followed by another `key=` belongs to the value before it.
    """
    name, *rest = text.split(":")
    if not name:
        raise UsageError(f"--topic {text!r}: expected NAME:PARTITIONS:KEY=VALUE, the name is missing")
    partitions = -1
    if rest and "=" not in rest[0]:
        count = rest.pop(0)
        if not (count.isascii() and count.isdigit()) or int(count) == 0:
            raise UsageError(f"--topic {text!r}: {count!r} is not a number of partitions")
        partitions = int(count)
    configs: dict[str, str] = {}
    key = ""
    for part in rest:
        left, separator, right = part.partition("=")
        if separator and left:
            key = left.strip()
            configs[key] = right
        elif key:
            configs[key] += ":" + part
        else:
            raise UsageError(f"--topic {text!r}: expected KEY=VALUE, found {part!r}")
    return TopicSpec(name, partitions, configs)
