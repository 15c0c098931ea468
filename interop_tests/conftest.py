"""Options and fixtures of the suite: the broker that it runs against, and helpers that the tests share.

pytest interop_tests                                  starts pykbroker by its command line
pytest interop_tests --target kafka                   starts Apache Kafka from its published jars
pytest interop_tests --target mixed                   has nodes of both in each cluster, pykbroker where there is one
pytest interop_tests --bootstrap HOST:PORT            uses what runs there
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from interop_tests.brokers import ApacheKafkaProcess, Broker, BrokerProcess, PykbrokerProcess
from interop_tests.cluster import Cluster
from interop_tests.cluster_network import NETWORKS
from interop_tests.java_tools import JavaTools
from interop_tests.kafka_jars import JAVA, kafka_jars
from interop_tests.made_once import or_skip
from interop_tests.report import Report, in_words
from interop_tests.spark_io import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPORTS = Path(__file__).resolve().parent.parent / "reports" / "interop"
# What makes a suite of many small groups quick and is otherwise of no consequence.
QUICK = {"group.initial.rebalance.delay.ms": "0"}
# Of the broker that asks for logins.
USERS = {"alice": "open sesame"}

# The helpers of tests whose asserts should say as much as those in the tests.
pytest.register_assert_rewrite("interop_tests.language_scenarios")

# Files that take longest. Two processes share the files; one that began a long file last would leave the other idle.
LONGEST_FIRST = (
    "test_transactions_kill.py",
    "test_streams.py",
    "test_connect.py",
    "test_java_admin_tools.py",
    "test_mirror_maker.py",
    "test_java_tools.py",
    "test_quotas.py",
    "test_spark.py",
    "test_verifiable.py",
    "test_transactions_java.py",
    "test_kill.py",
    "test_spark_streaming.py",
)

StartBroker = Callable[..., BrokerProcess]
StartCluster = Callable[..., Cluster]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("interop", "which broker the interop tests run against")
    group.addoption("--target", choices=["pykbroker", "kafka", "mixed"], default="pykbroker", help="what to start")
    group.addoption("--kafka-nodes", default="2", metavar="IDS", help="nodes of a mixed cluster that are Apache Kafka")
    group.addoption("--bootstrap", metavar="HOST:PORT", help="a broker that runs already; nothing is started")
    group.addoption("--kills", type=int, metavar="N", help="how often a test of kills under load kills")
    group.addoption("--links", choices=[*NETWORKS], help="how links are cut; by default the first that is possible")
    group.addoption("--report-name", default="report", help="name of the report, for runs of a part (%(default)s)")


def target_of(config: pytest.Config) -> str:
    """`pykbroker`, `kafka`, `mixed`, or `external`."""
    return "external" if config.getoption("--bootstrap") else str(config.getoption("--target"))


def pytest_configure(config: pytest.Config) -> None:
    target = target_of(config)
    stem = REPORTS / target / str(config.getoption("--report-name"))
    config.stash[REPORT] = Report(target, stem)
    config.pluginmanager.register(config.stash[REPORT], "interop-report")
    config.addinivalue_line("markers", "area(name): which part of Kafka the test is about")
    config.addinivalue_line("markers", "client(name): the client that the test looks at the broker with")
    config.addinivalue_line("markers", "behaviour(sentence): what holds when the test passes, for want of a docstring")
    config.addinivalue_line("markers", "fault(kind): what is done to a cluster of three nodes; `none` to use it only")
    config.addinivalue_line(
        "markers", "sample: one test of its kind of fault, for `make test`, which has no time for all"
    )
    config.addinivalue_line("markers", "java: needs Java and the published jars of Apache Kafka")
    config.addinivalue_line("markers", "spark: needs Java, PySpark and its Kafka connector")
    # Client libraries, and py4j below PySpark, leave sockets to the garbage collector: theirs to mend, not ours.
    config.addinivalue_line("filterwarnings", "ignore::ResourceWarning")
    config.addinivalue_line("filterwarnings", "ignore::pytest.PytestUnraisableExceptionWarning")
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")
    config.addinivalue_line("markers", "own_broker: starts a broker of its own, so not with --bootstrap")


def pytest_unconfigure() -> None:
    # pytest collects garbage once more after the last test, when the filters of pytest_configure are gone.
    warnings.simplefilter("ignore", ResourceWarning)
    warnings.simplefilter("ignore", pytest.PytestUnraisableExceptionWarning)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: place_of(item.path.name))
    without_java = shutil.which(JAVA) is None
    for item in items:
        if item.get_closest_marker("own_broker") and config.getoption("--bootstrap"):
            item.add_marker(
                pytest.mark.skip(reason="starts, stops or looks into a broker of its own: not with --bootstrap")
            )
        if without_java and (item.get_closest_marker("java") or item.get_closest_marker("spark")):
            item.add_marker(
                pytest.mark.skip(reason=f"{JAVA} was not found (Debian: apt install openjdk-17-jre-headless)")
            )


def place_of(file_name: str) -> int:
    """Rank of a file in the order of a run; those that are quick keep theirs behind the long ones."""
    return LONGEST_FIRST.index(file_name) if file_name in LONGEST_FIRST else len(LONGEST_FIRST)


@pytest.fixture(scope="session")
def target(pytestconfig: pytest.Config) -> str:
    """`pykbroker`, `kafka`, `mixed`, or `external`."""
    return target_of(pytestconfig)


@pytest.fixture(scope="session")
def kills(target: str, pytestconfig: pytest.Config) -> int:
    """Number of kills of a broker under load: --kills, else 12, and 3 with Apache Kafka, which starts slowly."""
    chosen = pytestconfig.getoption("--kills")
    return chosen if chosen is not None else 3 if target in ("kafka", "mixed") else 12


@pytest.fixture(scope="session")
def reports(target: str) -> Path:
    """Folder for tables and the logs of brokers; not in git."""
    folder = REPORTS / target
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def java_libs() -> Path:
    """Folder of Apache Kafka's jars, fetched when they are not there yet."""
    return or_skip(kafka_jars)


