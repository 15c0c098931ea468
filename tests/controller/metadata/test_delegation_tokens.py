"""Delegation tokens: lifetimes, and what each principal may do with a token (KIP-48, P-251)."""

from __future__ import annotations

import hmac

import pytest

from pykbroker.controller.metadata.delegation_tokens import (
    EXPIRED_MAX,
    ChangedToken,
    CreateDelegationToken,
    CreatedToken,
    ExpireDelegationToken,
    RemoveExpiredTokens,
    RenewDelegationToken,
    TokenSettings,
    token_by_id,
    token_hmac,
    tokens,
)
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import DelegationTokenRecord
from tests.controller.world import World

SETTINGS = TokenSettings("secret", 1000, 100)
NOW = 5000


def create(world: World, now_ms: int = NOW, **changes: object) -> DelegationTokenRecord:
    values = {"owner": "User:alice", "requester": "User:alice", "renewers": ["User:bob"], "max_lifetime_ms": -1}
    created = world.do(CreateDelegationToken(SETTINGS, **{**values, **changes}, now_ms=now_ms))  # type: ignore[arg-type]
    assert created.token is not None
    return created.token


def renew(world: World, token: DelegationTokenRecord, who: str, period_ms: int, now_ms: int) -> ChangedToken:
    return world.do(RenewDelegationToken(SETTINGS, who, token_hmac("secret", token.token_id), period_ms, now_ms))


def expire(world: World, token: DelegationTokenRecord, who: str, period_ms: int, now_ms: int) -> ChangedToken:
    return world.do(ExpireDelegationToken(SETTINGS, who, token_hmac("secret", token.token_id), period_ms, now_ms))


def test_the_hmac_is_that_of_the_id() -> None:
    assert token_hmac("secret", "id") == hmac.digest(b"secret", b"id", "sha512")


@pytest.mark.parametrize(
    ("max_lifetime_ms", "max_ms", "expiry_ms"),
    [(-1, 1000, 100), (0, 1000, 100), (50, 50, 50), (400, 400, 100), (9999, 1000, 100)],
)
def test_lifetimes_of_a_new_token(max_lifetime_ms: int, max_ms: int, expiry_ms: int) -> None:
    world = World()
    token = create(world, max_lifetime_ms=max_lifetime_ms)
    assert (token.issue_timestamp, token.max_timestamp, token.expiration_timestamp) == (
        NOW,
        NOW + max_ms,
        NOW + expiry_ms,
    )
    assert token_by_id(world.image, token.token_id) == token
    assert (token.owner, token.requester, token.renewers) == ("User:alice", "User:alice", ["User:bob"])


def test_tokens_that_are_not_created() -> None:
    off = SETTINGS._replace(secret_key=None)
    given: tuple[str, str, list[str], int, int] = ("User:a", "User:a", [], -1, NOW)
    assert World().do(CreateDelegationToken(off, *given)) == CreatedToken(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    empty = SETTINGS._replace(secret_key="")
    assert World().do(CreateDelegationToken(empty, *given)) == CreatedToken(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    old = World(metadata_version=13)
    assert old.do(CreateDelegationToken(SETTINGS, *given)) == CreatedToken(ErrorCode.UNSUPPORTED_VERSION)
    group = CreateDelegationToken(SETTINGS, "User:a", "User:a", ["Group:g"], -1, NOW)
    assert World().do(group) == CreatedToken(ErrorCode.INVALID_PRINCIPAL_TYPE)


def test_renewals_end_with_the_longest_lifetime() -> None:
    world = World()
    token = create(world)
    assert renew(world, token, "User:bob", -1, NOW + 90) == ChangedToken(ErrorCode.NONE, NOW + 190)
    assert renew(world, token, "User:alice", 30, NOW + 100) == ChangedToken(ErrorCode.NONE, NOW + 130)
    assert renew(world, token, "User:alice", 9999, NOW + 130) == ChangedToken(ErrorCode.NONE, NOW + 230)
    for now_ms in range(NOW + 230, NOW + 1001, 77):
        result = renew(world, token, "User:alice", -1, now_ms)
    assert result == ChangedToken(ErrorCode.NONE, NOW + 1000)
    assert renew(world, token, "User:alice", -1, NOW + 1001) == ChangedToken(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    (stored,) = tokens(world.image)
    assert stored.expiration_timestamp == NOW + 1000


def test_others_may_not_change_a_token() -> None:
    """The requester who is not the owner may not either, as in Kafka."""
    world = World()
    token = create(world, requester="User:carol")
    for who in ("User:carol", "User:dave"):
        assert renew(world, token, who, -1, NOW).error == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert expire(world, token, who, -1, NOW).error == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    unknown = ExpireDelegationToken(SETTINGS, "User:alice", b"other", -1, NOW)
    assert world.do(unknown).error == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_expiry_now_and_later() -> None:
    world = World()
    token = create(world)
    assert expire(world, token, "User:alice", 20, NOW) == ChangedToken(ErrorCode.NONE, NOW + 20)
    assert expire(world, token, "User:alice", 9999, NOW + 10) == ChangedToken(ErrorCode.NONE, NOW + 1000)
    assert expire(world, token, "User:bob", 5, NOW + 20) == ChangedToken(ErrorCode.NONE, NOW + 25)
    assert expire(world, token, "User:bob", 5, NOW + 26) == ChangedToken(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    assert expire(world, token, "User:bob", -1, NOW + 27) == ChangedToken(ErrorCode.NONE, NOW + 27)
    assert list(tokens(world.image)) == []


def test_expired_tokens_are_removed_in_parts() -> None:
    world = World()
    for _ in range(EXPIRED_MAX + 1):
        create(world)
    kept = create(world, NOW + 500)
    assert not world.do(RemoveExpiredTokens(NOW + 100))
    assert len(list(tokens(world.image))) == EXPIRED_MAX + 2
    assert world.do(RemoveExpiredTokens(NOW + 101))
    assert not world.do(RemoveExpiredTokens(NOW + 101))
    assert list(tokens(world.image)) == [kept]
