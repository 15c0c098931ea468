"""`pykbroker start --nodes N`: a cluster on this machine. Each node is a process, which `Supervisor` forks and watches.

The modules of a broker are imported once, in this process, before the forks: the imports are half of the start of a
single node.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

from pykbroker.cli.errors import EXIT_USAGE, CliError
from pykbroker.cli.start.node_process import config_of, ignored_key_lines
from pykbroker.cli.start.port_file import prepare_port_file, remove_if_exists, write_atomically
from pykbroker.cli.start.supervisor import Supervisor
from pykbroker.testing.cluster_layout import (
    LayoutError,
    NodePorts,
    free_ports,
    properties_of_nodes,
    text_of_properties,
)

if TYPE_CHECKING:
    from pykbroker.cli.start.options import StartOptions


def start_nodes(options: StartOptions) -> int:
    """Runs the cluster until it is told to stop; returns the exit code.

    Raises:
        CliError: the nodes cannot be started as asked.
    """
    from pykbroker.cli.start.config import broker_properties

    assert options.nodes is not None
    base = broker_properties(options, os.environ)
    directory = base["log.dirs"]
    if "," in directory:
        raise CliError(
            f"log.dirs={directory}: with --nodes there is one directory, in which each node has its own", EXIT_USAGE
        )
    _check_directory(directory, options.nodes)
    try:
        nodes = properties_of_nodes(
            base, _ports_of_nodes(base["listeners"], options.nodes), directory, has_tls=options.tls
        )
    except LayoutError as error:
        raise CliError(str(error), EXIT_USAGE) from None
    configs = {node_id: config_of(properties, options) for node_id, properties in nodes.items()}
    for line in ignored_key_lines(configs[1]):
        print(line, file=sys.stderr)
    try:
        os.makedirs(directory, exist_ok=True)
        files = {node_id: os.path.join(directory, f"node-{node_id}.properties") for node_id in nodes}
        for node_id, properties in nodes.items():
            # Passwords may be among the settings.
            write_atomically(files[node_id], text_of_properties(properties), 0o600)
    except OSError as error:
        raise CliError(f"{error.filename}: {error.strerror}") from None
    if options.release_version is not None or options.features:
        from pykbroker.cli.format.features import write_levels_of_new_directory

        for config in configs.values():
            write_levels_of_new_directory(config, options)
    if options.port_file is not None:
        prepare_port_file(options.port_file)
    # The brokers' modules and codecs, for all nodes. The garbage collector does not visit objects that exist at
    # gc.freeze(), and so does not make the nodes copy their pages.
    from pykbroker.processes import preloaded

    preloaded.prepare_all()
    gc.freeze()
    supervisor = Supervisor(options, configs, files, _cluster_id(directory))
    try:
        return supervisor.run()
    finally:
        if options.port_file is not None:
            remove_if_exists(options.port_file)


def _check_directory(directory: str, count: int) -> None:
    """Checks that the directory is new, or has a cluster of this number of nodes.

    Raises:
        CliError: it has a single node or another number of nodes.
    """
    if os.path.exists(os.path.join(directory, "meta.properties")):
        raise CliError(f"{directory} has the data of a single node: choose another directory with --data-dir")
    there = _nodes_in(directory) if os.path.isdir(directory) else 0
    if there not in (0, count):
        raise CliError(
            f"{directory} has a cluster of {there}: start it with --nodes {there}, or choose another --data-dir"
        )


def _nodes_in(directory: str) -> int:
    """Number of nodes with data in the directory."""
    return sum(
        name.startswith("node-") and os.path.exists(os.path.join(directory, name, "meta.properties"))
        for name in os.listdir(directory)
    )


def _cluster_id(directory: str) -> str:
    """Cluster id of all nodes: CLUSTER_ID, else that of the directory, else a new one."""
    import random

    from pykbroker.config.environment import cluster_id_from_environment
    from pykbroker.config.properties_file import parse_properties
    from pykbroker.protocol.uuids import random_uuid_text

    try:
        with open(os.path.join(directory, "node-1", "meta.properties"), encoding="utf-8") as file:
            known = parse_properties(file.read()).get("cluster.id")
    except OSError:
        # Missing, or a node reports the error when it starts.
        known = None
    given = cluster_id_from_environment(os.environ)
    return given or known or random_uuid_text(random.Random())  # noqa: S311  no secret


def _ports_of_nodes(listeners: str, count: int) -> list[NodePorts]:
    """Ports of each node: consecutive ones for clients, beginning with the requested one, and free ones for the rest.

    Raises:
        CliError: there are not enough ports above the requested one.
    """
    text = listeners.partition(",")[0].rpartition(":")[2]
    first = int(text) if text.strip().isdecimal() else 0
    if first + count - 1 > 65535:
        raise CliError(f"{count} nodes need {count} ports from {first} on, and the last port is 65535", EXIT_USAGE)
    free = free_ports(count)
    return [ports._replace(port=first + number) for number, ports in enumerate(free)] if first else free
