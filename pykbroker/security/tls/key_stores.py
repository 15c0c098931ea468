"""Key stores and trust stores: what their files contain, in the form that OpenSSL takes.

PEM needs nothing but OpenSSL, JKS is read in `jks`, and PKCS12 needs the package `cryptography`, which is imported when
the first such store is read.
"""

from __future__ import annotations

import base64
import logging
import os
import re
import ssl
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pykbroker.config.definitions import ConfigError
from pykbroker.named_tuple import NamedTuple
from pykbroker.security.tls.certificate_names import CertificateNames, names_of
from pykbroker.security.tls.der import DerError
from pykbroker.security.tls.jks import MAGIC as JKS_MAGIC
from pykbroker.security.tls.jks import JksError, read_jks
from pykbroker.security.tls.settings import HIDDEN, PEM, not_loaded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

    from pykbroker.security.tls.settings import StoreSettings

STORE_SIZE_MAX = 16 << 20
"""Largest size of a store's file, in bytes: several times that of the system's trust store."""

_BLOCK = re.compile(
    r"-----BEGIN ([A-Z0-9 ]+)-----\s*(?:[^\r\n]*:[^\r\n]*[\r\n]+)*[a-zA-Z0-9/+=\s]*-----END \1-----", re.ASCII
)
_CERTIFICATE_LABELS = ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")
_TOO_WEAK = {
    "EE_KEY_TOO_SMALL": "its key is too small",
    "CA_KEY_TOO_SMALL": "the key of its authority is too small",
    "CA_MD_TOO_WEAK": "the digest of a signature is too weak",
}
"""OpenSSL's reasons for which it refuses certificates at its security level, and their meaning."""

log = logging.getLogger(__name__)


class KeyMaterial(NamedTuple):
    """A private key with its certificates, in PEM.

    Attributes:
        certificates: from that of the key to that of its authority.
        key: the private key, encrypted if `password` is not None.
        password: password of the key.
        names: names in the first certificate.
    """

    certificates: str
    key: str
    password: str | None
    names: CertificateNames

    def load_into(self, context: ssl.SSLContext) -> None:
        """Gives key and certificates to a context.

        If OpenSSL refuses them as too weak, which Java does not, the context's security level becomes 0 (P-686).

        Raises:
            ConfigError: OpenSSL refuses them: a wrong password, or a key that does not fit.
        """
        # Without a password OpenSSL would ask for one on the terminal.
        password = self.password or ""
        try:
            with _as_file(self.certificates) as certificates, _as_file(self.key) as key:
                try:
                    context.load_cert_chain(certificates, key, lambda: password)
                except ssl.SSLError as error:
                    if error.reason not in _TOO_WEAK:
                        raise
                    log.warning(
                        "OpenSSL refuses the certificate of %s in a key store (%s); it is used with security level 0, "
                        "which allows weak certificates of peers, too. Take RSA keys of 2048 bits or more, and SHA-256",
                        self.names.subject, _TOO_WEAK[error.reason],
                    )  # fmt: skip
                    _allow_weak_certificates(context)
                    context.load_cert_chain(certificates, key, lambda: password)
        except (ssl.SSLError, ValueError) as error:
            why = openssl_reason(error)
            if "KEY_VALUES_MISMATCH" in why:
                why = "the private key does not fit the certificate"
            elif "ENCRYPTED" in self.key:
                # OpenSSL says "PEM lib" and nothing else, with a wrong password as well as with none.
                is_missing = self.password is None
                why = f"the private key is encrypted, and ssl.key.password {'is missing' if is_missing else 'is wrong'}"
            else:
                why = f"OpenSSL cannot read the private key or a certificate: {why}"
            raise ConfigError("ssl.keystore", HIDDEN, f"Invalid keystore: {why}") from None


def _allow_weak_certificates(context: ssl.SSLContext) -> None:
    """Sets OpenSSL's security level to 0, and leaves versions and cipher suites as they are."""
    suites = [suite["name"] for suite in context.get_ciphers() if suite["protocol"] != "TLSv1.3"]
    context.set_ciphers(":".join(["@SECLEVEL=0", *suites]))


def read_key_store(store: StoreSettings) -> list[KeyMaterial]:
    """Private keys of a key store; at least one.

    Raises:
        ConfigError: the file cannot be read, the password is wrong, or there is no key.
    """
    if store.type == PEM:
        return [_pem_key(store)]
    data = _content(store)
    key_password = store.key_password or store.password or ""
    try:
        if data.startswith(JKS_MAGIC):
            found = [
                _material(entry.certificates, pem("PRIVATE KEY", entry.key(key_password)))
                for entry in read_jks(data, store.password).keys
            ]
        else:
            found = _pkcs12_keys(store, data)
    except (JksError, DerError) as error:
        raise _failed(store, str(error)) from None
    if not found:
        raise _failed(store, "has no private key")
    return found


def read_trust_store(store: StoreSettings) -> str:
    """Trusted certificates of a trust store, in PEM.

    Raises:
        ConfigError: the file cannot be read, the password is wrong, or there is no certificate.
    """
    if store.type == PEM:
        certificates = _certificates(_text(store))
        if not certificates:
            raise _failed(store, "No matching CERTIFICATE entries in PEM file")
        return "\n".join(certificates)
    data = _content(store)
    try:
        if data.startswith(JKS_MAGIC):
            entries = read_jks(data, store.password)
            found = [*entries.certificates, *(entry.certificates[0] for entry in entries.keys if entry.certificates)]
        else:
            found = _pkcs12_certificates(store, data)
    except JksError as error:
        raise _failed(store, str(error)) from None
    if not found:
        raise _failed(store, "has no certificate")
    return "\n".join(pem("CERTIFICATE", certificate) for certificate in found)


