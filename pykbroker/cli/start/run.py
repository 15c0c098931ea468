"""Runs `pykbroker start`: one node in this process, or several in processes of their own (`nodes`)."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

from pykbroker.cli.errors import EXIT_USAGE, CliError, complain
from pykbroker.cli.start.node_process import config_of, ignored_key_lines, ready_text, run_until_stopped
from pykbroker.cli.start.options import StartOptions, UsageError, help_text, parse_start_options
from pykbroker.cli.start.port_file import prepare_port_file, remove_if_exists, write_atomically
from pykbroker.config.listener_addresses import host_and_port
from pykbroker.node.lean_trio import import_trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.controller.node_client import OpenStream
    from pykbroker.node.broker import ReadyAddress


def start(words: list[str], tell_address: Callable[[str], None] | None = None) -> int:
    """Runs a broker until it is told to stop.

    Args:
        words: those after `pykbroker start`.
        tell_address: called with host:port when the broker is ready; not with `--nodes`.

    Returns:
        The exit code: 0 stopped in order, 1 failed, 2 wrong usage.
    """
    # Objects created during the start stay alive: collecting garbage would cost 4 % of the start and find nothing.
    gc.disable()
    try:
        options = parse_start_options(words)
        if options.help:
            print(help_text(), end="")
            return 0
        return _start(options, tell_address)
    except UsageError as error:
        complain(f"{error}\nTry 'pykbroker start --help'.")
        return EXIT_USAGE
    except CliError as error:
        complain(error.text)
        return error.exit_code
    finally:
        gc.enable()


def _start(options: StartOptions, tell_address: Callable[[str], None] | None) -> int:
    from pykbroker.cli.start.config import broker_properties
    from pykbroker.config.environment import cluster_id_from_environment

    import_trio()
    if options.nodes is not None:
        from pykbroker.cli.start.nodes import start_nodes

        return start_nodes(options)
    config = config_of(broker_properties(options, os.environ), options)
    for line in ignored_key_lines(config):
        print(line, file=sys.stderr)
    if options.release_version is not None or options.features:
        from pykbroker.cli.format.features import write_levels_of_new_directory

        write_levels_of_new_directory(config, options)
    if options.port_file is not None:
        prepare_port_file(options.port_file)

    opener = _stream_opener(options, config)

    async def announce(address: ReadyAddress) -> None:
        if options.topics:
            from pykbroker.cli.start.initial_topics import BROKERS_WITHIN_S, create_initial_topics

            await create_initial_topics(
                address.host,
                address.port,
                options.topics,
                opener,
                brokers_within_s=0 if config.is_alone else BROKERS_WITHIN_S,
            )
        print(ready_text(address, config), flush=True)
        if options.tls:
            from pykbroker.cli.start.tls import write_client_files

            print(write_client_files(config.log.dirs[0], host_and_port(*address)), end="", flush=True)
        if options.port_file is not None:
            write_atomically(options.port_file, host_and_port(*address))
        if tell_address is not None:
            tell_address(host_and_port(*address))

    def on_stop(is_again: bool) -> None:
        if not is_again:
            print("stopping; once more stops at once", flush=True)
            return
        complain("stopped at once")
        if options.port_file is not None:
            remove_if_exists(options.port_file)

    try:
        return run_until_stopped(
            config,
            cluster_id_from_environment(os.environ),
            announce,
            on_stop,
            stop_with_stdin=options.stop_with_stdin,
        )
    finally:
        if options.port_file is not None:
            remove_if_exists(options.port_file)


def _stream_opener(options: StartOptions, config: BrokerConfig) -> OpenStream | None:
    """Function that connects to the first listener, on which `--topic` creates topics; None without TLS."""
    if options.tls:
        from pykbroker.cli.start.tls import stream_opener

        return stream_opener(config.log.dirs[0])
    if options.topics and config.network.listeners:
        name = config.network.listeners[0].name
        if config.network.security_protocols.get(name) == "SSL":  # pragma: no cover: TLS is tested with processes
            from pykbroker.cli.start.tls import stream_opener_of_node

            return stream_opener_of_node(config, name)
    return None
