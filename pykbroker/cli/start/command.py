"""`start` as a member of the command tree: for `pykbroker --help`, completion and callers that go through click."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

_FILES = {"--config": "file", "--port-file": "file", "--data-dir": "dir"}


def _complete_value(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    words = ctx.params.get("words") or ()
    kind = _FILES.get(words[-1]) if words else None
    return [CompletionItem(incomplete, type=kind)] if kind else []


class StartCommand(click.Command):
    """A command whose options are those of start's own parser."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Returns the options that begin with the incomplete word."""
        from pykbroker.cli.start.options import OPTIONS

        return [CompletionItem(name, help=text) for name, _, text in OPTIONS if name.startswith(incomplete)]


@click.command(
    "start",
    cls=StartCommand,
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, shell_complete=_complete_value)
def start_command(words: tuple[str, ...]) -> int:
    """Start a broker in the foreground."""
    from pykbroker.cli.start.run import start

    return start(list(words))
