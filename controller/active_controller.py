"""ActiveController: sessions of brokers and periodic elections, on the node that leads the quorum.

It runs on every controller, acts while its node leads, and keeps no state from one epoch to the next. The decisions are
in commands (`broker_session_commands`, `metadata.periodic_elections`) and in `broker_heartbeats`, which is pure; this
module has the timers and the order of the duties.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import trio

from pykbroker.controller.broker_heartbeats import NEVER_MS, BrokerHeartbeats, Heartbeat
from pykbroker.controller.broker_session_commands import AdmitBroker, CurrentImage, HeartbeatResult, ProcessHeartbeat
from pykbroker.controller.command_queue import not_leader
from pykbroker.controller.metadata.brokers import FenceBroker, RegisterBroker
from pykbroker.controller.metadata.commands import Command, CommandRefused
from pykbroker.controller.metadata.image import ClusterImage, Endpoint
from pykbroker.controller.metadata.periodic_elections import ElectPreferredLeaders, ElectUncleanLeaders
from pykbroker.controller.running_clock import RunningClock
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode

log = logging.getLogger(__name__)

R = TypeVar("R")

COMMAND_TIMEOUT_MS = 60_000
RETRY_MS = 1000
"""Pause in ms before a failed command is submitted again; it fails on a full disk, for example."""

CHECK_PAUSES_S = (0.0, 0.1)
"""Pauses in seconds before each check of a suspect: a process that ends closes its connections before its ports."""

ALL_GONE_PAUSE_S = 0.2
"""Seconds between two checks of all brokers, while the machines of all refuse connections."""


class ActiveControllerSettings(NamedTuple):
    """Settings with Kafka's names where Kafka has one.

    Attributes:
        session_timeout_ms: `broker.session.timeout.ms`.
        heartbeat_interval_ms: `broker.heartbeat.interval.ms`.
        balance_interval_ms: `leader.imbalance.check.interval.seconds`; 0 for `auto.leader.rebalance.enable=false`. As
            in Kafka's controller, `leader.imbalance.per.broker.percentage` has no effect.
        unclean_interval_ms: `unclean.leader.election.interval.ms`. As in Kafka, a topic for which
            `unclean.leader.election.enable` becomes true waits for the end of the interval.
        local_broker_id: id of the broker in the process of the only voter. The process that was registered under it
            before has ended and gets no session. None elsewhere.
    """

    session_timeout_ms: int = 9000
    heartbeat_interval_ms: int = 2000
    balance_interval_ms: int = 300_000
    unclean_interval_ms: int = 300_000
    local_broker_id: int | None = None


Refuses = Callable[[Endpoint], Awaitable[bool]]
"""True if the machine at an address refuses connections, so that nothing listens there any more."""


class LeadingNode(Protocol):
    """The part of `ControllerNode` that is used here."""

    @property
    def image(self) -> ClusterImage: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def clock(self) -> RunningClock: ...

    def known_leader(self) -> tuple[int, int]: ...

    async def leadership_changed(self) -> None: ...

    async def submit(self, command: Command[R], timeout_ms: int) -> R: ...


class ActiveController:
    """Duties of the active controller. Handlers call `register`, `heartbeat` and `connection_lost`.

    Args:
        node: this controller.
        refuses: checks brokers whose connection broke, and all brokers after an election. True means that the process
            has ended, and the broker is fenced at once, whereas Kafka waits for the end of the session. This is safe:
            a broker that is fenced by mistake loses its leaderships for a moment, but no data. None to fence at the
            end of sessions only.
    """

    def __init__(self, node: LeadingNode, settings: ActiveControllerSettings, refuses: Refuses | None = None) -> None:
        self._node = node
        self._settings = settings
        self._refuses = refuses
        self._suspects: dict[tuple[int, int], None] = {}
        self._has_suspects = trio.Event()
        self._epoch = -1
        self._heartbeats = BrokerHeartbeats(settings.session_timeout_ms)
        self._wakeup = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watches brokers and runs periodic elections while this node leads, until it is cancelled."""
        task_status.started()
        while True:
            async with trio.open_nursery() as nursery:
                if self._node.is_leader:
                    # The sessions are taken now: this term may be over when the task starts.
                    nursery.start_soon(self._run_duties, self._sessions_of_this_epoch())
                await self._node.leadership_changed()
                nursery.cancel_scope.cancel()

    # Requests of brokers

    async def register(self, registration: RegisterBroker) -> int:
        """Registers a broker process, fenced at first, and returns its broker epoch.

        Raises:
            CommandRefused: NOT_CONTROLLER; DUPLICATE_BROKER_REGISTRATION while another process with its id is alive.
        """
        command = AdmitBroker(self._sessions_of_this_epoch(), self._now_ms(), registration)
        try:
            epoch, is_new = await self._node.submit(command, COMMAND_TIMEOUT_MS)
        except CommandRefused as refused:
            existing = self._node.image.brokers.get(registration.broker_id)
            if refused.error.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION and existing is not None:
                # A restarted process may register before the end of its predecessor was noticed.
                self.connection_lost(existing.broker_id, existing.epoch)
            raise
        if is_new:
            self._heartbeats.forget(registration.broker_id)
            log.info("broker %d is registered with broker epoch %d", registration.broker_id, epoch)
        return epoch

    async def heartbeat(
        self,
        heartbeat: Heartbeat,
        offline_log_dirs: Sequence[bytes] = (),
        cordoned_log_dirs: Sequence[bytes] | None = None,
    ) -> HeartbeatResult:
        """Processes a heartbeat: session, fencing, unfencing, controlled shutdown.

        Raises:
            CommandRefused: NOT_CONTROLLER, STALE_BROKER_EPOCH; REQUEST_TIMED_OUT: the heartbeat has extended the
                session, and may have no other effect.
        """
        heartbeats = self._sessions_of_this_epoch()
        broker = self._node.image.brokers.get(heartbeat.broker_id)
        if broker is not None and broker.epoch == heartbeat.broker_epoch:
            # Before the command: a busy controller must not fence brokers whose heartbeats wait in its queue.
            is_first = heartbeats.next_expiry_ms() == NEVER_MS
            heartbeats.contact(heartbeat.broker_id, heartbeat.broker_epoch, self._now_ms())
            if is_first:
                self._wakeup.set()
        command = ProcessHeartbeat(heartbeats, heartbeat, offline_log_dirs, cordoned_log_dirs)
        # As in Kafka: the broker sends its next heartbeat soon after this.
        result = await self._node.submit(command, self._settings.heartbeat_interval_ms // 2)
        heartbeats.note(heartbeat, result.after, result.end_offset)
        if result.after is not result.before:
            log.info("broker %d is %s, and was %s", heartbeat.broker_id, result.after.value, result.before.value)
        return result

    def connection_lost(self, broker_id: int, broker_epoch: int) -> None:
        """Marks a broker as suspect because the connection of its heartbeats broke. Most brokers reconnect."""
        self._suspects[(broker_id, broker_epoch)] = None
        self._has_suspects.set()

    def _sessions_of_this_epoch(self) -> BrokerHeartbeats:
        """Sessions of the epoch in which this node leads now.

        Raises:
            CommandRefused: NOT_CONTROLLER.
        """
        if not self._node.is_leader:
            raise not_leader(self._node.known_leader()[0])
        epoch = self._node.known_leader()[1]
        if epoch != self._epoch:
            self._epoch = epoch
            self._heartbeats = BrokerHeartbeats(self._settings.session_timeout_ms)
        return self._heartbeats

    # Duties

    async def _run_duties(self, heartbeats: BrokerHeartbeats) -> None:
        self._suspects.clear()
        image = await self._submit(CurrentImage())
        while image is None:
            await trio.sleep(RETRY_MS / 1000)
            image = await self._submit(CurrentImage())
        heartbeats.begin(image, self._now_ms())
        if self._settings.local_broker_id is not None:
            heartbeats.forget(self._settings.local_broker_id)
        for broker in image.brokers.values():
            self.connection_lost(broker.broker_id, broker.epoch)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._check_suspects, heartbeats)
            await self._run_periodic_duties(heartbeats)

    async def _run_periodic_duties(self, heartbeats: BrokerHeartbeats) -> None:
        """Fences brokers at the end of their sessions, and runs periodic elections."""
        balance_ms = self._settings.balance_interval_ms
        balance_due_ms = self._now_ms() + balance_ms if balance_ms else NEVER_MS
        unclean_due_ms = self._now_ms() + self._settings.unclean_interval_ms
        while True:
            await self._sleep_until(min(heartbeats.next_expiry_ms() + 1, balance_due_ms, unclean_due_ms))
            await self._fence_expired(heartbeats)
            if self._now_ms() >= balance_due_ms:
                has_more = await self._submit(ElectPreferredLeaders())
                balance_due_ms = self._now_ms() if has_more else self._now_ms() + balance_ms
            if self._now_ms() >= unclean_due_ms:
                unclean_due_ms = self._now_ms() + self._settings.unclean_interval_ms
                if await self._submit(ElectUncleanLeaders()):
                    unclean_due_ms = self._now_ms()

    async def _sleep_until(self, due_ms: int) -> None:
        """Sleeps; returns earlier when another duty is due, or after a stall. The caller checks the time again."""
        with trio.move_on_at(self._node.clock.trio_time(due_ms)):
            await self._wakeup.wait()
        self._wakeup = trio.Event()

    async def _fence_expired(self, heartbeats: BrokerHeartbeats) -> None:
        """Fences brokers one after another, so that each election sees the result of the previous one."""
        while (expired := heartbeats.take_expired(self._now_ms())) is not None:
            broker_id, epoch = expired
            broker = self._node.image.brokers.get(broker_id)
            if broker is None or broker.epoch != epoch or broker.is_fenced:
                continue
            timeout_ms = self._settings.session_timeout_ms
            log.warning(
                "fencing broker %d: it sent no heartbeat within %d ms (broker.session.timeout.ms)",
                broker_id,
                timeout_ms,
            )
            if not await self._submit(FenceBroker(broker_id, epoch)):
                heartbeats.contact(broker_id, epoch, self._now_ms() + RETRY_MS - self._settings.session_timeout_ms)

    async def _check_suspects(self, heartbeats: BrokerHeartbeats) -> None:
        """Checks the brokers whose connection broke, all concurrently."""
        if self._refuses is None:
            return
        async with trio.open_nursery() as nursery:
            while True:
                while self._suspects:
                    nursery.start_soon(self._check_suspect, heartbeats, self._refuses, *self._suspects.popitem()[0])
                await self._has_suspects.wait()
                self._has_suspects = trio.Event()

    async def _check_suspect(self, heartbeats: BrokerHeartbeats, refuses: Refuses, broker_id: int, epoch: int) -> None:
        for pause_s in CHECK_PAUSES_S:
            await trio.sleep(pause_s)
            broker = self._node.image.brokers.get(broker_id)
            if broker is None or broker.epoch != epoch:
                return
            if broker.endpoints and await refuses(broker.endpoints[0]):
                heartbeats.end_session(broker_id, epoch)
                if not broker.is_fenced:
                    await self._fence_ended_process(heartbeats, refuses, broker_id, epoch)
                return

    async def _fence_ended_process(
        self, heartbeats: BrokerHeartbeats, refuses: Refuses, broker_id: int, epoch: int
    ) -> None:
        """Fences a broker whose process has ended, once another broker is reachable, at the latest after its session.

        When all brokers start again together, fencing them in turn would leave only the last one in the in-sync sets.
        It would lead even if its machine has lost records. While no other broker is reachable, no partition would gain
        a leader by the fencing.
        """
        latest_ms = self._now_ms() + self._settings.session_timeout_ms
        while True:
            broker = self._node.image.brokers.get(broker_id)
            if broker is None or broker.epoch != epoch or broker.is_fenced:
                return
            if heartbeats.has_session(broker_id, epoch, self._now_ms()):
                return  # it has sent a heartbeat since
            pause_s = ALL_GONE_PAUSE_S
            is_late = self._now_ms() >= latest_ms
            if is_late or (await refuses(broker.endpoints[0]) and await self._is_another_reachable(refuses, broker_id)):
                reason = "it did not connect again in time" if is_late else "its port refuses connections"
                log.warning("fencing broker %d: its connection was closed, and %s", broker_id, reason)
                if await self._submit(FenceBroker(broker_id, epoch)):
                    return
                pause_s = RETRY_MS / 1000
            await trio.sleep(pause_s)

    async def _is_another_reachable(self, refuses: Refuses, broker_id: int) -> bool:
        """True if the machine of another unfenced broker does not refuse connections, or if there is no such broker.

        The brokers are checked concurrently: a check of a machine that is cut off lasts a second.
        """
        brokers = self._node.image.brokers.values()
        others = [each for each in brokers if each.broker_id != broker_id and not each.is_fenced and each.endpoints]
        is_reachable = not others

        async def check(endpoint: Endpoint) -> None:
            nonlocal is_reachable
            if not await refuses(endpoint):
                is_reachable = True
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for other in others:
                nursery.start_soon(check, other.endpoints[0])
        return is_reachable

    async def _submit(self, command: Command[R]) -> R | None:
        """Submits a command; None if it was refused."""
        try:
            return await self._node.submit(command, COMMAND_TIMEOUT_MS)
        except CommandRefused as refused:
            if refused.error.code != ErrorCode.NOT_CONTROLLER:
                log.warning("the command %s of the active controller was refused: %s", type(command).__name__, refused)
            return None

    def _now_ms(self) -> int:
        return self._node.clock.now_ms()
