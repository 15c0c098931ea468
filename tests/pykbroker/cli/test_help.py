"""Rules for every command of the tree: its help can be read, and a mistyped name gets a suggestion."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click
import pytest

from pykbroker.cli.command_group import CommandGroup
from pykbroker.cli.commands import pykbroker_command
from tests.pykbroker.cli.conftest import Run


def tree(command: click.Command, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands from `command` on, itself included, with the words that select them."""
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from tree(below, *words, name)


COMMANDS = dict(tree(pykbroker_command))
GROUPS = {words: command for words, command in COMMANDS.items() if isinstance(command, click.Group)}


def name_of(words: tuple[str, ...]) -> str:
    return " ".join(words) or "pykbroker"


@pytest.mark.parametrize("words", COMMANDS, ids=name_of)
def test_help_has_no_marks_of_formatting_and_examples_on_lines_of_their_own(run: Run, words: tuple[str, ...]) -> None:
    code, output, errors = run(*words, "--help")
    assert (code, errors) == (0, "")
    assert "\b" not in output
    assert "\\b" not in output
    shown = [line.strip() for line in output.splitlines()]
    for line in inspect.getdoc(COMMANDS[words].callback).splitlines():  # type: ignore[union-attr]
        if line.startswith("pykbroker ") or "| pykbroker " in line:
            assert line in shown


@pytest.mark.parametrize("words", COMMANDS, ids=name_of)
def test_every_option_and_command_says_what_it_is(words: tuple[str, ...]) -> None:
    command = COMMANDS[words]
    assert command.help
    undocumented = [item.name for item in command.params if isinstance(item, click.Option) and not item.help]
    assert undocumented == []


@pytest.mark.parametrize("words", GROUPS, ids=name_of)
def test_a_mistyped_command_gets_a_suggestion(run: Run, words: tuple[str, ...]) -> None:
    group = GROUPS[words]
    assert isinstance(group, CommandGroup)
    for name in group.list_commands(click.Context(group)):
        code, output, errors = run(*words, f"{name}s")
        assert (code, output) == (2, "")
        assert f"No such command '{name}s'. Did you mean " in errors
        assert f"'{name}'" in errors.rpartition("Did you mean ")[2]
    code, _, errors = run(*words, "qqqqqq")
    assert code == 2
    assert errors.endswith("No such command 'qqqqqq'.\n")
