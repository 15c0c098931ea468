"""SASL mechanisms of a listener, from its settings and the credentials of the cluster's metadata."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from pykbroker.config.definitions import ConfigError
from pykbroker.config.parsing import find_jaas, find_setting_of_mechanism, jaas_key
from pykbroker.config.values import NODE_MECHANISMS
from pykbroker.security.plain import PLAIN, PlainExchange
from pykbroker.security.sasl_mechanism import Mechanism

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.config.jaas import LoginModule
    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.node.host import Host
    from pykbroker.security.sasl_mechanism import Exchange
    from pykbroker.security.scram import ScramCredential, ScramCredentials, TokenCredential

    Prepare = Callable[[Exchange, bytes], Awaitable[None]]

log = logging.getLogger(__name__)

NONCE_BYTES = 18
TOKENS_KEPT_MAX = 1000


class ListenerMechanisms:
    """The mechanisms of a listener under the newest settings, which may change while the broker runs (KIP-226).

    Args: as `mechanisms_of_listener`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        listener_name: str,
        image: Callable[[], ClusterImage],
        host: Host,
        *,
        is_controller: bool,
    ) -> None:
        def make(config: BrokerConfig) -> dict[str, Mechanism]:
            return mechanisms_of_listener(config, listener_name, image, host, is_controller=is_controller)

        self._make = make
        self._config = config
        self._texts = _relevant(config)
        self._mechanisms = self._make(config)

    def under(self, config: BrokerConfig) -> dict[str, Mechanism]:
        """The mechanisms for a new connection. Settings that cannot be used are logged once, and the old ones stay."""
        if config is not self._config:
            self._config = config
            texts = _relevant(config)
            if texts != self._texts:
                self._texts = texts
                try:
                    self._mechanisms = self._make(config)
                except ConfigError as error:
                    log.error("changed SASL settings are not used, because of %s: %s", error.name, error.reason)
        return self._mechanisms


def _relevant(config: BrokerConfig) -> dict[str, str]:
    return {key: text for key, text in config.static_properties.items() if "sasl" in key or _REAUTH in key}


def mechanisms_of_listener(
    config: BrokerConfig, listener_name: str, image: Callable[[], ClusterImage], host: Host, *, is_controller: bool
) -> dict[str, Mechanism]:
    """The mechanisms that a listener offers, by name: those of `sasl.enabled.mechanisms`, PLAIN if that is not set.

    Args:
        config: settings of the node.
        listener_name: name of the listener.
        image: returns the newest metadata.
        host: random source and clock.
        is_controller: True for a controller's listener, where this node's own SCRAM login is accepted too: nodes of a
            quorum that starts have no metadata yet, and must reach one another to get it.

    Raises:
        ConfigError: a mechanism has no login module or an unusable one, or other settings of it cannot be used.
    """
    key = "sasl.enabled.mechanisms"
    prefix = f"listener.name.{listener_name.lower()}."
    texts = config.static_properties
    text = texts.get(prefix + key, texts.get(key, PLAIN))
    mechanisms = {}
    for name in filter(None, map(str.strip, text.split(","))):
        module = _login_module(config, listener_name, name)
        if name not in NODE_MECHANISMS:
            log.warning("listener %s: the SASL mechanism %s is not supported and not offered", listener_name, name)
            continue
        _, reauth = find_setting_of_mechanism(listener_name, name, _REAUTH, texts)
        make: Callable[[], Exchange]
        prepare: Prepare | None = None
        if name == PLAIN:
            make = _plain(module)
        elif name == "OAUTHBEARER":
            from pykbroker.security.oauth_validators import oauth_mechanism

            oauth = oauth_mechanism(texts, listener_name, host.clock.now_ms, host.run_in_thread)
            make, prepare = oauth.make, _of_token(oauth.prepare)
        elif name == "GSSAPI":
            from pykbroker.security.kerberos_mechanism import kerberos_mechanism

            property_of = partial(config.listener_property, listener_name)
            make, prepare = kerberos_mechanism(module, property_of, host.run_in_thread)
        else:
            login = config.security.node_logins.get(listener_name.upper()) if is_controller else None
            own = login if login is not None and login.mechanism == name else None
            make = _scram(name, config, image, host, own)
        mechanisms[name] = Mechanism(make, int(reauth or 0), prepare)
    return mechanisms


_REAUTH = "connections.max.reauth.ms"