def pem(label: str, data: bytes) -> str:
    """DER as PEM."""
    text = base64.b64encode(data).decode()
    lines = (text[start : start + 64] for start in range(0, len(text), 64))
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""))


def openssl_reason(error: Exception) -> str:
    """The reason of an error of OpenSSL, without file and line of its source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    reason = getattr(error, "reason", None)
    return reason or str(error)


def _pem_key(store: StoreSettings) -> KeyMaterial:
    if store.location is None:
        assert store.certificates is not None
        assert store.key is not None
        certificate_text, key_text = store.certificates, store.key
    else:
        certificate_text = key_text = _text(store)
    certificates = _certificates(certificate_text)
    if not certificates:
        raise _failed(store, "No matching CERTIFICATE entries in PEM file")
    keys = [match.group() for match in _BLOCK.finditer(key_text) if match.group(1).endswith("PRIVATE KEY")]
    if not keys:
        raise _failed(store, "No matching PRIVATE KEY entries in PEM file")
    if len(keys) > 1:
        raise _failed(store, f"Expected one private key, but found {len(keys)}")
    try:
        names = names_of(ssl.PEM_cert_to_DER_cert(certificates[0]))
    except ValueError as error:
        raise _failed(store, f"its first certificate {error}") from None
    return KeyMaterial("\n".join(certificates) + "\n", keys[0] + "\n", store.key_password, names)


def _certificates(text: str) -> list[str]:
    return [match.group() for match in _BLOCK.finditer(text) if match.group(1) in _CERTIFICATE_LABELS]


def _material(certificates: list[bytes], key: str) -> KeyMaterial:
    if not certificates:
        raise DerError("has a private key without a certificate")
    text = "".join(pem("CERTIFICATE", certificate) for certificate in certificates)
    return KeyMaterial(text, key, None, names_of(certificates[0]))


def _pkcs12_keys(store: StoreSettings, data: bytes) -> list[KeyMaterial]:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    found = _pkcs12(store, data)
    if found.key is None or found.cert is None:
        return []
    if store.key_password is not None and store.key_password != store.password:
        # `cryptography` has opened the key with the password of the store, with which Java would not open it.
        raise _failed(store, "ssl.key.password is not the password of the key, which is that of the store")
    key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    chain = _chain(
        found.cert.certificate.public_bytes(Encoding.DER),
        [
            (c.certificate.subject.public_bytes(), c.certificate.issuer.public_bytes(), c.certificate)
            for c in found.additional_certs
        ],
        found.cert.certificate.issuer.public_bytes(),
    )
    return [_material(chain, key)]


def _chain(first: bytes, others: list[tuple[bytes, bytes, Any]], issuer: bytes) -> list[bytes]:
    """The certificates from the first one to its authority; a PKCS12 file has them in any order."""
    from cryptography.hazmat.primitives.serialization import Encoding

    chain = [first]
    while others:
        index = next((i for i, (subject, _, _) in enumerate(others) if subject == issuer), None)
        if index is None:
            break
        _, issuer, certificate = others.pop(index)
        chain.append(certificate.public_bytes(Encoding.DER))
    return chain


def _pkcs12_certificates(store: StoreSettings, data: bytes) -> list[bytes]:
    from cryptography.hazmat.primitives.serialization import Encoding

    found = _pkcs12(store, data)
    certificates = [*([found.cert] if found.cert is not None else []), *found.additional_certs]
    return [each.certificate.public_bytes(Encoding.DER) for each in certificates]


def _pkcs12(store: StoreSettings, data: bytes) -> PKCS12KeyAndCertificates:
    try:
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise _failed(store, "PKCS12 needs the package cryptography: pip install 'pykbroker[tls]'") from None
    try:
        return load_pkcs12(data, (store.password or "").encode())
    except ValueError as error:
        raise _failed(store, f"it is not PKCS12, or the password is wrong: {error}") from None


def _content(store: StoreSettings) -> bytes:
    assert store.location is not None
    try:
        with open(store.location, "rb") as file:
            data = file.read(STORE_SIZE_MAX + 1)
    except OSError as error:
        raise _failed(store, error.strerror or str(error)) from None
    if len(data) > STORE_SIZE_MAX:
        raise _failed(store, f"is larger than {STORE_SIZE_MAX} bytes")
    return data


def _text(store: StoreSettings) -> str:
    if store.location is None:
        assert store.certificates is not None
        return store.certificates
    return _content(store).decode("latin-1")


def _failed(store: StoreSettings, why: str) -> ConfigError:
    key = f"ssl.{store.kind}.location"
    if store.location is None:
        key = "ssl.truststore.certificates" if store.kind == "truststore" else "ssl.keystore.certificate.chain"
    reason = f"Failed to load SSL {store.kind} of type {store.type}: {why}"
    if store.location is None:
        return ConfigError(key, HIDDEN, reason)
    return ConfigError(key, store.location, reason, not_loaded(store.location, store.type))


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """Path of a file with this text, which OpenSSL reads keys from; the text is never on a disk if the system can."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pykbroker-tls", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, text.encode("latin-1"))
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile("w", encoding="latin-1", prefix="pykbroker-") as file:
            file.write(text)
            file.flush()
            yield file.name
