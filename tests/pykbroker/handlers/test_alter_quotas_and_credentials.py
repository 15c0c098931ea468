"""AlterClientQuotas and AlterUserScramCredentials: what is not in the admin transcript."""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.handlers.alter_client_quotas import handle_alter_client_quotas
from pykbroker.handlers.alter_user_scram_credentials import handle_alter_user_scram_credentials
from pykbroker.handlers.describe_client_quotas import handle_describe_client_quotas
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from pykbroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from pykbroker.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from pykbroker.requests.context import RequestContext
from tests.support.admin import answer, call, make_context
from tests.support.services import Services


def of_address(name: str | None) -> AlterClientQuotasRequest:
    entity = [EntityData(entity_type="ip", entity_name=name)]
    return AlterClientQuotasRequest(
        entries=[EntryData(entity=entity, ops=[OpData(key="connection_creation_rate", value=1.0)])]
    )


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("127.0.0.1", ErrorCode.NONE),
        ("::1", ErrorCode.NONE),
        (None, ErrorCode.NONE),
        ("no host of that name", ErrorCode.INVALID_REQUEST),
        (f"{'x' * 64}.example", ErrorCode.INVALID_REQUEST),
        ("nul\0inside", ErrorCode.INVALID_REQUEST),
        ("", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_quota_of_an_address_needs_one(name: str | None, code: ErrorCode) -> None:
    (entry,) = call(handle_alter_client_quotas, make_context(1), of_address(name)).entries
    assert entry.error_code == code
    assert [(part.entity_type, part.entity_name) for part in entry.entity] == [("ip", name)]


def named(entry: Any) -> dict[str, str | None]:
    """The entity of an entry of a request or a response, its types in their order."""
    return {part.entity_type: part.entity_name for part in entry.entity}


def test_quotas_have_the_order_of_kafkas_tables() -> None:
    """P-695; what is expected was asked of Apache Kafka 4.3.1.

    Entities and quotas of one slot, as the two entities and the quotas of producers and requests, have the order in
    which they came, and quotas that came together that of a table of sixteen slots.
    """
    context = make_context(1)
    keys = ["producer_byte_rate", "consumer_byte_rate", "request_percentage"]

    def alter(entity: dict[str, str | None], *keys: str) -> EntryData:
        parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
        return EntryData(entity=parts, ops=[OpData(key=key, value=1000.0) for key in keys])

    user: dict[str, str | None] = {"user": "User1"}
    both: dict[str, str | None] = {"user": "User1", "client-id": "Client1"}
    default: dict[str, str | None] = {"user": None}
    altered = []
    for entries in ([alter(user, *keys)], [alter(both, keys[0]), alter(default, *keys)], [alter(both, *keys[1:])]):
        response = call(handle_alter_client_quotas, context, AlterClientQuotasRequest(entries=entries))
        assert {entry.error_code for entry in response.entries} == {ErrorCode.NONE}
        altered.append([named(entry) for entry in response.entries])
    assert altered == [[user], [default, both], [both]]
    described = call(handle_describe_client_quotas, context, DescribeClientQuotasRequest(components=[])).entries
    assert [(named(entry), [value.key for value in entry.values]) for entry in described] == [
        (default, [keys[1], keys[2], keys[0]]),
        (user, [keys[1], keys[2], keys[0]]),
        (both, [keys[1], keys[0], keys[2]]),
    ]
    assert [list(named(entry)) for entry in described] == [["user"], ["user"], ["client-id", "user"]]


def failing_context() -> RequestContext[Services]:
    context = make_context(0)
    context.services.controller.failure = CommandRefused(ErrorCode.REQUEST_TIMED_OUT, "too late")  # type: ignore[attr-defined]
    return context


def test_a_controller_that_does_not_answer_is_everybodys_error() -> None:
    (entry,) = answer(handle_alter_client_quotas, failing_context(), of_address(None)).entries
    assert (entry.error_code, entry.error_message) == (ErrorCode.REQUEST_TIMED_OUT, "The request timed out.")
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=1) for name in ("b", "a", "b")]
    )
    results = answer(handle_alter_user_scram_credentials, failing_context(), request).results
    assert [(result.user, result.error_code) for result in results] == [
        ("a", ErrorCode.REQUEST_TIMED_OUT),
        ("b", ErrorCode.REQUEST_TIMED_OUT),
    ]


def test_too_many_changes_have_the_text_of_their_code() -> None:
    """Kafka's response to a whole AlterClientQuotas that fails has no other."""
    context = make_context(1)
    context.services.controller.failure = CommandRefused(  # type: ignore[attr-defined]
        ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
    )
    (entry,) = answer(handle_alter_client_quotas, context, of_address(None)).entries
    assert entry.error_message == "Request parameters do not satisfy the configured policy."
