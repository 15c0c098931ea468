"""OpenSSL contexts of a listener and of its clients, made of `TlsSettings`."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from pykbroker.config.definitions import ConfigError
from pykbroker.security.tls.cipher_suites import PROTOCOLS, TLS13_SUITES, openssl_name
from pykbroker.security.tls.key_stores import read_key_store, read_trust_store

if TYPE_CHECKING:
    from pykbroker.security.tls.certificate_names import CertificateNames
    from pykbroker.security.tls.key_stores import KeyMaterial
    from pykbroker.security.tls.settings import TlsSettings

_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}

_VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_SWITCHED_OFF = {
    "TLSv1": ssl.OP_NO_TLSv1,
    "TLSv1.1": ssl.OP_NO_TLSv1_1,
    "TLSv1.2": ssl.OP_NO_TLSv1_2,
    "TLSv1.3": ssl.OP_NO_TLSv1_3,
}


class Stores:
    """Content of the key store and the trust store of some settings, read once for both contexts.

    Attributes:
        keys: private keys; empty without a key store.
        trusted: trusted certificates in PEM; None without a trust store.

    Raises:
        ConfigError: a store cannot be read.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self.keys: list[KeyMaterial] = [] if settings.key_store is None else read_key_store(settings.key_store)
        self.trusted = None if settings.trust_store is None else read_trust_store(settings.trust_store)

    @property
    def names(self) -> list[CertificateNames]:
        """Names in the certificates of the keys."""
        return [key.names for key in self.keys]


def server_context(settings: TlsSettings, stores: Stores) -> ssl.SSLContext:
    """Context of a listener.

    Raises:
        ConfigError: OpenSSL refuses a key, a certificate or the cipher suites.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _configure(context, settings, stores)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    # One ticket, as in Java: each costs time, and a client that reconnects uses one.
    context.num_tickets = 1
    return context


def client_context(settings: TlsSettings, stores: Stores) -> ssl.SSLContext:
    """Context of a client: always verifies the certificate, and the host name unless it is switched off.

    Raises:
        ConfigError: as `server_context`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _configure(context, settings, stores)
    context.check_hostname = settings.checks_host_names
    return context


def _configure(context: ssl.SSLContext, settings: TlsSettings, stores: Stores) -> None:
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    # As in Java, each certificate of the trust store is an anchor, also an intermediate one.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    for key in stores.keys:
        key.load_into(context)
    if stores.trusted is None:
        context.set_default_verify_paths()
    else:
        try:
            context.load_verify_locations(cadata=stores.trusted)
        except ssl.SSLError as error:
            raise ConfigError("ssl.truststore", "[hidden]", f"Invalid trust store: {error.reason}") from None
    _set_protocols(context, settings)
    _set_cipher_suites(context, settings)


def _set_protocols(context: ssl.SSLContext, settings: TlsSettings) -> None:
    allowed = [protocol for protocol in PROTOCOLS if protocol in settings.protocols]
    suites = settings.cipher_suites
    if suites and not any(suite in TLS13_SUITES for suite in suites):
        # OpenSSL always has suites of TLS 1.3 enabled: without an allowed one the version is off.
        allowed = [protocol for protocol in allowed if protocol != "TLSv1.3"]
    elif suites and all(suite in TLS13_SUITES for suite in suites):
        allowed = [protocol for protocol in allowed if protocol == "TLSv1.3"]
    if not allowed:
        raise ConfigError(
            "ssl.cipher.suites", ",".join(suites), f"none is of a version in {', '.join(settings.protocols)}"
        )
    context.minimum_version, context.maximum_version = _VERSIONS[allowed[0]], _VERSIONS[allowed[-1]]
    for protocol in PROTOCOLS[PROTOCOLS.index(allowed[0]) : PROTOCOLS.index(allowed[-1])]:
        if protocol not in allowed:
            context.options |= _SWITCHED_OFF[protocol]


def _set_cipher_suites(context: ssl.SSLContext, settings: TlsSettings) -> None:
    names = [openssl_name(suite) for suite in settings.cipher_suites if suite not in TLS13_SUITES]
    if names:
        try:
            context.set_ciphers(":".join(filter(None, names)))
        except ssl.SSLError:
            raise ConfigError(
                "ssl.cipher.suites", ",".join(settings.cipher_suites), "OpenSSL has none of these cipher suites"
            ) from None
