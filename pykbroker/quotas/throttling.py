"""The quotas of one request: the rates that it counts for, and the throttle time of its client.

A throttled client gets its response at once, and its connection is not read until the throttle time is over (KIP-219).
"""

from __future__ import annotations

import time
import types
from typing import TYPE_CHECKING, Any

import trio

from pykbroker.controller.metadata.commands import NO_ERROR, ApiError
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.security.connection_info import ListenerKind

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from pykbroker.protocol.fields import Message
    from pykbroker.quotas.limits import ClientLimits
    from pykbroker.quotas.node_quotas import NodeQuotas
    from pykbroker.security.connection_info import ConnectionInfo

NS_PER_PERCENT = 10_000_000
"""Nanoseconds in one hundredth of a second: a thread that is busy for a whole second uses 100 percent of it."""

QUOTA_EXCEEDED_MESSAGE = "The throttling quota has been exceeded."

STRICT_FROM: dict[int, int] = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}
"""First versions whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""

EXEMPT: frozenset[int] = frozenset(
    {
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ENVELOPE,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.ALTER_PARTITION,
        ApiKey.UPDATE_RAFT_VOTER,
    }
)
"""APIs between nodes, which are not throttled unless the client has no right to them.

Kafka throttles others, such as BrokerHeartbeat, by the quota of the node's user (P-291)."""

EXEMPT_AT_CONTROLLERS: frozenset[int] = EXEMPT | {
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
}
"""APIs that are not throttled on a controller's port, as above: Kafka's quorum answers them, past the quotas."""


