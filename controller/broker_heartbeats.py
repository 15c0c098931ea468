"""BrokerHeartbeats: sessions of brokers and their controlled shutdowns, as Kafka's BrokerHeartbeatManager. Pure.

Times are in milliseconds of the controller's running time (`running_time`): no session ends while the process stalls.

This state is in memory only: a newly elected controller starts every session again. The image has a broker's fenced
and shutdown state. Heartbeats give the time of a broker's last contact and its metadata offset. For each broker in
controlled shutdown this module also keeps the offset that other brokers must have applied before it may stop.
"""

from __future__ import annotations

from enum import Enum

from pykbroker.controller.metadata.image import BrokerImage, ClusterImage
from pykbroker.named_tuple import NamedTuple

NEVER_MS = 1 << 62
UNKNOWN_OFFSET = -1


class BrokerState(Enum):
    """State of a broker, as BrokerControlState in Kafka's BrokerHeartbeatManager."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"

    @property
    def is_fenced(self) -> bool:
        """True if the broker serves no clients; this includes a broker that may shut down."""
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


class Heartbeat(NamedTuple):
    """A BrokerHeartbeat request. `metadata_offset` is the offset of the last record that the broker has applied."""

    broker_id: int
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False


class BrokerHeartbeats:
    """Sessions of all brokers in one epoch of the controller.

    Call `begin` when all records that earlier controllers have committed are applied.

    Args:
        session_timeout_ms: `broker.session.timeout.ms`.
    """

    def __init__(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._contacts: dict[tuple[int, int], int] = {}
        self._metadata_offsets: dict[int, int] = {}
        self._shutdown_offsets: dict[int, int] = {}

    def begin(self, image: ClusterImage, now_ms: int) -> None:
        """Starts a session for every registered broker that has not sent a heartbeat yet."""
        for broker in image.brokers.values():
            self._contacts.setdefault((broker.broker_id, broker.epoch), now_ms)

    # Sessions

    def contact(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """Extends a broker's session from now, the arrival of a heartbeat. The heartbeat may be processed later."""
        self._contacts[(broker_id, broker_epoch)] = now_ms

    def has_session(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """True if this broker process sent a heartbeat within the session timeout."""
        contact_ms = self._contacts.get((broker_id, broker_epoch))
        return contact_ms is not None and now_ms <= contact_ms + self._session_timeout_ms

    def end_session(self, broker_id: int, broker_epoch: int) -> None:
        """Ends the session of a process that has ended, so that another one can register under its id at once."""
        self._contacts.pop((broker_id, broker_epoch), None)

    def next_expiry_ms(self) -> int:
        """Earliest end of a session, in ms; NEVER_MS without sessions."""
        return min(self._contacts.values(), default=NEVER_MS - self._session_timeout_ms) + self._session_timeout_ms

    def take_expired(self, now_ms: int) -> tuple[int, int] | None:
        """Removes the session that ended first and returns its (broker id, broker epoch); None if none has ended."""
        if not self._contacts:
            return None
        key = min(self._contacts, key=lambda each: (self._contacts[each], each))
        if now_ms <= self._contacts[key] + self._session_timeout_ms:
            return None
        del self._contacts[key]
        return key

    # States

    def state_of(self, broker: BrokerImage) -> BrokerState:
        """State of a broker between heartbeats.

        A controlled shutdown that began under an earlier controller is unknown here and begins again.
        """
        if broker.broker_id in self._shutdown_offsets and not broker.is_fenced:
            return BrokerState.CONTROLLED_SHUTDOWN
        return BrokerState.FENCED if broker.is_fenced else BrokerState.UNFENCED

    def next_state(self, image: ClusterImage, heartbeat: Heartbeat) -> BrokerState:
        """The state after a heartbeat of a broker that is registered under this epoch."""
        broker = image.brokers[heartbeat.broker_id]
        state = self.state_of(broker)
        if state is BrokerState.FENCED:
            if heartbeat.want_shut_down:
                return BrokerState.SHUTDOWN_NOW
            if not heartbeat.want_fence and is_caught_up(broker, heartbeat):
                return BrokerState.UNFENCED
            return BrokerState.FENCED
        if state is BrokerState.UNFENCED:
            if heartbeat.want_fence:
                return BrokerState.SHUTDOWN_NOW if heartbeat.want_shut_down else BrokerState.FENCED
            if not heartbeat.want_shut_down:
                return BrokerState.UNFENCED
            if _leads_something(image, broker.broker_id):
                return BrokerState.CONTROLLED_SHUTDOWN
            return BrokerState.SHUTDOWN_NOW
        # Without leaderships it waits until all active brokers have applied that others lead: then no client uses it.
        if _leads_something(image, broker.broker_id):
            return BrokerState.CONTROLLED_SHUTDOWN
        if self._shutdown_offsets[broker.broker_id] > self.lowest_active_offset(image):
            return BrokerState.CONTROLLED_SHUTDOWN
        return BrokerState.SHUTDOWN_NOW

    def lowest_active_offset(self, image: ClusterImage) -> int:
        """Metadata offset that all active brokers have applied, except those in controlled shutdown."""
        return min(
            (
                self._metadata_offsets.get(broker.broker_id, UNKNOWN_OFFSET)
                for broker in image.brokers.values()
                if broker.is_active and broker.broker_id not in self._shutdown_offsets
            ),
            default=NEVER_MS,
        )

    def note(self, heartbeat: Heartbeat, state: BrokerState, end_offset: int) -> None:
        """Notes the result of a heartbeat. `end_offset`: offset of the last record written for it or before it."""
        broker_id = heartbeat.broker_id
        self._metadata_offsets[broker_id] = heartbeat.metadata_offset
        if state is BrokerState.CONTROLLED_SHUTDOWN:
            self._shutdown_offsets.setdefault(broker_id, end_offset)
        elif state.is_fenced:
            self._shutdown_offsets.pop(broker_id, None)
        if state is BrokerState.SHUTDOWN_NOW:
            self.end_session(broker_id, heartbeat.broker_epoch)

    def forget(self, broker_id: int) -> None:
        """Removes the state of a broker id whose process has ended."""
        self._metadata_offsets.pop(broker_id, None)
        self._shutdown_offsets.pop(broker_id, None)
        for key in [key for key in self._contacts if key[0] == broker_id]:
            del self._contacts[key]


def is_caught_up(broker: BrokerImage, heartbeat: Heartbeat) -> bool:
    """True if the broker has applied its own registration.

    A broker's epoch is the offset of the first record of its registration, and records of one command are applied
    together.
    """
    return heartbeat.metadata_offset >= broker.epoch


def _leads_something(image: ClusterImage, broker_id: int) -> bool:
    return any(
        partition.leader == broker_id
        for topic in image.topics_by_id.values()
        for partition in topic.partitions.values()
    )
