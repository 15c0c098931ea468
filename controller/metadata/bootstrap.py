"""The first records of a new cluster: those that Kafka's format step writes into `bootstrap.checkpoint`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykbroker.controller.metadata.commands import Plan, PlanContext
from pykbroker.controller.metadata.features import (
    BOOTSTRAP_LEVELS,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    cluster_min_isr,
    level_records,
)
from pykbroker.controller.metadata.image import ClusterImage
from pykbroker.controller.metadata.metadata_versions import METADATA_TRANSACTIONS, METADATA_VERSION
from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.log_messages.metadata_records import BeginTransactionRecord, EndTransactionRecord


class Bootstrap(NamedTuple):
    """Finalizes the feature levels of a new cluster; the result is None.

    From 3.6-IV1 on the records form a metadata transaction, as in Kafka; older software cannot read one.
    With eligible leader replicas this controller's `min.insync.replicas` is set for the cluster, because all nodes must
    apply the same value. `others`: further records of the format step, SCRAM credentials for example.
    Writes nothing if the cluster has a metadata.version already.
    """

    levels: Mapping[str, int] = BOOTSTRAP_LEVELS
    others: tuple[Any, ...] = ()

    def plan(self, image: ClusterImage, context: PlanContext) -> Plan[None]:
        if image.is_bootstrapped:
            return Plan((), None)
        records: list[Any] = [*level_records(self.levels), *self.others]
        if self.levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0:
            records.append(cluster_min_isr(context))
        if self.levels[METADATA_VERSION] >= METADATA_TRANSACTIONS:
            records = [BeginTransactionRecord(name="Bootstrap records"), *records, EndTransactionRecord()]
        return Plan(records, None)
