"""The settings of a run, and its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.history import History
from pipeline.records import Difference, Results, digest
from pipeline.stall import STALL_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Settings of a run, from the command line.

    Attributes:
        folder: for data and logs, the run's own.
        broker_command: how pykbroker is called, without a command.
        ivy_dir: for the jars that Spark fetches.
        bootstrap_servers: of a Kafka that runs; None to start pykbroker.
        second_bootstrap_servers: of another one, for a pipeline that needs it; None to start one.
        nodes: of the pykbroker that is started, 1 or 3.
        seed: of the input.
        seconds: over which the input is fed.
        size: how many events; None for as many as suit the pipeline.
        chaos: seed of the kills; None for an undisturbed run.
        suffix: is added to the names of topics and groups, so that they are new in a Kafka of somebody else.
        stall_s: seconds after which a run in which nothing moves is given up.
    """

    folder: Path
    broker_command: Sequence[str]
    ivy_dir: Path
    bootstrap_servers: str | None = None
    second_bootstrap_servers: str | None = None
    nodes: int = 1
    seed: int = 7
    size: int | None = None
    seconds: float = 15.0
    chaos: int | None = None
    suffix: str = ""
    stall_s: float = STALL_TIMEOUT_S


@dataclass(slots=True)
class RunResult:
    """Results of a run, beside those that were computed.

    Attributes:
        pipeline: its name.
        results: the tables that were read at the end.
        expected: the tables that were computed from the input.
        records: how many records were fed.
        history: what was seen on the way.
        differences: rows that are not as computed.
        seconds: from the start of Kafka to the end of the check.
    """

    pipeline: str
    settings: RunSettings
    records: int
    results: Results
    expected: Results
    history: History
    seconds: float
    differences: list[Difference] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        """True if every result is as computed."""
        return not self.differences

    @property
    def digest(self) -> str:
        """Fingerprint of the results."""
        return digest(self.results)

    @property
    def rows(self) -> int:
        """Number of rows that were computed."""
        return sum(len(table) for table in self.expected.values())
