"""`--port-file`: the address of a broker that is ready, in a file for the program that started it."""

from __future__ import annotations

import os

from pykbroker.cli.errors import CliError


def prepare_port_file(path: str) -> None:
    """Remove the file of an earlier broker, which would be taken for this one's; check that it can be written."""
    try:
        remove_if_exists(path)
        write_atomically(path + ".new", "")
        os.unlink(path + ".new")
    except OSError as error:
        raise CliError(f"--port-file {path}: {error.strerror}") from None


def write_atomically(path: str, text: str) -> None:
    """Write a file so that other processes see it completely or not at all."""
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)


def remove_if_exists(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
