"""AlterUserScramCredentials as a command: SCRAM credentials of users (KIP-554, RFC 5802)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any

from pykbroker.controller.metadata.commands import NO_ERROR, ApiError, Plan, PlanContext
from pykbroker.controller.metadata.image import ClusterImage
from pykbroker.controller.metadata.metadata_versions import SCRAM
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

HASHES: Mapping[int, str] = {1: "sha256", 2: "sha512"}
"""Mechanism on the wire -> hash: SCRAM-SHA-256 and SCRAM-SHA-512."""

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384


class Deletion(NamedTuple):
    """A credential to delete."""

    user: str
    mechanism: int


class Upsertion(NamedTuple):
    """A credential to set. The client has computed `salted_password` from the password; it is not stored."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class AlterUserScramCredentials(NamedTuple):
    """Deletes and sets credentials; the result has an error code for each user, once.

    An error of one user does not affect the others. A user that is named twice gets an error, and no change.
    """

    deletions: Sequence[Deletion]
    upsertions: Sequence[Upsertion]

    def plan(self, image: ClusterImage, context: PlanContext) -> Plan[dict[str, ApiError]]:
        accepted: dict[str, Deletion | Upsertion] = {}
        errors: dict[str, ApiError] = {}
        changes: list[Deletion | Upsertion] = [*self.deletions, *self.upsertions]
        for change in changes:
            user = change.user
            if user in errors:
                continue
            if user in accepted:
                del accepted[user]
                errors[user] = ApiError(
                    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
                )
                continue
            error = _error(change, image)
            if error.is_failure:
                errors[user] = error
            else:
                accepted[user] = change
        for user, change in list(accepted.items()):
            if isinstance(change, Upsertion) and not change.salted_password:
                # Java has no HMAC with an empty key, on which Kafka fails only when it makes the record.
                del accepted[user]
                errors[user] = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
        return Plan([_record(change) for change in accepted.values()], dict.fromkeys(accepted, NO_ERROR) | errors)


def _error(change: Deletion | Upsertion, image: ClusterImage) -> ApiError:
    if image.metadata_version < SCRAM:
        return ApiError(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
    if not change.user:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in HASHES:
        return ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, Deletion):
        if (UserScramCredentialRecord.KEY, change.user, change.mechanism) not in image.kept_records:
            return ApiError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return NO_ERROR
    if change.iterations < ITERATIONS_MIN:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > ITERATIONS_MAX:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return NO_ERROR


def _record(change: Deletion | Upsertion) -> Any:
    if isinstance(change, Deletion):
        return RemoveUserScramCredentialRecord(name=change.user, mechanism=change.mechanism)
    name = HASHES[change.mechanism]
    client_key = hmac.digest(change.salted_password, b"Client Key", name)
    return UserScramCredentialRecord(
        name=change.user,
        mechanism=change.mechanism,
        salt=change.salt,
        stored_key=hashlib.new(name, client_key).digest(),
        server_key=hmac.digest(change.salted_password, b"Server Key", name),
        iterations=change.iterations,
    )
