"""QuotaSwitch: the quotas of a node, if it has any. Without quotas a request reads one attribute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.protocol.steps import finished

if TYPE_CHECKING:
    from collections.abc import Callable

    import trio

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.controller.metadata.image import ClusterImage
    from pykbroker.protocol.log_messages.metadata_records import ClientQuotaRecord
    from pykbroker.protocol.steps import Steps
    from pykbroker.quotas.host_names import HostNames
    from pykbroker.quotas.node_quotas import NodeQuotas, Quotas


class QuotaSwitch:
    """Holds the quotas of a node. A subscriber of metadata changes.

    Attributes:
        active: the quotas; None while the metadata has none.
    """

    __slots__ = ("_config", "_host_names", "_nursery", "_prepared", "_quotas", "active")

    def __init__(self, config: BrokerConfig | None = None) -> None:
        self.active: NodeQuotas | None = None
        self._config = config
        self._quotas: NodeQuotas | None = None
        # The image that is applied next, and its quotas.
        self._prepared: tuple[ClusterImage, Quotas] | None = None
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

    def prepare(self, old: ClusterImage | None, new: ClusterImage) -> Steps[None]:
        """Makes the quotas of an image, in steps, before it is applied."""
        records = _changed_quotas(old, new)
        if records:
            from pykbroker.quotas.node_quotas import quotas_of

            self._prepared = new, (yield from quotas_of(records))

    def apply(self, old: ClusterImage | None, new: ClusterImage) -> None:
        """Applies the quotas of an image."""
        if self._prepared is None or self._prepared[0] is not new:
            self._prepared = None
            if (old is not None and new.kept_records is old.kept_records) or not (new.kept_records or self.active):
                return
            finished(self.prepare(old, new))
        prepared, self._prepared = self._prepared, None
        if prepared is None:
            self.active = self._quotas = None
            return
        if self._quotas is None:
            from pykbroker.quotas.node_quotas import NodeQuotas

            assert self._config is not None, "a node has its settings"
            self._quotas = NodeQuotas(self._config, self.resolve)
        self._quotas.use(prepared[1])
        self.active = self._quotas


def _changed_quotas(old: ClusterImage | None, new: ClusterImage) -> list[ClientQuotaRecord]:
    """All quotas of an image; none if it certainly has those of the one before."""
    kept = new.kept_records
    if not kept or (old is not None and kept is old.kept_records):
        return []
    from pykbroker.protocol.log_messages.metadata_records import ClientQuotaRecord

    return [record for record in kept.values() if isinstance(record, ClientQuotaRecord)]
