"""LocalCluster: several broker processes in one quorum, for tests in which nodes are killed, paused or restarted.

Each node is a process of its own, a LocalBroker. Nothing here imports the broker or trio.
"""

from __future__ import annotations

import base64
import os
import shutil
import time
import weakref
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Self

from pykbroker.security.tls.development import LISTENERS, LOCAL_HOSTS, SETTINGS_WRITTEN_HERE, broker_settings, prepare
from pykbroker.testing.cluster_layout import LOCAL_CLUSTER_DEFAULTS, free_ports, properties_of_nodes
from pykbroker.testing.local_broker import LocalBroker, LocalBrokerError
from pykbroker.testing.local_client import LocalClient, as_properties
from pykbroker.testing.local_storage import temporary_directory

__all__ = ["LOCAL_CLUSTER_DEFAULTS", "LocalCluster"]

_POLL_S = 0.005
_STOP_TOGETHER_S = 5.0


class LocalCluster(LocalClient):
    """Broker processes in one quorum: `with LocalCluster(nodes=3) as cluster: use(cluster.bootstrap_servers)`.

    Settings are those of LOCAL_CLUSTER_DEFAULTS, and a new consumer group has its partitions at once
    (`group.initial.rebalance.delay.ms` is 0), unless `config` says otherwise. When this process ends, however it ends,
    the nodes do too, and their temporary directory is removed.

    `create_topic`, `produce`, `consume` and `wait_for_group` use the Kafka client library that is installed.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        topics: Mapping[str, int] | Iterable[str] = (),
        config: Mapping[str, str | float] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        keep: bool = False,
        start_timeout_s: float = 30.0,
        stop_timeout_s: float = 40.0,
        storage: str | os.PathLike[str] = "auto",
        prepared: bool = True,
        tls: bool = False,
    ) -> None:
        """Describes a cluster; `start_all()` or `with` starts it.

        Args:
            nodes: number of nodes; they have the ids 1 to n.
            topics: topics that exist when the cluster is ready, as LocalBroker takes them.
            config: settings of all nodes by Kafka's names; they override LOCAL_CLUSTER_DEFAULTS.
            data_dir: node n keeps its data in data_dir/node-n; never removed. By default a temporary directory.
            keep: leave the temporary directory behind.
            start_timeout_s: how long `start_all` and `start` wait until each node answers.
            stop_timeout_s: how long `stop` waits for an orderly end before it kills the node.
            storage: where the temporary directory is, as LocalBroker takes it.
            prepared: fork the nodes from a process that has imported a broker's modules (Linux only); False starts an
                interpreter for each.
            tls: all listeners have TLS, also those between the nodes, with certificates that are made for this cluster;
                as LocalBroker takes it.

        Raises:
            ValueError: there are fewer nodes than one, `storage` is not available, or `config` has a setting that
                `tls` makes itself.
            LocalBrokerError: `tls` needs a package that is not installed.
        """
        if nodes < 1:
            raise ValueError(f"nodes={nodes}: a cluster has at least one")
        own_directory = None
        if data_dir is None:
            own_directory = temporary_directory("pykbroker-cluster-", storage, keep=keep)
        self._is_temporary = own_directory is not None and not keep
        directory = os.path.abspath(data_dir) if data_dir is not None else own_directory
        assert directory is not None
        self.data_dir = directory
        self._finalizer = weakref.finalize(self, _remove, own_directory if not keep else None, os.getpid())
        base = as_properties(config)
        cluster_id = _cluster_id(directory)
        self._tls = tls
        if tls:
            base |= _tls_settings(base, directory)
        settings = properties_of_nodes(base, free_ports(nodes), directory, has_tls=tls)
        self._nodes = {
            node_id: LocalBroker(
                # Node 1 alone has the controller create them, once there is one.
                topics=topics if node_id == 1 else (),
                config={key: text for key, text in properties.items() if key != "log.dirs"},
                data_dir=properties["log.dirs"],
                port=int(properties["listeners"].partition(",")[0].rpartition(":")[2]),
                start_timeout_s=start_timeout_s,
                stop_timeout_s=stop_timeout_s,
                cluster_id=cluster_id,
                prepared=prepared,
            )
            for node_id, properties in settings.items()
        }
        for node in self._nodes.values():
            if self._is_temporary:
                node._remove_at_end(directory)
            if tls:
                node._take_certificates_of(directory)

    def __repr__(self) -> str:
        running = [str(node_id) for node_id, node in self._nodes.items() if node.is_running]
        return f"<LocalCluster of {len(self._nodes)}, running: {', '.join(running) or 'none'}>"

    def __enter__(self) -> Self:
        try:
            return self.start_all()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,host:port,...` of all nodes, as every Kafka client takes it; the same over the whole life."""
        return ",".join(node.bootstrap_servers for node in self._nodes.values())

    @property
    def _tls_directory(self) -> str | None:
        return self.data_dir if self._tls else None

    @property
    def node_ids(self) -> list[int]:
        """The ids of all nodes, running or not."""
        return list(self._nodes)

    def node(self, node_id: int) -> LocalBroker:
        """One node: its address, process id, log.

        Raises:
            LocalBrokerError: there is no such node.
        """
        try:
            return self._nodes[node_id]
        except KeyError:
            raise LocalBrokerError(f"there is no node {node_id}, but {self.node_ids}") from None

    def start_all(self) -> Self:
        """Starts the nodes that do not run, all at once, and waits until they answer; returns the cluster itself."""
        launched = [node for node in self._nodes.values() if not node.is_running]
        for node in launched:
            node.launch()
        for node in launched:
            node.wait_until_ready()
        return self

    def start(self, node_id: int) -> None:
        """Starts one node again, on its port with its data, and waits until it answers."""
        self.node(node_id).start()

    def stop(self, node_id: int) -> None:
        """Stops a node in order: its leaderships move to other nodes first."""
        self.node(node_id).stop()

    def kill(self, node_id: int) -> None:
        """Ends a node at once (SIGKILL), as a crash would."""
        self.node(node_id).kill()

    def pause(self, node_id: int) -> None:
        """Pauses a node (SIGSTOP): its connections stay open, and it sends nothing."""
        self.node(node_id).pause()

    def resume(self, node_id: int) -> None:
        """Continues a paused node (SIGCONT)."""
        self.node(node_id).resume()

    def close(self) -> None:
        """Ends all nodes at once, and removes the temporary directory.

        If the data stays, with `data_dir` or `keep`, they are stopped in order; else they are killed.
        """
        with ExitStack() as at_end:
            at_end.callback(self._finalizer)
            for node in self._nodes.values():
                at_end.callback(node.close)
                if not self._is_temporary:
                    node.begin_to_stop()
            if self._is_temporary:
                return
            deadline = time.monotonic() + _STOP_TOGETHER_S
            while len(self._running()) > len(self._nodes) // 2 and time.monotonic() < deadline:
                time.sleep(_POLL_S)
            # Without a majority there is no controller that can let the others finish their controlled shutdown.
            for node in self._running():
                node.stop_without_controller()

    def _running(self) -> list[LocalBroker]:
        return [node for node in self._nodes.values() if node.is_running]


