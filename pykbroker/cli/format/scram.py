"""SCRAM credentials of `pykbroker format --add-scram`, in the form and with the texts of Kafka's tool."""

from __future__ import annotations

import binascii
import os
from base64 import b64decode
from collections.abc import Sequence

from pykbroker.cli.errors import EXIT_USAGE, CliError
from pykbroker.controller.metadata.metadata_versions import SCRAM, described
from pykbroker.controller.metadata.scram import ITERATIONS_MAX, ITERATIONS_MIN
from pykbroker.protocol.log_messages.metadata_records import UserScramCredentialRecord
from pykbroker.security.scram import HASHES, MECHANISM_NUMBERS, credential_of_salted, random_salt, salted_password


def credentials_of_options(texts: Sequence[str], metadata_version: int) -> list[UserScramCredentialRecord]:
    """The records of ``SCRAM-SHA-256=[name=alice,password=secret]`` texts.

    A text ``@FILE`` stands for the lines of a file: a password on the command line is in the list of processes.

    Raises:
        CliError: a text is malformed, or the metadata.version has no SCRAM.
    """
    if texts and metadata_version < SCRAM:
        raise CliError(f"SCRAM is only supported in metadata.version {described(SCRAM)} or later.", EXIT_USAGE)
    return [_record(text) for given in texts for text in _lines(given)]


def _lines(text: str) -> list[str]:
    if not text.startswith("@"):
        return [text]
    try:
        with open(text[1:], encoding="utf-8") as file:
            return [line for line in map(str.strip, file) if line]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise CliError(f"--add-scram {text}: {reason}", EXIT_USAGE) from None


def _record(text: str) -> UserScramCredentialRecord:
    mechanism, equals, config = text.strip().partition("=")
    if not equals:
        raise CliError("Failed to find equals sign in SCRAM argument", EXIT_USAGE)
    if mechanism not in HASHES:
        raise CliError(f"The add-scram mechanism {mechanism} is not supported.", EXIT_USAGE)
    if not config.startswith("["):
        raise CliError("Expected configuration string to start with [", EXIT_USAGE)
    if not config.endswith("]"):
        raise CliError("Expected configuration string to end with ]", EXIT_USAGE)
    given: dict[str, str] = {}
    for part in config[1:-1].split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise CliError("Failed to find equals sign in a SCRAM component", EXIT_USAGE)
        given[name.strip()] = _unquoted(value.strip())
    if "name" not in given:
        raise CliError("You must supply 'name' to add-scram", EXIT_USAGE)
    user = given.pop("name")
    salt = _decoded(given.pop("salt"), "salt") if "salt" in given else None
    iterations = _number(given.pop("iterations", str(ITERATIONS_MIN)))
    if iterations < ITERATIONS_MIN:
        raise CliError(
            f"The 'iterations' value must be >= {ITERATIONS_MIN} for add-scram using {mechanism}", EXIT_USAGE
        )
    if iterations > ITERATIONS_MAX:
        raise CliError(
            f"The 'iterations' value must be <= {ITERATIONS_MAX} for add-scram using {mechanism}", EXIT_USAGE
        )
    password, salted_text = given.pop("password", None), given.pop("saltedpassword", None)
    if given:
        raise CliError(f"Unknown SCRAM configurations: {', '.join(sorted(given))}", EXIT_USAGE)
    if password is not None:
        if salted_text is not None:
            raise CliError("Unknown SCRAM configurations: saltedpassword", EXIT_USAGE)
        salt = random_salt(os.urandom) if salt is None else salt
        salted = salted_password(HASHES[mechanism], password.encode(), salt, iterations)
    elif salted_text is None:
        raise CliError("You must supply one of 'password' or 'saltedpassword' to add-scram", EXIT_USAGE)
    elif salt is None:
        raise CliError("You must supply 'salt' with 'saltedpassword' to add-scram", EXIT_USAGE)
    else:
        salted = _decoded(salted_text, "saltedPassword")
    credential = credential_of_salted(HASHES[mechanism], salted, salt, iterations)
    return UserScramCredentialRecord(name=user, mechanism=MECHANISM_NUMBERS[mechanism], **credential._asdict())


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] == '"' else text


def _decoded(text: str, what: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error:
        raise CliError(f"Failed to decode given {what}", EXIT_USAGE) from None


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CliError(f"Failed to parse iterations count: {text}", EXIT_USAGE) from None
