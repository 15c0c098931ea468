"""BrokerConfig: the settings of one node, from server.properties keys to typed, checked, frozen values.

Three steps: `parsing` converts texts to values by the table in definitions/broker.py, `validation` refuses combinations
that cannot work, and the result is in groups (`values`): `config.quorum.fetch_timeout_ms`. All keys of Kafka are known.
Keys without effect here are accepted and reported, so that a broker starts with a file written for Apache Kafka and its
log names what has no effect. A value that Kafka would refuse is refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pykbroker.config.definitions import PROVIDERS_KEY, ConfigError
from pykbroker.config.listener_addresses import base_of_listener_key
from pykbroker.config.parsing import is_known_key, parse_properties
from pykbroker.config.validation import validate
from pykbroker.config.values import SINGLE_NODE_DEFAULTS, ConfigValues, broker_definition, default_text

__all__ = ["SINGLE_NODE_DEFAULTS", "BrokerConfig", "ConfigError", "default_text", "is_known_key"]


class BrokerConfig(ConfigValues):
    """All settings of one node; frozen. The attributes are those of ConfigValues."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], *, is_start: bool = True) -> BrokerConfig:
        """Reads keys as in server.properties; `is_start` is False if dynamic settings are among them.

        Raises:
            ConfigError: a value that Kafka refuses, or a combination that cannot work; names key, value and what is
                allowed.
        """
        values = parse_properties(properties)
        validate(values, is_start=is_start)
        return cls(**vars(values))

    def with_dynamic(self, cluster_wide: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
        """These settings under dynamic ones: `own` before `cluster_wide` before the given ones (KIP-226).

        Variables of config providers, which any of the settings may name, are replaced by values that are read now
        (P-324).

        Raises:
            ConfigError: as `from_properties`; a ProviderError if a variable has no value for a provider's fault.
        """
        static = self.static_properties
        dynamic = (*cluster_wide.items(), *own.items())
        if all(static.get(key, default_text(key)) == text for key, text in dynamic):
            return self
        texts = {**self.static_properties, **cluster_wide, **own}
        if texts.get(PROVIDERS_KEY):
            from pykbroker.config.config_providers import replace_variables

            texts = replace_variables(texts, os.environ)
        return BrokerConfig.from_properties(texts, is_start=False)

    def __repr__(self) -> str:
        shown = (f"{key}={shown_value(key, text)}" for key, text in sorted(self.static_properties.items()))
        return f"BrokerConfig({', '.join(shown)})"


def shown_value(key: str, text: object) -> object:
    """The value of a key, for texts that people read; ``[hidden]`` for a secret, as in Kafka."""
    definition = broker_definition(key) or broker_definition(base_of_listener_key(key) or "")
    is_secret = definition.is_sensitive if definition is not None else not is_known_key(key)
    return "[hidden]" if is_secret and text not in ("", None) else text
