"""`--port-file`: the address of a broker that is ready, in a file for the program that started it."""

from __future__ import annotations

import os

from pykbroker.cli.errors import CliError


def prepare_port_file(path: str) -> None:
    """Removes the file of an earlier broker, so that nobody reads its port; checks that the file can be written."""
    try:
        remove_if_exists(path)
        write_atomically(path + ".new", "")
        os.unlink(path + ".new")
    except OSError as error:
        raise CliError(f"--port-file {path}: {error.strerror}") from None


def write_atomically(path: str, text: str, mode: int = 0o666) -> None:
    """Writes a file so that other processes see it completely or not at all.

    Args:
        path: the file, which is replaced if it exists.
        text: its new content.
        mode: permissions, before the umask.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    remove_if_exists(temporary)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)


def remove_if_exists(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
