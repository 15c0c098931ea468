"""Empty records of the active controller, by which the high watermark of an idle quorum moves (KIP-835)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from pykbroker.controller.metadata.commands import CommandRefused, Plan, PlanContext
from pykbroker.controller.metadata.image import ClusterImage
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import NoOpRecord

if TYPE_CHECKING:
    from pykbroker.controller.node import ControllerNode

log = logging.getLogger(__name__)

COMMAND_TIMEOUT_MS = 60_000

PAUSE_AFTER_ERROR_S = 300.0
"""Pause in seconds after a record that could not be written, as of Kafka's periodic tasks after an error."""


class WriteNoOp(NamedTuple):
    """Writes a record that changes nothing."""

    def plan(self, image: ClusterImage, context: PlanContext) -> Plan[None]:
        return Plan([NoOpRecord()], None)


async def write_no_ops(node: ControllerNode, interval_ms: int) -> None:
    """Writes an empty record at each interval while the node leads, until it is cancelled.

    As in Kafka, records that were written meanwhile make no difference. `interval_ms`: `metadata.max.idle.interval.ms`.
    """
    due = trio.current_time() + interval_ms / 1000
    while True:
        with trio.move_on_at(due if node.is_leader else float("inf")):
            await node.leadership_changed()
            due = trio.current_time() + interval_ms / 1000
            continue
        due = trio.current_time() + interval_ms / 1000
        try:
            await node.submit(WriteNoOp(), COMMAND_TIMEOUT_MS)
        except CommandRefused as refused:
            if refused.error.code != ErrorCode.NOT_CONTROLLER:
                log.warning("the NoOpRecord of an idle metadata quorum was not written: %s", refused)
                due = trio.current_time() + PAUSE_AFTER_ERROR_S
