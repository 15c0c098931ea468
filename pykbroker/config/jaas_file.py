"""Login modules of listeners from a JAAS file, which the Java property `java.security.auth.login.config` names (P-310).

With Apache Kafka's scripts and container images the property is given in the variable `KAFKA_OPTS`. Here the modules
become `sasl.jaas.config` of the listeners and mechanisms that have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pykbroker.config.jaas import KERBEROS_MODULE, OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, LoginModule, text_of
from pykbroker.config.listener_addresses import LISTENER_PREFIX
from pykbroker.config.parsing import find_jaas, jaas_key
from pykbroker.java_order import list_entries

ENTRY = "KafkaServer"
_OPTION = "-Djava.security.auth.login.config="
_MODULES = {
    "PLAIN": PLAIN_MODULE,
    "SCRAM-SHA-256": SCRAM_MODULE,
    "SCRAM-SHA-512": SCRAM_MODULE,
    "OAUTHBEARER": OAUTH_MODULE,
    "GSSAPI": KERBEROS_MODULE,
}


def jaas_file_path(environment: Mapping[str, str]) -> str | None:
    """The path in `KAFKA_OPTS`, of which the last one counts, as for Java; None if there is none."""
    options = [option for option in environment.get("KAFKA_OPTS", "").split() if option.startswith(_OPTION)]
    # Java takes the file alone after two equals signs, and reads the one of the user, too, after one.
    return options[-1].removeprefix(_OPTION).removeprefix("=").removeprefix("file:") if options else None


def logins_without_module(properties: Mapping[str, str]) -> list[tuple[str, str]]:
    """Listeners with SASL, by name, and those of their mechanisms that have no login module in the settings."""
    return [
        (listener, mechanism)
        for listener in _sasl_listeners(properties)
        for mechanism in _mechanisms(listener, properties)
        if not find_jaas(listener, mechanism, properties)[1]
    ]


def login_settings(logins: Sequence[tuple[str, str]], entries: Mapping[str, Sequence[LoginModule]]) -> dict[str, str]:
    """`sasl.jaas.config` of listeners and mechanisms, as far as a file has an entry for them.

    Args:
        logins: as `logins_without_module`.
        entries: login modules by entry. That of a listener, `<listener>.KafkaServer`, comes before `KafkaServer`. Of
            several modules a mechanism has that of its kind, or else the first.
    """
    settings: dict[str, str] = {}
    for listener, mechanism in logins:
        modules = entries.get(f"{listener.lower()}.{ENTRY}", entries.get(ENTRY))
        if modules:
            own = (module for module in modules if module.name == _MODULES.get(mechanism))
            settings[jaas_key(listener, mechanism)] = text_of(next(own, modules[0]))
    return settings


def _sasl_listeners(properties: Mapping[str, str]) -> Iterator[str]:
    names = [entry.partition("://")[0] for entry in list_entries(properties.get("listeners", ""))]
    names += list_entries(properties.get("controller.listener.names", ""))
    names.append(properties.get("inter.broker.listener.name", ""))
    protocols = dict(
        entry.upper().split(":", 1)
        for entry in list_entries(properties.get("listener.security.protocol.map", ""))
        if ":" in entry
    )
    for name in dict.fromkeys(name.strip().upper() for name in names):
        if protocols.get(name, name).strip().startswith("SASL_"):
            yield name


def _mechanisms(listener: str, properties: Mapping[str, str]) -> list[str]:
    key = "sasl.enabled.mechanisms"
    own = f"{LISTENER_PREFIX}{listener.lower()}.{key}"
    enabled = list_entries(properties.get(own, properties.get(key, "PLAIN")))
    between = ("sasl.mechanism.inter.broker.protocol", "sasl.mechanism.controller.protocol")
    return [name for name in dict.fromkeys([*enabled, *(properties.get(key, "") for key in between)]) if name]