@pytest.fixture(scope="session")
def start_broker(
    target: str, reports: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[StartBroker]:
    """`start_broker("name", {"num.partitions": "3"})` starts a broker of the target's kind, for the whole session.

    With `users={"alice": "password"}` its clients log in by SASL/PLAIN. `jvm_flags` are for a broker in a JVM.
    """
    started: list[BrokerProcess] = []

    def start(
        name: str,
        overrides: dict[str, str] | None = None,
        users: dict[str, str] | None = None,
        protocol: str | None = None,
        jvm_flags: tuple[str, ...] = (),
        **options: object,
    ) -> BrokerProcess:
        folder = tmp_path_factory.mktemp(name)
        # Not in the folder of reports: several runs may go on at the same time.
        log_path = folder / "broker.log"
        settings = {**QUICK, **(overrides or {})}
        broker: BrokerProcess
        if target == "kafka":
            tools = JavaTools(request.getfixturevalue("java_libs"), flags=jvm_flags)
            broker = ApacheKafkaProcess(folder, log_path, settings, tools, users=users, protocol=protocol)
        else:
            options |= {"users": users, "protocol": protocol}
            broker = PykbrokerProcess(folder, log_path, settings, **options)  # type: ignore[arg-type]
        started.append(broker)
        broker.start()
        return broker

    yield start
    for broker in started:
        broker.kill()
    if request.session.testsfailed:  # the logs are kept for whoever looks into a failure
        process = os.environ.get("PYTEST_XDIST_WORKER", "")
        for broker in started:
            if broker.log_path is not None and broker.log_path.exists():
                shutil.copy(broker.log_path, reports / f"broker-{broker.folder.name}{process}.log")


@pytest.fixture(scope="session")
def start_cluster(
    target: str, reports: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[StartCluster]:
    """`start_cluster("name", {"num.partitions": "3"})` starts three nodes of the target's kind; options as Cluster."""
    started: list[tuple[str, Cluster]] = []

    def start(name: str, overrides: dict[str, str] | None = None, **options: Any) -> Cluster:
        folder = tmp_path_factory.mktemp(name)
        tools = None if target == "pykbroker" else JavaTools(request.getfixturevalue("java_libs"))
        if target == "mixed":
            ids = str(request.config.getoption("--kafka-nodes"))
            options.setdefault("kafka_nodes", {int(node_id) for node_id in ids.split(",")})
        cluster = Cluster(folder, tools, overrides, **options)
        started.append((name, cluster))
        cluster.start()
        return cluster

    yield start
    for name, cluster in started:
        cluster.close()
        if request.session.testsfailed:
            for node in cluster.nodes.values():
                if node.log_path is not None and node.log_path.exists():
                    shutil.copy(node.log_path, reports / f"cluster-{name}-{node.node_id}.log")


@pytest.fixture(scope="session")
def broker(target: str, start_broker: StartBroker, pytestconfig: pytest.Config) -> Broker:
    """The broker that most tests share."""
    shared = Broker(str(pytestconfig.getoption("--bootstrap"))) if target == "external" else start_broker("shared")
    pytestconfig.stash[REPORT].bootstrap = shared.bootstrap
    return shared


@pytest.fixture(scope="session")
def bootstrap(broker: Broker) -> str:
    """host:port of the shared broker."""
    return broker.bootstrap


@pytest.fixture(scope="session")
def restartable_broker(start_broker: StartBroker) -> BrokerProcess:
    """A broker that tests stop and start again; its address and data stay."""
    return start_broker("restartable")


@pytest.fixture(scope="session")
def broker_with_users(start_broker: StartBroker) -> BrokerProcess:
    """A broker whose clients log in as one of USERS."""
    return start_broker("with-users", users=USERS)


@pytest.fixture(scope="session")
def tools(java_libs: Path, bootstrap: str) -> JavaTools:
    """The stock command-line tools, pointed at the shared broker."""
    return JavaTools(java_libs, bootstrap)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark for all its tests: a start costs seconds."""
    yield from spark_session()


@pytest.fixture
def name(request: pytest.FixtureRequest, unique: Callable[[str], str]) -> str:
    """A topic or group name that no other test, and no earlier run against the same broker, has used."""
    return unique(request.node.name)


@pytest.fixture(scope="session")
def unique() -> Callable[[str], str]:
    """Makes names that nobody has used."""
    run = f"{os.getpid():x}-{os.urandom(3).hex()}"
    numbers = itertools.count()

    def make(stem: str) -> str:
        return re.sub(r"[^A-Za-z0-9-]+", "-", stem)[:80].strip("-") + f"-{run}-{next(numbers)}"

    return make


class SummaryTables:
    """Tables that are printed at the end of the run."""

    def __init__(self) -> None:
        self.texts: list[str] = []


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[TABLES] = SummaryTables()


TABLES = pytest.StashKey[SummaryTables]()
REPORT = pytest.StashKey[Report]()


@pytest.fixture(scope="session")
def summary_tables(pytestconfig: pytest.Config) -> SummaryTables:
    """Append a text to `.texts` to have it in the terminal summary."""
    return pytestconfig.stash[TABLES]


def pytest_sessionfinish(session: pytest.Session) -> None:
    # A process of pytest-xdist prints nothing: its tables go to the one that does.
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["tables"] = session.config.stash[TABLES].texts


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes the tables of a process of pytest-xdist that has ended."""
    node.config.stash[TABLES].texts += getattr(node, "workeroutput", {}).get("tables", [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for text in config.stash[TABLES].texts:
        terminalreporter.write_line("")
        terminalreporter.write_line(text)
    report = config.stash[REPORT]
    if report.results:
        totals = in_words(report.as_data()["totals"])
        terminalreporter.write_line("")
        terminalreporter.write_line(f"Interop report, {totals}: {report.stem.with_suffix('.md')}")
