"""ListenerTls: certificates and trust of one listener, for its server side and for this node's connections to others.

New settings and changed files take effect while the node runs (P-244). Connections keep the certificates of their
handshakes. Sessions of earlier handshakes cannot be resumed under new certificates, as the keys of their tickets belong
to the old context.
"""

from __future__ import annotations

import logging
import os
import ssl
from typing import TYPE_CHECKING

from pykbroker.config.definitions import ConfigError
from pykbroker.security.tls.certificate_names import names_of, shown_name
from pykbroker.security.tls.cipher_suites import TLS13_SUITES
from pykbroker.security.tls.contexts import Stores, client_context, server_context
from pykbroker.security.tls.key_stores import openssl_reason
from pykbroker.security.tls.settings import HIDDEN

if TYPE_CHECKING:
    from pykbroker.security.tls.settings import TlsSettings

log = logging.getLogger(__name__)

ANONYMOUS = "User:ANONYMOUS"

_Stamp = tuple[int, int, int] | None
"""Modification time in ns, size and inode of a file; None if it cannot be read."""


class ListenerTls:
    """Certificates and trust of one listener.

    Args:
        name: name of the listener, for the log.
        settings: its settings.
        is_between_nodes: True if this node also connects to such listeners of other nodes. Then its own certificate
            must be one that it would accept as a client, as in Kafka.

    Raises:
        ConfigError: a store cannot be read, is refused by OpenSSL, or is missing.
    """

    def __init__(self, name: str, settings: TlsSettings, *, is_between_nodes: bool = False) -> None:
        self._name = name
        self._is_between_nodes = is_between_nodes
        self._use_loaded(_Loaded(settings))
        if is_between_nodes and self._loaded.stores.keys:
            _check_handshake(
                self._loaded,
                self._loaded,
                "A client SSLEngine created with the provided settings can't connect to a server SSLEngine created "
                "with those settings",
            )

    def _use_loaded(self, loaded: _Loaded) -> None:
        self._loaded = loaded
        self.server = loaded.server
        self.client = loaded.client

    @property
    def allowed_suites(self) -> frozenset[str]:
        """Suites of TLS 1.3 that are allowed; empty if all are. OpenSSL's own list cannot be made shorter by Python."""
        return self._loaded.allowed_suites

    def principal(self, certificate: bytes | None) -> str:
        """Principal of a client with this certificate in DER, or with none (P-242).

        Raises:
            NoMatchingRule: no rule maps the subject.
            DerError: the certificate cannot be read.
        """
        if not certificate:
            return ANONYMOUS
        return f"User:{self._loaded.settings.mapping.user_name(names_of(certificate).subject)}"

    def check(self, settings: TlsSettings) -> None:
        """Refuses settings to which Kafka would not change while the listener is open.

        Raises:
            ConfigError: a store cannot be read, has other names, or does not work together with the present one.
        """
        if settings != self._loaded.settings:
            self._prepared(settings)

    def reconfigure(self, settings: TlsSettings) -> None:
        """Uses new settings, or files that have changed under the same settings.

        Raises:
            ConfigError: as `check`; everything stays as it is.
        """
        if settings != self._loaded.settings or self._loaded.is_outdated:
            self._use_loaded(self._prepared(settings))
            log.info("listener %s uses new TLS settings: %s", self._name, self._loaded)

    def take_changed_files(self) -> None:
        """Reads the stores again if their files have changed. A file that cannot be used is logged, once."""
        if self._loaded.is_outdated:
            try:
                self._use_loaded(self._prepared(self._loaded.settings))
            except ConfigError as error:
                log.error("listener %s keeps its certificates, as the changed ones are refused: %s", self._name, error)
                self._loaded.remember_files()
            else:
                log.info("listener %s uses certificates of changed files: %s", self._name, self._loaded)

    def _prepared(self, settings: TlsSettings) -> _Loaded:
        old, new = self._loaded, _Loaded(settings)
        _check_names(old, new)
        if old.settings.trust_store is None and settings.trust_store is not None:
            raise _incompatible(
                "Cannot add SSL truststore to an existing listener for which no truststore was configured."
            )
        if self._is_between_nodes and new.stores.keys:
            for of_server, of_client in ((old, new), (new, old)):
                _check_handshake(of_server, of_client, "the old and the new certificates do not accept each other")
        return new


