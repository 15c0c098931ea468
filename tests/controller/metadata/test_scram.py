"""AlterUserScramCredentials: what is stored of a password proves it (RFC 5802, RFC 7677)."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode

import pytest

from pykbroker.controller.metadata.commands import ApiError
from pykbroker.controller.metadata.scram import AlterUserScramCredentials, Deletion, Upsertion
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import FeatureLevelRecord, UserScramCredentialRecord
from tests.controller.world import World

SHA_256, SHA_512 = 1, 2


def credentials(world: World) -> dict[tuple[str, int], UserScramCredentialRecord]:
    return {
        (record.name, record.mechanism): record
        for record in world.image.kept_records.values()
        if isinstance(record, UserScramCredentialRecord)
    }


def upsertion(user: str, mechanism: int = SHA_256, iterations: int = 4096, salted: bytes = b"salted") -> Upsertion:
    return Upsertion(user, mechanism, iterations, b"salt", salted)


def test_the_stored_keys_are_those_of_the_example_in_rfc_7677() -> None:
    """The client's proof and the server's signature of the exchange in section 3, with the password `pencil`."""
    salt, iterations = b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096
    nonce = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    exchange = f"n=user,r=rOprNGfwEbeRWgbNEkqO,{nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,{nonce}".encode()
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, iterations)
    world = World()
    world.do(AlterUserScramCredentials([], [Upsertion("user", SHA_256, iterations, salt, salted)]))
    stored = credentials(world)["user", SHA_256]
    assert (stored.salt, stored.iterations) == (salt, iterations)
    proof = b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(stored.stored_key, exchange, "sha256")
    client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == stored.stored_key
    assert hmac.digest(stored.server_key, exchange, "sha256") == b64decode(
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )


def test_each_mechanism_is_a_credential_of_its_own() -> None:
    world = World()
    world.do(AlterUserScramCredentials([], [upsertion("anna", SHA_256)]))
    world.do(AlterUserScramCredentials([], [upsertion("anna", SHA_512, 16384)]))
    assert {key: len(record.stored_key) for key, record in credentials(world).items()} == {
        ("anna", SHA_256): 32,
        ("anna", SHA_512): 64,
    }
    world.do(AlterUserScramCredentials([], [upsertion("anna", SHA_256, 5000)]))
    world.do(AlterUserScramCredentials([Deletion("anna", SHA_512)], []))
    assert {key: record.iterations for key, record in credentials(world).items()} == {("anna", SHA_256): 5000}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (Deletion("nobody", SHA_256), ErrorCode.RESOURCE_NOT_FOUND),
        (Deletion("", SHA_256), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (Deletion("anna", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion("anna", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion("anna", -1), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("anna", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("anna", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("anna", salted=b""), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_changes_that_are_refused_leave_those_of_others(change: Deletion | Upsertion, error: ErrorCode) -> None:
    world = World()
    deletions = [change] if isinstance(change, Deletion) else []
    upsertions = [change] if isinstance(change, Upsertion) else []
    results = world.do(AlterUserScramCredentials(deletions, [*upsertions, upsertion("bert")]))
    assert {user: result.code for user, result in results.items()} == {change.user: error, "bert": ErrorCode.NONE}
    assert set(credentials(world)) == {("bert", SHA_256)}


def test_who_is_named_twice_keeps_everything() -> None:
    world = World()
    world.do(AlterUserScramCredentials([], [upsertion("anna")]))
    twice = ApiError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
    for command in (
        AlterUserScramCredentials([Deletion("anna", SHA_256)], [upsertion("anna", iterations=5000)]),
        AlterUserScramCredentials([Deletion("anna", SHA_256)] * 3, []),
        AlterUserScramCredentials([], [upsertion("anna", SHA_512), upsertion("anna", iterations=5000)]),
        # An empty password is noticed last.
        AlterUserScramCredentials([], [upsertion("anna", salted=b""), upsertion("anna", salted=b"")]),
    ):
        assert world.do(command) == {"anna": twice}
    assert {key: record.iterations for key, record in credentials(world).items()} == {("anna", SHA_256): 4096}


def test_a_cluster_at_an_old_level_has_no_place_for_credentials() -> None:
    world = World()
    world.apply([FeatureLevelRecord(name="metadata.version", feature_level=10)])
    results = world.do(AlterUserScramCredentials([], [upsertion("anna")]))
    assert results["anna"].code == ErrorCode.UNSUPPORTED_VERSION
    assert credentials(world) == {}
