"""Key stores of Java's old format."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.security.tls.certificate_names import names_of
from pykbroker.security.tls.der import SEQUENCE, parse
from pykbroker.security.tls.jks import MAGIC, JksError, PrivateKeyEntry, read_jks
from tests.pykbroker.security.tls.java_stores import JKS, JKS_KEY_PASSWORD, JKS_TRUST, STORE_PASSWORD, SUBJECT, jks_of


def test_a_private_key_and_its_certificate() -> None:
    (entry,) = read_jks(JKS, STORE_PASSWORD).keys
    assert entry.alias == "broker"
    assert [names_of(certificate).subject for certificate in entry.certificates] == [SUBJECT]
    assert parse(entry.key(JKS_KEY_PASSWORD)).tag == SEQUENCE


def test_trusted_certificates() -> None:
    store = read_jks(JKS_TRUST, STORE_PASSWORD)
    assert not store.keys
    assert [names_of(certificate).subject for certificate in store.certificates] == [SUBJECT]
    # Without a password the integrity is not checked, as in Java.
    assert read_jks(JKS_TRUST, None) == store


def test_wrong_passwords() -> None:
    with pytest.raises(JksError, match="the password is wrong"):
        read_jks(JKS, "changeit2")
    (entry,) = read_jks(JKS, STORE_PASSWORD).keys
    with pytest.raises(JksError, match="another password"):
        entry.key(STORE_PASSWORD)


def test_a_changed_store() -> None:
    with pytest.raises(JksError, match="was changed"):
        read_jks(JKS[:40] + b"x" + JKS[41:], STORE_PASSWORD)


@given(st.integers(0, len(JKS) - 1), st.integers(0, 255), st.integers(0, len(JKS)))
def test_damaged_bytes_give_a_store_or_an_error(position: int, byte: int, size: int) -> None:
    damaged = (JKS[:position] + bytes([byte]) + JKS[position + 1 :])[:size]
    with suppress(JksError):
        store = read_jks(damaged, None)
        for entry in store.keys:
            entry.key(JKS_KEY_PASSWORD)


def trusted(kind: bytes) -> bytes:
    return struct.pack(">LH1sQ", 2, 1, b"a", 0) + struct.pack(">H", len(kind)) + kind + struct.pack(">L", 3) + b"DER"


def test_versions_and_types() -> None:
    assert read_jks(jks_of(trusted(b"X.509")), STORE_PASSWORD).certificates == [b"DER"]
    with pytest.raises(JksError, match="of version 3, not 1 or 2"):
        read_jks(jks_of(version=3), None)
    with pytest.raises(JksError, match=r"a certificate of type PGP, not X\.509"):
        read_jks(jks_of(trusted(b"PGP")), None)


@pytest.mark.parametrize(
    ("protected", "words"),
    [(b"", "has a protected key that"), (b"\x30\x00", "malformed"), (b"\x30\x04\x30\x00\x04\x00", "malformed")],
)
def test_protected_keys_that_are_none(protected: bytes, words: str) -> None:
    with pytest.raises(JksError, match=words):
        PrivateKeyEntry("a", protected, []).key("secret")


def test_an_entry_of_another_kind() -> None:
    """Kind 3 is a secret key, in a JCEKS store alone."""
    data = MAGIC + struct.pack(">iiiH", 2, 1, 3, 1) + b"a" + bytes(8 + 20)
    with pytest.raises(JksError, match="has an entry of the unknown kind 3"):
        read_jks(data, None)
