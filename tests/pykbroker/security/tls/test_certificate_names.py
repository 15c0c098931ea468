"""Subjects of certificates are those that Java prints (P-241); other bytes give an error and nothing else."""

from __future__ import annotations

import ssl
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.security.tls.certificate_names import names_of, shown_name
from pykbroker.security.tls.der import DerError, dotted, parse
from tests.pykbroker.security.tls.certificates import client, server
from tests.pykbroker.security.tls.java_stores import SUBJECTS


@pytest.mark.parametrize(("subject", "certificate"), SUBJECTS, ids=range(len(SUBJECTS)))
def test_a_subject_is_what_java_prints(subject: str, certificate: bytes) -> None:
    """P-241."""
    assert names_of(certificate).subject == subject


def test_alternative_names() -> None:
    names = names_of(ssl.PEM_cert_to_DER_cert(server(("localhost", "::1")).certificate_pem))
    assert names.alternative_names == {b"\x82\x09localhost", b"\x87\x10" + bytes(15) + b"\x01"}
    assert names_of(ssl.PEM_cert_to_DER_cert(client().certificate_pem)).alternative_names == frozenset()


@given(st.binary(max_size=200))
def test_any_bytes_give_names_or_an_error(data: bytes) -> None:
    with suppress(DerError):
        names_of(data)


@given(st.data())
def test_a_damaged_certificate_gives_names_or_an_error(data: st.DataObject) -> None:
    _, certificate = data.draw(st.sampled_from(SUBJECTS))
    damaged = bytearray(certificate)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DerError):
        names_of(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))


@pytest.mark.parametrize(
    "data", [b"", b"\x30", b"\x30\x80\x00\x00", b"\x1f\x81\x01\x00", b"\x30\x85\x01\x01\x01\x01\x01", b"\x30\x05\x00"]
)
def test_what_is_not_der(data: bytes) -> None:
    with pytest.raises(DerError):
        parse(data)


def test_object_identifiers() -> None:
    assert dotted(bytes.fromhex("550403")) == "2.5.4.3"
    assert dotted(bytes.fromhex("0992268993f22c640101")) == "0.9.2342.19200300.100.1.1"
    assert dotted(bytes.fromhex("883703")) == "2.999.3"
    for malformed in (b"", b"\x55\x84"):
        with pytest.raises(DerError):
            dotted(malformed)


def der(tag: int, *contents: bytes) -> bytes:
    content = b"".join(contents)
    return bytes([tag, len(content)]) + content


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (None, "is not a certificate"),
        (der(0x02, b"\1"), "has no subject"),
        (der(0x30, der(0x31, der(0x30, der(0x06, b"\x55\x04\x03")))), "a malformed attribute in its subject"),
        (der(0x30, der(0x31, der(0x30, der(0x0C, b"CN"), der(0x0C, b"a")))), "a malformed attribute in its subject"),
    ],
)
def test_structures_that_are_no_certificates(subject: bytes | None, words: str) -> None:
    """Well formed, but without what a certificate has: six fields, of which the fifth is the subject."""
    fields = [der(0x02, b"\1")] * 4 + ([] if subject is None else [subject, der(0x30)])
    with pytest.raises(DerError, match=words):
        names_of(der(0x30, der(0x30, *fields)))
    with pytest.raises(DerError, match="is not a certificate"):
        names_of(der(0x30))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"\x82\x01a", "a"),
        (b"\x82\x01\0", "00"),
        (b"\x87\x04\x7f\0\0\1", "127.0.0.1"),
        (b"\x87\x03abc", "abc"),
    ],
)
def test_general_names_as_people_read_them(name: bytes, shown: str) -> None:
    assert shown_name(name) == shown
