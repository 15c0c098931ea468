"""Combinations of `ssl.*` settings that Kafka refuses, with its texts (P-240)."""

from __future__ import annotations

import pytest

from pykbroker.config.definitions import ConfigError
from pykbroker.security.tls.settings import TlsSettings

SECRET = "open-sesame"


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"ssl.keystore.key": SECRET}, "can be specified only for PEM, but key store type is JKS."),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.key": SECRET}, "certificate chain is not specified"),
        (
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": SECRET,
                "ssl.keystore.certificate.chain": SECRET,
                "ssl.keystore.location": "k.pem",
            },
            "Both SSL key store location and separate private key are specified.",
        ),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": SECRET}, "private key is not specified"),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "k.pem", "ssl.keystore.password": SECRET},
            "SSL key store password cannot be specified with PEM format",
        ),
        ({"ssl.keystore.password": SECRET}, "SSL key store is not specified, but key store password is specified."),
        ({"ssl.keystore.location": "k.jks"}, "SSL key store is specified, but key store password is not specified."),
        ({"ssl.truststore.certificates": SECRET}, "can be specified only for PEM, but trust store type is JKS."),
        (
            {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": SECRET,
                "ssl.truststore.location": "t.pem",
            },
            "Both SSL trust store location and separate trust certificates are specified.",
        ),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "t.pem", "ssl.truststore.password": SECRET},
            "SSL trust store password cannot be specified for PEM format.",
        ),
        ({"ssl.truststore.password": SECRET}, "SSL trust store is not specified, but trust store password"),
        ({"ssl.keystore.type": "BCFKS"}, "must be among PEM, PKCS12, JKS"),
        ({"ssl.enabled.protocols": "TLSv1.4"}, "must be among TLSv1, TLSv1.1, TLSv1.2, TLSv1.3"),
        ({"ssl.cipher.suites": "TLS_FANTASY"}, "OpenSSL has no such cipher suite"),
        ({"ssl.principal.mapping.rules": "default"}, "Invalid rule: `default`"),
        ({"ssl.endpoint.identification.algorithm": "LDAPS"}, "must be https, or empty"),
        ({"ssl.provider": "SunJSSE"}, "is for Java alone"),
        ({"ssl.engine.factory.class": "a.B"}, "is for Java alone"),
    ],
)
def test_what_is_refused(texts: dict[str, str], words: str) -> None:
    """P-240. No error shows a key or a password."""
    with pytest.raises(ConfigError) as error:
        TlsSettings.read(texts.get)
    assert words in str(error.value)
    assert SECRET not in str(error.value)


def test_defaults() -> None:
    nothing: dict[str, str] = {}
    settings = TlsSettings.read(nothing.get)
    assert settings.key_store is None
    assert settings.trust_store is None
    assert settings.client_auth == "none"
    assert settings.protocols == ("TLSv1.2", "TLSv1.3")
    # Kafka's default, https, is that of the setting's definition; an empty text switches the check off.
    assert not settings.checks_host_names
    assert TlsSettings.read({"ssl.endpoint.identification.algorithm": "HTTPS"}.get).checks_host_names