class _Loaded:
    """Contexts of settings, and the state of the files from which they were made."""

    def __init__(self, settings: TlsSettings) -> None:
        self.settings = settings
        self.remember_files()
        self.stores = Stores(settings)
        self.server = server_context(settings, self.stores) if self.stores.keys else None
        self.client = client_context(settings, self.stores)
        self.allowed_suites = frozenset(settings.cipher_suites).intersection(TLS13_SUITES)

    def remember_files(self) -> None:
        """Notes the present state of the files."""
        self._stamps = self._current()

    @property
    def is_outdated(self) -> bool:
        """True if a file was replaced since then; a missing file does not count."""
        return any(new is not None and new != old for old, new in zip(self._stamps, self._current(), strict=True))

    def _current(self) -> list[_Stamp]:
        stores = (self.settings.key_store, self.settings.trust_store)
        return [_file_stamp(store.location) for store in stores if store is not None and store.location is not None]

    def __str__(self) -> str:
        return "; ".join(names.subject for names in self.stores.names) or "no certificate"


def _file_stamp(path: str) -> _Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _incompatible(reason: str) -> ConfigError:
    """Error for new stores that do not fit the present ones, with Kafka's text, which names the exception's class."""
    return ConfigError("ssl.keystore", HIDDEN, reason, f"org.apache.kafka.common.config.ConfigException: {reason}")


def _check_names(old: _Loaded, new: _Loaded) -> None:
    """Kafka's comparison of two key stores: clients and nodes know a node by the names in its certificate."""
    if not old.stores.keys and new.stores.keys:
        raise _incompatible("Cannot add SSL keystore to an existing listener for which no keystore was configured.")
    if old.stores.keys and not new.stores.keys:
        raise _incompatible(
            "Cannot remove the SSL keystore from an existing listener for which a keystore was configured."
        )
    before, after, settings = old.stores.names, new.stores.names, new.settings
    if settings.allows_name_changes and settings.allows_alternative_name_changes:
        return
    if len(before) != len(after):
        raise _incompatible(
            f"Keystore entries do not match, existing store contains {len(before)} entries, new store contains "
            f"{len(after)} entries"
        )
    for one, other in zip(before, after, strict=True):
        if not settings.allows_name_changes and one.subject.lower() != other.subject.lower():
            raise _incompatible(
                f"Keystore DistinguishedName does not match: existing={{DN={one.subject}}}, new={{DN={other.subject}}}"
            )
        missing = one.alternative_names - other.alternative_names
        if missing and not settings.allows_alternative_name_changes:
            shown = ", ".join(sorted(map(shown_name, missing)))
            raise _incompatible(f"Keystore SubjectAltNames do not match: the new certificate lacks {shown}")


def _check_handshake(of_server: _Loaded, of_client: _Loaded, what: str) -> None:
    """A handshake in memory between two contexts, without the check of the host name."""
    if of_server.server is None:
        return
    client = client_context(of_client.settings._replace(checks_host_names=False), of_client.stores)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server_side = of_server.server.wrap_bio(to_server, to_client, server_side=True)
    client_side = client.wrap_bio(to_client, to_server)
    unfinished = [client_side, server_side]
    try:
        for _ in range(10):
            for side in list(unfinished):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                unfinished.remove(side)
            if not unfinished:
                return
    except ssl.SSLError as error:
        raise _incompatible(f"{what}: {openssl_reason(error)}") from None
    raise _incompatible(f"{what}: the handshake does not end")  # pragma: no cover: OpenSSL ends it or raises
