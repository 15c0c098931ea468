"""Certificates for development: an authority of one data directory, and its certificates (`start --tls`).

The files lie in the data directory itself, because Apache Kafka refuses one with directories that are no logs:

* ``tls-ca.pem``: the certificate of the authority, which clients must trust; ``tls-ca-key.pem`` is its key.
* ``tls-broker.pem``: key and certificate of the brokers on this machine.
* ``tls-client.pem``: key and certificate of a client, for ``ssl.client.auth``; its principal is
  ``User:CN=client,O=pykbroker development``.
* ``tls-client-*``: settings of clients in Java, of librdkafka, and of kafka-python.

Files with a key are readable by their owner alone. Needs the package `cryptography`.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import os
from typing import TYPE_CHECKING, Any

from pykbroker.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

CA_FILE = "tls-ca.pem"
CA_KEY_FILE = "tls-ca-key.pem"
BROKER_FILE = "tls-broker.pem"
CLIENT_FILE = "tls-client.pem"
JAVA_FILE = "tls-client-java.properties"
LIBRDKAFKA_FILE = "tls-client-librdkafka.properties"
PYTHON_FILE = "tls-client-python.json"

VALID_DAYS = 365
RENEWED_DAYS = 7
"""Days for which certificates are valid, and days before their end from which on new ones are made."""

ORGANIZATION = "pykbroker development"

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
"""Hosts that each certificate of a broker names."""

LISTENERS = "SSL://localhost:9092"
SETTINGS_WRITTEN_HERE = (
    "listeners",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "security.inter.broker.protocol",
    "ssl.keystore.location",
    "ssl.keystore.key",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
)
"""Settings that the user of these certificates must not set."""


class Issued(NamedTuple):
    """A certificate and its private key, as objects of `cryptography`."""

    certificate: Any
    key: Any

    @property
    def pem(self) -> str:
        """The private key (PKCS #8) and the certificate, in PEM."""
        return self.key_pem + self.certificate_pem

    @property
    def certificate_pem(self) -> str:
        from cryptography.hazmat.primitives.serialization import Encoding

        return str(self.certificate.public_bytes(Encoding.PEM).decode())

    @property
    def key_pem(self) -> str:
        """The private key in PEM (PKCS #8), not encrypted."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        return str(self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())


def issue(
    common_name: str,
    *,
    issuer: Issued | None = None,
    hosts: Sequence[str] = (),
    is_authority: bool = False,
    days: int = VALID_DAYS,
) -> Issued:
    """Makes a certificate, and a private key for it on the curve secp256r1.

    Args:
        common_name: CN of its subject.
        issuer: the authority that signs it; None for a certificate that signs itself.
        hosts: names and addresses of a server.
        is_authority: True if it may sign others.
        days: days for which it is valid; negative for one that has expired.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )
    signer = issuer or Issued(None, key)
    begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1 if days > 0 else 2 - days)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key()), critical=False)
        .add_extension(_key_usage(is_authority=is_authority), critical=True)
    )
    if not is_authority:
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(h) for h in hosts]), critical=False)
    return Issued(builder.sign(signer.key, hashes.SHA256()), key)


