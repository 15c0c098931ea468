"""AlterPartitionManager: proposed in-sync sets, sent to the controller by AlterPartition (KIP-497).

One request is in flight at a time; the next one has all waiting proposals. A request is repeated until the controller
responds. A partition ignores a response that is older than its metadata (`Leadership.accept`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import trio

from pykbroker.controller.turns import Turn, in_turns
from pykbroker.errors import KafkaError
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode, answered_error
from pykbroker.protocol.steps import PIECE, Steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker.protocol.fields import Message
    from pykbroker.replication.directory_assignments import Channel
    from pykbroker.replication.leadership import Proposal
    from pykbroker.replication.replica_environment import ProposingPartition

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 30_000
RETRY_S = 0.05

_NOT_CARRIED_OUT = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)
"""Errors of a controller that has the same partition epoch: the proposal was not applied, and cannot be later."""

_OVERTAKEN = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)
"""Errors of a controller with newer metadata: the proposal stays pending until this broker has applied it."""


class _Item(NamedTuple):
    partition: ProposingPartition
    proposal: Proposal


class AlterPartitionManager:
    """Queue of proposed in-sync sets, and the task that sends them.

    Args:
        node_id: id of this broker.
        broker_epoch: returns the current epoch of this broker.
        channel: connection to the active controller.
    """

    def __init__(self, node_id: int, broker_epoch: Callable[[], int], channel: Channel) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._channel = channel
        self._unsent: dict[tuple[bytes, int], _Item] = {}
        self._wake = trio.Event()

    def submit(self, partition: ProposingPartition, proposal: Proposal) -> None:
        """Queues a proposal for the controller; it replaces one of the same partition that is not sent yet."""
        self._unsent[partition.topic_id, partition.partition] = _Item(partition, proposal)
        self._wake.set()

    async def run(self) -> None:
        """Sends the submitted proposals, until cancelled."""
        while True:
            while self._unsent:
                if not await self._send():
                    await trio.sleep(RETRY_S)
            self._wake = trio.Event()
            await self._wake.wait()

    async def _send(self) -> bool:
        """Sends one request with all waiting proposals; False if some must be sent again after a pause."""
        items, self._unsent = self._unsent, {}
        # Proposals that newer metadata has made obsolete are dropped.
        items = {key: item for key, item in items.items() if _is_pending(item)}
        if not items:
            return True
        try:
            # In turns: a broker may lag with thousands of partitions, and catch up with all of them.
            request = await in_turns(self._request(items))
            response = await self._channel.request(request, REQUEST_TIMEOUT_MS)
        except KafkaError as error:
            log.warning("AlterPartition got no answer: %s", error)
            self._requeue(items)
            return False
        if response.error_code:
            log.warning("AlterPartition was refused: %s", answered_error(response.error_code).name)
            self._requeue(items)
            return False
        turn = Turn()
        for topic in response.topics:
            for answer in topic.partitions:
                # Between two turns only the partitions change, and each has its proposal.
                await turn.end_if_over()
                item = items.pop((topic.topic_id, answer.partition_index), None)
                if item is not None and not self._handle_answer(item, answer):
                    items[topic.topic_id, answer.partition_index] = item
        self._requeue(items)
        return not items

    def _requeue(self, items: dict[tuple[bytes, int], _Item]) -> None:
        for key, item in items.items():
            self._unsent.setdefault(key, item)

    def _request(self, items: dict[tuple[bytes, int], _Item]) -> Steps[Message]:
        # Imported here: a single broker never sends this request.
        from pykbroker.protocol.messages.alter_partition import (
            AlterPartitionRequest,
            BrokerState,
            PartitionData,
            TopicData,
        )

        topics: dict[bytes, TopicData] = {}
        for count, ((topic_id, number), (_, proposal)) in enumerate(items.items(), 1):
            if not count % PIECE:
                yield
            topics.setdefault(topic_id, TopicData(topic_id=topic_id)).partitions.append(
                PartitionData(
                    partition_index=number,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=broker_id, broker_epoch=epoch) for broker_id, epoch in proposal.isr
                    ],
                    # A leader that was elected uncleanly has nothing left to recover (KIP-704).
                    leader_recovery_state=0,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._node_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _handle_answer(self, item: _Item, answer: Any) -> bool:
        """Passes the result of a proposal to its partition; False to send the proposal again."""
        partition, proposal = item
        code = answered_error(answer.error_code)
        if code is ErrorCode.NONE:
            partition.on_proposal_accepted(proposal, tuple(answer.isr), answer.leader_epoch, answer.partition_epoch)
            return True
        log.info("%s: in-sync set %s was refused: %s", partition, proposal.broker_ids, code.name)
        if code in _NOT_CARRIED_OUT:
            partition.on_proposal_rejected(proposal)
            return True
        return code in _OVERTAKEN


def _is_pending(item: _Item) -> bool:
    leadership = item.partition.leadership
    return leadership is not None and leadership.pending is item.proposal
