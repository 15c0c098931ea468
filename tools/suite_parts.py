"""The parts of the test suite: a selection that a newcomer waits for, and the whole.

`make test` runs the selection: everything that is quick, and a sample of what takes long. `make test-all` runs the
whole, each part once: where the selection has a sample of a part, the whole has that part with everything.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parent.parent
SPARK35_PYTHON = CHECKOUT / ".venvs" / "spark35" / "bin" / "python"
PIPELINES_PYTHON = CHECKOUT / ".venvs" / "pipelines" / "bin" / "python"
# What takes seconds by itself is a part of its own.
OWN_PARTS = ["tests/examples", "tests/hostile", "tests/installation", "tests/simulation"]
UNIT_TESTS = ["tests", "-m", "not java", *(f"--ignore={folder}" for folder in OWN_PARTS)]
# The suite says itself which files take longest; pytest-xdist would begin with those of the most tests.
IN_TWO_PROCESSES = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
INTEROP_TESTS = ["interop_tests", "--ignore-glob=*/test_cluster_*.py", *IN_TWO_PROCESSES]
CLUSTER_TESTS = sorted(str(path.relative_to(CHECKOUT)) for path in CHECKOUT.glob("interop_tests/test_cluster_*.py"))
# Of the simulation, which takes about a second of processor time for each.
SEEDS, SAMPLED_SEEDS = "1000", "100"
VOTER_SEEDS, SAMPLED_VOTER_SEEDS = "100", "10"
DIRECTORY_SEEDS, SAMPLED_DIRECTORY_SEEDS = "60", "6"
# A machine that is short of time runs fewer of them: CI may take 90 minutes, in which it also makes the environments.
# The mutations, of which all are run, take seven minutes of a slow core after the others. Of the other CPythons a slow
# machine runs the newest alone.
OTHERS_MINUTES = 9.0
SEEDS_MINUTES, VOTER_MINUTES, DIRECTORY_MINUTES, SEEDS_END_MINUTE = 30.0, 15.0, 6.0, 68.0
# The two longest parts that run side by side leave the time for those that come after them, of six minutes.
LONGEST_END_MINUTE = 74.0
TIME_LIMIT = ["-p", "tests.tools.time_limit"]
# Of brokers under load, by default twelve, and of coordinators of transactions, by default four. With three there is
# one of a copier, one of a broker, and one of both.
SAMPLED_KILLS = ["--kills", "3"]
# Files that the selection leaves out of a part: each takes a quarter of a minute or more, most to compile clients or to
# start one JVM after the other, and other files of the part put the same questions to a broker.
LEFT_OUT = {
    "interop": [
        "interop_tests/test_acls.py",
        "interop_tests/test_capacity.py",
        "interop_tests/test_connect.py",
        "interop_tests/test_dump_log.py",
        "interop_tests/test_flink.py",
        "interop_tests/test_go.py",
        "interop_tests/test_java_admin_tools.py",
        "interop_tests/test_javascript.py",
        "interop_tests/test_mirror_maker.py",
        "interop_tests/test_rust.py",
        "interop_tests/test_streams.py",
        "interop_tests/test_streams_kill.py",
        "interop_tests/test_transactions_java.py",
    ],
    "java": [
        "tests/controller/test_kafka_quorum_tools.py",
        "tests/controller/test_kafka_takes_over.py",
        "tests/differential/test_feature_levels.py",
    ],
}
# Parts that make environments of their own, of hundreds of megabytes, and programs that other parts are much like.
LEFT_OUT_PARTS = ["unit-others", "spark35", "pipelines", "examples", "installation"]


class Part(NamedTuple):
    """One run of pytest, or of another program whose last line says how it went.

    Attributes:
        description: of what it runs, for people.
        arguments: of the program.
        python: the interpreter.
        program: a module, or a script by its path from the checkout.
        needs_kafka_jars: the jars of Apache Kafka are fetched before, and PYKBROKER_KAFKA_LIBS names their folder.
        is_heavy: it keeps two cores busy, or asserts timings, and runs alone. Others are run two at a time: most of the
            time they wait for processes that they started or killed.
        is_background: it computes and waits for nothing, in virtual time. It runs at the lowest priority beside the
            parts that wait, and takes the processor time that they leave.
        minutes_max: the program takes `--minutes`, the time after which it begins nothing new: at most these, and no
            more than are left until `end_minute`. None for a program without.
        end_minute: of the whole run.
    """

    description: str
    arguments: list[str]
    python: str = sys.executable
    program: str = "pytest"
    needs_kafka_jars: bool = False
    is_heavy: bool = False
    is_background: bool = False
    minutes_max: float | None = None
    end_minute: float = SEEDS_END_MINUTE

    def begun_after(self, minutes: float) -> Part:
        """The part as it runs when it begins `minutes` after the whole: with its `--minutes`, if it takes them."""
        if self.minutes_max is None:
            return self
        left = max(min(self.minutes_max, self.end_minute - minutes), 0.0)
        return self._replace(arguments=[*self.arguments, "--minutes", f"{left:.1f}"])

    @property
    def command(self) -> list[str]:
        """Command line, for the checkout as working directory."""
        priority = ["nice", "-n", "19"] if self.is_background else []
        how = [self.program] if self.program.endswith(".py") else ["-m", self.program]
        return [*priority, self.python, *how, *self.arguments]


def parts(*, whole: bool) -> dict[str, Part]:
    """All parts by name, in the order in which they should run; the longest of those that run side by side first."""
    found = {
        "unit": Part("unit tests, on all cores", [*UNIT_TESTS, "-n", "auto"], is_heavy=True),
        "unit-others": Part(
            "unit tests on the other CPythons of this machine",
            ["--others"],
            program="tools/unit_all.py",
            is_heavy=True,
            minutes_max=OTHERS_MINUTES,
        ),
        "voters": Part(
            "simulated clusters to which controllers come and from which they go",
            ["--kind", "voters", "--seeds", VOTER_SEEDS if whole else SAMPLED_VOTER_SEEDS],
            program="tests.simulation",
            is_background=True,
            minutes_max=VOTER_MINUTES,
        ),
        "directories": Part(
            "simulated clusters whose machines have several log directories, which fail",
            ["--kind", "directories", "--seeds", DIRECTORY_SEEDS if whole else SAMPLED_DIRECTORY_SEEDS],
            program="tests.simulation",
            is_background=True,
            minutes_max=DIRECTORY_MINUTES,
        ),
        "simulate": Part(
            "clusters simulated in one thread, first with rules broken on purpose (`make simulate` runs more)",
            ["--seeds", SEEDS if whole else SAMPLED_SEEDS, "--mutations"],
            program="tests.simulation",
            is_background=True,
            minutes_max=SEEDS_MINUTES,
        ),
        "interop": Part(
            "stock clients, Java tools and Spark against broker processes, two files at a time",
            INTEROP_TESTS if whole else [*INTEROP_TESTS, *left_out("interop"), *SAMPLED_KILLS],
            needs_kafka_jars=True,
            is_heavy=True,
        ),
        "cluster": Part(
            "stock clients, Java tools and Spark against three nodes whose processes, links and disks are hurt"
            + ("" if whole else ": one test for each kind of fault"),
            [
                *TIME_LIMIT,
                *CLUSTER_TESTS,
                "--report-name=cluster",
                *([] if whole else ["-m", "sample", *SAMPLED_KILLS]),
            ],
            needs_kafka_jars=True,
            minutes_max=LONGEST_END_MINUTE,
            end_minute=LONGEST_END_MINUTE,
        ),
        "java": Part(
            "unit tests that ask Apache Kafka's jars",
            [*TIME_LIMIT, "tests", "-m", "java", *([] if whole else left_out("java"))],
            needs_kafka_jars=True,
            minutes_max=LONGEST_END_MINUTE,
            end_minute=LONGEST_END_MINUTE,
        ),
        "spark35": Part(
            "Spark 3.5 against a broker process",
            [
                "interop_tests/test_spark.py",
                "interop_tests/test_spark_security.py",
                "interop_tests/test_spark_streaming.py",
                "--report-name=spark35",
            ],
            str(SPARK35_PYTHON),
        ),
        "pipelines": Part(
            "one pipeline of spark_jobs under kill -9 of job and broker (`make pipelines` runs all)",
            ["run", "activity", "--chaos", "--events", "3000", "--seconds", "6"],
            str(PIPELINES_PYTHON),
            program="spark_jobs",
            # Spark keeps two cores busy; beside other tests its start alone takes a minute.
            is_heavy=True,
        ),
        "hostile": Part(
            "hostile clients against a broker process, and tests of the simulation",
            ["tests/hostile", "tests/simulation"],
        ),
        "examples": Part("the programs of examples/, each with its client library", ["tests/examples"]),
        "installation": Part(
            "the package in fresh environments: compiled, without a client library, beside kafka-python 2",
            ["tests/installation"],
        ),
        "kafka-python": Part(
            "kafka-python's own integration tests against a broker process",
            ["-q"],
            program="interop_tests.kafka_python_suite",
            # Its tests allow half a second for what takes milliseconds.
            is_heavy=True,
        ),
    }
    if not whole:
        for name in LEFT_OUT_PARTS:
            del found[name]
    return found


def left_out(name: str) -> list[str]:
    """Options of pytest that leave out the files of a part that the selection does not run."""
    return [f"--ignore={path}" for path in LEFT_OUT[name]]
