"""The end of a transaction, as its coordinator decides it and sends it to partitions."""

from __future__ import annotations

from pykbroker.named_tuple import NamedTuple


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction, the same for all its partitions.

    `transaction_version` is that of the transaction (KIP-890): with 2 the marker has an epoch above that of the
    transaction's records, before that the same one (P-136).
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int
