"""The shape of a pipeline: its topics, its input, its Spark queries, and the results that the input must lead to.

A pipeline is a subclass of `Pipeline` in a module of `jobs/`. Two processes use it. The runner (`runner.py`) makes the
input, feeds it, and compares `results` with `expected`; the job (`job_process.py`) has a Spark session and calls
`start`. Nothing but Kafka and a folder is between the two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from pipeline.records import Record, Results, Stage, Topic

if TYPE_CHECKING:
    from pipeline.outcome import Outcome
    from pipeline.streams import Streams
    from pipeline.systems import Systems


class MissingPartError(Exception):
    """Something that this pipeline needs beyond Spark is not installed; the message says what and where to get it."""


def require_modules(needs: Mapping[str, str]) -> None:
    """Raises MissingPartError for the first module that is not installed; each has the name that pip knows."""
    for module, package in needs.items():
        if find_spec(module) is None:
            raise MissingPartError(f"{module} is not installed: pip install '{package}'")


class Databases(Protocol):
    """Database servers of a run."""

    addresses: dict[str, str]
    """Connection strings by name, when they are started."""

    def start(self) -> None:
        """Start them; returns when they answer."""

    def kill(self, choice: int) -> str:
        """kill -9 to the one that the number chooses; returns its name."""

    def revive(self) -> None:
        """Start what was killed."""

    def close(self) -> None:
        """End them."""


class Pipeline(ABC):
    """A job with its input and its proof; see the module's text.

    Attributes:
        name: on the command line.
        summary: one line for `list`.
        guarantee: one line on how its results are right, each once, after any crash.
        topics: all topics by name; in a Kafka of somebody else the real names get a suffix.
        size: how many events `make_input` makes by default.
        stages: by name, in their order.
        needs: modules that it imports beyond those that all have, and for each the name under which pip installs it.
        packages: Maven coordinates that Spark needs beside the Kafka connector; {scala} and {spark} are filled in.
        spark_settings: settings of its session.
        needs_second_cluster: the runner provides another Kafka too, with `second_topics`.
        is_fed: the runner sends the records to Kafka; else `accompany` does something with them.
        database_names: databases that it needs; the runner starts what `make_databases` gives, and chaos kills them.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    guarantee: ClassVar[str]
    topics: ClassVar[Mapping[str, Topic]]
    size: ClassVar[int] = 6000
    stages: ClassVar[Mapping[str, Stage]] = {"stream": Stage("the stream is processed")}
    needs: ClassVar[Mapping[str, str]] = {}
    packages: ClassVar[Sequence[str]] = ()
    spark_settings: ClassVar[Mapping[str, str]] = {}
    needs_second_cluster: ClassVar[bool] = False
    second_topics: ClassVar[Mapping[str, Topic]] = {}
    is_fed: ClassVar[bool] = True
    database_names: ClassVar[Sequence[str]] = ()

    def require_parts(self) -> None:
        """Raises MissingPartError unless what it needs beyond Spark and Kafka is there."""
        require_modules(self.needs)

    def require_databases(self, addresses: Mapping[str, str]) -> None:  # noqa: B027
        """Raises MissingPartError unless its databases, by their connection strings, are as its job needs them."""

    @abstractmethod
    def make_input(self, seed: int, size: int) -> dict[str, list[Record]]:
        """The input of each stage (one may have none), in the order in which it is sent; the same for the same seed."""

    @abstractmethod
    def expected(self, records: Sequence[Record]) -> Results:
        """The results to expect, computed from the input of all stages in plain Python."""

    @abstractmethod
    def start(self, streams: Streams, stage: str) -> None:
        """Start the streaming queries of a stage, or do its batch work; in the process that has the Spark session."""

    @abstractmethod
    def results(self, outcome: Outcome) -> Results:
        """The results as they are now, read by stock clients, without Spark where there is a choice."""

    def make_databases(self, folder: Path) -> Databases:
        """The databases, not started yet; called for a pipeline that has some, which overrides it."""
        raise NotImplementedError

    def prepare(self, systems: Systems) -> None:  # noqa: B027
        """Do what has to be done before the job starts, such as making tables. In the runner."""

    def accompany(self, systems: Systems, stage: str) -> None:  # noqa: B027
        """Do beside the feeding of a stage what is no record: let groups read, change a database. In the runner."""
