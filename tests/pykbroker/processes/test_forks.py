"""Forks: their streams, session, signals and exit codes; and that they leave what belongs to their parent."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import pytest

from pykbroker.processes.forks import EXIT_BROKEN, exit_text, fork

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def run_fork(
    run: Callable[[], int], *, typed: bytes = b"", leave: Callable[[], None] = lambda: None
) -> tuple[int, str]:
    """The exit code of a fork and what it printed, after `typed` on its standard input."""
    stdin, typing = os.pipe()
    printed, output = os.pipe()
    os.write(typing, typed)
    os.close(typing)
    pid = fork(run, stdin=stdin, output=output, leave=leave)
    with os.fdopen(printed, encoding="utf-8") as file:
        text = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text


def test_a_fork_has_the_streams_that_it_is_given() -> None:
    def run() -> int:
        print(sys.stdin.readline().upper(), end="")
        print("an error", file=sys.stderr)
        os.write(1, b"by descriptor")
        return 3

    assert run_fork(run, typed=b"hello\n") == (3, "HELLO\nan error\nby descriptor")


def test_a_fork_has_a_session_of_its_own_and_default_signals() -> None:
    def run() -> int:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
        expected = [signal.default_int_handler, signal.SIG_DFL, signal.SIG_DFL]
        return 0 if os.getsid(0) == os.getpid() and handlers == expected else 4

    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        assert run_fork(run) == (0, "")
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_fork_leaves_what_belongs_to_its_parent() -> None:
    """The reader of the pipe sees its end while the fork still runs: the fork has no copy of the writing end."""
    reading, writing = os.pipe()
    hold, release = os.pipe()

    def run() -> int:
        os.close(release)
        os.read(hold, 1)
        return 0

    stdin, output = os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY)
    pid = fork(run, stdin=stdin, output=output, leave=lambda: os.close(writing))
    os.close(writing)
    assert os.read(reading, 1) == b""
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    os.close(release)
    assert os.waitpid(pid, 0)[1] == 0
    for descriptor in (reading, hold):
        os.close(descriptor)


def test_an_exception_is_printed_and_no_part_of_the_parent_runs() -> None:
    def run() -> int:
        raise ValueError("broken on purpose")

    code, text = run_fork(run)
    assert code == EXIT_BROKEN
    assert text.startswith("Traceback")
    assert text.endswith("ValueError: broken on purpose\n")


def descriptors() -> set[str]:
    return set(os.listdir("/dev/fd"))


def test_the_descriptors_are_closed_where_no_process_can_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", refuse)
    before = descriptors()
    stdin, output = os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY)
    with pytest.raises(BlockingIOError, match="no more processes"):
        fork(lambda: 0, stdin=stdin, output=output, leave=lambda: None)
    # The garbage collector may have closed others meanwhile, of earlier tests.
    assert descriptors() <= before


def test_the_end_in_words() -> None:
    assert exit_text(0) == "ended with exit code 0"
    assert exit_text(1) == "ended with exit code 1"
    assert exit_text(-9) == "was ended by SIGKILL"
