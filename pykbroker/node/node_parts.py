"""Parts of one node that its broker and its controller share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from pykbroker.config.definitions import ConfigError
from pykbroker.config.named_class import is_named_class, load_class
from pykbroker.logstore.log_directory import LogDirectory
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.uuids import uuid_from_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.config.listener_addresses import ListenerAddress
    from pykbroker.controller.node import ControllerNode
    from pykbroker.controller.peers import Peers
    from pykbroker.logstore.log_directories import LogDirectories
    from pykbroker.logstore.meta_properties import MetaProperties
    from pykbroker.metadata.controller_channel import ControllerChannel
    from pykbroker.metadata.metadata_cache import MetadataCache
    from pykbroker.node.host import Host
    from pykbroker.quotas.switch import QuotaSwitch
    from pykbroker.security.custom_authorizer import CustomAuthorizer
    from pykbroker.security.principals import CheckedPrincipalBuilder, PrincipalBuilder
    from pykbroker.security.sasl import SaslSession
    from pykbroker.security.standard_authorizer import StandardAuthorizer
    from pykbroker.security.tls.listener_tls import ListenerTls

PRINCIPAL_BUILDER_CLASS = "principal.builder.class"


class NodeParts(NamedTuple):
    """Parts that exist once in a process with either role.

    `directory` is the one with the metadata log, `log_directories` those of partitions: the same one by default.
    `peers` is None on a single node; `channels` are the channels to the active controller, which are closed at the end.
    """

    config: BrokerConfig
    host: Host
    directory: LogDirectory
    log_directories: LogDirectory | LogDirectories
    identity: MetaProperties
    controller: ControllerNode
    peers: Peers | None
    metadata: MetadataCache
    quotas: QuotaSwitch
    channels: list[ControllerChannel]

    @property
    def several_directories(self) -> LogDirectories | None:
        """The log directories of a broker that has several (`log.dirs`), else None."""
        return None if isinstance(self.log_directories, LogDirectory) else self.log_directories

    def online_directory_ids(self) -> list[bytes]:
        """Ids of the log directories that are online."""
        several = self.several_directories
        return [uuid_from_text(self.identity.directory_id)] if several is None else list(several.online)

    def offline_directory_ids(self) -> list[bytes]:
        """Ids of the log directories that have failed since the start."""
        several = self.several_directories
        return [] if several is None else list(several.offline)

    def cordoned_directory_ids(self) -> list[bytes]:
        """Ids of the online log directories that get no new replicas (`cordoned.log.dirs`)."""
        directories = self.log_directories
        if isinstance(directories, LogDirectory):
            return self.online_directory_ids() if self.metadata.is_cordoned(directories.path) else []
        return [known for known, directory in directories.online.items() if self.metadata.is_cordoned(directory.path)]


def make_authorizer(config: BrokerConfig, metadata: MetadataCache) -> StandardAuthorizer | CustomAuthorizer | None:
    """The authorizer; None if the settings name none, and every client may do everything.

    Raises:
        ConfigError: the settings name a class in Python that cannot be imported.
    """
    name = config.security.authorizer_class_name
    if not name:
        return None
    if is_named_class(name):
        from pykbroker.security.custom_authorizer import CustomAuthorizer

        return CustomAuthorizer(
            load_class("authorizer.class.name", name), config.static_properties, lambda: metadata.image.acls
        )
    from pykbroker.security.standard_authorizer import StandardAuthorizer

    return StandardAuthorizer(
        lambda: metadata.image.acls, config.security.super_users, config.security.allow_everyone_if_no_acl_found
    )


def make_principal_builder(config: BrokerConfig) -> CheckedPrincipalBuilder | None:
    """The user's principal builders; None if every listener has Kafka's default one.

    Raises:
        ConfigError: a class cannot be imported.
    """
    default = config.security.principal_builder_class
    of_listeners = {
        listener.name: name
        for listener in config.network.all_listeners
        if (name := config.listener_property(listener.name, PRINCIPAL_BUILDER_CLASS) or default) != default
    }
    if not any(map(is_named_class, (default, *of_listeners.values()))):
        return None
    from pykbroker.security.principals import CheckedPrincipalBuilder

    builders = {name: _principal_builder(name, config) for name in (default, *of_listeners.values())}
    return CheckedPrincipalBuilder(
        builders[default], {listener: builders[name] for listener, name in of_listeners.items()}
    )


def with_builder_of(
    listener_name: str, config: BrokerConfig, builders: CheckedPrincipalBuilder | None
) -> CheckedPrincipalBuilder | None:
    """`builders` with that of a listener that is added to a running node (P-313).

    Args:
        config: the settings of now: a general class that was set since the start is for added listeners alone.

    Raises:
        ConfigError: its class cannot be imported.
    """
    name = config.listener_property(listener_name, PRINCIPAL_BUILDER_CLASS) or ""
    if builders is None and not is_named_class(name):
        return None
    from pykbroker.security.principals import CheckedPrincipalBuilder

    return (builders or CheckedPrincipalBuilder(None)).with_listener(listener_name, _principal_builder(name, config))


def _principal_builder(name: str, config: BrokerConfig) -> PrincipalBuilder | None:
    """A new builder of the class with this name; None for Kafka's default one."""
    if not is_named_class(name):
        return None
    made = load_class(PRINCIPAL_BUILDER_CLASS, name)
    try:
        builder: PrincipalBuilder = made(config.static_properties)
    except Exception as error:
        # A running broker logs it and goes on without the listener.
        raise ConfigError(PRINCIPAL_BUILDER_CLASS, name, f"it cannot be made: {error!r}") from error
    return builder


def tls_of(parts: NodeParts, address: ListenerAddress) -> ListenerTls | None:
    """Certificates and trust of a listener; None for a listener without TLS."""
    return None if parts.host.tls is None else parts.host.tls.of(address.name)


def sasl_maker(parts: NodeParts, address: ListenerAddress, *, is_controller: bool) -> Callable[[], SaslSession] | None:
    """Function that makes the SASL exchange of a new connection; None for a listener without SASL."""
    if not address.security_protocol.startswith("SASL"):
        return None
    from pykbroker.node.sasl_mechanisms import ListenerMechanisms
    from pykbroker.security.sasl import SaslSession

    metadata, controller = parts.metadata, parts.controller
    mechanisms = ListenerMechanisms(
        parts.config, address.name, lambda: controller.image, parts.host, is_controller=is_controller
    )
    size_max = int(parts.config.listener_property(address.name, "sasl.server.max.receive.size") or 0)
    return lambda: SaslSession(mechanisms.under(metadata.config), size_max, trio.current_time)
