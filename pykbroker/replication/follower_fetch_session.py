"""All partitions that follow one leader, and the client side of their incremental fetch session (KIP-227).

Pure: time comes as an argument; changes of logs are in `followed_partition`. A request names only partitions whose
fetch parameters changed since the previous request; the leader reads the others again from its copy of the session.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode, answered_error
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from pykbroker.protocol.steps import PIECE, Steps
from pykbroker.replication.fetch_sessions import INITIAL_EPOCH, next_session_epoch
from pykbroker.replication.followed_partition import FollowedPartition, Outcome

if TYPE_CHECKING:
    from pykbroker.protocol.messages.fetch import FetchResponse
    from pykbroker.replication.partition import Partition
    from pykbroker.replication.throttle import ReplicationThrottle

log = logging.getLogger(__name__)

Key = tuple[bytes, int]
"""Topic id and number of a partition."""


class FetchLimits(NamedTuple):
    """Limits of each request: `replica.fetch.*`."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int


class _SentPartition(NamedTuple):
    """Fetch parameters of a partition, as sent to the leader."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class FetchSessionHandler:
    """The fetch session of a follower with one leader.

    Args:
        node_id: id of this broker.
        limits: limits of each request.
        backoff_s: pause in seconds before a partition with an error is fetched again.
        throttle: limits the bytes that this broker fetches as a follower.
    """

    def __init__(
        self, node_id: int, limits: FetchLimits, backoff_s: float, throttle: ReplicationThrottle | None = None
    ) -> None:
        self._node_id = node_id
        self._limits = limits
        self._backoff_s = backoff_s
        self._throttle = throttle
        # In the order in which the leader is to serve them.
        self._followed: dict[Key, FollowedPartition] = {}
        self._session_id = 0
        self._epoch = INITIAL_EPOCH
        # Parameters in the leader's copy of the session.
        self._asked: dict[Key, _SentPartition] = {}
        self.throttled_until = math.inf
        """Time at which the partitions that the last request left out because of the throttle may be fetched."""

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, partition: Partition) -> None:
        """Adds a partition, or follows it under a newer leader epoch from now on."""
        key = (partition.topic_id, partition.partition)
        followed = self._followed.get(key)
        if followed is None or followed.partition is not partition or followed.leader_epoch != partition.leader_epoch:
            self._followed[key] = FollowedPartition(partition)

    def leave(self, key: Key) -> None:
        """Removes a partition, if it is followed."""
        self._followed.pop(key, None)

    def leave_all(self) -> None:
        """Removes all partitions; a response that still comes changes none of them."""
        self._followed.clear()

    def ready_at(self) -> float | None:
        """Earliest time, in seconds of trio's clock, at which a partition may be fetched; None without partitions."""
        return min((f.not_before for f in self._followed.values()), default=None)

    def prepare(self, now: float, now_ms: int) -> Steps[None]:
        """Prepares the new partitions, which loads their logs and makes their directories: 0.2 to 1 ms for each."""
        for followed in list(self._followed.values()):
            if not followed.is_prepared and followed.not_before <= now and followed.is_current:
                self._prepare(followed, now, now_ms)
                yield

    def next_request(self, now: float, now_ms: int, broker_epoch: int) -> Steps[FetchRequest | None]:
        """The next request, in steps; None while no partition may be fetched, see `ready_at`.

        A partition that changes between two steps may be named with its earlier state: its data are then ignored, and
        the next request has the new state.
        """
        partitions = yield from self._partitions_to_fetch(now, now_ms)
        if not partitions:
            return None
        is_full = self._epoch == INITIAL_EPOCH
        limits = self._limits
        max_wait_ms = limits.max_wait_ms
        if self.throttled_until < math.inf:
            max_wait_ms = min(max_wait_ms, math.ceil((self.throttled_until - now) * 1000))
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self._node_id, replica_epoch=broker_epoch),
            max_wait_ms=max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            session_id=self._session_id,
            session_epoch=self._epoch,
        )
        topics: dict[bytes, FetchTopic] = {}
        asked = {} if is_full else self._asked
        for count, (key, sent) in enumerate(partitions.items(), 1):
            if not count % PIECE:
                yield
            if asked.get(key) == sent:
                continue
            topic_id, number = key
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(topic_id=topic_id)
                request.topics.append(topic)
            topic.partitions.append(
                FetchPartition(
                    partition=number,
                    current_leader_epoch=sent.leader_epoch,
                    fetch_offset=sent.fetch_offset,
                    last_fetched_epoch=sent.last_fetched_epoch,
                    log_start_offset=sent.log_start_offset,
                    partition_max_bytes=limits.partition_max_bytes,
                )
            )
        forgotten: dict[bytes, ForgottenTopic] = {}
        for count, (topic_id, number) in enumerate(asked, 1):
            if not count % PIECE:
                yield
            if (topic_id, number) not in partitions:
                forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(number)
        request.forgotten_topics_data = list(forgotten.values())
        self._asked = partitions
        return request

    def _partitions_to_fetch(self, now: float, now_ms: int) -> Steps[dict[Key, _SentPartition]]:
        throttle = self._throttle
        is_exceeded = throttle is not None and throttle.is_exceeded(now)
        self.throttled_until = math.inf
        partitions: dict[Key, _SentPartition] = {}
        for count, (key, followed) in enumerate(list(self._followed.items()), 1):
            if not count % PIECE:
                yield
            partition = followed.partition
            if followed.not_before > now or not followed.is_current:
                continue
            if (
                is_exceeded
                and not followed.is_caught_up
                and throttle is not None
                and throttle.applies_to(partition.topic, partition.partition)
            ):
                self.throttled_until = throttle.ends_at(now)
                continue
            partition_log = partition.log
            if not followed.is_prepared and not self._prepare(followed, now, now_ms):
                continue
            partitions[key] = _SentPartition(
                followed.leader_epoch,
                partition_log.log_end_offset,
                partition_log.leader_epochs.latest_epoch,
                partition_log.log_start_offset,
            )
        return partitions

    def _prepare(self, followed: FollowedPartition, now: float, now_ms: int) -> bool:
        is_prepared = followed.prepare(now_ms)
        if not is_prepared:
            followed.not_before = now + self._backoff_s
        return is_prepared

    def on_response(self, response: FetchResponse, now: float, now_ms: int) -> Steps[list[FollowedPartition]]:
        """Processes a response, in steps.

        Returns:
            The partitions out of range, which need start and end of the leader's log.
        """
        if response.error_code:
            log.info("fetch session %d ends: %s", self._session_id, answered_error(response.error_code).name)
            self._start_new_session()
            if response.error_code not in (
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
            ):
                self._delay_all(now)
            return []
        self._next_epoch(response.session_id)
        out_of_range: list[FollowedPartition] = []
        count = taken = 0
        for topic in response.responses:
            for data in topic.partitions:
                count += 1
                if data.records or not count % PIECE:
                    yield
                key = (topic.topic_id, data.partition_index)
                sent = self._asked.get(key)
                followed = self._followed.get(key)
                if sent is None or followed is None or followed.leader_epoch != sent.leader_epoch:
                    continue
                outcome = followed.on_data(data, sent.fetch_offset, now_ms)
                if outcome is Outcome.ASK_OFFSETS:
                    out_of_range.append(followed)
                elif outcome is Outcome.LATER:
                    followed.not_before = now + self._backoff_s
                size = len(data.records) if data.records is not None else 0
                if self._throttle is not None and size:
                    partition = followed.partition
                    if self._throttle.applies_to(partition.topic, partition.partition):
                        taken += size
        if taken and self._throttle is not None:
            self._throttle.record(taken, now)
        return out_of_range

    def _next_epoch(self, session_id: int) -> None:
        if session_id == 0:
            # The leader keeps no session for this broker: the next request names all partitions.
            self._start_new_session()
        else:
            self._session_id = session_id
            self._epoch = next_session_epoch(self._epoch)

    def on_failure(self, now: float) -> None:
        """Starts a new session after a request without response, as the leader's copy may differ from this one."""
        self._start_new_session()
        self._delay_all(now)

    def _start_new_session(self) -> None:
        self._session_id = 0
        self._epoch = INITIAL_EPOCH
        self._asked = {}

    def _delay_all(self, now: float) -> None:
        for followed in self._followed.values():
            followed.not_before = max(followed.not_before, now + self._backoff_s)

    def delay(self, followed: FollowedPartition, now: float) -> None:
        """Delays the next fetch of one partition by the backoff."""
        followed.not_before = now + self._backoff_s
