"""Folders under .cache with programs and packages of others: made at the first use, by commands such as pip.

Several test processes may ask for one at once: one makes it, the others wait.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
Found = TypeVar("Found")


class UnavailableError(Exception):
    """A program or package of others cannot be had here; the message says which and why."""


def made_once(folder: Path, make: Callable[[Path], object], lock_name: str | None = None) -> Path:
    """The folder, made first if it is not there.

    Args:
        folder: the folder; it appears when it is complete.
        make: fills the folder of another name that it is given, which it also creates.
        lock_name: name, without ending, of the lock file; by default the folder's. Folders that share what they are
            made from share a lock.
    """
    with locked(folder.with_name(f"{lock_name or folder.name}.lock")):
        if not folder.exists():
            work = folder.with_name(f"{folder.name}.part")
            shutil.rmtree(work, ignore_errors=True)
            make(work)
            work.rename(folder)
    return folder


@contextmanager
def locked(path: Path, waiting: str | None = None) -> Iterator[None]:
    """Holds the lock of a file, which is made, with its folder, if it is not there; others wait until it is released.

    Args:
        path: the file.
        waiting: line for standard error if another process has the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                print(waiting, file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def or_skip(find: Callable[P, Found], *arguments: P.args, **options: P.kwargs) -> Found:
    """The result of `find`; skips the test if that raises UnavailableError."""
    import pytest

    try:
        return find(*arguments, **options)
    except UnavailableError as reason:
        pytest.skip(str(reason))


def output_of(
    command: Sequence[str], timeout_s: float, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> str:
    """Standard output of a command.

    Args:
        command: program and arguments; an error names the first three words.
        timeout_s: seconds after which it is killed.
        folder: where it runs.
        environment: variables beside those of this process.

    Raises:
        UnavailableError: it failed, with its first line that names an error, else its last; or it took too long.
    """
    words = " ".join(command[:3])
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{words} did not end within {timeout_s:.0f} s") from None
    if done.returncode != 0:
        lines = [line for line in (done.stderr.strip() or done.stdout.strip() or "no message").splitlines() if line]
        told = next((line for line in lines if "error" in line.lower()), lines[-1])
        raise UnavailableError(f"{words} failed: {told.strip()[:300]}")
    return done.stdout
