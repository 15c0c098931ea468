"""The tree of commands, and the handling of their errors. Each command's module is imported when it is used."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from pykbroker.cli.command_group import CommandGroup
from pykbroker.cli.errors import CliError
from pykbroker.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

COMPLETE_VARIABLE = "_PYKBROKER_COMPLETE"
"""Environment variable in which a shell sets the kind of completion that click shall make."""

# name: (module, attribute in it, line in the overview)
_COMMANDS = {
    "start": ("pykbroker.cli.start.command", "start_command", "Start a broker in the foreground."),
    "format": (
        "pykbroker.cli.format.command",
        "format_directory",
        "Prepare a node's data directory before its first start.",
    ),
    "ready": ("pykbroker.cli.ready", "ready", "Wait until a broker answers; the exit code says whether it did."),
    "cluster": ("pykbroker.cli.cluster", "cluster", "Show a cluster's brokers and whether they are well."),
    "topic": ("pykbroker.cli.topic", "topic", "Create, list, describe, alter, trim and delete topics."),
    "produce": ("pykbroker.cli.produce", "produce", "Write lines from standard input to a topic."),
    "consume": ("pykbroker.cli.consume", "consume", "Print the records of a topic."),
    "group": ("pykbroker.cli.group", "group", "List, describe, reset and delete groups of every type."),
    "transaction": ("pykbroker.cli.transaction", "transaction", "List, describe and abort transactions."),
    "config": ("pykbroker.cli.config", "config", "Show and change settings of topics, brokers and groups."),
    "acl": ("pykbroker.cli.acl", "acl", "List, add and remove access control entries."),
    "completion": ("pykbroker.cli.completion.command", "completion", "Print the script for completion in a shell."),
    "dump-log": ("pykbroker.cli.dump_log.command", "dump_log", "Print the contents of log, index and snapshot files."),
}


class ReaderGone(Exception):
    """The reader of standard output has exited. click would make an exit with code 1 of a BrokenPipeError."""


@contextmanager
def _reader_of_output() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise ReaderGone from None


class LazyGroup(CommandGroup):
    """A group of commands that imports one only when it runs or shows its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names in the order of the table."""
        return list(_COMMANDS)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parses the command line, which may print a help text. Raises ReaderGone."""
        with _reader_of_output():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command. Raises ReaderGone."""
        with _reader_of_output():
            return super().invoke(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports and returns a command; None if there is none of that name."""
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the overview from the table, without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in _COMMANDS.items()])


def _show_version(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked and not context.resilient_parsing:
        from pykbroker.cli.compilation import compilation_text

        # The first line is for programs; it stays as it is.
        click.echo(f"pykbroker {__version__}\n{compilation_text()}")
        context.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`pykbroker COMMAND --help` says more. All but `start`, `format`, `completion` and `dump-log` work with any "
    "Kafka cluster.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def pykbroker_command() -> None:
    """pykbroker: a Kafka broker in Python, and tools for any Kafka cluster."""


def run(words: list[str]) -> int:
    """Runs one command line; expected failures become one line on standard error and an exit code."""
    if COMPLETE_VARIABLE in os.environ:
        from pykbroker.cli.completion.bash import register

        register()
    try:
        outcome = pykbroker_command.main(words, prog_name="pykbroker", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except CliError as error:
        print(f"pykbroker: {error.text}", file=sys.stderr)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except ReaderGone:
        # The reader of our output has exited (`pykbroker consume ... | head`): nothing more can be written, no error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return outcome if isinstance(outcome, int) else 0
