"""Checks of the authorizer, and of this node's logins at other nodes."""

from __future__ import annotations

from pykbroker.config.definitions import ConfigError
from pykbroker.config.parsing import jaas_key, listeners_between_nodes
from pykbroker.config.values import ConfigValues

AVAILABLE_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def check_logins(config: ConfigValues) -> None:
    """A node needs a login for each SASL listener of other nodes that it connects to.

    A quorum of one is not checked: it may never have another broker.
    """
    if config.is_alone:
        return
    network = config.network
    for name, mechanism_key in listeners_between_nodes(network, config.process_roles, is_alone=False):
        protocol = network.security_protocols.get(name, "PLAINTEXT")
        if protocol == "PLAINTEXT":
            continue
        if protocol != "SASL_PLAINTEXT":
            raise ConfigError(
                "listener.security.protocol.map",
                f"{name}:{protocol}",
                "only PLAINTEXT and SASL_PLAINTEXT are available between nodes yet",
            )
        mechanism = config.value(mechanism_key)
        if mechanism != "PLAIN":
            raise ConfigError(mechanism_key, mechanism, "only PLAIN is available yet")
        if name not in config.security.node_logins:
            raise ConfigError(
                jaas_key(name), "", 'must have username="..." password="...", with which this node logs in at others'
            )


def check_authorizer(config: ConfigValues) -> None:
    name = config.security.authorizer_class_name
    if name and name != AVAILABLE_AUTHORIZER:
        raise ConfigError("authorizer.class.name", name, f"only {AVAILABLE_AUTHORIZER} is available")


def check_super_users(config: ConfigValues) -> None:
    for user in config.security.super_users:
        if ":" not in user:
            raise ConfigError("super.users", user, "must be principals such as User:alice, separated by semicolons")


CHECKS = (check_logins, check_authorizer, check_super_users)
