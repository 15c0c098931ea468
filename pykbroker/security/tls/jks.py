"""Reading of Java's old key store format, JKS. Pure.

keytool writes PKCS12 since Java 9, also to a file with the suffix .jks; JKS files are older, or were made with
``-storetype JKS``. The format is small, and the only Python library for it has had no release since 2020. Private keys
are protected by a key stream of SHA-1, as described in Java's documentation of the format.
"""

from __future__ import annotations

import hashlib
import hmac

from pykbroker.named_tuple import NamedTuple
from pykbroker.security.tls.der import OCTET_STRING, DerError, parse

MAGIC = b"\xfe\xed\xfe\xed"
_PRIVATE_KEY, _TRUSTED_CERTIFICATE = 1, 2
_DIGEST_SIZE = 20
_WHITENER = b"Mighty Aphrodite"


class JksError(ValueError):
    """The bytes are not a JKS key store, or the password is wrong."""


class PrivateKeyEntry(NamedTuple):
    """A protected private key, and its certificates in DER, from that of the key to that of its authority."""

    alias: str
    protected_key: bytes
    certificates: list[bytes]

    def key(self, password: str) -> bytes:
        """The key in DER (PKCS #8).

        Raises:
            JksError: the password is wrong.
        """
        return _unprotected(self.protected_key, password.encode("utf-16-be"))


class JksStore(NamedTuple):
    """Entries of a key store in their order."""

    keys: list[PrivateKeyEntry]
    certificates: list[bytes]


def read_jks(data: bytes, password: str | None) -> JksStore:
    """Entries of a key store; its integrity is not checked without a password, as in Java.

    Raises:
        JksError: the bytes are not a JKS key store, or the password is wrong.
    """
    body = data[:-_DIGEST_SIZE]
    reader = _Reader(body)
    if reader.take(4) != MAGIC:
        raise JksError("is not a JKS key store")
    version = reader.number()
    if version not in (1, 2):
        raise JksError(f"is a JKS key store of version {version}, not 1 or 2")
    if password is not None:
        digest = hashlib.sha1(password.encode("utf-16-be") + _WHITENER + body).digest()  # noqa: S324  the format's
        if not hmac.compare_digest(digest, data[-_DIGEST_SIZE:]):
            raise JksError("was changed, or the password is wrong")
    store = JksStore([], [])
    for _ in range(reader.number()):
        kind, alias = reader.number(), reader.text()
        # The date of the entry.
        reader.take(8)
        if kind == _PRIVATE_KEY:
            protected = reader.take(reader.number())
            chain = [reader.certificate(version) for _ in range(reader.number())]
            store.keys.append(PrivateKeyEntry(alias, protected, chain))
        elif kind == _TRUSTED_CERTIFICATE:
            store.certificates.append(reader.certificate(version))
        else:
            raise JksError(f"has an entry of the unknown kind {kind}")
    return store


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, count: int) -> bytes:
        start, self._position = self._position, self._position + count
        if self._position > len(self._data):
            raise JksError("is cut off")
        return self._data[start : self._position]

    def number(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def text(self) -> str:
        return self.take(int.from_bytes(self.take(2), "big")).decode("utf-8", "replace")

    def certificate(self, version: int) -> bytes:
        if version == 2:
            kind = self.text()
            if kind != "X.509":
                raise JksError(f"has a certificate of type {kind}, not X.509")
        return self.take(self.number())


def _unprotected(encoded: bytes, password: bytes) -> bytes:
    """Key of an EncryptedPrivateKeyInfo: salt of 20 bytes, encrypted key, and a digest of password and key."""
    try:
        parts = parse(encoded).children()
    except DerError as error:
        raise JksError(f"has a protected key that {error}") from None
    if len(parts) != 2 or parts[1].tag != OCTET_STRING or len(parts[1].content) < 2 * _DIGEST_SIZE:
        raise JksError("has a malformed protected key")
    content = parts[1].content
    stream, encrypted, check = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:-_DIGEST_SIZE], content[-_DIGEST_SIZE:]
    key = bytearray()
    for start in range(0, len(encrypted), _DIGEST_SIZE):
        stream = hashlib.sha1(password + stream).digest()  # noqa: S324  the format's
        key += bytes(a ^ b for a, b in zip(encrypted[start : start + _DIGEST_SIZE], stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(password + key).digest(), check):  # noqa: S324  the format's
        raise JksError("has a private key of another password (ssl.key.password)")
    return bytes(key)
