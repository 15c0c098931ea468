"""Key stores and trust stores of every type, from files and from the settings themselves (P-240)."""

from __future__ import annotations

import datetime
import os
import ssl
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import (
    CertificateBuilder,
    Name,
    NameAttribute,
    load_pem_x509_certificate,
    load_pem_x509_certificates,
)
from cryptography.x509.oid import NameOID

from pykbroker.config.definitions import ConfigError
from pykbroker.security.tls.contexts import Stores, client_context, server_context
from pykbroker.security.tls.development import issue
from pykbroker.security.tls.jks import read_jks
from pykbroker.security.tls.key_stores import STORE_SIZE_MAX
from pykbroker.security.tls.settings import TlsSettings
from tests.pykbroker.security.tls.certificates import authority, server, texts
from tests.pykbroker.security.tls.java_stores import (
    JKS,
    JKS_KEY_PASSWORD,
    JKS_TRUST,
    PKCS12,
    PKCS12_TRUST,
    STORE_PASSWORD,
    SUBJECT,
    jks_key,
    jks_of,
)
from tests.pykbroker.security.tls.old_certificates import SHA1_AUTHORITY, SHA1_CERTIFICATE, SHA1_KEY

SECRET = "open-sesame"


def shaken(of_server: dict[str, str], of_client: dict[str, str]) -> ssl.SSLObject:
    """The client's side after a handshake between two settings."""
    server_settings, client_settings = TlsSettings.read(of_server.get), TlsSettings.read(of_client.get)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client_context(client_settings, Stores(client_settings)).wrap_bio(
            to_client, to_server, server_hostname="localhost"
        ),
        server_context(server_settings, Stores(server_settings)).wrap_bio(to_server, to_client, server_side=True),
    ]
    client_side = sides[0]
    for _ in range(10):
        for side in list(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            sides.remove(side)
    assert not sides
    return client_side


def trusting(text: str) -> dict[str, str]:
    return {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": text,
        "ssl.endpoint.identification.algorithm": "https",
    }


@pytest.mark.parametrize("stated_type", ["JKS", "PKCS12"])
@pytest.mark.parametrize(
    ("key_store", "key_password", "trust_store"),
    [(JKS, JKS_KEY_PASSWORD, JKS_TRUST), (PKCS12, None, PKCS12_TRUST)],
    ids=["JKS", "PKCS12"],
)
def test_stores_of_keytool(
    tmp_path: Path, stated_type: str, key_store: bytes, key_password: str | None, trust_store: bytes
) -> None:
    """P-240: as in Java a store is read by its content, whether its type is given as JKS or PKCS12."""
    (tmp_path / "key").write_bytes(key_store)
    (tmp_path / "trust").write_bytes(trust_store)
    of_server = {
        "ssl.keystore.type": stated_type,
        "ssl.keystore.location": str(tmp_path / "key"),
        "ssl.keystore.password": STORE_PASSWORD,
    }
    if key_password is not None:
        of_server["ssl.key.password"] = key_password
    of_client = {
        "ssl.truststore.type": stated_type,
        "ssl.truststore.location": str(tmp_path / "trust"),
        "ssl.truststore.password": STORE_PASSWORD,
        "ssl.endpoint.identification.algorithm": "https",
    }
    assert shaken(of_server, of_client).version() == "TLSv1.3"
    assert [names.subject for names in Stores(TlsSettings.read(of_server.get)).names] == [SUBJECT]


def test_pem_in_the_settings_and_in_files(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text(f"Bag Attributes\n    friendlyName: x\n{server().pem}")
    (tmp_path / "ca.pem").write_text(authority().certificate_pem)
    in_files = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(tmp_path / "key.pem")}
    trusting_file = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tmp_path / "ca.pem")}
    shaken(in_files, trusting_file)
    shaken(texts(server()), trusting(authority().certificate_pem))


