"""`start` as a member of the command tree: only for `pykbroker --help` and for callers that go through click."""

from __future__ import annotations

import click


@click.command(
    "start",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def start_command(words: tuple[str, ...]) -> int:
    """Start a broker in the foreground."""
    from pykbroker.cli.start import start

    return start(list(words))
