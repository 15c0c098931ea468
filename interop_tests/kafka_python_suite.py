"""Runs kafka-python's own integration tests: `python -m interop_tests.kafka_python_suite [--target kafka]`.

The tests come from the source distribution of the version that requirements/kafka-python-suite.txt pins by hash; pip
fetches it once, into `.cache`. They run as their authors run them against a broker that is there already (KAFKA_URI).
Against Apache Kafka 4.3.1 55 pass and one is skipped, which is for old versions; fewer than 55 is a failure, whatever
pytest says. The nine SASL tests (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512), which upstream start brokers of their own, run
against another broker, by the plugin in `kafka_python_sasl.py`. Other options go on to pytest.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from interop_tests.brokers import ApacheKafkaProcess, BrokerProcess, PykbrokerProcess
from interop_tests.java_tools import JavaTools
from interop_tests.kafka_jars import kafka_jars
from interop_tests.made_once import locked
from interop_tests.ports import free_port

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent
CACHE = CHECKOUT / ".cache"
REQUIREMENTS = CHECKOUT / "requirements" / "kafka-python-suite.txt"
REPORTS = CHECKOUT / "reports" / "interop"

PASSED_MIN = 55
TIMEOUT_S = 600
# test_ssl_integration starts brokers of its own, which needs a Kafka distribution with its scripts.
SASL_TESTS = "test/integration/test_sasl_integration.py"
TESTS = ["test/integration", "--ignore=test/integration/test_ssl_integration.py", f"--ignore={SASL_TESTS}"]
SASL_PASSED_MIN = 9
SASL_USER, SASL_PASSWORD = "alice", "alice-secret"
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# What kafka-python's fixtures give the brokers that they start themselves.
SETTINGS = {
    "node.id": "0",
    "num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


class SuiteUnavailableError(Exception):
    """The tests could not be fetched; the message says why."""


class Outcome(NamedTuple):
    """Numbers of passed, failed and skipped tests of a run."""

    passed: int
    failed: int
    skipped: int

    @property
    def is_good(self) -> bool:
        """True if no test failed and at least PASSED_MIN passed, as many as against Apache Kafka."""
        return self.failed == 0 and self.passed >= PASSED_MIN

    def __str__(self) -> str:
        text = f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"
        return text if self.passed >= PASSED_MIN else f"{text}; {PASSED_MIN} should pass"


def suite_folder() -> Path:
    """The folder with the unpacked tests, fetched first if it is not there. Raises SuiteUnavailableError."""
    # Named after what is wanted, so that a new pin, or a change of what we add, makes a folder of its own.
    wanted = requirement()
    folder = CACHE / wanted.replace("==", "-")
    with locked(CACHE / "kafka-python-suite.lock"):
        if not (folder / "test").is_dir():
            _fetch(folder)
        # Written at every use: they are ours, and may have changed since the tests were unpacked.
        shutil.copyfile(HERE / "kafka_python_service.py", folder / "test" / "service.py")
        shutil.copyfile(HERE / "kafka_python_sasl.py", folder / "kafka_python_sasl.py")
        # Makes `test` a package, which then wins over the package of that name in Python's library.
        (folder / "test" / "__init__.py").touch()
        # Or pytest would look for its settings upwards and find those of this checkout.
        (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = ignore::DeprecationWarning\n")
    return folder


def requirement() -> str:
    """`kafka-python==3.0.12`, as the pin says."""
    (line,) = [line for line in REQUIREMENTS.read_text().splitlines() if line and not line.startswith("#")]
    return line.split()[0]


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=CACHE) as work:
        # Without build isolation pip uses the setuptools at hand to look into the archive; nothing is built.
        command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet"]
        command += ["--no-binary", ":all:", "--no-deps", "--no-build-isolation", "--require-hashes"]
        command += ["-r", str(REQUIREMENTS), "-d", work]
        completed = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        archives = list(Path(work).glob("*.tar.gz"))
        if completed.returncode != 0 or not archives:
            raise SuiteUnavailableError(f"{requirement()} could not be fetched by pip:\n{completed.stdout[-2000:]}")
        unpacked = Path(work) / "unpacked"
        with tarfile.open(archives[0]) as archive:
            # The tests alone: the client library is the installed one, of the same version.
            tests = [member for member in archive.getmembers() if "test" in member.name.split("/")[1:2]]
            archive.extractall(unpacked, members=tests, filter="data")
        (top,) = unpacked.iterdir()
        shutil.rmtree(folder, ignore_errors=True)
        top.rename(folder)


@contextmanager
def running_broker(target: str, log_path: Path) -> Iterator[str]:
    """Starts a broker of the target's kind with the settings of kafka-python's fixtures; yields host:port."""
    log_path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="kafka-python-suite-") as folder:
        broker: BrokerProcess
        if target == "kafka":
            broker = ApacheKafkaProcess(Path(folder), log_path, SETTINGS, JavaTools(kafka_jars()))
        else:
            # One test wants to see advertised.listeners among the settings, so the port is chosen here.
            port = free_port()
            settings = {**SETTINGS, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
            broker = PykbrokerProcess(Path(folder), log_path, settings)
            broker.bootstrap = f"127.0.0.1:{port}"
        broker.start()
        try:
            yield broker.bootstrap
        finally:
            broker.kill()


@contextmanager
def running_sasl_broker(target: str, log_path: Path) -> Iterator[str]:
    """Starts a broker with the user of kafka-python's fixtures, for each mechanism; yields host:port."""
    log_path.unlink(missing_ok=True)
    scram = "listener.name.sasl_plaintext.{}.sasl.jaas.config"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    settings = {
        "num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        "sasl.enabled.mechanisms": ",".join(SASL_MECHANISMS),
        **{scram.format(mechanism.lower()): module for mechanism in SASL_MECHANISMS[1:]},
    }
    users = {SASL_USER: SASL_PASSWORD}
    with tempfile.TemporaryDirectory(prefix="kafka-python-sasl-") as folder:
        broker: BrokerProcess
        if target == "kafka":
            broker = ApacheKafkaProcess(Path(folder), log_path, settings, JavaTools(kafka_jars()), users=users)
        else:
            broker = PykbrokerProcess(Path(folder), log_path, settings, users=users)
        broker.start()
        try:
            _add_scram_credentials(broker.bootstrap)
            yield broker.bootstrap
        finally:
            broker.kill()


