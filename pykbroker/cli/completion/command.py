"""`pykbroker completion`: the script that lets a shell complete commands, options and names."""

from __future__ import annotations

import click

from pykbroker.cli.commands import COMPLETE_VARIABLE, pykbroker_command
from pykbroker.cli.completion.bash import register


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that switches on completion in a shell, for its start-up file.

    It completes commands, options, and the names of topics, groups, settings and so on. The names come from the cluster
    that --bootstrap-server or PYKBROKER_BOOTSTRAP_SERVERS names.

    \b
    echo 'eval "$(pykbroker completion bash)"' >> ~/.bashrc
    echo 'eval "$(pykbroker completion zsh)"' >> ~/.zshrc
    pykbroker completion fish > ~/.config/fish/completions/pykbroker.fish
    """
    from click.shell_completion import get_completion_class

    register()
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(pykbroker_command, {}, "pykbroker", COMPLETE_VARIABLE).source())
