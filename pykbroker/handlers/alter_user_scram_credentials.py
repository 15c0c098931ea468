"""AlterUserScramCredentials (key 51): set and delete SCRAM credentials (KIP-554).

Version 0. Listeners with SCRAM use changed credentials from the next login on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.scram import AlterUserScramCredentials, Deletion, Upsertion
from pykbroker.protocol.acl_codes import ALTER
from pykbroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from pykbroker.requests.controller_calls import submit_command

if TYPE_CHECKING:
    from pykbroker.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
    from pykbroker.requests.context import NodeContext


async def handle_alter_user_scram_credentials(
    context: NodeContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Changes the credentials of each user independently of the others."""
    context.require_cluster(ALTER)
    command = AlterUserScramCredentials(
        [Deletion(deletion.name, deletion.mechanism) for deletion in request.deletions],
        [
            # Copied, as the fields are views of the request's frame and the stored credentials outlive it.
            Upsertion(
                change.name, change.mechanism, change.iterations, bytes(change.salt), bytes(change.salted_password)
            )
            for change in request.upsertions
        ],
    )
    results = await submit_command(context, command)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message)
            for user, error in results.items()
        ]
    )
