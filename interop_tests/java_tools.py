"""Runs the stock command-line tools of Apache Kafka from its jars."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from interop_tests.kafka_jars import JAVA

# A tool lives for a second or two: neither the optimising compiler nor a parallel collector pays for itself.
JAVA_FLAGS = ["-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true"]
# Consumers that end after a minute without a record, and the start of a JVM on a busy machine, are to end before it.
TIMEOUT_S = 180

ACLS = "org.apache.kafka.tools.AclCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
DELEGATION_TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
METADATA_QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
GROUPS = "org.apache.kafka.tools.GroupsCommand"
STREAMS_GROUPS = "org.apache.kafka.tools.streams.StreamsGroupCommand"
STREAMS_RESET = "org.apache.kafka.tools.StreamsResetter"
CLIENT_METRICS = "org.apache.kafka.tools.ClientMetricsCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"

# The tools' logger has no configuration here and says so; that is about our set-up, not about the broker.
_NOISE = re.compile(r"StatusLogger|SLF4J|log4j", re.IGNORECASE)


class Output(NamedTuple):
    """Output and exit code of a tool."""

    stdout: str
    stderr: str
    returncode: int

    @property
    def lines(self) -> list[str]:
        """Standard output without empty lines."""
        return [line for line in self.stdout.splitlines() if line.strip()]

    @property
    def rows(self) -> list[dict[str, str]]:
        """Standard output as a table: cells by the names of the first line."""
        head, *rest = [line.split() for line in self.lines]
        return [dict(zip(head, cells, strict=False)) for cells in rest]


class JavaTools:
    """The tools of one folder of jars, pointed at one broker.

    Args:
        libs: the folder of jars.
        bootstrap: host:port; "" for tools that read files only.
        flags: further options of the JVM.
    """

    def __init__(self, libs: Path, bootstrap: str = "", flags: tuple[str, ...] = ()) -> None:
        self.flags = flags
        self.classpath = f"{libs}/*"
        self.libs = libs
        self.bootstrap = bootstrap

    def at(self, bootstrap: str) -> JavaTools:
        """The same tools pointed at another broker."""
        return JavaTools(self.libs, bootstrap, self.flags)

    def run(self, main_class: str, *arguments: str, stdin: str = "", connected: bool = True) -> Output:
        """Runs a tool with `--bootstrap-server` (unless not connected) and the arguments, and waits for its end."""
        server = ["--bootstrap-server", self.bootstrap] if connected else []
        completed = subprocess.run(
            [JAVA, *JAVA_FLAGS, *self.flags, "-cp", self.classpath, main_class, *server, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Output(_without_noise(completed.stdout), _without_noise(completed.stderr), completed.returncode)

    def check(self, main_class: str, *arguments: str, stdin: str = "", connected: bool = True) -> Output:
        """As run, but a failed tool is an AssertionError that shows what it printed."""
        output = self.run(main_class, *arguments, stdin=stdin, connected=connected)
        name = main_class.rpartition(".")[2]
        assert output.returncode == 0, (
            f"{name} {arguments} ended with {output.returncode}\n{output.stdout}\n{output.stderr}"
        )
        return output


def _without_noise(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not _NOISE.search(line))
