"""The pytest plugin in test suites of users, each run by a pytest of its own that finds the plugin as installed.

Where only the checkout is there (`make unit-all`) the plugin is named on the command line instead.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CHECKOUT = Path(__file__).resolve().parents[3]
IS_INSTALLED = any(found.value == "pykbroker.testing.pytest_plugin" for found in entry_points(group="pytest11"))


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """An empty suite whose pytest makes errors of warnings."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    if not IS_INSTALLED:
        monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider -W error --strict-markers --strict-config")
    return pytester


def run(suite: pytest.Pytester, *words: str) -> pytest.RunResult:
    plugin = () if IS_INSTALLED else ("-p", "pykbroker.testing.pytest_plugin")
    return suite.runpytest_subprocess(*plugin, *words, timeout=120)


def test_a_broker_and_a_topic_for_each_test(suite: pytest.Pytester) -> None:
    suite.makepyfile("""
        import pytest

        pids, topics = set(), set()

        @pytest.mark.parametrize("number", [1, 2])
        def test_records(kafka_broker, kafka_topic, number):
            kafka_broker.produce(kafka_topic, ["a", "b"])
            assert [record.value for record in kafka_broker.consume(kafka_topic, 2)] == [b"a", b"b"]
            assert kafka_topic.startswith(f"test_records-{number}-")
            pids.add(kafka_broker.pid)
            topics.add(kafka_topic)

        @pytest.mark.pykbroker(partitions=3, topic_config={"cleanup.policy": "compact"})
        def test_partitions(kafka_broker, kafka_topic):
            positions = [kafka_broker.produce(kafka_topic, "x", key="k", partition=at)[0] for at in range(3)]
            assert [at.partition for at in positions] == [0, 1, 2]
            pids.add(kafka_broker.pid)
            topics.add(kafka_topic)

        def test_that_it_was_one_broker_and_three_topics():
            assert (len(pids), len(topics)) == (1, 3)
    """)
    run(suite).assert_outcomes(passed=4)


def test_settings_by_ini_and_marker(suite: pytest.Pytester) -> None:
    """The closest marker wins over others, these over the ini file; the broker of the session lives on meanwhile."""
    suite.makeini("""
        [pytest]
        pykbroker_partitions = 2
        pykbroker_storage = disk
        pykbroker_config =
            num.partitions = 4
            message.max.bytes = 5000
    """)
    suite.makepyfile("""
        import pytest

        pytestmark = pytest.mark.pykbroker(partitions=5)
        seen = []

        @pytest.fixture(scope="session")
        def big(kafka_broker):
            try:
                kafka_broker.produce("any", "x" * 6000, timeout_s=60)
            except Exception as error:
                return str(error)
            return "taken"

        def partitions(broker, topic):
            count = 0
            while True:
                try:
                    broker.produce(topic, "x", partition=count, timeout_s=60)
                except Exception:
                    return count
                count += 1

        def test_before(kafka_broker, kafka_topic, big):
            assert "large" in big.lower()
            assert "/dev/shm" not in kafka_broker.data_dir
            assert partitions(kafka_broker, kafka_topic) == 5
            seen.append(kafka_broker.pid)

        @pytest.mark.pykbroker(config={"message.max.bytes": 7000})
        class TestOwn:
            def test_own(self, kafka_broker, big):
                assert big == "taken"
                seen.append(kafka_broker.pid)

            @pytest.mark.pykbroker(config={"message.max.bytes": 3000})
            def test_closest(self, kafka_broker, kafka_fresh_broker, big):
                assert "large" in big.lower()
                assert kafka_fresh_broker.pid != kafka_broker.pid
                seen.append(kafka_broker.pid)

        def test_after(kafka_broker):
            seen.append(kafka_broker.pid)
            assert len(seen) == 4
            assert len(set(seen)) == 3
            assert seen.count(kafka_broker.pid) == 2
    """)
    run(suite).assert_outcomes(passed=4)


def test_clusters(suite: pytest.Pytester) -> None:
    suite.makepyfile("""
        import pytest

        def test_three(kafka_cluster, kafka_cluster_topic):
            assert kafka_cluster.node_ids == [1, 2, 3]
            kafka_cluster.kill(1)
            kafka_cluster.produce(kafka_cluster_topic, "x")
            kafka_cluster.start(1)

        @pytest.mark.pykbroker(nodes=2, config={"default.replication.factor": 1})
        def test_two(kafka_cluster):
            assert kafka_cluster.node_ids == [1, 2]
    """)
    run(suite).assert_outcomes(passed=2)


def test_one_broker_for_each_worker(suite: pytest.Pytester) -> None:
    suite.makepyfile("""
        import os, pathlib, pytest

        @pytest.mark.parametrize("number", range(8))
        def test_it(kafka_broker, kafka_topic, number):
            kafka_broker.produce(kafka_topic, str(number))
            worker = os.environ["PYTEST_XDIST_WORKER"]
            pathlib.Path(f"{worker}-{kafka_broker.pid}-{kafka_broker.port}").touch()
    """)
    # Sent out one at a time: each worker gets some.
    run(suite, "-n", "2", "--dist", "load", "--maxschedchunk", "1").assert_outcomes(passed=8)
    names = [path.name.split("-") for path in suite.path.glob("gw*")]
    assert {worker for worker, *_ in names} == {"gw0", "gw1"}
    assert len(names) == 2, "a broker each"
    assert len({port for *_, port in names}) == 2


