"""Commands to the controller whose failure as a whole is an answer to the client, not an exception."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pykbroker.controller.metadata.commands import NO_ERROR, ApiError, CommandRefused

if TYPE_CHECKING:
    from pykbroker.controller.metadata.commands import Command
    from pykbroker.request_context import RequestContext

R = TypeVar("R")


async def submit(context: RequestContext, command: Command[R], timeout_ms: int) -> tuple[R | None, ApiError]:
    """The command's result and `NO_ERROR`, or None and why the whole command was refused or did not end in time."""
    try:
        return await context.services.controller.submit(command, timeout_ms), NO_ERROR
    except CommandRefused as refused:
        return None, refused.error
