"""Periodic checks of the transaction coordinator: transactions that have timed out, transactional ids that expire."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from pykbroker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.coordination.runtime import CoordinatorRuntime
    from pykbroker.transactions.shard import TransactionShard

log = logging.getLogger(__name__)


class TransactionTimeouts:
    """The checks of one broker, each of which schedules the next one.

    Args:
        runtime: the coordinator runtime, with the shards.
        config: the broker's settings: intervals of the checks, time after which a transactional id expires.
        abort: aborts a transaction that had timed out at a time in ms, and fences its producer. Returns the error
            without waiting until the abort is replicated.
    """

    def __init__(
        self,
        runtime: CoordinatorRuntime[TransactionShard],
        config: BrokerConfig,
        abort: Callable[[str, int], Awaitable[ErrorCode]],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._abort = abort

    def schedule_timeout_check(self) -> None:
        """Schedules the next check of timeouts; there is none while no transaction is ongoing."""
        interval_ms = self._config.transactions.abort_timed_out_transaction_cleanup_interval_ms
        self._runtime.schedule("timeouts", interval_ms, self._abort_timed_out)

    async def _abort_timed_out(self) -> None:
        """Aborts transactions that have timed out (P-140)."""
        now_ms = self._runtime.now_ms()
        late = [transaction for shard in self._runtime.shards.values() for transaction in shard.timed_out(now_ms)]
        for transaction in late:
            transactional_id = transaction.transactional_id
            error = await self._abort(transactional_id, now_ms)
            if error is ErrorCode.NONE:
                timeout_ms = transaction.current.timeout_ms
                log.info(
                    "transactional id %r: its transaction exceeded %d ms and is aborted", transactional_id, timeout_ms
                )
            else:
                log.warning(
                    "transactional id %r: its timed-out transaction is not aborted: %s", transactional_id, error.name
                )
        if any(shard.has_ongoing for shard in self._runtime.shards.values()):
            self.schedule_timeout_check()

    def schedule_expiry(self) -> None:
        """Schedules the next check for transactional ids that have expired; there is none while there is no id."""
        interval_ms = self._config.transactions.remove_expired_transaction_cleanup_interval_ms
        self._runtime.schedule("expiry", interval_ms, self._remove_expired)

    async def _remove_expired(self) -> None:
        """Deletes transactional ids that have expired (P-56)."""
        now_ms, expiration_ms = self._runtime.now_ms(), self._config.transactions.transactional_id_expiration_ms
        for number, shard in self._runtime.shards.items():
            for tombstones in shard.expired(now_ms, expiration_ms):
                self._runtime.carry_out(number, shard, tombstones)
        if any(shard.transactions for shard in self._runtime.shards.values()):
            self.schedule_expiry()
