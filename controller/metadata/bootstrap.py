"""The first records of a new cluster: what Kafka's format step would have written into `bootstrap.checkpoint`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pykbroker.controller.metadata.commands import Plan, PlanContext
from pykbroker.controller.metadata.features import BOOTSTRAP_LEVELS, METADATA_VERSION
from pykbroker.controller.metadata.image import ClusterImage
from pykbroker.protocol.log_messages.metadata_records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)


class Bootstrap(NamedTuple):
    """Finalizes the feature levels of a new cluster, in a metadata transaction as Kafka does; the result is None.

    `others`: further records that the format step left, SCRAM credentials for example.

    Nothing is done when the cluster has a metadata.version already.
    """

    levels: Mapping[str, int] = BOOTSTRAP_LEVELS
    others: tuple[Any, ...] = ()

    def plan(self, image: ClusterImage, context: PlanContext) -> Plan[None]:
        if METADATA_VERSION in image.features:
            return Plan((), None)
        records: list[Any] = [BeginTransactionRecord(name="Bootstrap records")]
        names = sorted(self.levels, key=lambda name: (name != METADATA_VERSION, name))
        records += [FeatureLevelRecord(name=name, feature_level=self.levels[name]) for name in names]
        records += [*self.others, EndTransactionRecord()]
        return Plan(records, None)
