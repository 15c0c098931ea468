"""Outcomes of calls to a coordinator: its result, or the code of its error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pykbroker.errors import KafkaError


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call, or the ErrorCode of the KafkaError that it raises."""
    try:
        return call(*arguments)
    except KafkaError as error:
        return error.error_code


async def outcome_of(call: Callable[..., Awaitable[Any]], *arguments: Any, **named: Any) -> Any:
    """As `outcome`, of a call that is awaited."""
    try:
        return await call(*arguments, **named)
    except KafkaError as error:
        return error.error_code
