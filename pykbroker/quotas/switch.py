"""QuotaSwitch: the quotas of a node, if it has any. Without quotas a request reads one attribute."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import trio

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.quotas.host_names import HostNames
    from pykbroker.quotas.node_quotas import NodeQuotas


class QuotaSwitch:
    """Holds the quotas of a node. A subscriber of metadata changes.

    Attributes:
        active: the quotas; None while the metadata has none.
    """

    __slots__ = ("_config", "_host_names", "_nursery", "_quotas", "active")

    def __init__(self, config: BrokerConfig | None = None) -> None:
        self.active: NodeQuotas | None = None
        self._config = config
        self._quotas: NodeQuotas | None = None
        self._host_names: HostNames | None = None
        self._nursery: trio.Nursery | None = None

    def begin(self, nursery: trio.Nursery) -> None:
        """Begins to resolve host names, in tasks of the nursery."""
        self._nursery = nursery
        if self._host_names is not None:
            self._host_names.begin(nursery)

    def resolve(self, name: str, use: Callable[[str | None], None]) -> None:
        """Resolves a host name in the background, after `begin`; calls `use` with its address, or None."""
        if self._host_names is None:
            from pykbroker.quotas.host_names import HostNames

            self._host_names = HostNames()
            if self._nursery is not None:
                self._host_names.begin(self._nursery)
        self._host_names.resolve(name, use)

    def apply(self, old: ClusterImage | None, new: ClusterImage) -> None:
        """Applies the quotas of an image."""
        kept = new.kept_records
        if old is not None and kept is old.kept_records:
            return
        if not kept and self.active is None:
            return
        from pykbroker.protocol.log_messages.metadata_records import ClientQuotaRecord

        records = [record for record in kept.values() if isinstance(record, ClientQuotaRecord)]
        if not records:
            self.active = self._quotas = None
            return
        if self._quotas is None:
            from pykbroker.quotas.node_quotas import NodeQuotas

            assert self._config is not None, "a node has its settings"
            self._quotas = NodeQuotas(self._config, self.resolve)
        self._quotas.set_all(records)
        self.active = self._quotas
