"""ControllerSettings: the settings of a node of the metadata quorum, fixed at its start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pykbroker.controller.metadata.commands import ConfigRules, PlanContext
from pykbroker.controller.metadata.features import BOOTSTRAP_LEVELS, SUPPORTED_FEATURES
from pykbroker.controller.raft.quorum import NO_DIRECTORY_ID, VoterEndpoint, VoterSet
from pykbroker.controller.raft.roles import RaftSettings
from pykbroker.controller.raft_storage import StorageSettings
from pykbroker.named_tuple import NamedTuple

if TYPE_CHECKING:
    from pykbroker.controller.random_source import RandomSource


class ControllerSettings(NamedTuple):
    """Settings with Kafka's names where Kafka has one.

    Attributes:
        data_directory: directory that contains `__cluster_metadata-0` (`metadata.log.dir`).
        voters: the configured voters (`controller.quorum.voters`); other nodes observe. Empty for a dynamic quorum,
            whose voters are in log and snapshots (KIP-853).
        directory_id: 16 bytes, the directory's id.
        endpoints: the listeners for a VotersRecord; empty for a node that cannot become a voter of a dynamic quorum.
        bootstrap_count: number of `controller.quorum.bootstrap.servers`; for `PeerLinks` -2, -3, ...
        partition_count_default, replication_factor_default: `num.partitions`, `default.replication.factor`.
        append_linger_ms: time that commands are gathered for one write (`controller.quorum.append.linger.ms`).
        snapshot_bytes: `metadata.log.max.record.bytes.between.snapshots`.
        snapshot_interval_ms: `metadata.log.max.snapshot.interval.ms`; checked when something is written; 0 for never.
        unclean_election: `unclean.leader.election.enable`.
        min_insync_replicas: `min.insync.replicas`.
        bootstrap_levels: feature levels that a new cluster begins with.
        running_tick_ms: interval at which RunningClock checks that the process runs; 0 for a node without others.
    """

    node_id: int
    data_directory: str
    voters: VoterSet
    directory_id: bytes = NO_DIRECTORY_ID
    endpoints: tuple[VoterEndpoint, ...] = ()
    bootstrap_count: int = 0
    partition_count_default: int = 1
    replication_factor_default: int = 1
    snapshot_bytes: int = 20 << 20
    snapshot_interval_ms: int = 3_600_000
    storage: StorageSettings = StorageSettings()
    raft: RaftSettings = RaftSettings()
    append_linger_ms: int = 0
    unclean_election: bool = False
    min_insync_replicas: int = 1
    supported_features: Mapping[str, tuple[int, int]] = SUPPORTED_FEATURES
    bootstrap_levels: Mapping[str, int] = BOOTSTRAP_LEVELS
    running_tick_ms: int = 0

    def plan_context(
        self, next_offset: int, random: RandomSource, config_rules: ConfigRules, voter_ids: frozenset[int]
    ) -> PlanContext:
        """Context for a command whose first record gets `next_offset`."""
        return PlanContext(
            next_offset=next_offset,
            random=random,
            partition_count_default=self.partition_count_default,
            replication_factor_default=self.replication_factor_default,
            config_rules=config_rules,
            supported_features=self.supported_features,
            node_id=self.node_id,
            voter_ids=voter_ids,
            unclean_election_default=self.unclean_election,
            min_insync_replicas_default=self.min_insync_replicas,
        )
