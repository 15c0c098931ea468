"""A shard with share groups, whose share coordinator initializes partitions when the test says so."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.coordination.shard import LoggedRecords
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.offset_log import encode_record
from pykbroker.groups.result import GroupResult
from pykbroker.groups.settings import GroupSettings
from pykbroker.groups.share.group import ShareGroup
from pykbroker.groups.share.heartbeat import Initialization, ShareHeartbeatContext, check_request
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.pykbroker.groups.consumer.rig import GROUP, START_MS, image_of
from tests.pykbroker.groups.modern_settings import with_values
from tests.pykbroker.groups.shards import make_shard


class ShareRig:
    """One shard, its log and its time; `append_error` is the error of the next appends.

    Attributes:
        wanted: initializations that heartbeats have asked for and that `initialize` or `fail` has not answered.
    """

    def __init__(self, topics: Mapping[str, int], **settings: int) -> None:
        base = GroupSettings()
        self.settings = base._replace(share=with_values(base.share, **{"assignment_interval_ms": 0, **settings}))
        self.topics = dict(topics)
        self.configs: dict[str, dict[str, str]] = {}
        self.shard = make_shard(self.settings, image_of(topics), self.configs)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = START_MS
        self.append_error = ErrorCode.NONE
        self.wanted: list[Initialization] = []

    @property
    def group(self) -> ShareGroup:
        return self.shard.share.by_id[GROUP]

    def carry_out(self, result: GroupResult | None) -> None:
        """As the runtime does it with one replica."""
        while result is not None and result.records:
            first_offset = len(self.log)
            if self.append_error is ErrorCode.NONE:
                self.log += [encode_record(record) for record in result.records]
            result = self.shard.stored(result, self.append_error, self.now_ms, first_offset)

    def beat(
        self, member_id: str, epoch: int, *topics: str, rack_id: str | None = None, group_id: str = GROUP
    ) -> ShareGroupHeartbeatResponse:
        """The response to a heartbeat; without topics the subscription is not sent."""
        request = ShareGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            rack_id=rack_id,
            subscribed_topic_names=list(topics) if topics else None,
        )
        share = self.shard.share
        context = ShareHeartbeatContext(share.settings_of(group_id), share.topics, self.now_ms, "client", "/host")
        try:
            malformed = check_request(request)
            if malformed is not None:
                raise malformed
            result = share.heartbeat(request, self.shard.any_group(group_id), context)
        except GroupError as error:
            return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
        self.carry_out(result)
        if result.records and self.append_error is not ErrorCode.NONE:
            return ShareGroupHeartbeatResponse(error_code=self.append_error)
        if context.initialization is not None:
            self.wanted.append(context.initialization)
        response: ShareGroupHeartbeatResponse = result.response
        return response

    def initialize(self) -> None:
        """The share coordinator has initialized what was asked for."""
        while self.wanted:
            self.carry_out(self.shard.share.initialized(self.wanted.pop(0), self.now_ms))

    def fail(self) -> None:
        """The share coordinator refuses what was asked for."""
        while self.wanted:
            self.carry_out(self.shard.share.not_initialized(self.wanted.pop(0)))

    def set_topics(self, **topics: int) -> None:
        """Topics are created, get more partitions, or are deleted (0)."""
        self.topics = {name: count for name, count in {**self.topics, **topics}.items() if count}
        view = self.shard.share.topics
        view.update(image_of(self.topics))
        view._hashes.clear()
        self.shard.share.topics_changed(topics)

    def advance(self, milliseconds: int) -> None:
        """Time passes, and timers fire when they are due."""
        end_ms = self.now_ms + milliseconds
        while True:
            due = [at for key in self.shard.timer_keys() if (at := self.shard.wake_ms(key)) is not None]
            if not due or min(due) > end_ms:
                break
            self.now_ms = max(self.now_ms, min(due))
            for key in list(self.shard.timer_keys()):
                self.carry_out(self.shard.expire_due(key, self.now_ms))
        self.now_ms = end_ms

    def reloaded(self) -> ShareRig:
        """Another broker that has read this one's log."""
        other = ShareRig(self.topics)
        other.settings, other.configs, other.now_ms, other.log = self.settings, self.configs, self.now_ms, self.log
        other.shard = make_shard(self.settings, image_of(self.topics), self.configs)
        last: dict[bytes, tuple[int, bytes | None]] = {}
        for offset, (key, value) in enumerate(self.log):
            last.pop(key, None)
            last[key] = (offset, value)
        other.shard.load(LoggedRecords(last, {}, {}, "log"), self.now_ms)
        return other


def partitions_of(response: ShareGroupHeartbeatResponse) -> dict[str, list[int]] | None:
    """Topic -> partitions of a response; None if it has no assignment."""
    if response.assignment is None:
        return None
    return {t.topic_id.decode().rstrip("."): t.partitions for t in response.assignment.topic_partitions}
