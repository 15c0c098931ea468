"""Configs in DescribeConfigs and CreateTopics responses: value, source, synonyms by precedence (P-151, P-152)."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping

from pykbroker.config.broker_config import SINGLE_NODE_DEFAULTS, BrokerConfig
from pykbroker.config.definitions import ConfigKey, format_value
from pykbroker.config.definitions.broker import BROKER_CONFIGS
from pykbroker.config.definitions.topic import (
    BROKER_SYNONYMS,
    TOPIC_CONFIGS,
    definition_of_topic_key,
    factor_to_topic_unit,
)
from pykbroker.config.described_order import broker_key_order, further_keys_first, topic_key_order
from pykbroker.config.dynamic_changes import usable_levels
from pykbroker.config.listener_addresses import base_of_listener_key
from pykbroker.config.update_modes import definition_of_broker_key, is_dynamic
from pykbroker.controller.metadata.image import ClusterImage
from pykbroker.java_order import hash_order, scala_hash_order
from pykbroker.named_tuple import NamedTuple

# Config sources as on the wire.
TOPIC_SOURCE = 1
DYNAMIC_BROKER_SOURCE = 2
DYNAMIC_DEFAULT_BROKER_SOURCE = 3
STATIC_BROKER_SOURCE = 4
DEFAULT_SOURCE = 5
CLIENT_METRICS_SOURCE = 7
GROUP_SOURCE = 8

_UNITS_OF_ONE_SETTING = tuple(names for names in BROKER_SYNONYMS.values() if factor_to_topic_unit(names[-1]) > 1)
# The second key is a synonym of the first, not the reverse: the scheduler's interval is also a setting of its own.
_FLUSH_INTERVALS = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")


class Synonym(NamedTuple):
    """A source of a config, in use or overridden. `value` is None if it is secret."""

    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """One config. `value` is None for null and for secrets; the first of `synonyms` is in effect."""

    name: str
    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool
    type: int
    synonyms: list[Synonym]


class ConfigViews:
    """All configs that one broker can describe, under one image.

    Args:
        config: static settings, as given at the start.
        effective: the same, overridden by the dynamic settings.
        image: has the dynamic settings.
        node_id: id of this broker.
    """

    def __init__(self, config: BrokerConfig, effective: BrokerConfig, image: ClusterImage, node_id: int) -> None:
        self._config = config
        self._effective = effective
        self.cluster_dynamic, self.own_dynamic = usable_levels(image, node_id)
        self._levels: tuple[tuple[Mapping[str, str], int], ...] = (
            (self.own_dynamic, DYNAMIC_BROKER_SOURCE),
            (self.cluster_dynamic, DYNAMIC_DEFAULT_BROKER_SOURCE),
            # Kafka has no default for these keys: they are always shown as static settings.
            ({**SINGLE_NODE_DEFAULTS, **config.static_properties}, STATIC_BROKER_SOURCE),
            (_defaults(), DEFAULT_SOURCE),
        )

    def created_topic(self, settings: Mapping[str, str]) -> list[ConfigEntry]:
        """All configs of a new topic, for the CreateTopics response.

        Texts are returned as given, and broker keys in other units count as sources: in both Kafka's controller, which
        this follows, differs from its brokers.
        """
        entries: list[ConfigEntry] = []
        for name in sorted({*TOPIC_CONFIGS, *settings}):
            definition = definition_of_topic_key(name)
            if definition is not None:
                value, source = settings.get(name), TOPIC_SOURCE
                if value is None:
                    value, source = self._inherited(name, definition)
                entries.append(ConfigEntry(name, value, source, False, definition.is_sensitive, definition.type, []))
        return entries

    def _inherited(self, name: str, definition: ConfigKey) -> tuple[str | None, int]:
        """Text and source of a topic key that is inherited from this broker."""
        for texts, source in self._levels[:-1]:
            for synonym in BROKER_SYNONYMS.get(name, ()):
                if synonym in texts:
                    text, factor = texts[synonym], factor_to_topic_unit(synonym)
                    return (text if factor == 1 else str(max(int(text) * factor, -1))), source
        return definition.default, DEFAULT_SOURCE

    def topic(self, settings: Mapping[str, str], names: Collection[str] | None = None) -> list[ConfigEntry]:
        """Configs of a topic with these settings of its own; `names` None for all."""
        defaults = self._effective.topics.defaults
        entries: list[ConfigEntry] = []
        # The keys that Kafka gives a topic from its broker count as given, too.
        for name in further_keys_first({*TOPIC_CONFIGS, *settings}, topic_key_order()):
            definition = definition_of_topic_key(name)
            if names is not None and name not in names:
                continue
            text = settings.get(name)
            value: str | None = None
            if definition is not None:
                # A key without a definition was stored by an older Kafka; its value is treated as a secret.
                value = defaults[name] if text is None else format_value(definition.parse(name, text))
            synonyms: list[Synonym] = []
            if name in BROKER_SYNONYMS:
                synonyms = self._synonyms(BROKER_SYNONYMS[name][0])
            if text is not None:
                synonyms.insert(0, Synonym(name, value, TOPIC_SOURCE))
            entries.append(_entry(name, value, definition, synonyms, is_read_only=False))
        return entries

    def broker(self, names: Collection[str] | None = None) -> list[ConfigEntry]:
        """Configs of this broker: all of Kafka's keys, and given unknown keys, whose values are treated as secret."""
        effective = {**SINGLE_NODE_DEFAULTS, **self._config.static_properties}
        for dynamic in (self.cluster_dynamic, self.own_dynamic):
            for changed, value in dynamic.items():
                # The same setting in other units has no effect any more, and is described as not set.
                for synonym in _units_of(changed):
                    effective.pop(synonym, None)
                effective[changed] = value
                if "${" in value and changed in BROKER_CONFIGS:
                    # The variable of a config provider is described by its value, and as a synonym by its text (P-324).
                    used = self._effective.static_properties
                    if changed in used:
                        effective[changed] = used[changed]
                    else:
                        del effective[changed]
        entries: list[ConfigEntry] = []
        for name in further_keys_first(effective, broker_key_order()):
            if names is not None and name not in names:
                continue
            definition = definition_of_broker_key(name)
            text = effective.get(name, _defaults().get(name))
            # As in Kafka a key with a listener's prefix, or a throttle, is described as it was given: 07 and not 7.
            if definition is not None and text is not None and name in BROKER_CONFIGS:
                text = format_value(definition.parse(name, text))
            entries.append(_entry(name, text, definition, self._synonyms(name), is_read_only=not is_dynamic(name)))
        return entries

    def cluster_wide(self, names: Collection[str] | None) -> list[ConfigEntry]:
        """Dynamic settings for all brokers: only those that are set."""
        entries: list[ConfigEntry] = []
        for name in scala_hash_order(self.cluster_dynamic):
            text = self.cluster_dynamic[name]
            if names is None or name in names:
                definition = definition_of_broker_key(name)
                synonyms = [one for one in self._synonyms(name) if one.source == DYNAMIC_DEFAULT_BROKER_SOURCE]
                entries.append(_entry(name, text, definition, synonyms, is_read_only=not is_dynamic(name)))
        return entries

    def group(self, settings: Mapping[str, str], names: Collection[str] | None = None) -> list[ConfigEntry]:
        """Configs of a group with these settings of its own."""
        from pykbroker.config.definitions.group import GROUP_BROKER_SYNONYMS, GROUP_CONFIGS

        entries: list[ConfigEntry] = []
        for name in hash_order(GROUP_CONFIGS):
            definition = GROUP_CONFIGS[name]
            if names is not None and name not in names:
                continue
            broker_name = GROUP_BROKER_SYNONYMS.get(name)
            if broker_name is not None:
                synonyms = self._synonyms(broker_name)
            else:
                synonyms = [Synonym(name, definition.default, DEFAULT_SOURCE)]
            value = synonyms[0].value if synonyms else definition.default
            if name in settings:
                value = format_value(definition.parse(name, settings[name]))
                synonyms.insert(0, Synonym(name, value, GROUP_SOURCE))
            entries.append(_entry(name, value, definition, synonyms, is_read_only=False))
        return entries

    def client_metrics(self, settings: Mapping[str, str], names: Collection[str] | None = None) -> list[ConfigEntry]:
        """Configs of a client metrics subscription with these settings."""
        from pykbroker.config.definitions.group import CLIENT_METRICS_CONFIGS

        entries: list[ConfigEntry] = []
        for name in hash_order(CLIENT_METRICS_CONFIGS):
            definition = CLIENT_METRICS_CONFIGS[name]
            if names is not None and name not in names:
                continue
            value, synonyms = definition.default, []
            if name in settings:
                value = format_value(definition.parse(name, settings[name]))
                synonyms = [Synonym(name, value, CLIENT_METRICS_SOURCE)]
            entries.append(_entry(name, value, definition, synonyms, is_read_only=False))
        return entries

    def _synonyms(self, name: str) -> list[Synonym]:
        """Sources of a broker key by precedence; the same setting in other units only after the key itself."""
        definition = definition_of_broker_key(name)
        is_secret = definition is None or definition.is_sensitive
        names = synonyms_of_broker_key(name)
        found = [
            Synonym(candidate, None if is_secret else texts[candidate], source)
            for texts, source in self._levels
            for candidate in names
            if candidate in texts
        ]
        first = next((index for index, synonym in enumerate(found) if synonym.name == name), len(found))
        return found[first:]


def synonyms_of_broker_key(name: str) -> tuple[str, ...]:
    """Keys that can set the value of a broker key, by precedence; for most keys only the key itself."""
    base = base_of_listener_key(name)
    return _units_of(name) if base is None else (name, base)


def _units_of(name: str) -> tuple[str, ...]:
    """Keys of the same setting in other units, by precedence; for most keys only the key itself."""
    for names in _UNITS_OF_ONE_SETTING:
        if name in names:
            return names
    return _FLUSH_INTERVALS if name == _FLUSH_INTERVALS[0] else (name,)


def _entry(
    name: str,
    value: str | None,
    definition: ConfigKey | None,
    synonyms: list[Synonym],
    *,
    is_read_only: bool,
) -> ConfigEntry:
    is_sensitive = definition is None or definition.is_sensitive
    return ConfigEntry(
        name,
        None if is_sensitive else value,
        synonyms[0].source if synonyms else DEFAULT_SOURCE,
        is_read_only,
        is_sensitive,
        0 if definition is None else definition.type,
        synonyms,
    )


@functools.cache
def _defaults() -> dict[str, str]:
    """Every broker key that has a default, with its text."""
    return {name: definition.default for name, definition in BROKER_CONFIGS.items() if definition.default is not None}
