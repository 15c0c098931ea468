"""The first records of a new cluster: what Kafka's format step would have written into `bootstrap.checkpoint`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pykbroker.controller.metadata.commands import Plan, PlanContext
from pykbroker.controller.metadata.features import BOOTSTRAP_LEVELS
from pykbroker.controller.metadata.image import ClusterImage
from pykbroker.controller.metadata.metadata_versions import METADATA_TRANSACTIONS, METADATA_VERSION
from pykbroker.protocol.log_messages.metadata_records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)


class Bootstrap(NamedTuple):
    """Finalizes the feature levels of a new cluster; the result is None.

    In a metadata transaction as Kafka does, at levels that have these (3.6-IV1): older software cannot read them.

    `others`: further records that the format step left, SCRAM credentials for example.

    Nothing is done when the cluster has a metadata.version already.
    """

    levels: Mapping[str, int] = BOOTSTRAP_LEVELS
    others: tuple[Any, ...] = ()

    def plan(self, image: ClusterImage, context: PlanContext) -> Plan[None]:
        if image.is_bootstrapped:
            return Plan((), None)
        names = sorted(self.levels, key=lambda name: (name != METADATA_VERSION, name))
        records: list[Any] = [FeatureLevelRecord(name=name, feature_level=self.levels[name]) for name in names]
        records += self.others
        if self.levels[METADATA_VERSION] >= METADATA_TRANSACTIONS:
            records = [BeginTransactionRecord(name="Bootstrap records"), *records, EndTransactionRecord()]
        return Plan(records, None)
