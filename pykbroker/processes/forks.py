"""Forks of a process that has a broker's modules imported; all its brokers' processes are made here."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

EXIT_BROKEN = 1
"""Exit code of a fork that ended by an exception."""


def fork(run: Callable[[], int], *, stdin: int, output: int, leave: Callable[[], None]) -> int:
    """Forks this process and calls `run` in the fork.

    The fork has a session of its own, so that Ctrl-C in a terminal reaches only the process that forked it. Its signal
    handlers are Python's default ones, and it ends without the exit handlers of the process that forked it.

    Args:
        run: returns the exit code.
        stdin, output: descriptors that become standard input, and standard output and error, of the fork. They are
            closed in this process, also after a failure.
        leave: called in the fork; closes what belongs to this process. If a fork keeps a copy of the other end of a
            pipe or a connection open, its reader gets no end of file.

    Returns:
        The process id of the fork.

    Raises:
        OSError: the system cannot make a process.
    """
    for text_file in (sys.stdout, sys.stderr):
        text_file.flush()
    try:
        pid = os.fork()
        if pid == 0:  # pragma: no cover: runs in a fork
            _run_in_fork(run, stdin, output, leave)
    finally:
        os.close(stdin)
        os.close(output)
    return pid


def _run_in_fork(  # pragma: no cover: runs in a fork
    run: Callable[[], int], stdin: int, output: int, leave: Callable[[], None]
) -> NoReturn:
    code = EXIT_BROKEN
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        leave()
        _redirect_standard_streams(stdin, output)
        code = run()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not by sys.exit: the exit handlers of the process that forked this one must not run here.
        os._exit(code)


def _redirect_standard_streams(stdin: int, output: int) -> None:  # pragma: no cover: runs in a fork
    """Makes `stdin` descriptor 0 and `output` descriptors 1 and 2, and opens the files of `sys` on them.

    Lines are written at once.
    """
    for source, target in ((stdin, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    for descriptor in {stdin, output}:
        if descriptor > 2:
            os.close(descriptor)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)


def exit_text(exit_code: int) -> str:
    """The end of a process: "ended with exit code 1", or "was ended by SIGKILL" for the exit code -9."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    return f"was ended by {signal.Signals(-exit_code).name}"
