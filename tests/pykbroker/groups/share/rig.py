"""A shard with share groups, whose share coordinator initializes partitions when the test says so."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.groups import modern_writes
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.result import DeletedTopics, Initialization
from pykbroker.groups.share.group import ShareGroup
from pykbroker.groups.share.groups import ShareGroups
from pykbroker.groups.share.heartbeat import check_request
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.pykbroker.groups.group_settings import DEFAULT_CONFIG
from tests.pykbroker.groups.shard_rig import GROUP, ShardRig, topic_id


class ShareRig(ShardRig):
    """A shard with share groups; see `ShardRig`.

    Attributes:
        wanted: initializations that heartbeats have asked for and that `initialize` or `fail` has not answered.
    """

    def __init__(self, topics: Mapping[str, int], **settings: int) -> None:
        values = DEFAULT_CONFIG.share_groups.replaced(**{"assignment_interval_ms": 0, **settings})
        super().__init__(topics, DEFAULT_CONFIG.replaced(share_groups=values))
        self.wanted: list[Initialization] = []

    @property
    def groups(self) -> ShareGroups:
        return self.shard.share

    @property
    def group(self) -> ShareGroup:
        return self.shard.share.by_id[GROUP]

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
        client = "client", "/host"
        prepared = None
        try:
            check_request(request)
        except GroupError as error:
            return ShareGroupHeartbeatResponse(error_code=error.error_code, error_message=error.message)
        if self.run_steps is not None and request.member_epoch >= 0:
            prepared = self.run_steps(
                modern_writes.SHARE_HEARTBEAT.prepare(self.shard, lambda: self.now_ms, request, *client)
            )
        result = modern_writes.share_heartbeat(self.shard, self.now_ms, request, *client, prepared)
        self.carry_out(result)
        if result.records and self.append_error is not ErrorCode.NONE:
            return ShareGroupHeartbeatResponse(error_code=self.append_error)
        if result.initialization is not None:
            self.wanted.append(result.initialization)
        response: ShareGroupHeartbeatResponse = result.response
        return response

    def initialize(self, count: int | None = None) -> None:
        """The share coordinator has initialized what was asked for, or the first of it."""
        for _ in range(len(self.wanted) if count is None else min(count, len(self.wanted))):
            done, prepared = self.wanted.pop(0), None
            if self.run_steps is not None:
                prepared = self.run_steps(
                    modern_writes.SHARE_INITIALIZED.prepare(self.shard, lambda: self.now_ms, done)
                )
            self.carry_out(modern_writes.SHARE_INITIALIZED.carry_out(self.shard, self.now_ms, done, prepared))

    def forget(self, *topics: str) -> None:
        """The coordinator has learned that topics are deleted."""
        deleted, prepared = DeletedTopics(GROUP, frozenset(map(topic_id, topics))), None
        if self.run_steps is not None:
            prepared = self.run_steps(modern_writes.TOPICS_FORGOTTEN.prepare(self.shard, lambda: self.now_ms, deleted))
        self.carry_out(modern_writes.TOPICS_FORGOTTEN.carry_out(self.shard, self.now_ms, deleted, prepared))

    def fail(self) -> None:
        """The share coordinator refuses what was asked for."""
        while self.wanted:
            self.carry_out(self.shard.share.not_initialized(self.wanted.pop(0)))


def partitions_of(response: ShareGroupHeartbeatResponse) -> dict[str, list[int]] | None:
    """Topic -> partitions of a response; None if it has no assignment."""
    if response.assignment is None:
        return None
    return {t.topic_id.decode().rstrip("."): t.partitions for t in response.assignment.topic_partitions}
