"""AlterUserScramCredentials (key 51): change SCRAM credentials."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, byte_string, int8, int16, int32, string


class ScramCredentialDeletion(Message):
    name: str = string("0+")
    mechanism: int = int8("0+")


class ScramCredentialUpsertion(Message):
    name: str = string("0+")
    mechanism: int = int8("0+")
    iterations: int = int32("0+")
    salt: bytes = byte_string("0+")
    salted_password: bytes = byte_string("0+")


class AlterUserScramCredentialsRequest(Message, versions="0", flexible="0+", key=51):
    """AlterUserScramCredentials request (API key 51): change SCRAM credentials."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion, "0+")
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion, "0+")


class AlterUserScramCredentialsResult(Message):
    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class AlterUserScramCredentialsResponse(Message, versions="0", flexible="0+", key=51):
    """AlterUserScramCredentials response (API key 51)."""

    throttle_time_ms: int = int32("0+")
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult, "0+")
