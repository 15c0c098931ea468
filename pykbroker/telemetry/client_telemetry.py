"""ClientTelemetry: the receivers and the client instances of a broker."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pykbroker.config.definitions import ConfigError
from pykbroker.controller.metadata.image import CLIENT_METRICS_RESOURCE

if TYPE_CHECKING:
    from pykbroker.metadata.metadata_cache import MetadataCache
    from pykbroker.security.connection_info import ConnectionInfo
    from pykbroker.telemetry.client_instances import ClientInstances
    from pykbroker.telemetry.receivers import TelemetryContext, TelemetryPayload, TelemetryReceiver

log = logging.getLogger(__name__)

Configs = Mapping[tuple[int, str], Mapping[str, str]]
"""(resource type, resource name) -> {key: value}, as in a ClusterImage."""


class ClientTelemetry:
    """Metrics of clients, for receivers that `metric.reporters` names; it may change while the broker runs.

    Without receivers pushes are judged by the same rules and dropped, and ApiVersions does not list the two APIs.
    """

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._names: tuple[str, ...] = ()
        self._receivers: list[TelemetryReceiver] = []
        self._instances: ClientInstances | None = None
        # Configs of the image that the subscriptions are from: the whole image would keep deleted topics.
        self._configs: Configs = {}

    def load(self) -> None:
        """Loads the receivers of the present settings.

        Raises:
            ConfigError: a receiver cannot be loaded.
        """
        names = self._receiver_names()
        if names != self._names:
            from pykbroker.telemetry.receivers import load_receivers

            self._receivers = load_receivers(names)
            self._names = names

    @property
    def is_enabled(self) -> bool:
        """True if there are receivers."""
        return bool(self._receiver_names())

    def _receiver_names(self) -> tuple[str, ...]:
        """The entries of `metric.reporters` that name Python classes."""
        return tuple(name for name in self._metadata.config.broker.metric_reporters if ":" in name)

    def instances(self) -> ClientInstances:
        """The client instances, with the subscriptions of the newest metadata."""
        from pykbroker.telemetry.client_instances import ClientInstances
        from pykbroker.telemetry.subscriptions import Subscription, in_map_order

        if self._instances is None:
            self._instances = ClientInstances()
        configs = self._metadata.image.configs
        if self._configs is not configs:
            before, now = _client_metrics(self._configs), _client_metrics(configs)
            if now != before:
                self._instances.set_subscriptions([Subscription.from_configs(now[name]) for name in in_map_order(now)])
            self._configs = configs
        return self._instances

    def watch(self, connection: ConnectionInfo) -> None:
        """Ends the client instance that was last made on a connection when the connection is closed."""
        connection.when_closed("client telemetry", lambda: self.instances().connection_closed(connection))

    def export(self, context: TelemetryContext, payload: TelemetryPayload) -> None:
        """Passes metrics on to every receiver. An exception of one is raised here, and later ones get nothing."""
        try:
            self.load()
        except ConfigError as error:
            log.error("client metrics are not passed on to the receivers: %s", error)
            raise
        for receiver in self._receivers:
            receiver.export_metrics(context, payload)


def _client_metrics(resources: Configs) -> dict[str, Mapping[str, str]]:
    return {
        name: configs
        for (resource_type, name), configs in resources.items()
        if resource_type == CLIENT_METRICS_RESOURCE and configs
    }