def _login_module(config: BrokerConfig, listener_name: str, mechanism: str) -> LoginModule:
    """The login module of a mechanism, which every mechanism has, also one that reads nothing of it."""
    from pykbroker.config.jaas import JaasError, checked_module

    own = jaas_key(listener_name, mechanism)
    key, text = find_jaas(listener_name, mechanism, config.static_properties)
    if key not in config.static_properties or (key != own and mechanism not in NODE_MECHANISMS):
        context = "KafkaServer"
        reason = f"Could not find a '{context}' or '{listener_name.lower()}.{context}' entry in the JAAS configuration"
        raise ConfigError(own, "", f"{reason}: a listener with {mechanism} needs a login module")
    try:
        return checked_module(text)
    except JaasError as error:
        raise ConfigError(key, "", str(error)) from None


def _of_token(prepare: Callable[[bytes], Awaitable[None]] | None) -> Prepare | None:
    return None if prepare is None else lambda _, token: prepare(token)


def _plain(module: LoginModule) -> Callable[[], Exchange]:
    from pykbroker.config.jaas import passwords_of

    return partial(PlainExchange, passwords_of(module))


def _scram(
    mechanism: str, config: BrokerConfig, image: Callable[[], ClusterImage], host: Host, own_login: Any
) -> Callable[[], Exchange]:
    from pykbroker.security.scram import ScramCredentials, ScramExchange

    source = _MetadataCredentials(mechanism, config, image, host, own_login)
    credentials: ScramCredentials = ScramCredentials(source.of_user, source.of_token, source.decoy)

    def make() -> Exchange:
        return ScramExchange(mechanism, credentials, host.secrets(NONCE_BYTES).hex())

    return make


class _MetadataCredentials:
    """SCRAM credentials in the metadata, those of tokens, and decoys for names without one."""

    def __init__(
        self, mechanism: str, config: BrokerConfig, image: Callable[[], ClusterImage], host: Host, own_login: Any
    ) -> None:
        from pykbroker.protocol.log_messages.metadata_records import UserScramCredentialRecord
        from pykbroker.security.scram import HASHES, MECHANISM_NUMBERS

        self._hash = HASHES[mechanism]
        self._number = MECHANISM_NUMBERS[mechanism]
        self._record_key = UserScramCredentialRecord.KEY
        self._secret_key = config.delegation_tokens.secret_key
        self._image = image
        self._host = host
        self._own_login = own_login
        self._own_credential: ScramCredential | None = None
        self._of_tokens: dict[str, ScramCredential] = {}
        self._process_secret = host.secrets(32)

    def of_user(self, name: str) -> ScramCredential | None:
        from pykbroker.security.scram import ScramCredential, credential_of_password, random_salt

        record = self._image().kept_records.get((self._record_key, name, self._number))
        if record is not None:
            return ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)
        if self._own_login is None or self._own_login.options["username"] != name:
            return None
        if self._own_credential is None:
            salt = random_salt(self._host.secrets)
            self._own_credential = credential_of_password(self._hash, self._own_login.options["password"], salt)
        return self._own_credential

    def of_token(self, token_id: str) -> TokenCredential | None:
        from pykbroker.controller.metadata.delegation_tokens import token_by_id, token_hmac
        from pykbroker.security.scram import TokenCredential, credential_of_password, random_salt

        token = token_by_id(self._image(), token_id)
        if token is None or self._secret_key is None:
            return None
        credential = self._of_tokens.get(token_id)
        if credential is None:
            # Kafka's brokers make the credential when they read the token, this one at the first login with it.
            password = _base64(token_hmac(self._secret_key, token_id))
            credential = credential_of_password(self._hash, password, random_salt(self._host.secrets))
            if len(self._of_tokens) >= TOKENS_KEPT_MAX:
                self._of_tokens.clear()
            self._of_tokens[token_id] = credential
        return TokenCredential(token.owner.partition(":")[2], token.expiration_timestamp, credential)

    def decoy(self, name: str) -> ScramCredential:
        from pykbroker.security.scram import decoy_credential

        # From a secret that all brokers have, also after a restart: a changing salt would show that the user does not
        # exist.
        records = self._image().kept_records
        known = next((record for key, record in records.items() if key[0] == self._record_key), None)
        secret = self._process_secret if known is None else known.server_key
        return decoy_credential(self._hash, secret, name)


def _base64(data: bytes) -> str:
    from base64 import b64encode

    return b64encode(data).decode()
