"""Settings of share partitions: those of the broker, and those of a group that override them (KIP-932)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pykbroker.config.definitions.group import GROUP_CONFIGS
from pykbroker.groups.modern.settings import bounded
from pykbroker.named_tuple import NamedTuple

if TYPE_CHECKING:
    from pykbroker.config.values import ShareGroupValues

EARLIEST = "earliest"
LATEST = "latest"
BY_DURATION = "by_duration:"
READ_COMMITTED = "read_committed"


class SharePartitionSettings(NamedTuple):
    """Effective settings of the share partitions of one group; times in milliseconds.

    Attributes:
        delivery_count_limit: deliveries of a record after which it is archived instead of made available.
        record_locks_max: largest number of records in flight in one share partition.
        record_lock_duration_ms: time for which a member holds acquired records.
        auto_offset_reset: `earliest`, `latest`, or `by_duration:` with an ISO 8601 duration.
        is_read_committed: True if records of aborted transactions are not delivered.
        may_renew: True if members may renew acquisition locks (KIP-1222).
    """

    delivery_count_limit: int
    record_locks_max: int
    record_lock_duration_ms: int
    auto_offset_reset: str
    is_read_committed: bool
    may_renew: bool

    @classmethod
    def of_group(cls, share_groups: ShareGroupValues, configs: Mapping[str, str]) -> SharePartitionSettings:
        """The settings of a group, from the configs of its GROUP resource, within the broker's bounds."""
        return cls(
            bounded(
                configs,
                "share.delivery.count.limit",
                share_groups.delivery_count_limit,
                share_groups.min_delivery_count_limit,
                share_groups.max_delivery_count_limit,
            ),
            bounded(
                configs,
                "share.partition.max.record.locks",
                share_groups.partition_max_record_locks,
                share_groups.min_partition_max_record_locks,
                share_groups.max_partition_max_record_locks,
            ),
            bounded(
                configs,
                "share.record.lock.duration.ms",
                share_groups.record_lock_duration_ms,
                share_groups.min_record_lock_duration_ms,
                share_groups.max_record_lock_duration_ms,
            ),
            _text(configs, "share.auto.offset.reset"),
            _text(configs, "share.isolation.level").lower() == READ_COMMITTED,
            _text(configs, "share.renew.acknowledge.enable").lower() == "true",
        )


def _text(configs: Mapping[str, str], key: str) -> str:
    text = configs.get(key, GROUP_CONFIGS[key].default)
    assert text is not None, f"{key} has no default"
    return text
