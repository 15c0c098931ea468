"""Runs one node in this process, from its settings to the exit code after a signal.

Everything here counts against the broker's start-up time (250 ms with the interpreter), so imports are late and few.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from pykbroker.cli.errors import EXIT_USAGE, CliError
from pykbroker.config.listener_addresses import host_and_port
from pykbroker.node.process_memory import SettledObjects
from pykbroker.version import __version__

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    import trio

    from pykbroker.cli.start.options import StartOptions
    from pykbroker.config.broker_config import BrokerConfig
    from pykbroker.node.broker import ReadyAddress

GARBAGE_INTERVAL_S = 10.0
"""Time, in seconds, between two checks whether a full garbage collection is due."""
SWITCH_INTERVAL_S = 0.0002
"""Time, in seconds, that another thread may keep the interpreter while the loop waits for it: sys.setswitchinterval.

The loop gives the interpreter away with each system call. While the log cleaner or a snapshot computes in a thread, it
would wait for Python's 5 ms after each of them."""
LEAVE_WITHOUT_PARENT_S = 3.0
"""Time, in seconds, that a broker whose parent has ended spends on a controlled shutdown."""


def config_of(properties: Mapping[str, str], options: StartOptions) -> BrokerConfig:
    """Returns the checked settings.

    Raises:
        CliError: a setting is invalid; the text has its source.
    """
    from pykbroker.config.broker_config import BrokerConfig, ConfigError

    try:
        return BrokerConfig.from_properties(properties)
    except ConfigError as error:
        from pykbroker.cli.start.config import described_setting

        what = described_setting(error.name, error.value, properties, options, os.environ)
        raise CliError(f"{what}: {error.reason}", EXIT_USAGE) from None


def run_until_stopped(
    config: BrokerConfig,
    cluster_id: str | None,
    announce: Callable[[ReadyAddress], Awaitable[None]],
    on_stop: Callable[[bool], None],
    *,
    stop_with_stdin: bool,
) -> int:
    """Runs a broker in this process until a signal or, with `stop_with_stdin`, the end of standard input.

    Args:
        config: its settings.
        cluster_id: for a new data directory; None for one of its own.
        announce: called when every request can be answered, with an address that clients can connect to.
        on_stop: called at each signal; with True at the second one, after which the process ends at once.
        stop_with_stdin: True if the end of standard input stops the broker, too.

    Returns:
        The exit code.

    Raises:
        CliError: a failure that the user can mend.
    """
    import trio

    _set_up_logging()
    _log_compilation()
    switch_interval_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        trio.run(partial(_serve, config, cluster_id, announce, on_stop, stop_with_stdin=stop_with_stdin))
    except BaseExceptionGroup as group:
        raise_expected(group)
        raise
    except Exception as error:  # pragma: no cover: tests raise it in processes
        raise_expected(error)
        raise
    except KeyboardInterrupt:  # pragma: no cover: tests interrupt processes
        # Ctrl-C before the signal receiver was open.
        return 130
    finally:
        sys.setswitchinterval(switch_interval_s)
    return 0


async def _serve(
    config: BrokerConfig,
    cluster_id: str | None,
    announce: Callable[[ReadyAddress], Awaitable[None]],
    on_stop: Callable[[bool], None],
    *,
    stop_with_stdin: bool,
) -> None:
    import signal

    import trio

    from pykbroker.node.broker import run_broker

    ready, stop = trio.Event(), trio.Event()
    settled = SettledObjects()
    addresses: list[ReadyAddress] = []

    def on_ready(address: ReadyAddress) -> None:
        settled.begin()
        gc.enable()
        addresses.append(address)
        ready.set()

    async def announce_when_ready() -> None:
        await ready.wait()
        await announce(addresses[0])

    async def collect_garbage() -> None:
        await ready.wait()
        while True:
            await trio.sleep(GARBAGE_INTERVAL_S)
            settled.collect_if_due(
                trio.current_time(), time.process_time()
            )  # pragma: no cover: in a process that runs for ten seconds

    async def stop_on_signal() -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for number in signals:
                on_stop(stop.is_set())
                if stop.is_set():
                    os._exit(128 + number)  # pragma: no cover: the end of the process
                stop.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop_on_signal)
        nursery.start_soon(announce_when_ready)
        nursery.start_soon(collect_garbage)
        broker_scope = trio.CancelScope()
        if stop_with_stdin:
            nursery.start_soon(_stop_with_stdin, stop, broker_scope)
        try:
            with broker_scope:
                await run_broker(config, cluster_id=cluster_id, on_ready=on_ready, stop=stop)
        finally:
            settled.end()
        nursery.cancel_scope.cancel()


