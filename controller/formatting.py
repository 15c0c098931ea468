"""Files in a formatted data directory for the first start of a node (KIP-853).

A dynamic quorum begins with a snapshot at offset 0, `00000000000000000000-0000000000.checkpoint`, which has the first
voters. The first records of a new cluster are in `bootstrap.checkpoint` beside the directory of the log, or in that
snapshot, where Apache Kafka's format step writes them. Both places are read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from pykbroker.controller.metadata.bootstrap import Bootstrap
from pykbroker.controller.metadata.features import level_records
from pykbroker.controller.metadata.metadata_versions import METADATA_VERSION, not_supported
from pykbroker.controller.metadata.record_framing import decode_record, encode_records
from pykbroker.controller.raft.log_view import BEGINNING
from pykbroker.controller.raft.quorum import VoterSet
from pykbroker.controller.raft.voter_history import KRaftVersion
from pykbroker.controller.raft_storage import TOPIC
from pykbroker.controller.settings import ControllerSettings
from pykbroker.controller.snapshot_file import parse_snapshot, snapshot_content, write_snapshot
from pykbroker.logstore.errors import InconsistentDirectory
from pykbroker.logstore.filesystem import FileSystem
from pykbroker.protocol.log_messages.metadata_records import FeatureLevelRecord

log = logging.getLogger(__name__)

BOOTSTRAP_FILE = "bootstrap.checkpoint"


def write_first_voters(filesystem: FileSystem, data_directory: str, voters: VoterSet, now_ms: int) -> None:
    """Creates the metadata log's directory with the snapshot of the first voters."""
    directory = f"{data_directory}/{TOPIC}-0"
    filesystem.make_directory(directory)
    control = (KRaftVersion(1), voters)
    content = snapshot_content(BEGINNING.epoch, (), control, log_timestamp_ms=now_ms, now_ms=now_ms)
    write_snapshot(filesystem, directory, BEGINNING, content)
    filesystem.sync_directory(data_directory)


def write_first_levels(
    filesystem: FileSystem, data_directory: str, levels: Mapping[str, int], now_ms: int, others: Iterable[Any] = ()
) -> None:
    """Writes `bootstrap.checkpoint` with the feature levels and other records that a new cluster begins with."""
    records: list[Any] = [*level_records(levels), *others]
    values = encode_records(records, levels[METADATA_VERSION])
    content = snapshot_content(0, values, log_timestamp_ms=now_ms, now_ms=now_ms)
    filesystem.write_file(f"{data_directory}/{BOOTSTRAP_FILE}", content)


def first_command(
    filesystem: FileSystem, settings: ControllerSettings, values: Iterable[bytes], *, is_new: bool
) -> Bootstrap:
    """Command for the first records of a new cluster. Features that do not exist here are left out and logged.

    Args:
        filesystem, settings: of the node; its data directory may have a `bootstrap.checkpoint`.
        values: the records of the snapshot at offset 0. If there are any, the file is not read.
        is_new: False if the log has records; no file is read then.

    Raises:
        InconsistentDirectory: this software does not support the metadata.version of the records, and must not replace
            it by another level.
        CorruptFile: `bootstrap.checkpoint` is damaged.
        DecodeError: `bootstrap.checkpoint` has records that this software does not know.
    """
    levels = settings.bootstrap_levels
    if not is_new:
        return Bootstrap(levels)
    records = [decode_record(value) for value in values]
    path = f"{settings.data_directory}/{TOPIC}-0"
    if not records:
        path = f"{settings.data_directory}/{BOOTSTRAP_FILE}"
        content = filesystem.read_file(path)
        if content is not None:
            records = [decode_record(value) for value in parse_snapshot(path, content).values]
    formatted = {record.name: record.feature_level for record in records if isinstance(record, FeatureLevelRecord)}
    if METADATA_VERSION not in formatted:
        return Bootstrap(levels)
    lowest, highest = settings.supported_features[METADATA_VERSION]
    if not lowest <= formatted[METADATA_VERSION] <= highest:
        reason = not_supported(formatted[METADATA_VERSION], highest)
        raise InconsistentDirectory(path, f"the directory was formatted for other software: {reason}")
    taken: dict[str, int] = {}
    left_out: list[str] = []
    for name, level in sorted(formatted.items()):
        lowest, highest = settings.supported_features.get(name, (0, 0))
        if lowest <= level <= highest:
            taken[name] = level
        else:
            left_out.append(f"{name}={level}")
    if left_out:
        log.warning(
            "the new cluster begins without these features, which this version does not support: %s",
            ", ".join(left_out),
        )
    others: list[Any] = [record for record in records if not isinstance(record, FeatureLevelRecord)]
    return Bootstrap(taken, tuple(others))
