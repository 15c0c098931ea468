"""Supervisor: forks the nodes of `pykbroker start --nodes N`, prints their output, and ends them.

A node that dies is reported and not restarted: the cluster can be watched without it. The report has the command that
starts it again.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import time
from typing import TYPE_CHECKING

from pykbroker.cli.errors import EXIT_FAILED, CliError, complain
from pykbroker.cli.start.node_process import run_until_stopped
from pykbroker.cli.start.port_file import write_atomically
from pykbroker.processes.forks import exit_text, fork
from pykbroker.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykbroker.cli.start.options import StartOptions
    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.node.broker import ReadyAddress

STOP_TIMEOUT_S = 30.0
"""Time, in seconds, between SIGTERM and SIGKILL for a node that does not end."""

_READ_BYTES = 65536


class Node:
    """A node's process, and the supervisor's ends of the pipes to it.

    Attributes:
        output: descriptor of what the node prints.
        ready: descriptor from which the address is read once; its end of file is the end of the process.
        lifeline: descriptor that is closed when the supervisor ends, however it ends; then the node stops.
        address: host:port once the node is ready.
        status: wait status of the process, as from os.waitpid; None while it lives.
    """

    def __init__(self, node_id: int, pid: int, output: int, ready: int, lifeline: int) -> None:
        self.node_id = node_id
        self.pid = pid
        self.output = output
        self.ready = ready
        self.lifeline = lifeline
        self.address: str | None = None
        self.status: int | None = None
        self.unfinished_line = b""

    @property
    def is_running(self) -> bool:
        """True if the process lives."""
        return self.status is None

    def close_lifeline(self) -> None:
        """Makes the node stop, and at once if it is stopping already and waits for the controller to permit that."""
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1

    @property
    def end(self) -> str:
        """The process's end as text, such as "was ended by SIGKILL"."""
        return exit_text(os.waitstatus_to_exitcode(self.status or 0))