def test_tls_by_the_marker_and_for_all(suite: pytest.Pytester) -> None:
    pytest.importorskip("cryptography")
    suite.makeini("[pytest]\npykbroker_tls = true\npykbroker_nodes = 1\n")
    suite.makepyfile("""
        import pytest

        def test_broker(kafka_broker, kafka_topic):
            assert kafka_broker.java_settings["security.protocol"] == "SSL"
            kafka_broker.produce(kafka_topic, "a")

        def test_cluster(kafka_cluster, kafka_cluster_topic):
            assert kafka_cluster.tls_ca_file
            kafka_cluster.produce(kafka_cluster_topic, "a")

        @pytest.mark.pykbroker(tls=False)
        def test_plain(kafka_broker, kafka_fresh_broker):
            assert "security.protocol" not in {**kafka_broker.java_settings, **kafka_fresh_broker.java_settings}
    """)
    run(suite).assert_outcomes(passed=3)


def test_a_failed_test_shows_the_log_of_its_broker(suite: pytest.Pytester) -> None:
    suite.makepyfile("""
        def test_fails(kafka_broker, kafka_fresh_broker):
            assert not kafka_broker.port

        def test_passes(kafka_broker):
            pass
    """)
    result = run(suite)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*Log of kafka_broker*", "pykbroker * is ready", "*Log of kafka_fresh_broker*"])
    assert result.stdout.str().count("Log of kafka_broker") == 1


def test_a_suite_has_fixtures_of_its_own_with_the_same_names(suite: pytest.Pytester) -> None:
    """kafka-python's suite has; a failed test of it was an internal error of pytest."""
    suite.makepyfile("""
        import pytest

        @pytest.fixture
        def kafka_broker():
            return "mine"

        def test_fails(kafka_broker):
            assert kafka_broker == "theirs"

        def test_passes(kafka_broker):
            pass
    """)
    run(suite).assert_outcomes(passed=1, failed=1)


@pytest.mark.parametrize(
    ("marker", "words"),
    [
        ("config={'num.partition': 3}", "no broker has a setting num.partition;"),
        ("config={'num.partitions': 'many'}", "num.partitions=many"),
        ("config=3", "pykbroker(config=3): expected a dict of settings"),
        ("partitions=0", "pykbroker(partitions=0): expected a number from 1 on"),
        ("topic_config={'cleanup.policy': 'burn'}", "was not created: *cleanup.policy"),
        ("tls=1", "pykbroker(tls=1): expected True or False"),
        ("partition=3", "has no argument 'partition': pykbroker(config={}, partitions=1"),
        ("3", "has named arguments only"),
    ],
)
def test_mistakes_are_named_without_a_traceback(suite: pytest.Pytester, marker: str, words: str) -> None:
    suite.makepyfile(f"""
        import pytest

        @pytest.mark.pykbroker({marker})
        def test_it(kafka_broker, kafka_topic):
            pass
    """)
    result = run(suite)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{words}*"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("pykbroker_config = num.partitions", "*'num.partitions': expected KEY=VALUE*"),
        ("pykbroker_partitions = few", "*pykbroker_partitions = few: expected a number*"),
        ("pykbroker_storage = nowhere", "*storage='nowhere': there is no such directory*"),
    ],
)
def test_mistakes_in_the_ini_file(suite: pytest.Pytester, line: str, words: str) -> None:
    suite.makeini(f"[pytest]\n{line}\n")
    suite.makepyfile("def test_it(kafka_topic): pass")
    result = run(suite)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([words])
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_nothing_is_imported_for_a_suite_that_does_not_use_it(suite: pytest.Pytester) -> None:
    suite.makepyfile("""
        import sys

        def test_it(pytestconfig):
            names = ("pykbroker", "pykbroker.testing.pytest_plugin")
            assert any(pytestconfig.pluginmanager.has_plugin(name) for name in names)
            ours = {name for name in sys.modules if name.partition(".")[0] == "pykbroker"}
            own = {"pykbroker.version", "pykbroker.testing", "pykbroker.testing.pytest_plugin"}
            assert ours == {"pykbroker", *own}
            assert not {"kafka", "confluent_kafka", "trio"} & sys.modules.keys()
    """)
    run(suite, "-p", "no:xdist").assert_outcomes(passed=1)


def test_the_plugin_imports_nothing_but_pytest() -> None:
    script = (
        "import sys, pytest\n"
        "before = set(sys.modules)\n"
        "import pykbroker.testing.pytest_plugin\n"
        "print(sorted(set(sys.modules) - before))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(
        ["pykbroker", "pykbroker.testing", "pykbroker.testing.pytest_plugin", "pykbroker.version"]
    )