def test_certificates_that_openssl_finds_too_weak(caplog: pytest.LogCaptureFixture) -> None:
    """P-686: signed with SHA-1, as in the key stores of older test suites; suites and versions stay as they are."""
    weak = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": SHA1_KEY,
        "ssl.keystore.certificate.chain": SHA1_CERTIFICATE,
        **trusting(SHA1_AUTHORITY),
    }
    assert shaken(weak, weak).version() == "TLSv1.3"
    assert "OpenSSL refuses the certificate of CN=broker in a key store (the digest of a signature" in caplog.text
    contexts = []
    for given in (weak, texts(server())):
        settings = TlsSettings.read(given.get)
        contexts.append(server_context(settings, Stores(settings)))
    old, usual = contexts
    assert old.security_level == 0
    assert usual.security_level == ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).security_level > 0
    assert old.get_ciphers() == usual.get_ciphers()
    assert old.minimum_version == usual.minimum_version


def test_a_key_that_openssl_finds_too_small(caplog: pytest.LogCaptureFixture) -> None:
    """P-686: and cipher suites that the settings name."""
    key = rsa.generate_private_key(65537, 1024)
    name = Name([NameAttribute(NameOID.COMMON_NAME, "small")])
    now = datetime.datetime.now(datetime.UTC)
    builder = CertificateBuilder(name, name, key.public_key(), 5, now, now + datetime.timedelta(days=1))
    certificate = builder.sign(key, SHA256()).public_bytes(Encoding.PEM).decode()
    small = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        "ssl.keystore.certificate.chain": certificate,
        "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        **trusting(certificate),
        "ssl.endpoint.identification.algorithm": "",
    }
    assert shaken(small, small).cipher() == ("ECDHE-RSA-AES128-GCM-SHA256", "TLSv1.2", 128)
    assert "(its key is too small); it is used with security level 0" in caplog.text


def test_an_encrypted_pem_key(tmp_path: Path) -> None:
    encrypted = server().key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(SECRET.encode()))
    (tmp_path / "key.pem").write_text(encrypted.decode() + server().certificate_pem)
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "key.pem"),
        "ssl.key.password": SECRET,
    }
    shaken(settings, trusting(authority().certificate_pem))
    for password in ("wrong", None):
        wrong = {**settings, "ssl.key.password": password} if password else settings.copy()
        if password is None:
            del wrong["ssl.key.password"]
        with pytest.raises(ConfigError) as error:
            shaken(wrong, {})
        words = "is wrong" if password else "is missing"
        assert f"Invalid keystore: the private key is encrypted, and ssl.key.password {words}" in str(error.value)
        assert "PRIVATE KEY" not in str(error.value)


def test_a_chain_with_an_authority_between(tmp_path: Path) -> None:
    """A client needs the first authority alone, and a trust store may have the one between alone, as in Java."""
    between = issue("between", issuer=authority(), is_authority=True)
    broker = issue("broker", issuer=between, hosts=["localhost"])
    settings = texts(broker)
    settings["ssl.keystore.certificate.chain"] += between.certificate_pem
    shaken(settings, trusting(authority().certificate_pem))
    shaken(settings, trusting(between.certificate_pem))


def test_a_host_name_that_is_not_in_the_certificate() -> None:
    other = issue("broker", issuer=authority(), hosts=["other.example"])
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shaken(texts(other), trusting(authority().certificate_pem))
    unchecked = trusting(authority().certificate_pem) | {"ssl.endpoint.identification.algorithm": ""}
    shaken(texts(other), unchecked)