class RequestQuota:
    """One request of a client that has a limit of any kind.

    Args:
        quotas: the quotas of the node.
        connection: the client's connection, which is muted.
        client_id: client id in the request's header.
        api_key, api_version: the API.
        size_bytes: size of the request, with its header.
    """

    __slots__ = (
        "_answered",
        "_api_key",
        "_charged_topics",
        "_client_id",
        "_connection",
        "_counted_ns",
        "_is_exempt",
        "_is_strict",
        "_mutation_at_ms",
        "_mutation_throttle_ms",
        "_quotas",
        "_since_ns",
        "_size_bytes",
        "_spent_ns",
        "_user",
        "is_refused",
        "is_timed",
        "may_be_unfinished",
    )

    def __init__(
        self,
        quotas: NodeQuotas,
        connection: ConnectionInfo,
        client_id: str,
        api_key: int,
        api_version: int,
        size_bytes: int,
    ) -> None:
        self._quotas = quotas
        self._connection = connection
        self._user = user_of(connection.principal)
        self._client_id = client_id
        self._api_key = api_key
        self._is_strict = api_version >= STRICT_FROM.get(api_key, 0)
        self._size_bytes = size_bytes
        self._answered = False
        # Result of the charge by topic, because a command may be planned again.
        self._charged_topics: dict[str, ApiError] = {}
        # Throttle time of mutations, and the time at which it was computed.
        self._mutation_throttle_ms = 0
        self._mutation_at_ms = 0
        # Time in which the request ran; start of its present run, 0 while it waits; time that was counted already.
        self._spent_ns = 0
        self._since_ns = 0
        self._counted_ns = 0
        is_at_controller = connection.listener_kind is ListenerKind.CONTROLLER
        self._is_exempt = api_key in (EXEMPT_AT_CONTROLLERS if is_at_controller else EXEMPT)
        # True if the client has no right to it: such a request counts also where those of nodes are exempt.
        self.is_refused = False
        self.is_timed = self._is_limited(quotas.request.limits)
        # Kafka begins a connection's next request when the previous one is answered; throttles come between the two.
        self.may_be_unfinished = not self.is_timed and not self._is_limited(quotas.produce.limits)

    @property
    def applies(self) -> bool:
        """False if no limit concerns this request."""
        if self.is_timed:
            return True
        quotas, key = self._quotas, self._api_key
        if key == ApiKey.PRODUCE:
            return self._is_limited(quotas.produce.limits)
        if key in (ApiKey.FETCH, ApiKey.SHARE_FETCH):
            return self._is_limited(quotas.fetch.limits)
        return (key in STRICT_FROM or key == ApiKey.METADATA) and self._is_limited(quotas.mutations.limits)

    @types.coroutine
    def timed(self, work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Awaits a coroutine, and measures the time in which it runs; the time in which it waits does not count."""
        received: Any = None
        try:
            while True:
                self._since_ns = time.perf_counter_ns()
                try:
                    trap = work.send(received)
                except StopIteration as done:
                    return done.value
                finally:
                    self._spent_ns += time.perf_counter_ns() - self._since_ns
                    self._since_ns = 0
                received = yield trap
        finally:
            work.close()

    def exempt(self) -> None:
        """Exempts the request, which is one of another broker."""
        self._answered = True
        self.is_timed = False

    def charge_mutations(self, topic: str, count: int) -> ApiError:
        """Counts partitions of a topic before they are created or deleted, once, even if that is planned again.

        THROTTLING_QUOTA_EXCEEDED refuses the operation.
        """
        error = self._charged_topics.get(topic)
        if error is None:
            error = self._charged_topics[topic] = self._charge(count)
        return error

    def _charge(self, count: int) -> ApiError:
        now_ms = _now_ms()
        throttle_ms = self._quotas.mutations.charge(
            self._user, self._client_id, count, now_ms, is_strict=self._is_strict
        )
        if throttle_ms:
            self._mutation_throttle_ms, self._mutation_at_ms = throttle_ms, now_ms
            if self._is_strict:
                return ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, QUOTA_EXCEEDED_MESSAGE)
        return NO_ERROR

    def fetch_bytes_max(self) -> int:
        """Largest size in bytes of a response that is certainly not throttled."""
        return self._quotas.fetch.most_at_once(self._user, self._client_id)

    def throttle_fetch(self, size_bytes: int) -> int:
        """Counts a response to Fetch or ShareFetch, and mutes the client; returns the throttle time in ms, 0 for none.

        With a throttle time the response must be empty, and its bytes do not count.
        """
        self._answered = True
        now_ms = _now_ms()
        fetch, client = self._quotas.fetch, (self._user, self._client_id)
        request_ms = self._record_time(now_ms)
        throttle_ms = max(request_ms, fetch.record(*client, size_bytes, now_ms))
        if throttle_ms:
            fetch.count(*client, -size_bytes, now_ms)
            self._mute(throttle_ms)
        return throttle_ms

    def answer(self, request: Any, response: Message | None) -> None:
        """Counts the request, puts the throttle time into the response and mutes the client.

        The response may have a throttle time already, from the controller to which the request was forwarded. It is
        None for acks=0.
        """
        if self._answered:
            return
        self._answered = True
        if self._is_exempt and not self.is_refused:
            self.is_timed = False
            return
        now_ms = _now_ms()
        if self._api_key == ApiKey.PRODUCE:
            other_ms = self._quotas.produce.record(self._user, self._client_id, self._size_bytes, now_ms)
            request_ms = 0 if request.acks == 0 else self._record_time(now_ms)
        else:
            request_ms = self._record_time(now_ms)
            other_ms = 0
            if self._api_key in STRICT_FROM:
                # Metadata is not among these APIs: its topic is refused, and the client may ask for others meanwhile.
                other_ms = max(0, self._mutation_throttle_ms - (now_ms - self._mutation_at_ms))
        throttle_ms = max(request_ms, other_ms, getattr(response, "throttle_time_ms", 0))
        if throttle_ms:
            if response is not None and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_ms
            self._mute(throttle_ms)

    def count_rest(self) -> None:
        """Counts the time that was spent since the request was answered; it throttles only later requests."""
        if self.is_timed:
            self._quotas.request.count(self._user, self._client_id, self._uncounted_percent(), _now_ms())

    def _record_time(self, now_ms: int) -> int:
        """Counts the time of the request; returns the throttle time in ms."""
        if not self.is_timed:
            return 0
        return self._quotas.request.record(self._user, self._client_id, self._uncounted_percent(), now_ms)

    def _uncounted_percent(self) -> float:
        spent_ns = self._spent_ns
        if self._since_ns:
            spent_ns += time.perf_counter_ns() - self._since_ns
        percent = (spent_ns - self._counted_ns) / NS_PER_PERCENT
        self._counted_ns = spent_ns
        return percent

    def _is_limited(self, limits: ClientLimits) -> bool:
        return bool(limits) and limits.find(self._user, self._client_id) is not None

    def _mute(self, throttle_ms: int) -> None:
        connection = self._connection
        connection.muted_until = max(connection.muted_until, trio.current_time() + throttle_ms / 1000)


def quota_of_request(
    quotas: NodeQuotas, connection: ConnectionInfo, client_id: str, api_key: int, api_version: int, size_bytes: int
) -> RequestQuota | None:
    """The limits that concern a request; None if there are none. The arguments are those of `RequestQuota`."""
    quota = RequestQuota(quotas, connection, client_id, api_key, api_version, size_bytes)
    return quota if quota.applies else None


def user_of(principal: str) -> str:
    """Name of the user in a principal such as ``User:alice``."""
    return principal.partition(":")[2]


def _now_ms() -> int:
    return int(trio.current_time() * 1000)
