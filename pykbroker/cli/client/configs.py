"""Settings of topics, brokers, the cluster's default broker, groups and client metrics subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pykbroker.cli.client.calls import ClusterCalls
from pykbroker.cli.client.errors import error_text, refusal_text
from pykbroker.cli.errors import CliError

RESOURCE_TYPES = {"topic": 2, "broker": 4, "cluster": 4, "group": 32, "client-metrics": 16, "broker-logger": 8}
"""Kafka's codes; "cluster" is the broker resource without a name, whose settings hold for all brokers."""

_SOURCES = {
    1: "dynamic topic",
    2: "dynamic broker",
    3: "dynamic default broker",
    4: "static broker",
    5: "default",
    6: "dynamic broker logger",
    7: "dynamic client metrics",
    8: "dynamic group",
}
DEFAULT = "default"
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


class ClusterConfigs(ClusterCalls):
    """The operations behind `pykbroker config`."""

    def configs(self, resource_type: str, name: str, keys: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """Returns settings of a resource, all or those named, sorted by name; unknown names are left out.

        Each has name, value (None if it is sensitive or null), source, is_read_only, is_sensitive, synonyms (its values
        in all sources, the effective one first).

        Raises:
            CliError: there is no such resource, or the broker refused.
        """
        from kafka.protocol.admin import DescribeConfigsRequest

        wanted = (RESOURCE_TYPES[resource_type], name, None if keys is None else list(keys))
        request = DescribeConfigsRequest(resources=[wanted], include_synonyms=True, min_version=1)
        [result] = self._send(request, self._node_of(resource_type, name)).results
        if result.error_code:
            raise CliError(_refusal(resource_type, name, result))
        found = [
            {
                "name": item.name,
                "value": item.value,
                "source": _source(item.config_source),
                "is_read_only": item.read_only,
                "is_sensitive": item.is_sensitive,
                "synonyms": [
                    {"name": other.name, "value": other.value, "source": _source(other.source)}
                    for other in item.synonyms
                ],
            }
            for item in result.configs
        ]
        return sorted(found, key=lambda item: str(item["name"]))

    def alter_configs(
        self,
        resource_type: str,
        name: str,
        changes: Mapping[str, str],
        unset: Iterable[str] = (),
        *,
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Changes settings of a resource in one request: sets, resets, appends to lists, subtracts from lists.

        Raises:
            CliError: the broker refused, and nothing was changed; the text has the broker's error message.
        """
        from kafka.protocol.admin import IncrementalAlterConfigsRequest

        operations = [
            *((key, _SET, text) for key, text in changes.items()),
            *((key, _DELETE, None) for key in unset),
            *((key, _APPEND, text) for key, text in (append or {}).items()),
            *((key, _SUBTRACT, text) for key, text in (subtract or {}).items()),
        ]
        request = IncrementalAlterConfigsRequest(
            resources=[(RESOURCE_TYPES[resource_type], name, operations)], validate_only=validate_only
        )
        [result] = self._send(request, self._node_of(resource_type, name)).responses
        if result.error_code:
            raise CliError(_refusal(resource_type, name, result))

    def _node_of(self, resource_type: str, name: str) -> int | None:
        """Returns the id of the broker that must get the request, None for any broker."""
        if resource_type not in ("broker", "broker-logger"):
            return None
        known = [int(item["broker_id"]) for item in self._ask(lambda: self._admin.describe_cluster())["brokers"]]
        if not (name.isascii() and name.isdigit()) or int(name) not in known:
            raise CliError(f"there is no broker {name}: the cluster has {', '.join(map(str, sorted(known)))}")
        return int(name)


def _source(code: int) -> str:
    return _SOURCES.get(code, f"unknown ({code})")


def _refusal(resource_type: str, name: str, result: Any) -> str:
    words = refusal_text(result)
    if resource_type == "topic" and result.error_code == 3:
        words = error_text(3)
    return f"{f'{resource_type} {name}'.strip()}: {words}"
