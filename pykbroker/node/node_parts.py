"""Parts of one node that its broker and its controller share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.config.listener_addresses import ListenerAddress
    from pykbroker.controller.node import ControllerNode
    from pykbroker.controller.peers import Peers
    from pykbroker.logstore.log_directory import LogDirectory
    from pykbroker.logstore.meta_properties import MetaProperties
    from pykbroker.metadata.controller_channel import ControllerChannel
    from pykbroker.metadata.metadata_cache import MetadataCache
    from pykbroker.node.host import Host
    from pykbroker.quotas.switch import QuotaSwitch
    from pykbroker.security.sasl import SaslSession
    from pykbroker.security.standard_authorizer import StandardAuthorizer


class NodeParts(NamedTuple):
    """Parts that exist once in a process with either role.

    `peers` is None on a single node; `channels` are the channels to the active controller, which are closed at the end.
    """

    config: BrokerConfig
    host: Host
    directory: LogDirectory
    identity: MetaProperties
    controller: ControllerNode
    peers: Peers | None
    metadata: MetadataCache
    quotas: QuotaSwitch
    channels: list[ControllerChannel]


def make_authorizer(config: BrokerConfig, metadata: MetadataCache) -> StandardAuthorizer | None:
    """The authorizer; None if the settings name none, and every client may do everything."""
    if not config.security.authorizer_class_name:
        return None
    from pykbroker.security.standard_authorizer import StandardAuthorizer

    return StandardAuthorizer(
        lambda: metadata.image.acls, config.security.super_users, config.security.allow_everyone_if_no_acl_found
    )


def sasl_maker(config: BrokerConfig, address: ListenerAddress) -> Callable[[], SaslSession] | None:
    """Function that makes the SASL exchange of a new connection; None for a listener without SASL."""
    if not address.security_protocol.startswith("SASL"):
        return None
    from pykbroker.security.sasl import SaslSession, passwords_from_jaas

    jaas = config.listener_property(address.name, "plain.sasl.jaas.config")
    passwords = passwords_from_jaas(jaas or config.listener_property(address.name, "sasl.jaas.config") or "")
    return lambda: SaslSession(passwords, config.security.sasl_server_max_receive_size)
