"""`listeners`, `advertised.listeners` and `listener.security.protocol.map`: texts to values."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from pykbroker.config.definitions import ConfigError
from pykbroker.java_order import list_entries, trim
from pykbroker.named_tuple import NamedTuple

SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""Security protocols with their numbers in broker registrations."""


LISTENER_PREFIX = "listener.name."

_EVERY_ADDRESS = frozenset(("", "0.0.0.0", "::"))  # noqa: S104  compared, not bound
_PORT_MAX = 65535
_INTEGER_MAX = 2**31 - 1
_HOST = r"[0-9a-zA-Z\-%._:]*"
_EXPECTED_ENTRY = f"expected NAME:PROTOCOL with a protocol out of {', '.join(SECURITY_PROTOCOLS)}"
_NO_NAME = "The provided listener name is null or empty string"

# Keys that are set per mechanism: listener.name.<listener>.<mechanism>.<key>.
_PER_MECHANISM = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)


def base_of_listener_key(key: str) -> str | None:
    """The key that `listener.name.<listener>.[<mechanism>.]<key>` overrides; None for any other key."""
    if not key.startswith(LISTENER_PREFIX):
        return None
    rest = key.removeprefix(LISTENER_PREFIX).partition(".")[2]
    return next((base for base in _PER_MECHANISM if rest.endswith(base)), rest) or None


def is_every_address(host: str) -> bool:
    """True for a host of `listeners` that binds every address of the machine; it cannot be connected to."""
    return host in _EVERY_ADDRESS


def host_and_port(host: str, port: int) -> str:
    """`host:port` in the form of clients: with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class ListenerAddress(NamedTuple):
    """Address of one listener.

    Attributes:
        name: in upper case.
        host: empty for every address of the machine.
        port: 0 for a free port. One of `listeners` may be out of the range of ports, and cannot be opened then.
        security_protocol: a key of `SECURITY_PROTOCOLS`.
    """

    name: str
    host: str
    port: int
    security_protocol: str

    @property
    def security_protocol_id(self) -> int:
        return SECURITY_PROTOCOLS[self.security_protocol]


def parse_listeners(key: str, texts: list[str], protocols: Mapping[str, str]) -> tuple[ListenerAddress, ...]:
    """`NAME://host:port` texts to addresses.

    Args:
        key: the configuration key, for error texts.
        protocols: listener name -> security protocol.

    Raises:
        ConfigError: a text has another form, a name is not in the map, or a name or port occurs twice.
    """
    listeners = [_parse_listener(key, text, texts, protocols) for text in texts]
    names = [listener.name for listener in listeners]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        kafkas_reason = f"Each listener must have a different name, listeners: {_as_list(texts)}"
        raise _refused(key, ",".join(texts), texts, f"listener name {twice} occurs twice", kafkas_reason)
    if key == "listeners":
        _check_ports(listeners, texts)
    return tuple(listeners)


def _parse_listener(key: str, text: str, texts: list[str], protocols: Mapping[str, str]) -> ListenerAddress:
    name, separator, address = text.partition("://")
    host, colon, port_text = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    # A port of `listeners` beyond those that exist is refused when it is to be opened, as in Kafka.
    is_opened = key == "listeners"
    port = _integer(port_text) if is_opened else _port(port_text)
    if not separator or not colon or not name or port is None or not is_host(host):
        expected = "expected NAME://host:port, for example PLAINTEXT://localhost:9092"
        kafkas_reason = f"Unable to parse {text} to a broker endpoint"
        if separator and colon and not name:
            kafkas_reason = _NO_NAME
        raise _refused(key, text, texts, expected, kafkas_reason)
    if not -_INTEGER_MAX - 1 <= port <= _INTEGER_MAX:
        raise _refused(key, text, texts, "the port is no 32-bit number", f'For input string: "{port_text}"')
    name = name.upper()
    protocol = protocols.get(name)
    if protocol is None:
        known = f"listener {name} has no entry in listener.security.protocol.map, which has {', '.join(protocols)}"
        raise _refused(key, text, texts, known, f"No security protocol defined for listener {name}")
    return ListenerAddress(name, host, port, protocol)


def _refused(key: str, value: str, texts: list[str], reason: str, kafkas_reason: str) -> ConfigError:
    return ConfigError(key, value, reason, f"Error creating broker listeners from '{_as_list(texts)}': {kafkas_reason}")


def _as_list(texts: list[str]) -> str:
    """A list as Java shows it."""
    return f"[{', '.join(texts)}]"


def _number(text: str, most: int) -> int | None:
    """The decimal number in the text; None for any other text and for a number above `most`."""
    return int(text) if re.fullmatch(r"\d{1,99}", text) and int(text) <= most else None


def _port(text: str) -> int | None:
    """The port in the text; None for any other text. Kafka takes ASCII digits alone, unlike in other numbers."""
    return _number(text, _PORT_MAX) if text.isascii() else None


def _integer(text: str) -> int | None:
    """The decimal number in ASCII digits in the text; None for any other text."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,99}", text) else None


