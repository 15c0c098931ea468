"""Cluster id and node id of a data directory, from `meta.properties`; chooses them when the directory is empty.

No format step is needed. Nodes that start with empty directories agree on the id of their cluster by these rules, in
order:

* the id that the user gives (`--cluster-id`, CLUSTER_ID);
* a single voter draws a random id;
* several voters compute the id from `controller.quorum.voters`, which is the same on all of them;
* a node that does not vote asks a controller (`ask_cluster_id`).

Other nodes refuse the requests of a node with another id (INCONSISTENT_CLUSTER_ID).
"""

from __future__ import annotations

import logging
import resource
from typing import TYPE_CHECKING

from pykbroker.logstore.errors import DirectoryLocked, InconsistentDirectory, StorageError
from pykbroker.logstore.meta_properties import FILE_NAME, MetaProperties
from pykbroker.protocol.uuids import random_uuid_text, uuid_from_text, uuid_to_text, version_4_uuid

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Mapping

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.logstore.log_directories import LogDirectories
    from pykbroker.logstore.log_directory import LogDirectory
    from pykbroker.node.host import Host

log = logging.getLogger(__name__)

DESCRIPTORS_TRIED = (1 << 20, 1 << 16, 10_240, 4096, 1024)


def raise_descriptor_limit() -> int:
    """Raises the limit of open files as far as the system allows, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Without a hard limit, as on macOS, the system still refuses numbers that are too large.
    for wanted in (hard, *DESCRIPTORS_TRIED):
        if wanted == soft:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            continue
        soft = wanted
        break
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


async def identify(
    directory: LogDirectory,
    config: BrokerConfig,
    cluster_id: str | None,
    generator: random.Random,
    ask_cluster_id: Callable[[], Awaitable[str]],
) -> MetaProperties:
    """Identity of the data directory; an empty directory gets the identity of this node.

    Args:
        directory, config: of this node.
        cluster_id: id that the user gives, or None.
        generator: draws ids.
        ask_cluster_id: gets the cluster's id from a controller; waits until one answers.

    Raises:
        InconsistentDirectory: the directory belongs to another node or cluster.
    """
    identity = directory.meta_properties()
    path = f"{directory.path}/{FILE_NAME}"
    if identity is None:
        if cluster_id is not None:
            chosen = cluster_id
        elif config.is_alone:
            chosen = random_uuid_text(generator)
        elif config.is_controller and config.quorum.voters:
            chosen = cluster_id_of_voters(config.quorum.voters)
        else:
            chosen = await ask_cluster_id()
        directory_id = random_uuid_text(generator)
        identity = MetaProperties(chosen, config.node_id, directory_id)
        directory.format(identity)
    if identity.node_id != config.node_id:
        raise InconsistentDirectory(
            path,
            f"belongs to node {identity.node_id}, this is node {config.node_id}; set node.id or use another directory",
        )
    if cluster_id is not None and identity.cluster_id != cluster_id:
        raise InconsistentDirectory(
            path, f"belongs to cluster {identity.cluster_id}, not {cluster_id}; use another directory"
        )
    if not identity.directory_id:
        identity = identity._replace(directory_id=random_uuid_text(generator))
        directory.format(identity)
    return identity


def open_directories(
    config: BrokerConfig,
    metadata: LogDirectory,
    identity: MetaProperties,
    host: Host,
    open_file_limit: int,
    *,
    is_new: bool,
) -> LogDirectories:
    """Opens the directories of `log.dirs` other than that of the metadata, which is open already.

    The broker starts without the replicas of a directory that cannot be opened.

    Args:
        is_new: True if this node was never started before. Its empty directories are formatted; later an empty one is
            more likely a disk that was not mounted.

    Raises:
        InconsistentDirectory: a directory is not formatted, belongs to another node or cluster, or two have the same
            id.
    """
    # Imported here: most brokers have one directory.
    from pykbroker.logstore.log_directories import LogDirectories
    from pykbroker.logstore.log_directory import LogDirectory

    opened: dict[bytes, LogDirectory] = {}
    further: list[LogDirectory] = []
    unopened: list[str] = []
    try:
        for path in config.log.dirs:
            directory = metadata
            if path != metadata.path:
                try:
                    directory = LogDirectory.open(path, filesystem=host.filesystem, open_file_limit=open_file_limit)
                except DirectoryLocked:
                    raise
                except StorageError as error:
                    log.error("%s cannot be used; this broker starts without its replicas: %s", path, error)
                    unopened.append(path)
                    continue
                further.append(directory)
            own = identity if directory is metadata else _identify_further(directory, identity, host, is_new=is_new)
            directory_id = uuid_from_text(own.directory_id)
            if directory_id in opened:
                raise InconsistentDirectory(
                    f"{path}/{FILE_NAME}", f"has the directory.id of {opened[directory_id].path}"
                )
            opened[directory_id] = directory
    except BaseException:
        for directory in further:
            directory.abandon()
        raise
    return LogDirectories(opened, unopened)


def _identify_further(directory: LogDirectory, identity: MetaProperties, host: Host, *, is_new: bool) -> MetaProperties:
    """Identity of a directory beside that of the metadata."""
    own = directory.meta_properties()
    if own is None and not is_new:
        raise InconsistentDirectory(
            directory.path,
            f"has no {FILE_NAME}: is its disk mounted? A new directory is formatted by pykbroker format "
            "--ignore-formatted",
        )
    if own is None or not own.directory_id:
        own = identity._replace(directory_id=random_uuid_text(host.random))
        directory.format(own)
    if (own.cluster_id, own.node_id) != (identity.cluster_id, identity.node_id):
        raise InconsistentDirectory(
            f"{directory.path}/{FILE_NAME}",
            f"belongs to node {own.node_id} of cluster {own.cluster_id}, this is node {identity.node_id} of cluster "
            f"{identity.cluster_id}",
        )
    return own


def cluster_id_of_voters(voters: Mapping[int, tuple[str, int]]) -> str:
    """Id of a new cluster with these voters (node id -> host and port): the same on each voter."""
    import hashlib

    text = ",".join(f"{node_id}@{host}:{port}" for node_id, (host, port) in sorted(voters.items()))
    return uuid_to_text(version_4_uuid(hashlib.sha256(text.encode()).digest()[:16]))
