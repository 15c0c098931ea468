"""Everything that a run has seen, for its report: samples of progress, finished triggers, and moments of interest."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.progress import Batch


@dataclass(frozen=True, slots=True)
class Sample:
    """Progress of feeding and of all queries at a moment.

    Attributes:
        at_s: seconds since the run began.
        fed: records of each topic that Kafka has.
        read_to: for each query, the offsets up to which it has read each topic.
    """

    at_s: float
    fed: dict[str, int]
    read_to: dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened: a kill, a start, the beginning of a stage."""

    at_s: float
    kind: str
    text: str

    @property
    def is_kill(self) -> bool:
        """True for a kill -9."""
        return self.kind == "kill"

    @property
    def name(self) -> str:
        """Name of the process that was killed, without the time for which it is away."""
        return self.text.partition(" (")[0]


@dataclass(slots=True)
class History:
    """Samples, batches and moments of a run, in the order of time; seconds count from its begin."""

    began_at: float = field(default_factory=time.time)
    samples: list[Sample] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    read_to: dict[str, dict[str, int]] = field(default_factory=dict)

    def now_s(self) -> float:
        """Seconds since the run began."""
        return time.time() - self.began_at

    def add_batch(self, batch: Batch) -> None:
        """Note a finished trigger. A job that was killed may finish a trigger again: its offsets never go back here."""
        self.batches.append(batch)
        read = self.read_to.setdefault(batch.query, {})
        for topic, offset in batch.read_to.items():
            read[topic] = max(read.get(topic, 0), offset)

    def add_sample(self, fed: Mapping[str, int]) -> None:
        """Note how far feeding and queries are."""
        read_to = {query: dict(read) for query, read in self.read_to.items()}
        self.samples.append(Sample(self.now_s(), dict(fed), read_to))

    def lag(self, sample: Sample, query: str) -> int:
        """Records of the fed topics that the query had not read at that moment, of all topics that it reads at last."""
        read = sample.read_to.get(query, {})
        return sum(max(0, sample.fed.get(topic, 0) - read.get(topic, 0)) for topic in self.read_to[query])

    def note(self, kind: str, text: str) -> None:
        """Note a moment."""
        self.moments.append(Moment(self.now_s(), kind, text))

    @property
    def is_fed(self) -> bool:
        """True if the run has sent records; the input of a pipeline may also be that of a database."""
        return any(sample.fed for sample in self.samples)

    @property
    def kills(self) -> list[Moment]:
        """The moments of kill -9."""
        return [moment for moment in self.moments if moment.is_kill]