def _check_ports(listeners: list[ListenerAddress], texts: list[str]) -> None:
    """Kafka allows a port once, or once for IPv4 and once for IPv6; port 0 is a different port each time."""
    for port in {listener.port for listener in listeners if listener.port}:
        versions = [_ip_version(listener.host) for listener in listeners if listener.port == port]
        if len(versions) > 1 and sorted(versions) != [4, 6]:
            reason = f"port {port} occurs twice, which is possible only for an IPv4 and an IPv6 address"
            if versions.count(0) > 1:
                kafkas_reason = f"Each listener must have a different port, listeners: {_as_list(texts)}"
            else:
                rule = (
                    "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6"
                    if len(versions) - versions.count(0) == 2
                    else "Each listener must have a different port unless exactly one listener has an IPv4 address "
                    "and the other IPv6 address"
                )
                kafkas_reason = f"{rule}, listeners: {_as_list(texts)}, port: {port}"
            raise _refused("listeners", ",".join(texts), texts, reason, kafkas_reason)


def _ip_version(host: str) -> int:
    """4 or 6; 0 for a host name or an empty text."""
    if ":" in host:
        return 6
    return 4 if re.fullmatch(r"\d+\.\d+\.\d+\.\d+", host, re.ASCII) else 0


def is_host(text: str) -> bool:
    """True if Kafka accepts the text as name or address of a host; only the characters are checked."""
    return re.fullmatch(_HOST, text) is not None


def parse_protocol_map(
    text: str, controller_listener_names: Collection[str], is_explicit: bool, listener_texts: list[str]
) -> dict[str, str]:
    """`NAME:PROTOCOL,...` to a mapping with upper-case names.

    As in Kafka controller listeners need no entry if the map is the default one and no listener is named after a
    protocol other than PLAINTEXT.

    Raises:
        ConfigError: an entry has another form or names no security protocol.
    """
    key = "listener.security.protocol.map"
    parts = list_entries(text)
    while parts and not parts[-1]:
        parts.pop()
    # If two entries have the same name, letter by letter, the last one counts.
    entries: dict[str, str] = {}
    for entry in parts:
        name, colon, protocol = entry.rpartition(":")
        if not colon:
            # Java's text for the cut that fails.
            kafkas_text = f"Error parsing configuration property '{key}': begin 0, end -1, length {len(entry)}"
            raise ConfigError(key, entry, _EXPECTED_ENTRY, kafkas_text)
        entries[trim(name)] = trim(protocol)
    protocols: dict[str, str] = {}
    for name, protocol in entries.items():
        entry = f"{name}:{protocol}"
        if not name:
            raise ConfigError(key, entry, _EXPECTED_ENTRY, _NO_NAME)
        if protocol.upper() not in SECURITY_PROTOCOLS:
            kafkas_text = f"Invalid security protocol `{protocol}` defined in {key}"
            raise ConfigError(key, entry, _EXPECTED_ENTRY, kafkas_text)
        known = protocols.get(name.upper())
        if known is not None:
            kafkas_text = (
                f"Duplicate key ListenerName({name.upper()}) (attempted merging values {known} and {protocol.upper()})"
            )
            raise ConfigError(key, entry, f"listener {name.upper()} occurs twice", kafkas_text)
        protocols[name.upper()] = protocol.upper()
    names = [*controller_listener_names, *(listener.partition(":")[0] for listener in listener_texts)]
    if not is_explicit and not any(name.upper() in SECURITY_PROTOCOLS.keys() - {"PLAINTEXT"} for name in names):
        for name in controller_listener_names:
            protocols.setdefault(name.upper(), "PLAINTEXT")
    return protocols


def parse_voters(texts: list[str]) -> dict[int, tuple[str, int]]:
    """`id@host:port` texts to node id -> (host, port).

    Raises:
        ConfigError: a text has another form.
    """
    voters: dict[int, tuple[str, int]] = {}
    for text in texts:
        id_text, _, address = text.partition("@")
        host, _, port_text = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        node_id, port = _number(id_text, _INTEGER_MAX), _port(port_text)
        if node_id is None or port is None or not host or not is_host(host):
            raise ConfigError("controller.quorum.voters", text, "expected id@host:port, for example 1@localhost:9093")
        voters[node_id] = (host, port)
    return voters


def parse_bootstrap_servers(texts: list[str]) -> tuple[tuple[str, int], ...]:
    """`host:port` texts of controllers.

    Raises:
        ConfigError: a text has another form.
    """
    servers = []
    for text in texts:
        host, _, port_text = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        port = _port(port_text)
        if not port or not host or not is_host(host):
            raise ConfigError(
                "controller.quorum.bootstrap.servers", text, "expected host:port, for example localhost:9093"
            )
        servers.append((host, port))
    return tuple(servers)
