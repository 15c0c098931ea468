"""`--port-file`: the address of a broker that is ready, in a file for the program that started it."""

from __future__ import annotations

import os

from pykbroker.cli.errors import CliError


def prepare_port_file(path: str) -> None:
    """Remove what an earlier broker left, before anybody takes it for ours; find out early if it can be written."""
    try:
        remove_if_there(path)
        write_atomically(path + ".new", "")
        os.unlink(path + ".new")
    except OSError as error:
        raise CliError(f"--port-file {path}: {error.strerror}") from None


def write_atomically(path: str, text: str) -> None:
    """Write a file that others either do not see or see whole."""
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)


def remove_if_there(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
