"""Certificates for tests: an authority and what it has issued, made once for all of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from pykbroker.security.tls.development import Issued, issue
from pykbroker.security.tls.listener_tls import ListenerTls
from pykbroker.security.tls.settings import TlsSettings


@functools.cache
def authority(name: str = "test CA") -> Issued:
    """An authority of this name."""
    return issue(name, is_authority=True)


@functools.cache
def server(hosts: tuple[str, ...] = ("localhost", "127.0.0.1"), name: str = "broker") -> Issued:
    """Certificate of a broker at these hosts."""
    return issue(name, issuer=authority(), hosts=hosts)


@functools.cache
def client(name: str = "alice") -> Issued:
    """Certificate of a client."""
    return issue(name, issuer=authority())


def texts(issued: Issued | None, trusted: Issued | None = None, **more: str) -> dict[str, str]:
    """`ssl.*` settings with these certificates in them; names in `more` have "_" for "."."""
    found: dict[str, str] = {"ssl.endpoint.identification.algorithm": "https"}
    if issued is not None:
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": issued.key_pem,
            "ssl.keystore.certificate.chain": issued.certificate_pem,
        }
    if trusted is not None:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": trusted.certificate_pem}
    return found | {key.replace("_", "."): value for key, value in more.items()}


def listener_tls(settings: Mapping[str, str], *, is_between_nodes: bool = False) -> ListenerTls:
    """TLS of a listener named SSL with these settings."""
    return ListenerTls("SSL", TlsSettings.read(settings.get), is_between_nodes=is_between_nodes)


def file_texts(folder: Path, issued: Issued, trusted: Issued) -> dict[str, str]:
    """`ssl.*` settings with stores in files `key.pem` and `ca.pem`, which are written."""
    key, authorities = folder / "key.pem", folder / "ca.pem"
    key.write_text(issued.pem)
    authorities.write_text(trusted.certificate_pem)
    return {
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authorities),
    }
