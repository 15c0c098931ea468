"""pytest plugin: brokers, topics and clusters as fixtures, for every test suite where pykbroker is installed.

| fixture | scope | value |
|---|---|---|
| `kafka_broker` | session | a running `LocalBroker`; under pytest-xdist one for each worker |
| `kafka_topic` | function | name of a new topic on `kafka_broker` |
| `kafka_fresh_broker` | function | a running `LocalBroker` for this test alone |
| `kafka_cluster` | module | a running `LocalCluster` |
| `kafka_cluster_topic` | function | name of a new topic on `kafka_cluster` |

The marker `pykbroker(config=..., partitions=..., topic_config=..., nodes=..., tls=...)` changes what a test gets. With
`config` or `tls` it has a `kafka_broker` or `kafka_cluster` of its own, with `nodes` a `kafka_cluster` of its own, and
fixtures that depend on them are made anew for it. pytest runs such tests of one session or module one after another.

The log of a broker is a section of the report of each test that used it and failed. `-p no:pykbroker` turns all off.

pytest imports this module at each of its starts. It imports nothing but pytest; the rest comes with the first fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from typing import NoReturn

    from pykbroker.testing.local_broker import LocalBroker
    from pykbroker.testing.local_client import LocalClient
    from pykbroker.testing.local_cluster import LocalCluster

_MARKER = "pykbroker"
_MARKER_HELP = (
    "pykbroker(config={}, partitions=1, topic_config={}, nodes=3, tls=False): broker settings, partitions and settings "
    "of kafka_topic, nodes of kafka_cluster, listeners with TLS. A test with config, nodes or tls gets a broker or "
    "cluster of its own."
)
_SHOWN_IN_REPORTS = ("kafka_broker", "kafka_fresh_broker", "kafka_cluster")
_LOG_TAIL_LINES = 40
_TOPIC_STEM_MAX = 200


class MarkerArguments(NamedTuple):
    """The arguments of all `pykbroker` markers of a test; the closest marker wins. None for each that is not given."""

    config: Mapping[str, str | float] | None = None
    partitions: int | None = None
    topic_config: Mapping[str, str | float] | None = None
    nodes: int | None = None
    tls: bool | None = None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the settings for pytest.ini, or the like."""
    parser.addini(
        "pykbroker_config", "settings of all brokers, KEY=VALUE by Kafka's names, one a line", type="linelist"
    )
    parser.addini("pykbroker_partitions", "partitions of kafka_topic (default: 1)", default="1")
    parser.addini("pykbroker_nodes", "nodes of kafka_cluster (default: 3)", default="3")
    parser.addini("pykbroker_tls", "listeners of all brokers have TLS (default: false)", type="bool", default=False)
    parser.addini(
        "pykbroker_storage",
        "directories of brokers: auto (default: in memory, if there is room), memory, disk, or a directory",
        default="auto",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker."""
    config.addinivalue_line("markers", _MARKER_HELP)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Gives a test with `config`, `nodes` or `tls` in its marker a broker or cluster of its own, by a parameter."""
    arguments = _marker_arguments(metafunc.definition)
    is_own_broker = arguments.config is not None or arguments.tls is not None
    needs = {"kafka_broker": is_own_broker, "kafka_cluster": is_own_broker or arguments.nodes is not None}
    for name, is_own in needs.items():
        if is_own and name in metafunc.fixturenames:  # pragma: no cover: tests run pytest in processes
            # Before pytest 8.4 it cannot be kept out of the test's name.
            metafunc.parametrize(name, [arguments], indirect=True, ids=[getattr(pytest, "HIDDEN_PARAM", _MARKER)])


@pytest.fixture(scope="session")
def _kafka_session_broker(  # pragma: no cover: tests run pytest in processes
    pytestconfig: pytest.Config,
) -> Iterator[Callable[[], LocalBroker]]:
    """Gives the broker of the session, started at the first use; it outlives tests that have their own."""
    from contextlib import ExitStack

    with ExitStack() as at_end:
        running: list[LocalBroker] = []

        def broker() -> LocalBroker:
            if not running:
                running.append(_start_broker(pytestconfig, MarkerArguments()))
                at_end.callback(running[0].close)
            return running[0]

        yield broker


@pytest.fixture(scope="session")
def kafka_broker(  # pragma: no cover: tests run pytest in processes
    request: pytest.FixtureRequest, _kafka_session_broker: Callable[[], LocalBroker]
) -> Iterator[LocalBroker]:
    """Gives a running `pykbroker.LocalBroker`: the same for all tests without `config` or `tls` in a marker."""
    arguments: MarkerArguments | None = getattr(request, "param", None)
    if arguments is None:
        yield _kafka_session_broker()
        return
    broker = _start_broker(request.config, arguments)
    yield broker
    broker.close()


@pytest.fixture
def kafka_fresh_broker(  # pragma: no cover: tests run pytest in processes
    request: pytest.FixtureRequest,
) -> Iterator[LocalBroker]:
    """Gives a running broker for this test alone, without any topic: a `pykbroker.LocalBroker`."""
    broker = _start_broker(request.config, _marker_arguments(request.node))
    yield broker
    broker.close()


@pytest.fixture(scope="module")
def kafka_cluster(  # pragma: no cover: tests run pytest in processes
    request: pytest.FixtureRequest,
) -> Iterator[LocalCluster]:
    """Gives a running cluster, a `pykbroker.LocalCluster`.

    It is the same for all tests of a module without `config`, `nodes` and `tls` in a marker.
    """
    from pykbroker.testing.local_cluster import LocalCluster

    arguments: MarkerArguments = getattr(request, "param", MarkerArguments())
    settings = _settings(request.config, arguments.config)
    nodes = arguments.nodes if arguments.nodes is not None else _ini_number(request.config, "pykbroker_nodes")
    storage = request.config.getini("pykbroker_storage")
    with _failures():
        cluster = LocalCluster(nodes, config=settings, storage=storage, tls=_has_tls(request.config, arguments))
        try:
            cluster.start_all()
        except BaseException:
            cluster.close()
            raise
    yield cluster
    cluster.close()


@pytest.fixture
def kafka_topic(  # pragma: no cover: tests run pytest in processes
    request: pytest.FixtureRequest, kafka_broker: LocalBroker
) -> str:
    """Gives the name of a new topic on `kafka_broker`, which begins with the name of the test."""
    return _new_topic(request, kafka_broker)


@pytest.fixture
def kafka_cluster_topic(  # pragma: no cover: tests run pytest in processes
    request: pytest.FixtureRequest, kafka_cluster: LocalCluster
) -> str:
    """Gives the name of a new topic on `kafka_cluster`, which begins with the name of the test."""
    return _new_topic(request, kafka_cluster)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Adds the end of the brokers' logs to the report of a test that failed."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:  # pragma: no cover: tests run pytest in processes
        values = getattr(item, "funcargs", {})
        for name in _SHOWN_IN_REPORTS:
            # A suite may have a fixture of its own with this name.
            if type(values.get(name)).__module__.startswith("pykbroker.testing."):
                report.sections += _log_sections(name, values[name])  # pragma: no cover: tests run pytest in processes


def _log_sections(name: str, value: Any) -> list[tuple[str, str]]:  # pragma: no cover: tests run pytest in processes
    nodes = getattr(value, "node_ids", None)
    logs = [(name, value.log)] if nodes is None else [(f"{name} node {at}", value.node(at).log) for at in nodes]
    return [
        (f"Log of {title}", "\n".join(["..."] * (len(lines) > _LOG_TAIL_LINES) + lines[-_LOG_TAIL_LINES:]))
        for title, text in logs
        for lines in [text.splitlines()]
    ]


def _start_broker(  # pragma: no cover: tests run pytest in processes
    config: pytest.Config, arguments: MarkerArguments
) -> LocalBroker:
    from pykbroker.testing.local_broker import LocalBroker

    settings, storage = _settings(config, arguments.config), config.getini("pykbroker_storage")
    with _failures():
        broker = LocalBroker(config=settings, storage=storage, tls=_has_tls(config, arguments))
        try:
            return broker.start()
        except BaseException:
            broker.close()
            raise


def _new_topic(  # pragma: no cover: tests run pytest in processes
    request: pytest.FixtureRequest, client: LocalClient
) -> str:
    import re
    import uuid

    arguments = _marker_arguments(request.node)
    partitions = arguments.partitions
    if partitions is None:
        partitions = _ini_number(request.config, "pykbroker_partitions")
    stem = re.sub("[^a-zA-Z0-9._-]+", "-", request.node.name)[:_TOPIC_STEM_MAX].strip("-.")
    name = f"{stem}-{uuid.uuid4().hex[:12]}"
    with _failures():
        client.create_topic(name, partitions, config=arguments.topic_config)
    return name


class _failures:  # noqa: N801  used as a function; contextlib is not imported at pytest's start
    """Shows the text of a broker's failure without a traceback."""

    def __enter__(self) -> None:  # pragma: no cover: tests run pytest in processes
        pass

    def __exit__(  # pragma: no cover: tests run pytest in processes
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object
    ) -> None:
        from pykbroker.testing.local_client import LocalBrokerError

        if isinstance(error, LocalBrokerError | ValueError):
            _refuse(str(error))


def _refuse(text: str) -> NoReturn:  # pragma: no cover: tests run pytest in processes
    """Fails the collection or the fixture with this text and no traceback."""
    pytest.fail(text, pytrace=False)


# Settings


def _settings(  # pragma: no cover: tests run pytest in processes
    config: pytest.Config, own: Mapping[str, str | float] | None
) -> dict[str, str | float]:
    """The settings of a broker: those of the ini file, overridden by `own`."""
    settings: dict[str, str | float] = {}
    for line in config.getini("pykbroker_config"):
        key, separator, value = line.partition("=")
        if not separator or not key.strip():
            _refuse(f"pykbroker_config: {line!r}: expected KEY=VALUE, for example num.partitions=3")
        settings[key.strip()] = value.strip()
    settings |= own or {}
    if settings:
        from pykbroker.config.broker_config import is_known_key

        unknown = sorted(key for key in settings if not is_known_key(key))
        if unknown:
            _refuse(
                f"pykbroker: no broker has a setting {', '.join(unknown)}; names are Kafka's, as in server.properties"
            )
    return settings


def _has_tls(  # pragma: no cover: tests run pytest in processes
    config: pytest.Config, arguments: MarkerArguments
) -> bool:
    return bool(config.getini("pykbroker_tls")) if arguments.tls is None else arguments.tls


def _ini_number(config: pytest.Config, name: str) -> int:  # pragma: no cover: tests run pytest in processes
    text = config.getini(name)
    if not text.isdecimal() or int(text) < 1:
        _refuse(f"{name} = {text}: expected a number from 1 on")
    return int(text)


def _marker_arguments(  # pragma: no cover: tests run pytest in processes
    node: pytest.Item | pytest.Collector,
) -> MarkerArguments:
    """The arguments of the markers of a test, its class and its module, checked."""
    arguments = MarkerArguments()
    for marker in reversed(list(node.iter_markers(_MARKER))):
        if marker.args:
            _refuse(f"the marker {_MARKER} has named arguments only: {_MARKER_HELP}")
        for name, value in marker.kwargs.items():
            if name not in MarkerArguments._fields:
                _refuse(f"the marker {_MARKER} has no argument {name!r}: {_MARKER_HELP}")
            if name in ("partitions", "nodes"):
                if not isinstance(value, int) or value < 1:
                    _refuse(f"the marker {_MARKER}({name}={value!r}): expected a number from 1 on")
            elif name == "tls":
                if not isinstance(value, bool):
                    _refuse(f"the marker {_MARKER}({name}={value!r}): expected True or False")
            elif not isinstance(value, dict):
                _refuse(f"the marker {_MARKER}({name}={value!r}): expected a dict of settings")
            else:
                value = {**(getattr(arguments, name) or {}), **value}
            arguments = arguments._replace(**{name: value})
    return arguments
