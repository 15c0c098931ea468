"""Whose port a client has dialled."""

from __future__ import annotations

from enum import Enum


class ListenerKind(Enum):
    """A broker's listener or a controller's."""

    BROKER = "broker"
    CONTROLLER = "controller"

    # Enum's own is Python code, and every request looks its API up by this.
    __hash__ = object.__hash__