class Supervisor:
    """Forks the nodes, prints their output, reports nodes that die, and ends them all."""

    def __init__(
        self,
        options: StartOptions,
        configs: Mapping[int, BrokerConfig],
        files: Mapping[int, str],
        cluster_id: str,
    ) -> None:
        self._options = options
        self._configs = configs
        self._files = files
        self._directory = os.path.dirname(next(iter(files.values())))
        self._cluster_id = cluster_id
        self._selector = selectors.DefaultSelector()
        self._nodes: list[Node] = []
        self._signals = 0
        self._stop_deadline: float | None = None
        self._is_announced = False
        self._has_failed = False

    def run(self) -> int:  # pragma: no cover: the process of --nodes
        """Runs until no node lives any more; returns the exit code."""
        self._catch_signals()
        if self._options.stop_with_stdin:
            self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ, self._on_stdin)
        for node_id in self._configs:
            self._fork(node_id)
        while any(node.is_running for node in self._nodes):
            left = None if self._stop_deadline is None else max(self._stop_deadline - time.monotonic(), 0)
            for key, _ in self._selector.select(left):
                key.data(key.fd)
            self._reap()
            if left == 0:  # the deadline of the stop is over
                self._kill_all()
        for node in self._nodes:
            self._forward_output(node)
        return EXIT_FAILED if self._has_failed else 0

    def _catch_signals(self) -> None:  # pragma: no cover: the process of --nodes
        ours, handlers_end = os.pipe()
        os.set_blocking(ours, False)
        os.set_blocking(handlers_end, False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            # The handler does nothing: the signal's number is read from the pipe.
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(handlers_end, warn_on_full_buffer=False)
        self._selector.register(ours, selectors.EVENT_READ, self._on_signals)

    # Starting nodes

    def _fork(self, node_id: int) -> None:  # pragma: no cover: the process of --nodes
        output, nodes_output = os.pipe()
        ready, nodes_ready = os.pipe()
        nodes_stdin, lifeline = os.pipe()

        def leave() -> None:
            # With a copy of a lifeline open in a node, that node, or another one, would outlive the supervisor.
            for descriptor in (output, ready, lifeline):
                os.close(descriptor)
            self._selector.close()
            for node in self._nodes:
                os.close(node.output)
                os.close(node.ready)
                node.close_lifeline()

        pid = fork(
            lambda: self._run_node_in_fork(node_id, nodes_ready), stdin=nodes_stdin, output=nodes_output, leave=leave
        )
        os.close(nodes_ready)
        node = Node(node_id, pid, output, ready, lifeline)
        self._nodes.append(node)
        os.set_blocking(output, False)
        self._selector.register(output, selectors.EVENT_READ, lambda _: self._forward_output(node))
        self._selector.register(ready, selectors.EVENT_READ, lambda _: self._on_ready(node))

    def _run_node_in_fork(self, node_id: int, ready: int) -> int:  # pragma: no cover: a fork of the process of --nodes
        """Runs one node; returns the exit code."""

        async def announce(address: ReadyAddress) -> None:
            from pykbroker.config.listener_addresses import host_and_port

            os.write(ready, f"{host_and_port(*address)}\n".encode())

        try:
            return run_until_stopped(
                self._configs[node_id], self._cluster_id, announce, lambda _: None, stop_with_stdin=True
            )
        except CliError as error:
            complain(error.text)
            return error.exit_code

    # Output of nodes

    def _on_ready(self, node: Node) -> None:
        text = os.read(node.ready, _READ_BYTES).decode().strip()
        self._selector.unregister(node.ready)
        if text:
            node.address = text
            if all(node.address and node.is_running for node in self._nodes) and not self._signals:
                self._create_topics_and_announce()

    def _create_topics_and_announce(self) -> None:
        if self._options.topics:
            from concurrent.futures import ThreadPoolExecutor
            from functools import partial

            import trio

            from pykbroker.cli.start.initial_topics import BROKERS_WITHIN_S, create_initial_topics

            host, _, port = (self._nodes[0].address or "").rpartition(":")
            opener = None
            if self._options.tls:  # pragma: no cover: the process of --nodes
                from pykbroker.cli.start.tls import stream_opener

                opener = stream_opener(self._directory)
            try:
                # In another thread, for trio would take the signals of the main thread away from `_catch_signals`.
                with ThreadPoolExecutor(1) as thread:
                    create = partial(
                        create_initial_topics,
                        host.strip("[]"),
                        int(port),
                        self._options.topics,
                        opener,
                        brokers_within_s=BROKERS_WITHIN_S,
                    )
                    thread.submit(partial(trio.run, create)).result()
            except CliError as error:
                complain(error.text)
                self._has_failed = True
                self._stop_all()
                return
        self._is_announced = True
        addresses = [self._advertised_address(node) for node in self._nodes]
        processes = ", ".join(str(node.pid) for node in self._nodes)
        print(
            f"pykbroker {__version__} is ready: {len(addresses)} nodes\n"
            f"  bootstrap   {','.join(addresses)}\n"
            f"  data in     {self._directory}, with a .properties file for each node\n"
            f"  processes   {processes}\n"
            f"  to stop     Ctrl-C, or kill {os.getpid()}",
            flush=True,
        )
        if self._options.tls:  # pragma: no cover: the process of --nodes
            from pykbroker.cli.start.tls import write_client_files

            print(write_client_files(self._directory, ",".join(addresses)), end="", flush=True)
        if self._options.port_file is not None:
            write_atomically(self._options.port_file, ",".join(addresses))

    def _advertised_address(self, node: Node) -> str:
        """Returns the address of a node that clients get in Metadata."""
        from pykbroker.config.listener_addresses import host_and_port, is_every_address
        from pykbroker.metadata.advertised_listeners import host_to_advertise

        (address, *_) = self._configs[node.node_id].network.advertised_listeners.values()
        if is_every_address(address.host) and len(self._nodes) == 1:  # pragma: no cover: the process of --nodes
            return node.address or ""
        return host_and_port(host_to_advertise(address), address.port)

    def _forward_output(self, node: Node) -> None:
        """Prints the new output of a node, each line with the node's id; the last one too if it has no line break."""
        while True:
            try:
                data = os.read(node.output, _READ_BYTES)
            except BlockingIOError:
                break
            if not data:
                if node.output in self._selector.get_map():  # pragma: no cover: the process of --nodes
                    self._selector.unregister(node.output)
                if not node.unfinished_line:
                    break
                data = b"\n"
            *lines, node.unfinished_line = (node.unfinished_line + data).split(b"\n")
            prefix = f"node {node.node_id} | ".encode()
            sys.stderr.buffer.write(b"".join(prefix + line + b"\n" for line in lines))
            sys.stderr.buffer.flush()

    # The end of nodes

    def _reap(self) -> None:
        for node in self._nodes:
            if not node.is_running:
                continue
            pid, status = os.waitpid(node.pid, os.WNOHANG)
            if pid == 0:
                continue
            node.status = status
            self._forward_output(node)
            node.close_lifeline()
            if self._signals:
                self._close_lifelines_without_majority()
            if self._signals and status == 0:  # pragma: no cover: the process of --nodes
                continue
            self._has_failed = True
            if self._signals:
                complain(f"node {node.node_id} {node.end}")
            elif not self._is_announced:
                complain(f"node {node.node_id} {node.end} before the cluster was ready: all are stopped")
                self._stop_all()
            else:
                self._report_death(node)

    def _report_death(self, node: Node) -> None:
        living = [other for other in self._nodes if other.is_running]
        others = f"{len(living)} of {len(self._nodes)} nodes go on" if living else "no node is left"
        command = f"pykbroker start --config {self._files[node.node_id]}"
        complain(f"node {node.node_id} (process {node.pid}) {node.end}; {others}. To start it again: {command}")

    def _on_signals(self, descriptor: int) -> None:
        for number in os.read(descriptor, _READ_BYTES):
            if number in (signal.SIGINT, signal.SIGTERM):
                if self._signals:
                    self._kill_all()
                    complain("stopped at once")
                else:
                    print("stopping; once more stops at once", flush=True)
                    self._stop_all()

    def _on_stdin(self, descriptor: int) -> None:
        if not os.read(descriptor, _READ_BYTES):
            self._selector.unregister(descriptor)
            self._stop_all()

    def _stop_all(self) -> None:
        """Stops all nodes at once. One by one, each would first move its partitions to the next one to stop."""
        self._signals += 1
        self._stop_deadline = time.monotonic() + STOP_TIMEOUT_S
        for node in self._nodes:
            if node.is_running:
                os.kill(node.pid, signal.SIGTERM)
                # A paused process handles SIGTERM only when it continues.
                os.kill(node.pid, signal.SIGCONT)
        self._close_lifelines_without_majority()

    def _close_lifelines_without_majority(self) -> None:
        """Cuts the remaining nodes' lifelines if no majority of controllers is left to permit their shutdown."""
        living = [node for node in self._nodes if node.is_running]
        if len(living) <= len(self._nodes) // 2:
            for node in living:
                node.close_lifeline()

    def _kill_all(self) -> None:
        self._stop_deadline = None
        for node in self._nodes:
            if node.is_running:
                os.kill(node.pid, signal.SIGKILL)
