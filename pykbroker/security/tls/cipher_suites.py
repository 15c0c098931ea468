"""`ssl.cipher.suites` and `ssl.enabled.protocols`: Java's names, and OpenSSL's for them. Pure."""

from __future__ import annotations

import re

TLS13_SUITES = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""Suites of TLS 1.3, in the order in which OpenSSL prefers them; their names are the same in Java and in OpenSSL."""

PROTOCOLS = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
"""Names of protocols, from the oldest to the newest."""

# Key exchange in Java's names; the plain RSA exchange has no prefix in OpenSSL's names.
_EXCHANGES = {
    "ECDHE_ECDSA": "ECDHE-ECDSA-",
    "ECDHE_RSA": "ECDHE-RSA-",
    "DHE_RSA": "DHE-RSA-",
    "DHE_DSS": "DHE-DSS-",
    "RSA": "",
}
_CIPHER = re.compile(r"(AES|CAMELLIA|ARIA)_(128|256)_(CBC|GCM|CCM|CCM_8)(?:_(SHA|SHA256|SHA384))?")


def openssl_name(java_name: str) -> str | None:
    """OpenSSL's name of a suite up to TLS 1.2, such as ``ECDHE-RSA-AES256-GCM-SHA384``; None if it has none.

    A name that is OpenSSL's already is returned as it is.
    """
    if not java_name.startswith(("TLS_", "SSL_")):
        return java_name if re.fullmatch(r"[A-Z0-9]+(-[A-Z0-9]+)+", java_name) else None
    exchange, separator, cipher = java_name[4:].partition("_WITH_")
    prefix = _EXCHANGES.get(exchange)
    if prefix is None or not separator:
        return None
    if cipher == "CHACHA20_POLY1305_SHA256":
        return f"{prefix}CHACHA20-POLY1305"
    match = _CIPHER.fullmatch(cipher)
    if match is None:
        return None
    kind, bits, mode, digest = match.groups()
    if mode == "CBC":
        # A suite of CBC is named without its mode.
        return f"{prefix}{kind}{bits}-{digest}" if digest else None
    name = f"{prefix}{kind}{bits}-{mode.replace('CCM_8', 'CCM8')}"
    return f"{name}-{digest}" if digest else name