def _remove(directory: str | None, owner: int) -> None:
    # A fork of the program, which has a copy of the cluster, must not remove the directory.
    if directory is not None and owner == os.getpid():
        shutil.rmtree(directory, ignore_errors=True)


def _tls_settings(base: Mapping[str, str], directory: str) -> dict[str, str]:
    """Settings of nodes with TLS; makes their certificates in the directory."""
    given = next((key for key in SETTINGS_WRITTEN_HERE if key in base), None)
    if given is not None:
        raise ValueError(f"tls=True sets {given} itself: leave it out of config")
    try:
        prepare(directory, LOCAL_HOSTS)
    except ImportError:
        raise LocalBrokerError("tls=True needs the package cryptography: pip install 'pykbroker[tls]'") from None
    return {"listeners": LISTENERS, **broker_settings(directory)}


def _cluster_id(directory: str) -> str:
    """The cluster id of the data in the directory, else a new one: 16 random bytes as Kafka writes them."""
    try:
        with open(os.path.join(directory, "node-1", "meta.properties"), encoding="utf-8") as file:
            for line in file:
                key, _, value = line.partition("=")
                if key.strip() == "cluster.id":
                    return value.strip()
    except FileNotFoundError:
        pass
    while (text := base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")).startswith("-"):
        pass
    return text
