"""Delegation tokens (KIP-48, KIP-373, KIP-900) as commands: create, renew, expire, remove expired ones.

A token is a DelegationTokenRecord. Its HMAC, which is the password of a login by token, is derived from its id and a
secret that all nodes have (`delegation.token.secret.key`), and is stored nowhere.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence
from typing import Any

from pykbroker.controller.metadata.commands import Plan, PlanContext
from pykbroker.controller.metadata.image import ClusterImage
from pykbroker.controller.metadata.metadata_versions import DELEGATION_TOKENS
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from pykbroker.protocol.uuids import random_uuid_text

TIMESTAMP_MAX = (1 << 63) - 1
EXPIRED_MAX = 1000
"""Largest number of expired tokens that one command removes, as in Kafka."""


class TokenSettings(NamedTuple):
    """Settings of delegation tokens.

    Attributes:
        secret_key: `delegation.token.secret.key`; None or "" if there are no tokens.
        max_lifetime_ms: `delegation.token.max.lifetime.ms`.
        expiry_time_ms: `delegation.token.expiry.time.ms`.
    """

    secret_key: str | None
    max_lifetime_ms: int
    expiry_time_ms: int


class CreatedToken(NamedTuple):
    """The result of CreateDelegationToken; `token` is None with an error."""

    error: ErrorCode
    token: DelegationTokenRecord | None = None


class ChangedToken(NamedTuple):
    """The result of a renewal or expiry: the new time of expiry in ms, 0 with an error."""

    error: ErrorCode
    expiry_ms: int = 0


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """HMAC of a token; 64 bytes."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def tokens(image: ClusterImage) -> Iterator[DelegationTokenRecord]:
    """All tokens, also those that have expired and are not removed yet."""
    for key, record in image.kept_records.items():
        if key[0] == DelegationTokenRecord.KEY:
            yield record


def token_by_id(image: ClusterImage, token_id: str) -> DelegationTokenRecord | None:
    """The token of an id, also an expired one."""
    found: DelegationTokenRecord | None = image.kept_records.get((DelegationTokenRecord.KEY, token_id))
    return found


class CreateDelegationToken(NamedTuple):
    """Creates a token.

    Principals are texts such as ``User:alice``; a lifetime of 0 or less is the longest allowed.
    """

    settings: TokenSettings
    owner: str
    requester: str
    renewers: Sequence[str]
    max_lifetime_ms: int
    now_ms: int

    def plan(self, image: ClusterImage, context: PlanContext) -> Plan[CreatedToken]:
        error = _unavailable(self.settings, image)
        if error is None and any(not renewer.startswith("User:") for renewer in self.renewers):
            error = ErrorCode.INVALID_PRINCIPAL_TYPE
        if error is not None:
            return Plan([], CreatedToken(error))
        lifetime_ms = self.settings.max_lifetime_ms
        if self.max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, self.max_lifetime_ms)
        max_timestamp = min(self.now_ms + lifetime_ms, TIMESTAMP_MAX)
        record = DelegationTokenRecord(
            owner=self.owner,
            requester=self.requester,
            renewers=list(self.renewers),
            issue_timestamp=self.now_ms,
            max_timestamp=max_timestamp,
            expiration_timestamp=min(max_timestamp, self.now_ms + self.settings.expiry_time_ms),
            token_id=random_uuid_text(context.random),
        )
        return Plan([record], CreatedToken(ErrorCode.NONE, record))


class RenewDelegationToken(NamedTuple):
    """Moves the expiry of the token with this HMAC; a period of 0 or less is `delegation.token.expiry.time.ms`."""

    settings: TokenSettings
    requester: str
    hmac: bytes
    period_ms: int
    now_ms: int

    def plan(self, image: ClusterImage, context: PlanContext) -> Plan[ChangedToken]:
        token, error = _token_to_change(self.settings, image, self.hmac)
        if token is None:
            return Plan([], ChangedToken(error))
        if is_expired(token, self.now_ms):
            return Plan([], ChangedToken(ErrorCode.DELEGATION_TOKEN_EXPIRED))
        if not _may_change(token, self.requester):
            return Plan([], ChangedToken(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH))
        period_ms = self.settings.expiry_time_ms
        if self.period_ms > 0:
            period_ms = min(period_ms, self.period_ms)
        return _with_expiry(token, self.now_ms + period_ms)


class ExpireDelegationToken(NamedTuple):
    """Moves the expiry of the token with this HMAC; a negative period removes the token at once."""

    settings: TokenSettings
    requester: str
    hmac: bytes
    period_ms: int
    now_ms: int

    def plan(self, image: ClusterImage, context: PlanContext) -> Plan[ChangedToken]:
        token, error = _token_to_change(self.settings, image, self.hmac)
        if token is None:
            return Plan([], ChangedToken(error))
        if not _may_change(token, self.requester):
            return Plan([], ChangedToken(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH))
        if self.period_ms < 0:
            removal = RemoveDelegationTokenRecord(token_id=token.token_id)
            return Plan([removal], ChangedToken(ErrorCode.NONE, self.now_ms))
        if is_expired(token, self.now_ms):
            return Plan([], ChangedToken(ErrorCode.DELEGATION_TOKEN_EXPIRED))
        return _with_expiry(token, self.now_ms + self.period_ms)


class RemoveExpiredTokens(NamedTuple):
    """Removes tokens that have expired; the result is true if there may be more of them."""

    now_ms: int

    def plan(self, image: ClusterImage, context: PlanContext) -> Plan[bool]:
        expired = [token.token_id for token in tokens(image) if is_expired(token, self.now_ms)]
        records = [RemoveDelegationTokenRecord(token_id=token_id) for token_id in expired[:EXPIRED_MAX]]
        return Plan(records, len(expired) > EXPIRED_MAX)


def is_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    """True if the token can no longer be renewed."""
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def _unavailable(settings: TokenSettings, image: ClusterImage) -> ErrorCode | None:
    if not settings.secret_key:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if image.metadata_version < DELEGATION_TOKENS:
        return ErrorCode.UNSUPPORTED_VERSION
    return None


def _token_to_change(
    settings: TokenSettings, image: ClusterImage, given_hmac: bytes
) -> tuple[DelegationTokenRecord | None, ErrorCode]:
    error = _unavailable(settings, image)
    if error is not None:
        return None, error
    secret_key = settings.secret_key or ""
    for token in tokens(image):
        if hmac.compare_digest(token_hmac(secret_key, token.token_id), given_hmac):
            return token, ErrorCode.NONE
    return None, ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def _may_change(token: DelegationTokenRecord, principal: str) -> bool:
    return principal == token.owner or principal in token.renewers


def _with_expiry(token: DelegationTokenRecord, expiry_ms: int) -> Plan[ChangedToken]:
    expiry_ms = min(token.max_timestamp, expiry_ms)
    values: dict[str, Any] = {field.name: getattr(token, field.name) for field in token.FIELDS}
    record = DelegationTokenRecord(**{**values, "expiration_timestamp": expiry_ms})
    return Plan([record], ChangedToken(ErrorCode.NONE, expiry_ms))
