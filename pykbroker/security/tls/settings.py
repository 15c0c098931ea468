"""TlsSettings: the `ssl.*` settings of one listener or of one client, as typed values with Kafka's checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykbroker.config.definitions import LIST, ConfigError, parse_value
from pykbroker.named_tuple import NamedTuple
from pykbroker.security.tls.cipher_suites import PROTOCOLS, TLS13_SUITES, openssl_name
from pykbroker.security.tls.principal_mapping import PrincipalMapping

if TYPE_CHECKING:
    from collections.abc import Callable

HIDDEN = "[hidden]"
"""Shown in place of a password or a key in the text of an error."""

PEM = "PEM"
STORE_TYPES = (PEM, "PKCS12", "JKS")

_JAVA_ALONE = ("ssl.engine.factory.class", "ssl.provider")


class StoreSettings(NamedTuple):
    """Settings of a key store or trust store, which is in a file or, as PEM text, in the settings themselves.

    Attributes:
        kind: "keystore" or "truststore", as in the names of the settings.
        type: PEM, PKCS12 or JKS.
        location: path of the file; None for a store in the settings.
        password: password of the store.
        certificates: PEM text of the certificates; None for a store in a file.
        key: PEM text of the private key; None for a store in a file.
        key_password: password of the private key.
    """

    kind: str
    type: str
    location: str | None
    password: str | None
    certificates: str | None
    key: str | None
    key_password: str | None


class TlsSettings(NamedTuple):
    """Settings of one listener or client.

    Attributes:
        key_store: None for a client without a certificate of its own.
        trust_store: None for the authorities that the system trusts.
        client_auth: none, requested or required.
        checks_host_names: True if a client compares the server's name with its certificate.
        protocols: allowed versions, such as ``TLSv1.3``.
        cipher_suites: allowed suites by Java's names; empty for OpenSSL's default.
        mapping: makes user names of certificates' subjects.
    """

    key_store: StoreSettings | None
    trust_store: StoreSettings | None
    client_auth: str
    checks_host_names: bool
    protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    mapping: PrincipalMapping
    allows_name_changes: bool
    allows_alternative_name_changes: bool

    @classmethod
    def read(cls, text: Callable[[str], str | None], *, client_auth: str | None = None) -> TlsSettings:
        """Settings from the texts of keys.

        Args:
            text: text of a key, its default if it has one and is not set.
            client_auth: taken in place of `ssl.client.auth`.

        Raises:
            ConfigError: a combination that Kafka refuses, or a setting that only Java supports.
        """
        for key in _JAVA_ALONE:
            if text(key):
                raise ConfigError(key, text(key), "is for Java alone and not available here")
        suites = _list(text, "ssl.cipher.suites")
        for suite in suites:
            if suite not in TLS13_SUITES and openssl_name(suite) is None:
                raise ConfigError("ssl.cipher.suites", suite, "OpenSSL has no such cipher suite")
        protocols = _list(text, "ssl.enabled.protocols") or ["TLSv1.2", "TLSv1.3"]
        for protocol in protocols:
            if protocol not in PROTOCOLS:
                raise ConfigError("ssl.enabled.protocols", protocol, f"must be among {', '.join(PROTOCOLS)}")
        rules = text("ssl.principal.mapping.rules")
        rules = "DEFAULT" if rules is None else rules
        try:
            mapping = PrincipalMapping(rules)
        except ValueError as error:
            raise ConfigError("ssl.principal.mapping.rules", rules, str(error)) from None
        algorithm = text("ssl.endpoint.identification.algorithm")
        if algorithm and algorithm.lower() != "https":
            raise ConfigError("ssl.endpoint.identification.algorithm", algorithm, "must be https, or empty")
        return cls(
            key_store=_key_store(text),
            trust_store=_trust_store(text),
            client_auth=client_auth or (text("ssl.client.auth") or "none").lower(),
            checks_host_names=bool(algorithm),
            protocols=tuple(protocols),
            cipher_suites=tuple(suites),
            mapping=mapping,
            allows_name_changes=(text("ssl.allow.dn.changes") or "").lower() == "true",
            allows_alternative_name_changes=(text("ssl.allow.san.changes") or "").lower() == "true",
        )


def _list(text: Callable[[str], str | None], key: str) -> list[str]:
    found: Any = parse_value(key, text(key) or "", LIST)
    return list(filter(None, found))


def _key_store(text: Callable[[str], str | None]) -> StoreSettings | None:
    store_type, location, password = _common(text, "keystore")
    key, chain = text("ssl.keystore.key"), text("ssl.keystore.certificate.chain")
    is_pem = store_type == PEM
    if key is not None:
        if not is_pem:
            raise _refusal(
                "ssl.keystore.key",
                f"SSL private key can be specified only for PEM, but key store type is {store_type}.",
            )
        if chain is None:
            raise _refusal("ssl.keystore.key", "SSL private key is specified, but certificate chain is not specified.")
        if location is not None:
            raise _refusal("ssl.keystore.key", "Both SSL key store location and separate private key are specified.")
    elif chain is not None:
        raise _refusal(
            "ssl.keystore.certificate.chain", "SSL certificate chain is specified, but private key is not specified"
        )
    if is_pem and password is not None and (key is not None or location is not None):
        raise _refusal(
            "ssl.keystore.password",
            "SSL key store password cannot be specified with PEM format, only key password may be specified",
        )
    if key is None and location is None:
        if password is not None:
            raise _refusal(
                "ssl.keystore.password", "SSL key store is not specified, but key store password is specified."
            )
        return None
    if not is_pem and password is None:
        raise _refusal("ssl.keystore.password", "SSL key store is specified, but key store password is not specified.")
    return StoreSettings("keystore", store_type, location, password, chain, key, text("ssl.key.password"))


def _trust_store(text: Callable[[str], str | None]) -> StoreSettings | None:
    store_type, location, password = _common(text, "truststore")
    certificates = text("ssl.truststore.certificates")
    is_pem = store_type == PEM
    if certificates is not None:
        if not is_pem:
            raise _refusal(
                "ssl.truststore.certificates",
                f"SSL trust store certs can be specified only for PEM, but trust store type is {store_type}.",
            )
        if location is not None:
            raise _refusal(
                "ssl.truststore.certificates",
                "Both SSL trust store location and separate trust certificates are specified.",
            )
    if is_pem and password is not None and (certificates is not None or location is not None):
        raise _refusal("ssl.truststore.password", "SSL trust store password cannot be specified for PEM format.")
    if certificates is None and location is None:
        if password is not None:
            raise _refusal(
                "ssl.truststore.password", "SSL trust store is not specified, but trust store password is specified."
            )
        return None
    return StoreSettings("truststore", store_type, location, password, certificates, None, None)


def _common(text: Callable[[str], str | None], kind: str) -> tuple[str, str | None, str | None]:
    given, location = text(f"ssl.{kind}.type"), text(f"ssl.{kind}.location")
    store_type = "JKS" if given is None else given.upper()
    if location is not None and not location.strip():
        # Java's text: for Java an empty path is a file that does not exist, and not a missing setting.
        raise ConfigError(f"ssl.{kind}.location", location, "must be the path of a file", not_loaded("", store_type))
    if store_type not in STORE_TYPES:
        problem = not_loaded(location or "", str(given))
        raise ConfigError(f"ssl.{kind}.type", store_type, f"must be among {', '.join(STORE_TYPES)}", problem)
    return store_type, location, text(f"ssl.{kind}.password")


def not_loaded(location: str, store_type: str) -> str:
    """Kafka's text for a key store or trust store that cannot be read. It gives no reason, and calls both keystores."""
    return f"org.apache.kafka.common.KafkaException: Failed to load SSL keystore {location} of type {store_type}"


def _refusal(key: str, reason: str) -> ConfigError:
    return ConfigError(key, HIDDEN, reason, f"org.apache.kafka.common.errors.InvalidConfigurationException: {reason}")
