"""The group class of all levels of the command tree.

The error for an unknown command suggests similar names. Click does that by itself only in new versions, and only for
commands that are imported already; the top level imports its commands late.
"""

from __future__ import annotations

import click


class CommandGroup(click.Group):
    """A group of commands that suggests names in place of an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command that the first word names; raises click.UsageError, with suggestions, if there is none."""
        name = args[0]
        known = self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command {name!r}.{suggestion(name, known)}", ctx)
        return super().resolve_command(ctx, args)


def suggestion(name: str, known: list[str]) -> str:
    """Returns " Did you mean ...?" with the known names that resemble `name`, or nothing."""
    from difflib import get_close_matches

    close = [repr(other) for other in get_close_matches(name, known)]
    return f" Did you mean {' or '.join(close)}?" if close else ""