def _key_usage(*, is_authority: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not is_authority,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def prepare(directory: str, hosts: Sequence[str]) -> None:
    """Makes the certificates of a data directory that are missing or about to expire.

    Args:
        directory: the data directory, which is created if it is not there.
        hosts: names and addresses at which clients connect.

    Raises:
        ImportError: `cryptography` is not installed.
        OSError: a file cannot be read or written.
    """
    os.makedirs(directory, exist_ok=True)
    paths = [os.path.join(directory, name) for name in (CA_FILE, CA_KEY_FILE, BROKER_FILE, CLIENT_FILE)]
    authority = _authority(paths[0], paths[1])
    is_new = authority is None
    if authority is None:
        authority = issue("pykbroker development CA", is_authority=True)
        _write(paths[0], authority.certificate_pem, 0o644)
        _write(paths[1], authority.key_pem, 0o600)
    for path, name, names in ((paths[2], "broker", list(hosts)), (paths[3], "client", [])):
        if is_new or not _is_usable(path, names):
            issued = issue(name, issuer=authority, hosts=names)
            _write(path, issued.pem, 0o600)


def _authority(certificate_path: str, key_path: str) -> Issued | None:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    certificate = _certificate(certificate_path)
    if certificate is None or not os.path.exists(key_path):
        return None
    with open(key_path, "rb") as file:
        return Issued(certificate, load_pem_private_key(file.read(), None))


def _is_usable(path: str, hosts: Sequence[str]) -> bool:
    from cryptography import x509

    certificate = _certificate(path)
    if certificate is None:
        return False
    if not hosts:
        return True
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return all(_general_name(host) in names for host in hosts)


def _certificate(path: str) -> Any:
    """The certificate in a file; None if there is none, or if it is about to expire."""
    from cryptography import x509

    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    certificate = x509.load_pem_x509_certificate(data[data.find(b"-----BEGIN CERTIFICATE-----") :])
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return certificate if left > datetime.timedelta(days=RENEWED_DAYS) else None


def broker_settings(directory: str) -> dict[str, str]:
    """Settings of a broker that has its certificates in this directory."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{directory}/{BROKER_FILE}",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{directory}/{CA_FILE}",
    }


class ClientSettings(NamedTuple):
    """TLS settings of a client, with a certificate of its own, in the words of each library.

    Attributes:
        java: Kafka's Java clients and tools, and what is built on them.
        librdkafka: confluent-kafka and other clients on librdkafka.
        python: arguments of kafka-python.
    """

    java: dict[str, str]
    librdkafka: dict[str, str]
    python: dict[str, str]


def client_settings(directory: str) -> ClientSettings:
    """Settings of clients that use the certificates of this directory."""
    authority, client = (os.path.join(directory, name) for name in (CA_FILE, CLIENT_FILE))
    return ClientSettings(
        java={
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": authority,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": client,
        },
        librdkafka={
            "security.protocol": "ssl",
            "ssl.ca.location": authority,
            "ssl.certificate.location": client,
            "ssl.key.location": client,
        },
        python={
            "security_protocol": "SSL",
            "ssl_cafile": authority,
            "ssl_certfile": client,
            "ssl_keyfile": client,
        },
    )


def write_client_files(directory: str, bootstrap_servers: str) -> dict[str, str]:
    """Writes settings of clients; returns the path of each file by the kind of client."""
    settings = client_settings(directory)
    paths = {
        kind: os.path.join(directory, name)
        for kind, name in (("Java", JAVA_FILE), ("librdkafka", LIBRDKAFKA_FILE), ("Python", PYTHON_FILE))
    }
    for kind, texts in (("Java", settings.java), ("librdkafka", settings.librdkafka)):
        lines = {"bootstrap.servers": bootstrap_servers, **texts}
        escaped = _java_value if kind == "Java" else str
        _write(paths[kind], "".join(f"{key}={escaped(value)}\n" for key, value in lines.items()), 0o644)
    python = {"bootstrap_servers": bootstrap_servers, **settings.python}
    _write(paths["Python"], json.dumps(python, indent=2) + "\n", 0o644)
    return paths


def _java_value(text: str) -> str:
    """A value as `java.util.Properties` reads it from a file, whose bytes it takes for Latin-1."""
    units = text.replace("\\", "\\\\").encode("utf-16-be")
    numbers = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(number) if number < 0x80 else f"\\u{number:04x}" for number in numbers)


def _write(path: str, text: str, mode: int) -> None:
    """Replaces a file in one step; a key is never readable by other users, nor written through a link of theirs."""
    temporary = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        # A file that an earlier start has left behind may have other permissions.
        os.unlink(temporary)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)