async def _stop_with_stdin(stop: trio.Event, broker_scope: trio.CancelScope) -> None:
    """Stops the broker when standard input ends: the kernel closes it even when the parent was killed.

    A broker that is stopping already then no longer waits for the controller's permission to shut down, which never
    comes when a whole cluster stops.
    """
    import trio

    descriptor = sys.stdin.fileno()
    while True:
        await trio.lowlevel.wait_readable(descriptor)
        if not os.read(descriptor, 4096):
            break
    if not stop.is_set():
        stop.set()
        await trio.sleep(LEAVE_WITHOUT_PARENT_S)
    broker_scope.cancel()  # pragma: no cover: in a process whose parent has ended


def ready_text(address: ReadyAddress, config: BrokerConfig) -> str:
    """Text to print when the broker is ready: its address, its data directory, and how to stop it."""
    return (
        f"pykbroker {__version__} is ready\n"
        f"  listens on  {host_and_port(*address)}\n"
        f"  data in     {', '.join(config.log.dirs)}\n"
        f"  to stop     Ctrl-C, or kill {os.getpid()}"
    )


def ignored_key_lines(config: BrokerConfig) -> list[str]:
    """Lines for the keys that are unknown, those that Apache Kafka 4 has removed, and those without effect here."""
    lines = []
    if config.unknown_keys:
        from pykbroker.config.definitions.removed import is_removed

        unknown = [key for key in config.unknown_keys if not is_removed(key)]
        removed = [key for key in config.unknown_keys if is_removed(key)]
        if unknown:
            lines.append(f"pykbroker: unknown settings, ignored: {', '.join(unknown)}")
        if removed:
            lines.append(f"pykbroker: settings that Apache Kafka 4 no longer has, ignored: {', '.join(removed)}")
    if config.ineffective_keys:
        lines.append(f"pykbroker: settings without effect on this broker: {', '.join(config.ineffective_keys)}")
    return lines


def raise_expected(error: BaseException) -> None:
    """Raises CliError if the user can mend this failure; returns if it is a bug, which keeps its traceback."""
    from pykbroker.config.broker_config import ConfigError
    from pykbroker.controller.metadata.image import UnsupportedMetadataVersion
    from pykbroker.logstore.errors import DirectoryLocked, StorageError
    from pykbroker.network.listener import BindError
    from pykbroker.node.broker_registration import RegistrationFailed
    from pykbroker.node.quorum_node import ClusterUnknown

    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, CliError):
        raise error
    if isinstance(error, DirectoryLocked):
        raise CliError(f"{error}\nStop the other process, or choose another directory with --data-dir.") from None
    if isinstance(error, ConfigError) and error.value == "":
        raise CliError(f"{error.name}: {error.reason}") from None
    if isinstance(error, BindError | StorageError | ConfigError | RegistrationFailed | ClusterUnknown):
        raise CliError(str(error)) from None
    if isinstance(error, UnsupportedMetadataVersion):
        raise CliError(f"the cluster runs newer software: {error}\nInstall a pykbroker that supports it.") from None
    if isinstance(error, PermissionError | FileNotFoundError | NotADirectoryError):
        raise CliError(f"{error.filename}: {error.strerror}") from None


def _set_up_logging() -> None:
    import logging

    from pykbroker.cli.log_output import FloodFilter, OneLineFormatter

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(FloodFilter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)


def _log_compilation() -> None:
    """Logs at DEBUG whether the hot loops were compiled."""
    import logging

    log = logging.getLogger(__name__)
    if log.isEnabledFor(logging.DEBUG):
        from pykbroker.cli.compilation import compilation_text

        log.debug("this installation of pykbroker is %s", compilation_text())
