"""NodeTls: TLS of the listeners of one node, and of the listeners of other nodes to which it connects."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pykbroker.config.definitions import ConfigError
from pykbroker.config.listener_addresses import LISTENER_PREFIX
from pykbroker.config.parsing import listeners_between_nodes, listeners_with_tls
from pykbroker.config.update_modes import ONLY_PER_LISTENER
from pykbroker.security.tls.listener_tls import ListenerTls
from pykbroker.security.tls.settings import TlsSettings

if TYPE_CHECKING:
    from pykbroker.config.broker_config import BrokerConfig

log = logging.getLogger(__name__)

CLIENT_AUTH = "ssl.client.auth"


class NodeTls:
    """The TLS of the listeners of one node, by name of the listener.

    Args:
        config: settings of the node, at least one of whose listeners has TLS.

    Raises:
        ConfigError: a key store or trust store is missing or cannot be used; the text names the listener.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        own = {address.name for address in config.network.all_listeners}
        self._listeners: dict[str, ListenerTls] = {}
        # The settings with which each listener was opened.
        self._first: dict[str, BrokerConfig] = {}
        # Errors of settings that are not used, by listener, so that each is logged once.
        self._unused: dict[str, str] = {}
        between = _names_between_nodes(config)
        for name in listeners_with_tls(config):
            try:
                tls = ListenerTls(name, _settings(config, name), is_between_nodes=name in between & own)
            except ConfigError as error:
                raise _of_listener(name, error) from None
            self._listeners[name], self._first[name] = tls, config
            if name in own:
                _check_key_store(name, tls)

    def of(self, listener_name: str) -> ListenerTls | None:
        """TLS of a listener; None for a listener without TLS."""
        return self._listeners.get(listener_name)

    def add(self, name: str, config: BrokerConfig) -> None:
        """Takes the settings of a listener that is added while the node runs, unless it has them (P-484).

        Raises:
            ConfigError: as at the start.
        """
        if name not in self._listeners:
            try:
                tls = ListenerTls(name, _settings(config, name))
            except ConfigError as error:
                raise _of_listener(name, error) from None
            _check_key_store(name, tls)
            self._listeners[name], self._first[name] = tls, config

    def refusal_of_change(self, config: BrokerConfig) -> str | None:
        """Kafka's error text for a change to these settings; None if it is allowed (P-244)."""
        try:
            for name in listeners_with_tls(config):
                # The stores of a listener that the change adds are read when it is opened.
                if name in self._listeners:
                    self._listeners[name].check(_settings(config, name, self._first[name]))
        except ConfigError as error:
            reason = error.reason if error.kafkas_text == str(error) else error.kafkas_text
            # Kafka passes the exception as the value, and a text as the name of the key.
            return (
                "Invalid value org.apache.kafka.common.config.ConfigException: Validation of dynamic config update of "
                f"SSLFactory failed: {reason} for configuration Invalid dynamic configuration"
            )
        return None

    def apply(self, config: BrokerConfig) -> None:
        """Uses the settings of this node after a change of metadata, and files that have changed."""
        if config is self._config:
            # The same path was set again, so that the file is read again (P-244), or another resource changed.
            self.take_changed_files()
            return
        self._config = config
        names = listeners_with_tls(config)
        for name in self._listeners.keys() - set(names):
            del self._listeners[name], self._first[name]
            self._unused.pop(name, None)
        for name in names:
            if name in self._listeners:
                self._reconfigure(name, config)

    def _reconfigure(self, name: str, config: BrokerConfig) -> None:
        """Uses the settings of a listener; its new stores alone, if something else in its settings cannot be used."""
        tls, error = self._listeners[name], None
        for first in (None, self._first[name]):
            try:
                tls.reconfigure(_settings(config, name, first))
                break
            except ConfigError as refused:
                error = error or str(refused)
        if error is None:
            self._unused.pop(name, None)
        elif self._unused.get(name) != error:
            self._unused[name] = error
            log.error("listener %s keeps its TLS settings, as the new ones are refused: %s", name, error)

    def take_changed_files(self) -> None:
        """Reads key stores and trust stores again whose files have changed."""
        for tls in self._listeners.values():
            tls.take_changed_files()


def _names_between_nodes(config: BrokerConfig) -> set[str]:
    return {name for name, _ in listeners_between_nodes(config.network, config.process_roles, is_alone=config.is_alone)}


def _settings(config: BrokerConfig, name: str, first: BrokerConfig | None = None) -> TlsSettings:
    """Settings of a listener with TLS.

    Args:
        config: settings of the node.
        name: name of the listener.
        first: the settings with which the listener was opened. If they are given, all but its stores are taken from
            them, as Kafka does when it changes the settings of a listener (`SslFactory.createNewSslEngineFactory`).

    Raises:
        ConfigError: a combination of settings is refused.
    """
    rest = first or config

    def text(key: str) -> str | None:
        return (config if key in ONLY_PER_LISTENER else rest).listener_property(name, key)

    return TlsSettings.read(text, client_auth=_client_auth(rest, name, config.network.security_protocols[name]))


def _check_key_store(name: str, tls: ListenerTls) -> None:
    if tls.server is None:
        raise ConfigError(
            f"{LISTENER_PREFIX}{name.lower()}.ssl.keystore.location",
            None,
            f"listener {name} has TLS and needs a key store: ssl.keystore.location, or "
            "ssl.keystore.certificate.chain and ssl.keystore.key",
        )


def _of_listener(name: str, error: ConfigError) -> ConfigError:
    kafkas_text = None if error.kafkas_text == str(error) else error.kafkas_text
    return ConfigError(error.name, error.value, f"{error.reason} (listener {name})", kafkas_text)


def _client_auth(config: BrokerConfig, name: str, protocol: str) -> str | None:
    """`ssl.client.auth` of a SASL_SSL listener, which has it only by its own prefix (P-243); None for an SSL one."""
    if protocol != "SASL_SSL" or f"{LISTENER_PREFIX}{name.lower()}.{CLIENT_AUTH}" in config.static_properties:
        return None
    return "none"