@pytest.mark.parametrize(
    ("name", "content", "more", "words"),
    [
        ("none", None, {}, "No such file or directory"),
        ("empty", b"", {}, "No matching CERTIFICATE entries in PEM file"),
        ("certificate", server().certificate_pem.encode(), {}, "No matching PRIVATE KEY entries in PEM file"),
        ("two", 2 * server().pem.encode(), {}, "Expected one private key, but found 2"),
        ("jks", JKS, {"ssl.keystore.type": "JKS", "ssl.keystore.password": SECRET}, "the password is wrong"),
        ("p12", PKCS12, {"ssl.keystore.type": "PKCS12", "ssl.keystore.password": SECRET}, "the password is wrong"),
        (
            "p12",
            PKCS12,
            {"ssl.keystore.type": "PKCS12", "ssl.keystore.password": STORE_PASSWORD, "ssl.key.password": SECRET},
            "ssl.key.password is not the password of the key",
        ),
        (
            "trust",
            JKS_TRUST,
            {"ssl.keystore.type": "JKS", "ssl.keystore.password": STORE_PASSWORD},
            "has no private key",
        ),
        (
            "noise",
            b"noise",
            {"ssl.keystore.type": "JKS", "ssl.keystore.password": STORE_PASSWORD},
            "it is not PKCS12, or the password is wrong",
        ),
    ],
)
def test_a_key_store_that_cannot_be_used(
    tmp_path: Path, name: str, content: bytes | None, more: dict[str, str], words: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path), **more}
    with pytest.raises(ConfigError) as error:
        Stores(TlsSettings.read(settings.get))
    assert words in str(error.value)
    assert str(path) in str(error.value)
    assert SECRET not in str(error.value)


def test_a_key_of_another_certificate() -> None:
    settings = texts(server())
    settings["ssl.keystore.key"] = authority().key_pem
    with pytest.raises(ConfigError, match="the private key does not fit the certificate"):
        shaken(settings, {})


