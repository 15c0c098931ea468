"""A cluster as an image alone: commands are planned on it, and their records, encoded and decoded, applied at once."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pykbroker.controller.metadata.bootstrap import Bootstrap
from pykbroker.controller.metadata.brokers import RegisterBroker
from pykbroker.controller.metadata.commands import NO_ERROR, ApiError, Command, PlanContext, plan_in_steps
from pykbroker.controller.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION, SUPPORTED_FEATURES, default_levels
from pykbroker.controller.metadata.image import EMPTY_IMAGE, ClusterImage, Endpoint
from pykbroker.controller.metadata.image_builder import apply_records
from pykbroker.controller.metadata.metadata_versions import METADATA_VERSION_LATEST
from pykbroker.controller.metadata.record_framing import decode_record, encode_records
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.steps import finished

R = TypeVar("R")

LISTS = {"cleanup.policy": "delete", "leader.replication.throttled.replicas": ""}
KNOWN = {
    "min.insync.replicas",
    "retention.ms",
    "segment.bytes",
    "unclean.leader.election.enable",
    "log.cleaner.threads",
    *LISTS,
}


class FewConfigs:
    """Rules that know a few keys; the value "bad" is invalid."""

    def is_list(self, resource_type: int, name: str) -> bool:
        return name in LISTS

    def default(self, resource_type: int, name: str) -> str | None:
        return LISTS.get(name)

    def validate(self, resource_type: int, resource_name: str, configs: Mapping[str, str]) -> ApiError:
        for name, value in configs.items():
            if name not in KNOWN:
                return ApiError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
            if value == "bad":
                return ApiError(ErrorCode.INVALID_CONFIG, f"Invalid value bad for configuration {name}")
        return NO_ERROR


class World:
    """`image` after all commands done so far; `records` has what they wrote. A cluster with `eligible_replicas` has
    eligible.leader.replicas.version 1 (KIP-966).

    Every record must have a place for all that it says in the version that the metadata.version has.
    """

    def __init__(
        self,
        broker_ids: Iterable[int] = (1,),
        racks: Mapping[int, str] | None = None,
        seed: int = 1,
        metadata_version: int = METADATA_VERSION_LATEST,
        *,
        eligible_replicas: bool = False,
    ) -> None:
        self.image: ClusterImage = EMPTY_IMAGE
        self.records: list[Any] = []
        self.random = random.Random(seed)
        levels = default_levels(metadata_version)
        if not eligible_replicas:
            levels.pop(ELIGIBLE_LEADER_REPLICAS_VERSION, None)
        self.do(Bootstrap(levels))
        for broker_id in broker_ids:
            self.register(broker_id, rack=(racks or {}).get(broker_id))

    def context(self) -> PlanContext:
        return PlanContext(
            next_offset=self.image.offset + 1,
            random=self.random,
            partition_count_default=3,
            replication_factor_default=1,
            config_rules=FewConfigs(),
            supported_features=SUPPORTED_FEATURES,
            node_id=1,
            voter_ids=frozenset({1}),
        )

    def do(self, command: Command[R]) -> R:
        plan = finished(plan_in_steps(command, self.image, self.context()))
        self.apply(map(decode_record, encode_records(plan.records, self.image.metadata_version)))
        return plan.result

    def apply(self, records: Iterable[Any]) -> None:
        records = list(records)
        self.records += records
        self.image = apply_records(
            self.image,
            records,
            offset=self.image.offset + len(records),
            epoch=1,
            timestamp_ms=self.image.timestamp_ms + 1,
        )

    def register(self, broker_id: int, *, rack: str | None = None, incarnation: int = 1, **options: Any) -> int:
        """Registers a broker, active at once unless told otherwise; its epoch."""
        return self.do(
            RegisterBroker(
                broker_id=broker_id,
                incarnation_id=bytes([incarnation]) * 16,
                endpoints=[Endpoint("PLAINTEXT", f"host-{broker_id}", 9092, 0)],
                features=SUPPORTED_FEATURES,
                rack=rack,
                **{"is_fenced": False, "log_dirs": [directory_id(broker_id)], **options},
            )
        )


def directory_id(broker_id: int) -> bytes:
    return b"directory" + broker_id.to_bytes(7, "big")
