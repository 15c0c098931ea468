"""Levels of metadata.version: their names, and the records and commands that each allows (Kafka's MetadataVersion).

Kafka names a level by a release and an internal version: 17 is 3.7-IV2. The finalized level decides in which version
records are written, so a command must not set a field that this version of the record does not have.
"""

from __future__ import annotations

from collections.abc import Mapping

METADATA_VERSION = "metadata.version"

METADATA_VERSION_MIN = 7
"""3.3-IV3, the oldest that Kafka 4 reads."""

METADATA_VERSION_LATEST = 30
"""4.3-IV0, whose records this package writes."""

METADATA_VERSION_UNSTABLE = 31
"""4.4-IV0, for `unstable.feature.versions.enable` alone. It changes no record so far, but may until Kafka 4.4."""

NAMES: Mapping[int, str] = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
    31: "4.4-IV0",
}
"""Kafka's name of each level. Level 31 is not stable in Kafka 4.3."""

# The first level with each feature.
SCRAM = 11
NO_EPOCH_FOR_SHRINKS = 12
"""Below this level a replica that leaves the in-sync set starts a leader epoch, for brokers before 3.6
(KAFKA-15021)."""
METADATA_TRANSACTIONS = 13
DELEGATION_TOKENS = 14
CONTROLLER_REGISTRATION = 15
DIRECTORY_ASSIGNMENT = 17
ELIGIBLE_LEADER_REPLICAS = 23
ELIGIBLE_LEADER_REPLICAS_BY_DEFAULT = 26
GROUP_VERSION_1 = 22
TRANSACTION_VERSION_2 = 24
"""From this level on a new cluster has transaction.version 2 (KIP-890); an older one may raise it."""
SHARE_VERSION_1 = 28
STREAMS_VERSION_1 = 29
CORDONED_LOG_DIRS = 30

CHANGED_AT = (7, 8, 11, 13, 14, 15, 17, 23, 30)
"""Levels that added fields or records: a downgrade below one of these would lose information."""


def described(level: int) -> str:
    """A level with its name, for example `17 (3.7-IV2)`; the number alone for a level of newer software."""
    return f"{level} ({NAMES[level]})" if level in NAMES else str(level)


def is_known(level: int) -> bool:
    """True if this software can read the records of the level. A node may support fewer levels."""
    return METADATA_VERSION_MIN <= level <= METADATA_VERSION_UNSTABLE


def not_supported(level: int, max_level: int = METADATA_VERSION_LATEST) -> str:
    """The reason to refuse a level that is not supported, by a node that supports levels up to `max_level`."""
    lowest, highest = described(METADATA_VERSION_MIN), described(max_level)
    return f"{METADATA_VERSION} {described(level)} is not supported, only {lowest} to {highest} are"


def level_of_release(text: str, max_level: int = METADATA_VERSION_LATEST) -> int:
    """The level up to `max_level` that a release stands for, in any form that Kafka takes: 3.8-IV0, 3.8, 3.8.1.

    Raises:
        ValueError: no such release is supported; the text is Kafka's.
    """
    segments = text.split(".")
    key = text if len(segments) <= 2 else ".".join(segments[:2])
    found = None
    supported = {level: name for level, name in NAMES.items() if level <= max_level}
    for level, name in supported.items():
        if key in (name, name.partition("-")[0]):
            # A release stands for the last of its levels.
            found = level
    if found is None:
        raise ValueError(
            f"Unknown {METADATA_VERSION} '{text}'. Supported {METADATA_VERSION} are: " + ", ".join(supported.values())
        )
    return found
