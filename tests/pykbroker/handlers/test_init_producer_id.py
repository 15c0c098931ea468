"""InitProducerId: P-59, P-127."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.image import Acl
from pykbroker.controller.metadata.producer_id_blocks import AllocateProducerIds
from pykbroker.handlers.init_producer_id import handle_init_producer_id
from pykbroker.protocol.acl_codes import ALLOW, LITERAL, TRANSACTIONAL_ID, TWO_PHASE_COMMIT, WRITE
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.support.admin import answer, beside_tasks, call, make_context, make_services


def test_every_call_without_a_transactional_id_gets_a_new_id() -> None:
    """P-127: at epoch 0."""
    services = make_services()
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60000)
    answers = [call(handle_init_producer_id, make_context(4, services=services), request) for _ in range(3)]
    assert [(answer.error_code, answer.producer_id, answer.producer_epoch) for answer in answers] == [
        (0, 0, 0),
        (0, 1, 0),
        (0, 2, 0),
    ]


def test_ids_come_in_blocks_of_1000_and_the_rest_of_a_block_is_lost_with_its_broker() -> None:
    """P-59."""
    services = make_services()
    allocations = services.controller.commands  # type: ignore[attr-defined]

    async def take(count: int) -> list[int]:
        taken = [await services.producer_ids.next() for _ in range(count)]
        await trio.testing.wait_all_tasks_blocked()
        return taken

    assert trio.run(beside_tasks, services, take, 900) == list(range(900))
    # The last of them has asked for the next block.
    assert sum(isinstance(command, AllocateProducerIds) for command in allocations) == 2
    assert trio.run(beside_tasks, services, take, 101) == list(range(900, 1001))
    assert sum(isinstance(command, AllocateProducerIds) for command in allocations) == 2
    assert services.metadata.image.next_producer_id == 2000


def test_callers_at_the_same_time_share_a_block() -> None:
    services = make_services()
    taken: list[int] = []

    async def main() -> None:
        async def take() -> None:
            taken.append(await services.producer_ids.next())

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(take)

    trio.run(beside_tasks, services, main)
    assert sorted(taken) == list(range(10))
    assert services.metadata.image.next_producer_id == 1000


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5)])
def test_id_and_epoch_come_together(producer_id: int, epoch: int) -> None:
    """P-129."""
    request = InitProducerIdRequest(transactional_id=None, producer_id=producer_id, producer_epoch=epoch)
    refused = answer(handle_init_producer_id, make_context(4), request)
    assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)


def test_a_two_phase_commit_needs_an_operation_of_its_own() -> None:
    """P-441: WRITE on the transactional id is not enough, and does not come with TWO_PHASE_COMMIT."""
    acls = {
        bytes([number]): Acl(TRANSACTIONAL_ID, transactional_id, LITERAL, "User:ANONYMOUS", "*", operation, ALLOW)
        for number, (transactional_id, operation) in enumerate([("x", WRITE), ("y", TWO_PHASE_COMMIT)])
    }
    authorizer = StandardAuthorizer(lambda: acls, frozenset(), False)
    services = make_services().replaced(authorizer=authorizer)
    for transactional_id in ("x", "y"):
        request = InitProducerIdRequest(transactional_id=transactional_id, enable2_pc=True)
        refused = answer(handle_init_producer_id, make_context(6, services=services), request)
        assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    "refusal", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR]
)
def test_without_a_block_there_is_no_id(refusal: ErrorCode) -> None:
    """P-59: whatever the controller says, producers are to try again."""
    services = make_services()
    services.controller.failure = CommandRefused(refusal, "no")  # type: ignore[attr-defined]
    refused = answer(
        handle_init_producer_id, make_context(4, services=services), InitProducerIdRequest(transactional_id=None)
    )
    assert refused.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