def test_without_the_package_for_pkcs12(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_bytes(PKCS12)
    settings = {"ssl.keystore.location": str(tmp_path / "key"), "ssl.keystore.password": STORE_PASSWORD}
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization.pkcs12", None)
    with pytest.raises(ConfigError, match=r"pip install 'pykbroker\[tls\]'"):
        Stores(TlsSettings.read(settings.get))


@pytest.mark.parametrize(
    ("of_server", "version", "suite"),
    [
        ({}, "TLSv1.3", "TLS_AES_256_GCM_SHA384"),
        ({"ssl_enabled_protocols": "TLSv1.2"}, "TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        (
            {"ssl_cipher_suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
            "TLSv1.2",
            "ECDHE-ECDSA-AES128-GCM-SHA256",
        ),
        (
            {"ssl_cipher_suites": "TLS_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
            "TLSv1.3",
            "TLS_AES_256_GCM_SHA384",
        ),
        ({"ssl_cipher_suites": "TLS_AES_256_GCM_SHA384"}, "TLSv1.3", "TLS_AES_256_GCM_SHA384"),
    ],
)
def test_protocols_and_cipher_suites(of_server: dict[str, str], version: str, suite: str) -> None:
    side = shaken(texts(server(), None, **of_server), trusting(authority().certificate_pem))
    assert side.version() == version
    assert (side.cipher() or ("",))[0] == suite


def test_no_version_in_common() -> None:
    new = texts(server(), ssl_enabled_protocols="TLSv1.3")
    old = trusting(authority().certificate_pem) | {"ssl.enabled.protocols": "TLSv1.2"}
    with pytest.raises(ssl.SSLError):
        shaken(new, old)
    with pytest.raises(ConfigError, match=r"none is of a version in TLSv1\.2"):
        shaken(texts(server(), ssl_enabled_protocols="TLSv1.2", ssl_cipher_suites="TLS_AES_256_GCM_SHA384"), {})


@pytest.mark.parametrize(
    ("content", "more", "words"),
    [
        (b"no certificate", {"ssl.truststore.type": "PEM"}, "No matching CERTIFICATE entries in PEM file"),
        (JKS_TRUST, {"ssl.truststore.type": "JKS", "ssl.truststore.password": SECRET}, "the password is wrong"),
        (jks_of(), {"ssl.truststore.type": "JKS"}, "has no certificate"),
    ],
)
def test_a_trust_store_that_cannot_be_used(tmp_path: Path, content: bytes, more: dict[str, str], words: str) -> None:
    path = tmp_path / "trust"
    path.write_bytes(content)
    settings = {"ssl.truststore.location": str(path), **more}
    with pytest.raises(ConfigError) as error:
        Stores(TlsSettings.read(settings.get))
    assert words in str(error.value)
    assert str(path) in str(error.value)


def test_a_store_that_is_too_large(tmp_path: Path) -> None:
    """A path such as /dev/zero must not fill the memory."""
    with open(tmp_path / "trust", "wb") as file:
        file.truncate(STORE_SIZE_MAX + 1)
    settings = {"ssl.truststore.location": str(tmp_path / "trust")}
    with pytest.raises(ConfigError, match=f"is larger than {STORE_SIZE_MAX} bytes"):
        Stores(TlsSettings.read(settings.get))


def test_texts_that_are_no_certificates() -> None:
    """Blocks of PEM with something else in them; the key is not shown."""
    nothing = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"
    settings = {**texts(server()), "ssl.keystore.certificate.chain": nothing}
    with pytest.raises(ConfigError, match="its first certificate is not a certificate") as error:
        Stores(TlsSettings.read(settings.get))
    assert "PRIVATE KEY" not in str(error.value)
    with pytest.raises(ConfigError, match="Invalid trust store"):
        shaken(texts(server()), trusting(nothing))


def test_a_jks_key_without_a_certificate(tmp_path: Path) -> None:
    (entry,) = read_jks(JKS, STORE_PASSWORD).keys
    (tmp_path / "key").write_bytes(jks_of(jks_key(entry.protected_key)))
    settings = {
        "ssl.keystore.location": str(tmp_path / "key"),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": JKS_KEY_PASSWORD,
    }
    with pytest.raises(ConfigError, match="has a private key without a certificate"):
        Stores(TlsSettings.read(settings.get))


def test_a_pkcs12_store_has_its_chain_in_any_order(tmp_path: Path) -> None:
    """The server sends the chain from its own certificate on, without certificates that do not belong to it."""
    top = authority()
    between = issue("between", issuer=top, is_authority=True)
    broker = issue("broker", issuer=between, hosts=["localhost"])
    others = [load_pem_x509_certificate(each.certificate_pem.encode()) for each in (server(), top, between)]
    own = load_pem_x509_certificate(broker.certificate_pem.encode())
    store = serialize_key_and_certificates(b"k", broker.key, own, others, BestAvailableEncryption(SECRET.encode()))
    (tmp_path / "key").write_bytes(store)
    settings = {"ssl.keystore.location": str(tmp_path / "key"), "ssl.keystore.password": SECRET}
    (material,) = Stores(TlsSettings.read(settings.get)).keys
    sent = load_pem_x509_certificates(material.certificates.encode())
    assert [each.subject for each in sent] == [own.subject, others[2].subject, others[1].subject]
    shaken(settings, trusting(top.certificate_pem))


def test_a_pkcs12_store_without_a_key(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(PKCS12_TRUST)
    settings = {"ssl.keystore.location": str(tmp_path / "key"), "ssl.keystore.password": STORE_PASSWORD}
    with pytest.raises(ConfigError, match="has no private key"):
        Stores(TlsSettings.read(settings.get))


def test_keys_on_a_system_without_memory_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is then in a file that only its user can read, while OpenSSL reads it."""
    monkeypatch.delattr(os, "memfd_create")
    shaken(texts(server()), trusting(authority().certificate_pem))


def test_cipher_suites_that_openssl_does_not_have() -> None:
    with pytest.raises(ConfigError, match="OpenSSL has none of these cipher suites"):
        shaken(texts(server(), ssl_cipher_suites="NO-SUCH-SUITE"), {})


@pytest.mark.filterwarnings("ignore:ssl.* deprecated:DeprecationWarning")
def test_a_version_between_two_allowed_ones_is_switched_off() -> None:
    settings = TlsSettings.read(texts(server(), ssl_enabled_protocols="TLSv1.1,TLSv1.3").get)
    assert server_context(settings, Stores(settings)).options & ssl.OP_NO_TLSv1_2


def test_a_key_that_is_none() -> None:
    settings = texts(server())
    settings["ssl.keystore.key"] = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    with pytest.raises(ConfigError, match="OpenSSL cannot read the private key or a certificate"):
        shaken(settings, {})
