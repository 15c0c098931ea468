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

import hashlib
import resource
from typing import TYPE_CHECKING

from pykbroker.logstore.errors import InconsistentDirectory
from pykbroker.logstore.meta_properties import FILE_NAME, MetaProperties
from pykbroker.protocol.uuids import random_uuid, uuid_to_text

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Mapping

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.logstore.log_directory import LogDirectory

DESCRIPTORS_TRIED = (1 << 20, 1 << 16, 10_240, 4096, 1024)


def raise_descriptor_limit() -> int:
    """Raises the limit of open files as far as the system allows; returns the limit that holds now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A system without a hard limit, such as macOS, still refuses numbers that are too large.
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
            chosen = uuid_to_text(random_uuid(generator.randbytes(16)))
        elif config.is_controller and config.quorum.voters:
            chosen = cluster_id_of_voters(config.quorum.voters)
        else:
            chosen = await ask_cluster_id()
        directory_id = uuid_to_text(random_uuid(generator.randbytes(16)))
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
        identity = identity._replace(directory_id=uuid_to_text(random_uuid(generator.randbytes(16))))
        directory.format(identity)
    return identity


def cluster_id_of_voters(voters: Mapping[int, tuple[str, int]]) -> str:
    """Id of a new cluster with these voters (node id -> host and port): the same on each voter."""
    text = ",".join(f"{node_id}@{host}:{port}" for node_id, (host, port) in sorted(voters.items()))
    return uuid_to_text(random_uuid(hashlib.sha256(text.encode()).digest()[:16]))
