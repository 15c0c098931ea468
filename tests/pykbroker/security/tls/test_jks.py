"""Key stores of Java's old format."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.security.tls.certificate_names import names_of
from pykbroker.security.tls.der import SEQUENCE, parse
from pykbroker.security.tls.jks import JksError, read_jks
from tests.pykbroker.security.tls.java_stores import JKS, JKS_KEY_PASSWORD, JKS_TRUST, STORE_PASSWORD, SUBJECT


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
