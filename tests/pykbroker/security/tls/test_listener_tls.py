"""Certificates that are replaced while a listener is open (P-244), and principals of clients (P-242)."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path

import pytest

from pykbroker.config.definitions import ConfigError
from pykbroker.security.tls.development import issue
from pykbroker.security.tls.listener_tls import ListenerTls
from pykbroker.security.tls.settings import TlsSettings
from tests.pykbroker.security.tls.certificates import authority, client, file_texts, listener_tls, server, texts

HOSTS = ("localhost", "127.0.0.1")


def changed(tls: ListenerTls, settings: dict[str, str]) -> None:
    tls.check(TlsSettings.read(settings.get))
    tls.reconfigure(TlsSettings.read(settings.get))


def test_a_renewed_certificate_is_taken() -> None:
    """P-244."""
    tls = listener_tls(texts(server(), authority()), is_between_nodes=True)
    before = tls.server, tls.client
    renewed = issue("broker", issuer=authority(), hosts=(*HOSTS, "more.example"))
    changed(tls, texts(renewed, authority()))
    assert tls.server is not before[0]
    assert tls.client is not before[1]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (texts(server(name="other")), "Keystore DistinguishedName does not match: existing={DN=CN=broker,"),
        (texts(server(("localhost",))), "Keystore SubjectAltNames do not match: the new certificate lacks 127.0.0.1"),
        (texts(None), "Cannot remove the SSL keystore from an existing listener"),
        (texts(server(), authority()), "Cannot add SSL truststore to an existing listener"),
        (texts(server(), ssl_keystore_key="x"), "No matching PRIVATE KEY entries in PEM file"),
    ],
)
def test_a_change_that_is_refused(settings: dict[str, str], words: str) -> None:
    """P-244: the certificates stay as they are."""
    tls = listener_tls(texts(server()))
    before = tls.server
    with pytest.raises(ConfigError) as error:
        tls.check(TlsSettings.read(settings.get))
    assert words in str(error.value)
    with pytest.raises(ConfigError):
        tls.reconfigure(TlsSettings.read(settings.get))
    assert tls.server is before


def test_names_may_change_where_the_settings_allow_it() -> None:
    tls = listener_tls(texts(server()))
    changed(tls, texts(server(("localhost",), "other"), ssl_allow_dn_changes="true", ssl_allow_san_changes="true"))
    with pytest.raises(ConfigError, match="Cannot add SSL keystore"):
        changed(listener_tls(texts(None)), texts(server()))


def test_certificates_between_nodes_must_accept_each_other() -> None:
    """P-244: the authority of a cluster is changed in steps, in each of which old and new nodes can connect."""
    tls = listener_tls(texts(server(), authority()), is_between_nodes=True)
    other = issue("other CA", is_authority=True)
    foreign = issue("broker", issuer=other, hosts=HOSTS)
    with pytest.raises(ConfigError, match="do not accept each other"):
        changed(tls, texts(foreign, other))
    both = texts(server(), authority())
    both["ssl.truststore.certificates"] += other.certificate_pem
    changed(tls, both)
    changed(tls, texts(foreign) | {key: both[key] for key in both if "truststore" in key})


def test_a_node_that_would_not_accept_itself_does_not_start() -> None:
    other = issue("other CA", is_authority=True)
    with pytest.raises(ConfigError, match="can't connect to a server SSLEngine"):
        listener_tls(texts(server(), other), is_between_nodes=True)
    # A listener that this node never connects to is not checked.
    listener_tls(texts(server(), other))


def touch_later(path: Path) -> None:
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1_000_000_000))


def test_files_that_have_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """P-244: a file is taken when it has changed; one that cannot be used is logged once."""
    settings = file_texts(tmp_path, server(), authority())
    tls = listener_tls(settings)
    first = tls.server
    tls.take_changed_files()
    assert tls.server is first
    (tmp_path / "key.pem").write_text(issue("broker", issuer=authority(), hosts=HOSTS).pem)
    touch_later(tmp_path / "key.pem")
    tls.take_changed_files()
    second = tls.server
    assert second is not first
    (tmp_path / "key.pem").write_text("half a fi")
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            tls.take_changed_files()
    assert tls.server is second
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert "keeps its certificates" in errors[0]
    (tmp_path / "key.pem").unlink()
    tls.take_changed_files()
    assert tls.server is second
    # The same settings read the files again, as kafka-configs has it.
    (tmp_path / "key.pem").write_text(server().pem)
    tls.reconfigure(TlsSettings.read(settings.get))
    assert tls.server is not second


def test_principals() -> None:
    """P-242: a client without a certificate is anonymous."""
    tls = listener_tls(texts(server(), ssl_principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/,DEFAULT"))
    assert tls.principal(None) == "User:ANONYMOUS"
    assert tls.principal(ssl.PEM_cert_to_DER_cert(client().certificate_pem)) == "User:alice"
    plain = listener_tls(texts(server()))
    certificate = ssl.PEM_cert_to_DER_cert(client().certificate_pem)
    assert plain.principal(certificate) == "User:CN=alice,O=pykbroker development"