def _add_scram_credentials(bootstrap: str) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    login = {"sasl.username": SASL_USER, "sasl.password": SASL_PASSWORD}
    admin = AdminClient({"bootstrap.servers": bootstrap, **settings, **login})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, 4096)
        change = UserScramCredentialUpsertion(SASL_USER, info, SASL_PASSWORD.encode())
        (future,) = admin.alter_user_scram_credentials([change]).values()
        future.result(30)


def run_sasl_tests(bootstrap: str, report: Path, arguments: Sequence[str]) -> Outcome:
    """Runs the SASL tests; as `run_tests`."""
    report.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as empty:
        environment = os.environ | {"KAFKA_SASL_ADDRESS": bootstrap, "KAFKA_VERSION": "4.3", "KAFKA_ROOT": empty}
        environment.pop("KAFKA_URI", None)
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "kafka_python_sasl"]
        command += [f"--junitxml={report}", SASL_TESTS, *arguments]
        try:
            subprocess.run(
                command,
                cwd=suite_folder(),
                env=environment,
                stdin=subprocess.DEVNULL,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            print(f"the SASL tests did not end within {TIMEOUT_S} s", file=sys.stderr)
    return outcome_of(report)


def run_tests(bootstrap: str, report: Path, arguments: Sequence[str]) -> Outcome:
    """Runs pytest on the suite and passes on what it prints; `report` gets its findings as JUnit writes them."""
    report.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as empty:
        # KAFKA_ROOT must be a folder, or the fixtures look for a Kafka distribution beside themselves.
        environment = os.environ | {"KAFKA_URI": f"kafka://{bootstrap}", "KAFKA_VERSION": "4.3", "KAFKA_ROOT": empty}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}", *TESTS]
        process = subprocess.Popen(
            [*command, *arguments], cwd=suite_folder(), env=environment, stdin=subprocess.DEVNULL
        )
        try:
            process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            print(f"the suite did not end within {TIMEOUT_S} s", file=sys.stderr)
        finally:
            process.kill()
            process.wait()
    return outcome_of(report)


def outcome_of(report: Path) -> Outcome:
    """Counts what a JUnit file says; a file that is not there, or holds no results, counts as one failure."""
    if not report.exists():
        return Outcome(0, 1, 0)
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    total, failed, skipped = (
        sum(int(suite.get(name, "0")) for suite in suites for name in names)
        for names in (["tests"], ["failures", "errors"], ["skipped"])
    )
    return Outcome(total - failed - skipped, failed, skipped)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the suite; 0 when it went as it does against Apache Kafka."""
    parser = argparse.ArgumentParser(prog="kafka_python_suite", description="kafka-python's own integration tests")
    parser.add_argument("--target", choices=["pykbroker", "kafka"], default="pykbroker", help="the broker to start")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a broker that runs already, with these settings")
    options, rest = parser.parse_known_args(arguments)
    target = "external" if options.bootstrap else options.target
    folder = REPORTS / target
    folder.mkdir(parents=True, exist_ok=True)
    report, log_path = folder / "kafka-python-suite.xml", folder / "broker-kafka-python-suite.log"
    try:
        suite_folder()
    except SuiteUnavailableError as trouble:
        print(trouble, file=sys.stderr)
        return 1
    started = time.monotonic()
    if options.bootstrap:
        outcome = run_tests(options.bootstrap, report, rest)
    else:
        with running_broker(target, log_path) as bootstrap:
            outcome = run_tests(bootstrap, report, rest)
    if outcome.is_good:
        log_path.unlink(missing_ok=True)
    elif not options.bootstrap:
        print(f"the broker's log: {log_path}")
    name = requirement().replace("==", " ")
    print(f"{name}'s own integration tests: {outcome} in {time.monotonic() - started:.0f} s", flush=True)
    is_good = outcome.is_good
    if not options.bootstrap:
        sasl_log = folder / "broker-kafka-python-sasl.log"
        with running_sasl_broker(target, sasl_log) as bootstrap:
            sasl = run_sasl_tests(bootstrap, folder / "kafka-python-sasl.xml", rest)
        is_sasl_good = sasl.failed == 0 and sasl.passed >= SASL_PASSED_MIN
        is_good = is_good and is_sasl_good
        if is_sasl_good:
            sasl_log.unlink(missing_ok=True)
        print(
            f"{name}'s own SASL tests: {sasl.passed} passed of {SASL_PASSED_MIN}, {sasl.failed} failed, "
            f"{sasl.skipped} skipped",
            flush=True,
        )
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
