"""Kafka's configuration keys: type, default, allowed values, update mode, and the attribute that a key sets.

The tables are in `broker`, `topic` and `group`; their contents are those of Apache Kafka 4.3.1's ConfigDefs. The
descriptions for users are in `documentation`, which only DescribeConfigs imports, as they take 30 KB of memory.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

from pykbroker.java_order import java_int, list_entries, trim
from pykbroker.named_tuple import NamedTuple

# Config types as DescribeConfigs numbers them.
BOOLEAN = 1
STRING = 2
INT = 3
SHORT = 4
LONG = 5
DOUBLE = 6
LIST = 7
CLASS = 8
PASSWORD = 9

INT_MAX = str((1 << 31) - 1)
LONG_MAX = str((1 << 63) - 1)

# Update modes of a broker key while the broker runs (KIP-226).
READ_ONLY = 0
PER_BROKER = 1
CLUSTER_WIDE = 2

# Decimal numbers as Java reads them; float() would also take "1_0" and "inf".
_JAVA_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[dDfF]?)", re.ASCII)

_INTEGERS = {SHORT: ("SHORT", 16), INT: ("INT", 32), LONG: ("LONG", 64)}
"""Name and bits of a type of integers."""


class ConfigError(ValueError):
    """A configuration value that Kafka refuses; the text names the key, the value and what is allowed.

    Attributes:
        kafkas_text: Kafka's text for responses; by default the text of the exception.
    """

    def __init__(self, name: str, value: object, reason: str, kafkas_text: str | None = None) -> None:
        shown = format_double(value) if isinstance(value, float) else value
        super().__init__(f"Invalid value {shown} for configuration {name}: {reason}")
        self.name = name
        self.value = value
        self.reason = reason
        self.kafkas_text = str(self) if kafkas_text is None else kafkas_text


class ProviderError(ConfigError):
    """A config provider cannot be used, or its file cannot be read. No text has values of the file.

    Attributes:
        text: Kafka's text, for responses; that of the exception has the reason too.
    """

    def __init__(self, text: str, reason: str = "") -> None:
        ValueError.__init__(self, f"{text}: {reason}" if reason else text)
        self.name = PROVIDERS_KEY
        self.value = ""
        self.text = self.kafkas_text = text
        self.reason = str(self)


PROVIDERS_KEY = "config.providers"
"""The names of config providers; keys that begin with it and a dot are their settings."""


class Rule(Protocol):
    """A condition on a parsed value beyond its type."""

    def check(self, name: str, value: Any) -> None:
        """Raises ConfigError when `value` is not allowed for the key `name`."""
        ...


class Range(NamedTuple):
    """A number between two inclusive bounds; `most` None means unbounded, `also` is allowed outside of the bounds."""

    least: float
    most: float | None = None
    also: float | None = None

    def check(self, name: str, value: Any) -> None:
        if self.also is not None:
            if value != self.also and not self.least <= value <= (self.most or value):
                raise ConfigError(
                    name, value, f"Value must be between {self.least} and {self.most} or equal to {self.also}"
                )
            return
        if value < self.least:
            raise ConfigError(name, value, f"Value must be at least {self.least}")
        if self.most is not None and value > self.most:
            raise ConfigError(name, value, f"Value must be no more than {self.most}")


AT_LEAST_0 = Range(0)
AT_LEAST_1 = Range(1)


class OneOf:
    """A string that is one of `choices`."""

    __slots__ = ("choices", "fold_case")

    def __init__(self, *choices: str, fold_case: bool = False) -> None:
        self.choices = choices
        self.fold_case = fold_case

    def check(self, name: str, value: Any) -> None:
        if (value.upper() if self.fold_case else value) not in self.choices:
            how = " (case insensitive)" if self.fold_case else ""
            raise ConfigError(name, value, f"String must be one of{how}: {', '.join(self.choices)}")


class ListOf:
    """A list whose members are among `choices`; without choices any members."""

    __slots__ = ("choices", "may_be_empty")

    def __init__(self, *choices: str, may_be_empty: bool = True) -> None:
        self.choices = choices
        self.may_be_empty = may_be_empty

    def check(self, name: str, value: Any) -> None:
        if not value and not self.may_be_empty:
            allowed = f"[{', '.join(self.choices)}]" if self.choices else "any non-empty value"
            reason = f"must not be empty. Valid values include: {allowed}"
            raise ConfigError(name, "[]", reason, f"Configuration '{name}' {reason}")
        for member in value:
            if not member:
                text = f"Configuration '{name}' values must not be empty."
                raise ConfigError(name, f"[{', '.join(value)}]", "Values must not be empty.", text)
            if self.choices and member not in self.choices:
                raise ConfigError(name, member, f"String must be one of: {', '.join(self.choices)}")


class NonEmpty:
    """A string that must not be empty if it is given."""

    __slots__ = ()

    def check(self, name: str, value: Any) -> None:
        if not value:
            raise ConfigError(name, value, "String must be non-empty")


class ThrottledReplicas:
    """A list of partition:broker pairs, or the single star for all replicas."""

    __slots__ = ()

    def check(self, name: str, value: Any) -> None:
        if value == ["*"] or all(_is_pair_of_numbers(member) for member in value):
            return
        raise ConfigError(
            name,
            f"[{', '.join(value)}]",
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )


class ShareOffsetReset:
    """Rule of `share.auto.offset.reset`: `latest`, `earliest`, or `by_duration:` with an ISO-8601 duration."""

    __slots__ = ()

    def check(self, name: str, value: Any) -> None:
        if value in ("latest", "earliest") or (value.startswith("by_duration:") and _is_duration(value[12:])):
            return
        raise ConfigError(
            name,
            value,
            f"Invalid value `{value}` for configuration {name}. The value must be either 'earliest', 'latest' or of "
            "the format 'by_duration:<PnDTnHnMn.nS>'.",
        )


def _is_duration(text: str) -> bool:
    from pykbroker.config.durations import duration_ms

    try:
        return duration_ms(text) >= 0
    except ValueError:
        return False


def _is_pair_of_numbers(text: str) -> bool:
    left, colon, right = text.partition(":")
    return bool(colon) and all(number.isascii() and number.isdigit() for number in (left, right))


class ConfigKey(NamedTuple):
    """Definition of one key: a row of a table.

    Attributes:
        type: BOOLEAN, STRING, ...
        default: text as Kafka shows it; None is Kafka's null.
        rule: condition on a value beyond its type.
        update_mode: READ_ONLY, PER_BROKER or CLUSTER_WIDE; used only for broker keys.
        attribute: path in BrokerConfig of this key's value, for example "quorum.fetch_timeout_ms".
        part_of: path in BrokerConfig of a value that this key and others set together, for example "quorum.voters".
        per_listener: True if this broker reads `listener.name.<listener>.<key>` (BrokerConfig.listener_property).

    A broker key with none of the last three is parsed and checked, and has no effect.
    """

    type: int
    default: str | None
    rule: Rule | None = None
    update_mode: int = READ_ONLY
    attribute: str | None = None
    part_of: str | None = None
    per_listener: bool = False

    @property
    def has_effect(self) -> bool:
        """True if this broker acts on the key."""
        return self.attribute is not None or self.part_of is not None or self.per_listener

    @property
    def is_sensitive(self) -> bool:
        """True if the value is never shown."""
        return self.type == PASSWORD

    def parse(self, name: str, text: str) -> Any:
        """The typed, checked value: bool, int, float, str or list of str.

        Raises:
            ConfigError: the text is not of the type or not allowed.
        """
        value = parse_value(name, text, self.type)
        if self.rule is not None:
            self.rule.check(name, value)
        return value


def parse_value(name: str, text: str, config_type: int) -> Any:
    """The value of a text by its type alone; duplicates in a list are dropped (KIP-1161).

    Raises:
        ConfigError: the text is not of the type.
    """
    trimmed = trim(text)
    if config_type == BOOLEAN:
        folded = trimmed.lower()
        if folded not in ("true", "false"):
            raise ConfigError(name, text, "Expected value to be either true or false")
        return folded == "true"
    if config_type in _INTEGERS:
        type_name, bits = _INTEGERS[config_type]
        number = java_int(trimmed, bits)
        if number is None:
            raise ConfigError(name, text, f"Not a number of type {type_name}")
        return number
    if config_type == DOUBLE:
        if not _JAVA_DOUBLE.fullmatch(trimmed):
            raise ConfigError(name, text, "Not a number of type DOUBLE")
        return float(trimmed.rstrip("dDfF"))
    if config_type == LIST:
        return list(dict.fromkeys(list_entries(trimmed))) if trimmed else []
    if config_type == CLASS and not trimmed:
        raise class_not_found(name, text)
    return trimmed


def class_not_found(name: str, text: str) -> ConfigError:
    """The error for a class that is not there."""
    reason = "Class could not be found."
    return ConfigError(
        name, text, reason, f"Invalid value {text} for configuration {name}: Class {text} could not be found."
    )


def format_value(value: Any) -> str:
    """The text in which Kafka shows a typed value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format_double(value)
    if isinstance(value, list):
        return ",".join(value)
    return str(value)


def format_double(value: float) -> str:
    """A double as Java writes it: plain from 0.001 to below 10,000,000, else with a single leading digit and an E."""
    text = repr(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return text
    if text.lstrip("-") in ("inf", "nan"):
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(text, "NaN")
    mantissa, _, exponent_text = text.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = int(exponent_text or 0) + len(whole) - 1
    if whole == "0":
        exponent -= len(whole + fraction) - len(digits)
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:].rstrip('0') or '0'}E{exponent}"
