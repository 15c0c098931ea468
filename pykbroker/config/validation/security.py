"""Checks of the authorizer, and of this node's logins at other nodes."""

from __future__ import annotations

from pykbroker.config.definitions import ConfigError
from pykbroker.config.listener_addresses import LISTENER_PREFIX
from pykbroker.config.named_class import is_named_class
from pykbroker.config.parsing import find_jaas, jaas_key, listeners_between_nodes
from pykbroker.config.values import NODE_MECHANISMS, ConfigValues

AVAILABLE_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
DEFAULT_PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"

_RESTRICTING_CLASSES = (
    "alter.config.policy.class.name",
    "client.quota.callback.class",
    "create.topic.policy.class.name",
)


def check_logins(config: ConfigValues) -> None:
    """A node needs a login for each SASL listener of other nodes that it connects to.

    A quorum of one is not checked: it may never have another broker.
    """
    if config.is_alone:
        return
    network = config.network
    for name, mechanism_key in listeners_between_nodes(network, config.process_roles, is_alone=False):
        protocol = network.security_protocols.get(name, "PLAINTEXT")
        if not protocol.startswith("SASL_"):
            continue
        mechanism = config.value(mechanism_key)
        if mechanism not in NODE_MECHANISMS:
            raise ConfigError(mechanism_key, mechanism, f"only {', '.join(NODE_MECHANISMS)} are available")
        _check_login_module(config, name, mechanism)
        if name not in config.security.node_logins:
            needed = 'must have username="..." password="..."'
            if mechanism == "OAUTHBEARER":
                needed = "needs sasl.oauthbearer.token.endpoint.url, or options such as unsecuredLoginStringClaim_sub"
            if mechanism == "GSSAPI":
                needed = 'needs useKeyTab=true keyTab="..." principal="...", and sasl.kerberos.service.name'
            purpose = "with which this node logs in at others"
            if mechanism_key not in config.static_properties:
                raise ConfigError(mechanism_key, mechanism, f"{jaas_key(name, mechanism)} {needed}, {purpose}")
            raise ConfigError(jaas_key(name, mechanism), "", f"{needed}, {purpose}")


def _check_login_module(config: ConfigValues, listener_name: str, mechanism: str) -> None:
    from pykbroker.config.jaas import JaasError, checked_module

    key, text = find_jaas(listener_name, mechanism, config.static_properties)
    try:
        if key in config.static_properties:
            checked_module(text)
    except JaasError as error:
        raise ConfigError(key, "", str(error)) from None


def check_authorizer(config: ConfigValues) -> None:
    name = config.security.authorizer_class_name
    if name and name != AVAILABLE_AUTHORIZER and not is_named_class(name):
        raise ConfigError(
            "authorizer.class.name",
            name,
            f"only {AVAILABLE_AUTHORIZER} and classes in Python, module:Class, are available",
        )


def check_principal_builder(config: ConfigValues) -> None:
    names = {"principal.builder.class": config.security.principal_builder_class}
    for listener in config.network.all_listeners:
        key = f"{LISTENER_PREFIX}{listener.name.lower()}.principal.builder.class"
        names[key] = config.static_properties.get(key, "")
    for key, name in names.items():
        if name and name != DEFAULT_PRINCIPAL_BUILDER and not is_named_class(name):
            raise ConfigError(
                key,
                name,
                f"only {DEFAULT_PRINCIPAL_BUILDER} and classes in Python, module:Class, are available",
                "requirement failed: principal.builder.class must implement KafkaPrincipalSerde",
            )


def check_java_classes(config: ConfigValues) -> None:
    """Refuses classes that would restrict clients: without effect, everything that they forbid would be allowed.

    Apache Kafka does not start either if it cannot load a class.
    """
    for key in _RESTRICTING_CLASSES:
        name = config.value(key)
        if name:
            not_found = f"Invalid value {name} for configuration {key}: Class {name} could not be found."
            raise ConfigError(
                key, name, "classes in Java cannot be loaded here, so nothing would be limited", not_found
            )


def check_super_users(config: ConfigValues) -> None:
    for user in sorted(config.security.super_users):
        if ":" not in user:
            raise ConfigError("super.users", user, "must be principals such as User:alice, separated by semicolons")


CHECKS = (check_logins, check_authorizer, check_principal_builder, check_java_classes, check_super_users)
