"""Systems that the runner provides to a run: one Kafka or two, databases, and the real names of topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.outcome import Outcome

if TYPE_CHECKING:
    from pipeline.cluster import Cluster
    from pipeline.records import Record


@dataclass(slots=True)
class Systems:
    """The systems at both ends of a pipeline.

    Attributes:
        cluster: the Kafka with the topics of the pipeline.
        second: another one, for a pipeline that needs it; else None.
        folder: of the job.
        suffix: is added to the names of topics.
        records: the whole input.
        seconds: over which the input is fed.
        databases: connection strings by name.
    """

    cluster: Cluster
    second: Cluster | None
    folder: Path
    suffix: str
    records: Sequence[Record] = ()
    seconds: float = 0.0
    databases: dict[str, str] = field(default_factory=dict)

    def real_name(self, topic: str) -> str:
        """The real name of a topic of the pipeline."""
        return f"{topic}{self.suffix}"

    def outcome(self) -> Outcome:
        """The places of the results."""
        second = self.second.bootstrap_servers if self.second else ""
        return Outcome(self.cluster.bootstrap_servers, second, self.folder, self.suffix, self.databases)
