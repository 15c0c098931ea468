"""A shard of groups with its log and its time, as the runtime drives it; a subclass for each kind of group."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Self

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.controller.metadata.image import EMPTY_IMAGE, ClusterImage
from pykbroker.controller.metadata.image_builder import apply_records
from pykbroker.controller.metadata.image_delta import delta_between
from pykbroker.coordination.shard import LoggedRecords
from pykbroker.groups.modern.groups import ModernGroups
from pykbroker.groups.modern.preparation import PreparedWrite
from pykbroker.groups.offset_log import encode_record
from pykbroker.groups.result import GroupResult
from pykbroker.groups.shard import GroupShard
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.fields import Message
from pykbroker.protocol.log_messages.metadata_records import PartitionRecord, TopicRecord
from pykbroker.protocol.steps import Steps, finished
from tests.pykbroker.groups.shards import make_shard

GROUP = "g"
START_MS = 1_000_000


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")[:16]


def image_of(topics: Mapping[str, int]) -> ClusterImage:
    """An image with topics of so many partitions."""
    records: list[Message] = []
    for name, count in topics.items():
        records.append(TopicRecord(name=name, topic_id=topic_id(name)))
        records += [
            PartitionRecord(
                partition_id=number, topic_id=topic_id(name), replicas=[1], isr=[1], leader=1, leader_epoch=0
            )
            for number in range(count)
        ]
    return apply_records(EMPTY_IMAGE, records, offset=len(records), epoch=1, timestamp_ms=0)


class ShardRig:
    """One shard, its log and its time; `append_error` is the error of the next appends.

    With `is_replicated` records are replicated only by `replicate`, as with followers; they take effect at once.

    Attributes:
        run_steps: returns the result of the steps in which heartbeats are prepared; None if they are not prepared.
    """

    run_steps: Callable[[Steps[PreparedWrite | None]], PreparedWrite | None] | None = None

    def __init__(self, topics: Mapping[str, int], config: BrokerConfig, *, is_replicated: bool = False) -> None:
        self.config = config
        self.topics = dict(topics)
        self.configs: dict[str, dict[str, str]] = {}
        self.shard = make_shard(self.config, image_of(topics), self.configs)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = START_MS
        self.append_error = ErrorCode.NONE
        self.is_replicated = is_replicated
        self._waiting: list[tuple[GroupResult, int]] = []

    @property
    @abstractmethod
    def groups(self) -> ModernGroups[Any, Any]:
        """The groups of this rig's kind."""

    def deliver(self, result: GroupResult) -> None:
        """Answers the waiting requests of a result, which are those of classic members."""

    def carry_out(self, result: GroupResult | None) -> None:
        """As the runtime does it, with one replica or with followers."""
        while result is not None:
            self.deliver(result)
            if result.timers is not None and not self._waiting:
                self.shard.start_timers(result.timers, self.now_ms)
            if not result.records:
                return
            first_offset = len(self.log)
            if self.append_error is ErrorCode.NONE:
                self.log += [encode_record(record) for record in result.records]
                if self.is_replicated:
                    self.shard.appended(result, self.now_ms, first_offset)
                    self._waiting.append((result, first_offset))
                    return
            result = self.shard.stored(result, self.append_error, self.now_ms, first_offset)

    def describe(self, group_id: str) -> Any:
        """A group of this rig's kind as readers see it."""
        return finished(self.groups.describe(group_id, self.shard.committed_group(group_id)))

    def replicate(self, count: int | None = None) -> None:
        """The first batches that were appended are replicated, or all of them."""
        for _ in range(len(self._waiting) if count is None else count):
            result, first_offset = self._waiting.pop(0)
            self.carry_out(self.shard.replicated(result, self.now_ms, first_offset))

    def late(self, error: ErrorCode) -> None:
        """Everything that was appended is not replicated in time."""
        for result, _ in self._waiting:
            self.carry_out(self.shard.late(result, error, self.now_ms))

    def advance(self, milliseconds: int) -> None:
        """Time passes, and timers fire when they are due."""
        end_ms = self.now_ms + milliseconds
        while True:
            keys = {*self.shard.timer_keys(), GROUP}
            due = [at for key in keys if (at := self.shard.wake_ms(key)) is not None]
            if not due or min(due) > end_ms:
                break
            self.now_ms = max(self.now_ms, min(due))
            for key in keys:
                wake_ms = self.shard.wake_ms(key)
                if wake_ms is not None and wake_ms <= self.now_ms:
                    self.carry_out(self.shard.expire_due(key, self.now_ms))
        self.now_ms = end_ms

    def set_topics(self, **topics: int) -> None:
        """Topics are created, get more partitions, or are deleted (0)."""
        before = self.topics
        self.topics = {name: count for name, count in {**before, **topics}.items() if count}
        image = image_of(self.topics)
        view = self.groups.topics
        image.delta = delta_between(view._image, image)
        view.update(image)
        self.groups.topics_changed(topics)

    def loaded_shard(self) -> GroupShard:
        """Another coordinator's shard, loaded from the same log after compaction."""
        last: dict[bytes, tuple[int, bytes | None]] = {}
        for offset, (key, value) in enumerate(self.log):
            last.pop(key, None)
            last[key] = offset, value
        shard = make_shard(self.config, image_of(self.topics), self.configs)
        finished(shard.load(LoggedRecords(last, {}, {}, "log"), self.now_ms))
        shard.loaded(self.now_ms)
        return shard

    def reloaded(self) -> Self:
        """Another broker that has read this one's log."""
        other = type(self)(self.topics)  # type: ignore[call-arg]  # subclasses make the settings
        other.config, other.configs, other.now_ms, other.log = self.config, self.configs, self.now_ms, self.log
        other.shard = self.loaded_shard()
        return other
